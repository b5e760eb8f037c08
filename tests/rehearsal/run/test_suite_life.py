"""A run that asks sixty prompts of one's own in three forms, each whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from own_prompts import FORMS, MARK, PROMPT_COUNT, PROMPTS
from run_lives import WORDS, RunLives
from run_worlds import open_account, open_lives

from tandem.declarations import names

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("suite-life")]


@pytest.fixture(scope="module")
def three_forms(tmp_path_factory) -> Iterator[RunLives]:
    """A world whose experiment asks each form."""
    with (
        open_account(tmp_path_factory.mktemp("three-forms"), list(FORMS)) as account,
        open_lives(account, tmp_path_factory.mktemp("three-worlds")) as lives,
    ):
        yield lives


def test_each_form_is_asked_whole_and_named_by_the_verdict(three_forms):
    life = three_forms.live("--rounds", "1", is_new=True, is_quick=False)
    three_forms.hold_end(life)

    folder = three_forms.folder / life.name
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    asked = {(record["suite"], record["prompt_id"]) for record in records}
    assert Counter(suite for suite, _ in asked) == dict.fromkeys(FORMS, PROMPT_COUNT)
    verdict = json.loads((folder / "verdict.json").read_text())
    assert [suite["name"] for suite in verdict["suites"]] == list(FORMS)
    for place, text in three_forms.list_shown_texts(life).items():
        assert MARK not in text, place


class SuiteRefusals:
    """What `tandem run` says of the first file of prompts once something is changed."""

    def __init__(self, lives: RunLives) -> None:
        self.account = lives.world.account
        self.sandbox = self.account.sandbox
        self.file = self.sandbox.experiments / "post.yaml"
        self.declared: dict[str, Any] = yaml.safe_load(self.file.read_text())
        self.name = "own.jsonl"
        self.content = FORMS[self.name][0].encode()

    def run_edited(self, change: dict[str, Any]) -> str:
        """Return what a run of an edited experiment says; the edit is undone."""
        original = self.file.read_text()
        self.file.write_text(yaml.safe_dump(self.declared | change, sort_keys=False))
        try:
            return self.run()
        finally:
            self.file.write_text(original)

    def run_stored(self, content: bytes) -> str:
        """Return what a run says while the bucket has other bytes of the file."""
        digest = self.declared["suites"][0]["sha256"]
        place = {
            "Bucket": names.bucket_name(self.sandbox.environment),
            "Key": names.suite_key(self.name, digest),
        }
        s3 = self.account.endpoint.client("s3")
        s3.put_object(**place, Body=content)
        try:
            return self.run()
        finally:
            s3.put_object(**place, Body=self.content)

    def run(self) -> str:
        result = self.account.run_tandem(*WORDS, capture_output=True)
        assert result.returncode, result.stdout
        return " ".join((result.stdout + result.stderr).split())

    def stage(self, content: bytes) -> str:
        """Return what stage-suite says of another file."""
        path = self.sandbox.project / "prompts" / "other.jsonl"
        path.write_bytes(content)
        words = ("artifacts", "stage-suite", str(path), "--env", self.sandbox.name)
        result = self.account.run_tandem(*words, capture_output=True)
        assert result.returncode, result.stdout
        return " ".join((result.stdout + result.stderr).split())


@pytest.fixture(scope="module")
def refusals(three_forms) -> SuiteRefusals:
    return SuiteRefusals(three_forms)


def test_other_bytes_are_refused(refusals):
    assert "and the experiment states" in refusals.run_stored(refusals.content + b"\n")


def test_65_mib_are_refused_with_both_sizes(refusals):
    sizes = f"{65 * 1024**2} bytes, and a file of prompts has at most {64 * 1024**2}"
    assert sizes in refusals.run_stored(bytes(65 * 1024**2))
    assert sizes in refusals.stage(bytes(65 * 1024**2))


def test_an_invalid_line_is_named(refusals):
    lines = refusals.content.splitlines(keepends=True)
    lines[36] = b'{"id": "t-36"\n'

    assert "line 37" in refusals.stage(b"".join(lines))


def test_prompts_over_the_length_are_named_with_both_counts(refusals):
    words = len(PROMPTS[0][1].split())
    refusal = refusals.run_edited({"max_prompt_tokens": words - 1})

    assert f"line 1 has {words}" in refusal
    assert f"max_prompt_tokens is {words - 1}" in refusal


def test_a_class_without_a_prompt_is_refused_with_both_counts(refusals):
    first, *others = refusals.declared["suites"]
    edited = first | {"classes": first["classes"] | {"nothing": 2}}

    refusal = refusals.run_edited({"suites": [edited, *others]})
    assert "class nothing has 0 prompts, and the experiment states 2" in refusal
