"""Runs that are not as they should be: each is judged as far as it goes, or refused in a sentence
that says where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from measured import chunks, record, run_manifest

from tandem.bench.plan.schedule import FEWEST_ROUNDS, control_numbers
from tandem.cli.program import main

pytestmark = pytest.mark.filterwarnings("error")

Row = dict[str, Any]
CLASSES = ("repeat", "chat")
PROMPTS = 6

ASKED = [("base", "spec")] * FEWEST_ROUNDS
"""Who is asked in each round: the control round stands in the middle."""

ASKED.insert(*control_numbers(FEWEST_ROUNDS, 1), ("base", "base#2"))


@cache
def _lines() -> bytes:
    """A sound run: `base`, a `spec` twice as fast, four rounds and a control round, 2 classes of
    PROMPTS prompts."""
    encoded_lines = [
        msgspec.json.encode(
            record(
                request_id=f"{number}.{slot}.{class_}.{prompt}",
                arm=arm,
                class_=class_,
                prompt_id=f"{class_}-{prompt}",
                round=number,
                slot=slot,
                start_s=1000.0 + 100 * number + 50 * slot + prompt,
                chunks=chunks((0.2 * scale, "text", 1), (0.29 * scale, "text", 7)),
            )
        )
        for number, pair in enumerate(ASKED)
        for slot, arm in enumerate(pair)
        for class_ in CLASSES
        for prompt in range(PROMPTS)
        for scale in (
            (0.5 if arm == "spec" else 1.0) * (1 + 0.001 * ((7 * prompt + 3 * number + slot) % 5)),
        )
    ]
    return b"\n".join(encoded_lines)


def _split_chunks(stated: list[tuple[float, str, int | None]]) -> Row:
    names = ("chunk_s", "chunk_kind", "chunk_tokens")
    return {name: [chunk[index] for chunk in stated] for index, name in enumerate(names)}


class Run:
    """A folder whose rows and manifest a case spoils before it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[Row] = [json.loads(line) for line in _lines().splitlines()]
        self.manifest: Row = json.loads(
            msgspec.json.encode(run_manifest(rounds=FEWEST_ROUNDS, control_rounds=1))
        )
        self.files: dict[str, bytes] = {}
        self.flags: list[str] = []

    def of(self, arm: str | None = None, class_: str | None = None) -> list[Row]:
        """Return the rows of an arm, of a class, or of both."""
        return [
            row for row in self.rows if arm in {None, row["arm"]} and class_ in {None, row["class"]}
        ]

    def change(self, rows: list[Row], **fields: object) -> None:
        """Change fields of some rows."""
        fields |= _split_chunks(fields.pop("chunks")) if "chunks" in fields else {}
        for row in rows:
            row.update(fields)

    def fail(self, rows: list[Row]) -> None:
        """Cut some requests."""
        self.change(
            rows,
            error="closed",
            content=None,
            finish_reason=None,
            completion_tokens=None,
            chunks=[],
        )

    def drop(self, rows: list[Row]) -> None:
        """Leave some requests out."""
        self.rows = [
            row for row in self.rows if not any(row is unwanted_row for unwanted_row in rows)
        ]

    def lines(self) -> list[bytes]:
        """Return the records file, line by line."""
        return [json.dumps(row).encode() + b"\n" for row in self.rows]

    def spoil(self, change: Callable[[list[bytes]], object]) -> None:
        """Change lines of the records file."""
        lines = self.lines()
        change(lines)
        self.files["records.jsonl"] = b"".join(lines)

    def report(self) -> int:
        """Write the folder and judge it."""
        self.folder.mkdir(exist_ok=True)
        files = {
            "records.jsonl": b"".join(self.lines()),
            "manifest.json": json.dumps(self.manifest).encode(),
        }
        for name, content in (files | self.files).items():
            (self.folder / name).write_bytes(content)
        return main(["bench", "report", str(self.folder), "--verbose", *self.flags])

    def verdict(self) -> dict[str, Any]:
        """Return what was judged."""
        document: dict[str, Any] = json.loads((self.folder / "verdict.json").read_bytes())
        return document


@pytest.fixture
def run(tmp_path, no_page):  # noqa: ARG001 - it only has to be there
    """A sound run, judged without its page."""
    return Run(tmp_path / "run")


def words(text: str) -> str:
    """Return a text whose lines were wrapped as one line."""
    return " ".join(text.split())


JUDGED: dict[str, tuple[Callable[[Run], object], int, str]] = {
    "no request of the variant": (
        lambda run: run.drop(run.of("spec")),
        4,
        "no requests of spec were recorded",
    ),
    "a class that the variant failed": (
        lambda run: run.fail(run.of("spec", "chat")),
        3,
        "NOT COMPARABLE",
    ),
    "no usage": (
        lambda run: [
            run.change(
                [row],
                completion_tokens=None,
                counted_by=None,
                chunks=[(0.1, "role", None), (at, "text", None)],
            )
            for row in run.of()
            for at in (0.15 if row["arm"] == "spec" else 0.29,)
        ],
        0,
        "base: without usage: 48 of 48 answers; no tpot_ms",
    ),
    "a clock that was set back": (
        lambda run: run.change(run.rows[30:], start_s=3.0),
        0,
        "the clock of the records runs backwards, first at records.jsonl:31",
    ),
    "no record": (
        lambda run: run.files.update({"records.jsonl": b""}),
        4,
        "no requests were recorded: records.jsonl has no complete line",
    ),
    "a class of 5,000 letters": (
        lambda run: run.change(run.of(class_="chat"), **{"class": "c" * 5000}),
        0,
        "FASTER",
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_can_be_judged_is_judged(run, capsys, case):
    spoil, code, sentence = JUDGED[case]
    spoil(run)

    assert run.report() == code

    output = capsys.readouterr()
    assert sentence in words(output.out)
    assert max(len(line) for line in output.out.splitlines() if str(run.folder) not in line) <= 100
    assert run.verdict()["baseline"] == "base"


REFUSED: dict[str, tuple[Callable[[Run], object], str, str]] = {
    "a line that was cut inside": (
        lambda run: run.spoil(lambda lines: lines.__setitem__(7, lines[7][:50] + b"\n")),
        "records.jsonl:8",
        "restore the line from a copy",
    ),
    "rubbish among counters": (
        lambda run: run.files.update({"counters.jsonl": b"rubbish\n"}),
        "counters.jsonl:1",
        "remove it: acceptance is then absent",
    ),
    "a variant that is named as the control": (
        lambda run: (run.drop(run.of("spec")), run.manifest["arms"][1].update(name="base#2")),
        "run/manifest.json",
        "no arm can be compared with base: every other arm has its name or that of its control",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(run, capsys, case):
    spoil, place, sentence = REFUSED[case]
    spoil(run)

    assert run.report() == 2

    err = capsys.readouterr().err
    assert re.match(rf"error: \S*{re.escape(place)}: ", err)
    assert sentence in err
    assert not (run.folder / "verdict.json").exists()


def test_the_order_of_the_lines_changes_nothing_that_is_concluded(run):
    run.report()
    first = run.verdict()
    run.rows = run.rows[1::2] + run.rows[::2]
    run.report()

    for part in ("headlines", "cells", "controls", "equality", "acceptance", "cost"):
        assert run.verdict()[part] == first[part], part
