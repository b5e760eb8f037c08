"""The prompt of one row, from the keys that a test states."""

from __future__ import annotations

import pytest

from tandem.bench.suites.file_options import NO_OPTIONS, FileOptions
from tandem.bench.suites.file_row import FileRow, RowError
from tandem.bench.suites.row_prompt import build_prompt, list_fields


def build(options: FileOptions = NO_OPTIONS, **fields: object):
    return build_prompt(FileRow(place="line 7", value=fields), options)


def test_keys_beside_a_body_come_before_those_in_it():
    body = {"id": "inner", "prompt": "Hi"}
    row = {"id": "outer", "method": "POST", "url": "/v1/completions", "body": body}
    assert list_fields(row) == {"id": "outer", "prompt": "Hi"}


@pytest.mark.parametrize(
    ("ids", "prompt_id"),
    [({"id": "a b", "custom_id": "r-1"}, "r-1"), ({"id": "a b"}, "line-7")],
)
def test_an_id_with_a_blank_gives_way_to_the_next(ids, prompt_id):
    assert build(prompt="Hi", **ids).id == prompt_id


def test_questions_without_answers_have_no_second_turn():
    options = FileOptions(turns=2, is_declared=True)
    with pytest.raises(RowError, match=r"no answers between its turns: leave out turns$"):
        build(options, turns=["Hi", "Why?"])


def test_a_turn_without_text_is_named_by_its_number():
    texts = {"user": "Hi", "assistant": " "}
    messages = [{"role": role, "content": text} for role, text in texts.items()]
    messages.append({"role": "user", "content": "Why?"})
    with pytest.raises(RowError, match="turn 2 has no text"):
        build(messages=messages)
