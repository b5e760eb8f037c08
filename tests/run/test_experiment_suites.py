"""How an experiment's suites become prompts: classes, size."""

from __future__ import annotations

import hashlib
import json

import pytest

from tandem.bench.plan.run_size import SIZES
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError
from tandem.run.experiment_suites import read_declared_suite, select_suites

ROWS = [{"prompt": f"Ticket {number}", "team": f"team-{number % 4}"} for number in range(20)]
CONTENT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
SUPPORT = SuiteFile(
    file="prompts/support.jsonl",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    class_field="team",
    classes={f"team-{number}": 5 for number in range(4)},
)


def test_a_file_is_read_as_the_experiment_says():
    suite = read_declared_suite(SUPPORT, CONTENT, SUPPORT.sha256)
    assert (suite.name, suite.count_classes()) == ("support.jsonl", SUPPORT.classes)


def test_a_file_of_another_digest_is_refused_with_both():
    content = CONTENT + b"\n"
    sha256 = hashlib.sha256(content).hexdigest()
    with pytest.raises(InputError, match=f"is {sha256}, and the .* states {SUPPORT.sha256}"):
        read_declared_suite(SUPPORT, content, sha256)


def test_a_quick_run_sends_real_alone():
    assert select_suites(SIZES["quick"], [SUPPORT, "real"]) == ["real"]


def test_a_quick_run_without_real_sends_every_suite():
    assert select_suites(SIZES["quick"], [SUPPORT, "post"]) == [SUPPORT, "post"]


@pytest.mark.parametrize(
    ("classes", "difference"),
    [
        ({"team-0": 5, "team-1": 5, "team-2": 5}, "class team-3 has 5 prompts, .* states 0"),
        (SUPPORT.classes | {"team-9": 1}, "class team-9 has 0 prompts, .* states 1"),
        (SUPPORT.classes | {"team-0": 4}, "class team-0 has 5 prompts, .* states 4"),
    ],
    ids=["left out", "without a prompt", "another count"],
)
def test_other_classes_are_refused_with_both_counts(classes, difference):
    declared = SUPPORT.model_copy(update={"classes": classes})
    with pytest.raises(InputError, match=difference):
        read_declared_suite(declared, CONTENT, declared.sha256)


def test_a_fault_for_a_log_names_lines_and_nothing_that_they_hold():
    content = CONTENT.replace(b"Ticket", b"Secret: a ticket of a very long name, number")
    fields = {"class_field": "prompt", "sha256": hashlib.sha256(content).hexdigest()}
    declared = SUPPORT.model_copy(update=fields)  # no prompt can name a class
    with pytest.raises(InputError, match="as the experiment says: line 1, line 2") as refusal:
        read_declared_suite(declared, content, declared.sha256, is_logged=True)
    assert "ecret" not in str(refusal.value)
