"""A run that asks sixty prompts of one's own in three forms, each whole."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from own_prompts import FORMS, MARK, PROMPT_COUNT
from run_worlds import open_account, open_lives

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("suite-life")]


@pytest.fixture(scope="module")
def three_forms(tmp_path_factory):
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
