"""The JSON files of a run: written whole or not at all, and faults told with what the file is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tandem.bench.fault import ExternalBenchError
from tandem.bench.json_file import append_json, save_json


class Word(msgspec.Struct, frozen=True):
    """Any value."""

    said: str


def test_a_value_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for said in ("a longer word than the next", "next"):
        save_json(tmp_path / "word.json", Word(said), label="the word")

    assert (tmp_path / "word.json").read_bytes() == b'{\n  "said": "next"\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["word.json"]


def test_a_disk_that_fails_while_writing_leaves_the_old_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "word.json"
    save_json(path, Word("old"), label="the word")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tandem.bench.json_file.os.fsync", full)
    with pytest.raises(ExternalBenchError, match="the word cannot be written: No space left on device"):
        save_json(path, Word("new"), label="the word")

    assert msgspec.json.decode(path.read_bytes(), type=Word) == Word("old")


def test_a_value_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "word.json"
    save_json(path, Word("old"), label="the word")

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        save_json(path, Word("new"), label="the word")

    assert msgspec.json.decode(path.read_bytes(), type=Word) == Word("old")


def test_lines_follow_each_other(tmp_path: Path) -> None:
    for said in ("a", "b"):
        append_json(tmp_path / "words.jsonl", Word(said), label="the words")

    assert (tmp_path / "words.jsonl").read_text() == '{"said":"a"}\n{"said":"b"}\n'


def test_a_line_that_cannot_be_written_names_the_file_and_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(ExternalBenchError) as fault:
        append_json(tmp_path / "gone" / "words.jsonl", Word("a"), label="the words")

    assert str(fault.value).startswith(f"{tmp_path}/gone/words.jsonl: the words cannot be written: No such file")
    assert "run again with --resume" in str(fault.value)
