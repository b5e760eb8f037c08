"""`tandem artifacts stage-suite`: a file of prompts is stored, and the experiment's lines fit it."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml
from bucket_specs import ENV, folders, write_environment

from tandem.artifacts.suite_store import read_suite_bytes
from tandem.cli.program import main
from tandem.declarations.suite_file import SuiteFile

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]
ROWS = [
    {"text": f"Ticket {number}", "team": ("refund", "other")[number % 2]} for number in range(9)
]


@pytest.fixture
def file(specs):
    path = specs / "prompts" / "support.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def stage(specs, bucket, aws, file, capsys):
    """Store the file; return the exit code and what was printed."""
    assert aws
    write_environment(specs, bucket)
    words = ("--prompt-column", "text", "--class-field", "team")

    def act(*more: str) -> tuple[int, str]:
        code = main(
            ["artifacts", "stage-suite", str(file), "--env", ENV, *folders(specs), *words, *more]
        )
        output = capsys.readouterr()
        return code, output.out + output.err

    return act


def read_lines(text: str) -> SuiteFile:
    """Return the suite that the printed lines declare."""
    lines = text.splitlines()
    first = lines.index("suites:")
    (fields,) = yaml.safe_load("\n".join(lines[first:-1]))["suites"]
    return SuiteFile.model_validate(fields)


def test_printed_lines_find_the_stored_file(stage, store, file):
    declared = read_lines(stage()[1])
    assert read_suite_bytes(store, declared)[0] == file.read_bytes()


def test_printed_lines_state_path_and_classes(stage):
    declared = read_lines(stage()[1])
    assert (declared.file, declared.classes) == (
        "prompts/support.jsonl",
        {"refund": 5, "other": 4},
    )


def test_printed_classes_are_those_of_the_sample(stage):
    declared = read_lines(stage("--sample", "4")[1])
    assert (declared.sample, sum(declared.classes.values())) == (4, 4)


def test_damaged_file_is_stored_again(stage, store, file):
    key = f"suites/support.jsonl/{hashlib.sha256(file.read_bytes()).hexdigest()}"
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"other bytes")
    stage()
    stored = store.read(key)
    assert stored is not None
    assert stored.body == file.read_bytes()


def test_invalid_line_is_named_and_nothing_is_stored(stage, store, file):
    rows = [json.dumps(row) for row in ROWS]
    rows[6] = '{"text": 5, "team": "other"}'
    file.write_text("\n".join(rows))
    code, text = stage()
    assert (code, "line 7" in text, list(store.list("suites/"))) == (2, True, [])


def test_65_mib_are_refused_with_both_sizes(stage, file):
    with file.open("wb") as content:
        content.truncate(65 * 1024**2)
    code, text = stage()
    assert code == 2
    assert "68157440 bytes, and a file of prompts has at most 67108864" in text


def test_path_that_no_experiment_can_state_is_refused(file, specs, capsys):
    renamed = str(file.rename(file.with_name("my file")))
    code = main(["artifacts", "stage-suite", renamed, "--env", ENV, *folders(specs)])
    assert code == 2
    assert "an experiment cannot state the path 'prompts/my file'" in capsys.readouterr().err


def test_flag_that_no_experiment_can_state_is_refused(file, specs, capsys):
    flags = ("--turns", "0", *folders(specs))
    code = main(["artifacts", "stage-suite", str(file), "--env", ENV, *flags])
    assert code == 2
    assert "--turns 0; allowed: a whole number, from 1 to 1000" in capsys.readouterr().err


def test_link_is_stored_under_the_name_that_its_lines_state(stage, store, file):
    content = file.read_bytes()
    file.rename(file.with_name("tickets.jsonl"))
    file.symlink_to("tickets.jsonl")
    assert read_suite_bytes(store, read_lines(stage()[1]))[0] == content
