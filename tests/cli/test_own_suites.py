"""Files of prompts that an experiment names: what `check` and `bench run` do with them."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import yaml
from bench_cli import run_flags
from bucket_specs import folders

from tandem.cli.bench_settings import build_settings
from tandem.cli.program import main
from tandem.cli.selection import Selection
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError

ENV = "post-us-east-2"
PROMPTS = "".join(
    json.dumps({"prompt": f"Ticket {number}: what now?", "team": "billing"}) + "\n"
    for number in range(40)
)


@pytest.fixture
def declare(specs):
    """Have the experiment of the post ask one file; write the file where it is to be at hand."""
    path = specs / "experiments" / "post.yaml"
    experiment = yaml.safe_load(path.read_text()) | {"claims": "none"}
    file = specs / "prompts" / "support.jsonl"
    file.parent.mkdir()

    def write(content=PROMPTS, *, at_hand=True, **fields):
        suite = {
            "file": "prompts/support.jsonl",
            "sha256": hashlib.sha256(content.encode()).hexdigest(),
            "class_field": "team",
        }
        path.write_text(yaml.safe_dump(experiment | {"suites": [suite | fields]}))
        if at_hand:
            file.write_text(content)

    return write


@pytest.fixture
def check(specs, capsys):
    """Check the environment of the post; return the exit code and all that is printed."""

    def run(*flags):
        code = main(["check", ENV, *folders(specs), *flags])
        out, err = capsys.readouterr()
        return code, " ".join((out + err).split())

    return run


def test_check_counts_the_prompts_of_a_file_at_hand(declare, check):
    declare(classes={"billing": 40})
    code, text = check()
    assert (code, "support.jsonl 40 prompts: billing 40" in text) == (0, True)


def test_check_notes_keys_that_are_not_sent(declare, check):
    declare(PROMPTS.replace('"team"', '"priority": 1, "team"'))
    assert "not used of its rows: priority" in check()[1]


def test_check_says_which_file_is_not_at_hand(declare, check):
    declare(at_hand=False)
    code, text = check()
    assert code == 0
    assert (
        "prompts/support.jsonl not at hand: its form, classes and lengths are not checked" in text
    )


def test_check_names_a_file_of_another_digest(declare, check):
    declare(sha256="1" * 64)
    code, text = check()
    assert code == 2
    assert f"its SHA-256 is {hashlib.sha256(PROMPTS.encode()).hexdigest()}" in text


def test_check_asks_for_a_digest_in_lower_case(declare, check):
    declare(sha256=hashlib.sha256(PROMPTS.encode()).hexdigest().upper())
    code, text = check("--verbose")
    assert (code, "a SHA-256, 64 hexadecimal digits in lower case" in text) == (2, True)


def test_check_refuses_a_name_that_no_disk_takes(declare, check):
    declare(at_hand=False, file=f"prompts/{'a' * 256}.jsonl")
    code, text = check()
    assert (code, "suites[0].file: got" in text) == (2, True)


def test_check_names_an_invalid_line(declare, check):
    lines = PROMPTS.splitlines(keepends=True)
    lines[36] = "{not json}\n"
    declare("".join(lines))
    code, text = check()
    assert (code, "prompts/support.jsonl: line 37: JSON is malformed" in text) == (2, True)


def test_check_names_the_key_of_the_experiment_to_change(declare, check):
    declare(PROMPTS.replace('"prompt"', '"question"'))
    code, text = check()
    assert (code, "name the prompt's key with prompt_column: NAME" in text) == (2, True)


def test_check_names_an_empty_class_with_both_counts(declare, check):
    declare(classes={"billing": 40, "returns": 3})
    code, text = check()
    assert code == 2
    assert "class returns has 0 prompts, and the experiment states 3" in text


def test_check_warns_of_a_prompt_that_is_estimated_too_long(declare, check):
    lines = PROMPTS.splitlines(keepends=True)
    lines[36] = json.dumps({"prompt": "word " * 300, "team": "billing"}) + "\n"
    declare("".join(lines))
    code, text = check("--verbose")
    assert code == 0
    assert "line 37 has 450; max_prompt_tokens is 384 (estimated at 0.3 tokens a character" in text


def test_two_suites_of_one_name_are_refused(declare, check, specs):
    path = specs / "experiments" / "post.yaml"
    declare(at_hand=False)
    experiment = yaml.safe_load(path.read_text())
    twin = experiment["suites"][0] | {"file": "other/support.jsonl"}
    path.write_text(yaml.safe_dump(experiment | {"suites": [*experiment["suites"], twin]}))
    code, text = check()
    assert (code, "suites[1]: got support.jsonl, as suites[0]" in text) == (2, True)


@pytest.mark.parametrize("at_hand", [True, False], ids=["read", "stated"])
def test_check_warns_of_a_class_that_two_suites_have(declare, check, specs, at_hand):
    content = PROMPTS.replace("billing", "summary")
    declare(content, at_hand=at_hand, classes={"summary": 40})
    path = specs / "experiments" / "post.yaml"
    experiment = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(experiment | {"suites": ["real", *experiment["suites"]]}))
    code, text = check("--verbose")
    assert code == 0
    assert "`suites[1]` also has summary of real. Rename classes in your file" in text


def test_the_document_has_what_was_checked(declare, specs, capsys):
    declare()
    main(["check", ENV, "--json", *folders(specs)])
    suites = json.loads(capsys.readouterr().out)["suites"]
    read = {"classes": {"billing": 40}, "estimated_tokens": 6, "notes": []}
    assert suites["post"] == {"read": {"support.jsonl": read}, "not_at_hand": []}


def test_the_page_shows_a_suite_as_it_is_declared(root):
    page = (root / "docs" / "own-prompts.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    _, suite = yaml.safe_load(text.replace("SHA256", "a" * 64))["suites"]
    assert SuiteFile.model_validate(suite).name == "support.jsonl"


def build_hosted(specs, *flags):
    """The settings of a run of the experiment's servers."""
    selection = Selection(environments=specs / "environments", experiments=specs / "experiments")
    hosted = ("--env", ENV, "--experiment", "post", "--out", "x")
    return build_settings(selection, run_flags(*hosted, *flags))


def test_a_hosted_run_asks_the_file_as_the_experiment_says(declare, specs):
    declare(sample=10)
    (suite,) = build_hosted(specs).suites
    assert (suite.name, suite.classes, len(suite.prompts)) == ("support.jsonl", ("billing",), 10)


def test_a_hosted_run_needs_its_file(declare, specs):
    declare(at_hand=False)
    with pytest.raises(InputError, match=r"prompts/support\.jsonl: file not found"):
        build_hosted(specs)


def test_a_flag_of_a_file_is_none_of_the_experiments(declare, specs):
    declare()
    with pytest.raises(InputError, match="--class-field says something of a file"):
        build_hosted(specs, "--class-field", "other")


def test_a_suite_of_the_flags_takes_the_place_of_the_experiments(declare, specs):
    declare(at_hand=False)
    assert [suite.name for suite in build_hosted(specs, "--suite", "real").suites] == ["real"]


def test_a_file_at_hand_that_is_too_large_is_refused_with_both_sizes(declare, check, specs):
    declare()
    with (specs / "prompts" / "support.jsonl").open("wb") as file:
        file.truncate(65 * 1024**2)
    code, text = check()
    assert code == 2
    assert "68157440 bytes, and a file of prompts has at most 67108864" in text
