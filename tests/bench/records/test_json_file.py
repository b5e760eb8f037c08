"""The JSON files of a run: written whole or not at all, and faults told with what the file is."""

from __future__ import annotations

import msgspec
import pytest

from tandem.bench.records.json_file import append_json, save_json
from tandem.errors import ExternalError


class Word(msgspec.Struct, frozen=True):
    """Any value."""

    said: str


def test_a_value_takes_the_place_of_the_old_one(tmp_path):
    for text in ("a longer word than the next", "next"):
        save_json(tmp_path / "word.json", Word(text), label="the word")
    assert (tmp_path / "word.json").read_bytes() == b'{\n  "said": "next"\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["word.json"]


@pytest.mark.parametrize(
    ("place", "error", "sentence"),
    [
        (
            "tandem.bench.records.json_file.os.fsync",
            OSError(28, "No space left"),
            "the word cannot be written: No space left",
        ),
        ("pathlib.Path.replace", KeyboardInterrupt("cut"), "cut"),
    ],
)
def test_a_write_that_is_cut_leaves_the_old_value(place, error, sentence, tmp_path, monkeypatch):
    path = tmp_path / "word.json"
    save_json(path, Word("old"), label="the word")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(place, fail)
    with pytest.raises((ExternalError, KeyboardInterrupt), match=sentence):
        save_json(path, Word("new"), label="the word")

    assert msgspec.json.decode(path.read_bytes(), type=Word) == Word("old")


def test_lines_are_appended_or_the_file_is_named(tmp_path):
    for text in ("a", "b"):
        append_json(tmp_path / "words.jsonl", Word(text), label="the words")
    with pytest.raises(
        ExternalError, match=r"gone/words\.jsonl: the words cannot be written: .*--resume"
    ):
        append_json(tmp_path / "gone" / "words.jsonl", Word("a"), label="the words")

    assert (tmp_path / "words.jsonl").read_text() == '{"said":"a"}\n{"said":"b"}\n'


def test_a_torn_line_is_set_aside_before_the_next(tmp_path):
    path = tmp_path / "words.jsonl"
    path.write_bytes(b'{"said":"a"}\n{"sai')
    append_json(path, Word("b"), label="the words")
    assert path.read_text() == '{"said":"a"}\n{"said":"b"}\n'
    assert (tmp_path / "words.jsonl.torn").read_text() == '{"sai\n'
