"""What a plan knows of a round's prompts: from a file, from stated classes, or nothing."""

from __future__ import annotations

from committed import workspace

from tandem.bench.plan.run_size import SIZES
from tandem.bench.suites.suite import read_suite
from tandem.declarations.experiment import Experiment
from tandem.declarations.suite_file import DeclaredSuite, SuiteFile
from tandem.run.round_traffic import plan_traffic

SUPPORT = SuiteFile(file="prompts/support.jsonl", sha256="1" * 64)
STATED = SUPPORT.model_copy(update={"classes": {"billing": 3, "support": 2}})


def ask(*suites: DeclaredSuite) -> Experiment:
    """The committed experiment of the post with other suites."""
    return workspace().experiments["post"].record.model_copy(update={"suites": suites})


def test_a_file_that_was_read_counts_as_it_is():
    suite = read_suite(b"Why?\nHow?\n", name=SUPPORT.name, where="a file")
    traffic = plan_traffic(SIZES["default"], ask(STATED), {SUPPORT.name: suite})
    assert (traffic.suites, traffic.describe()) == ((suite,), "")


def test_a_file_that_was_not_read_counts_by_its_classes_with_the_longest_answers():
    traffic = plan_traffic(SIZES["default"], ask("real", STATED), {})
    _, suite = traffic.suites
    counts = [len(suite.class_prompts(name)) for name in suite.classes]
    assert (counts, {prompt.max_tokens for prompt in suite.prompts}) == ([3, 2], {600})


def test_a_file_without_classes_is_named_and_not_guessed():
    traffic = plan_traffic(SIZES["default"], ask("real", SUPPORT), {})
    assert [suite.name for suite in traffic.suites] == ["real"]
    assert traffic.uncounted == ("support.jsonl",)


def test_a_file_that_the_size_leaves_out_is_not_missed():
    traffic = plan_traffic(SIZES["quick"], ask("real", SUPPORT), {})
    assert traffic.uncounted == ()


def test_the_size_keeps_the_largest_of_the_stated_classes():
    classes = {"first": 1, "second": 4, "third": 2, "fourth": 4}
    stated = SUPPORT.model_copy(update={"classes": classes})
    (suite,) = plan_traffic(SIZES["quick"], ask(stated), {}).suites
    assert suite.classes == ("second", "fourth", "third")
