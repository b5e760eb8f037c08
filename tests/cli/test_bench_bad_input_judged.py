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
HOSTILE = "ev\x1b[2Jil\u202e\n\t</script>'\"$\\x"

ASKED = [("base", "spec")] * FEWEST_ROUNDS
"""Who is asked in each round: the control round stands in the middle."""

ASKED.insert(*control_numbers(FEWEST_ROUNDS, 1), ("base", "base#2"))


@cache
def _lines() -> bytes:
    """A sound run: `base`, a `spec` twice as fast, four rounds and a control round, 2 classes of
    PROMPTS prompts."""
    made = [
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
        for number, asked in enumerate(ASKED)
        for slot, arm in enumerate(asked)
        for class_ in CLASSES
        for prompt in range(PROMPTS)
        for scale in (
            (0.5 if arm == "spec" else 1.0) * (1 + 0.001 * ((7 * prompt + 3 * number + slot) % 5)),
        )
    ]
    return b"\n".join(made)


def _split_chunks(stated: list[tuple[float, str, int | None]]) -> Row:
    return dict(
        zip(
            ("chunk_s", "chunk_kind", "chunk_tokens"),
            map(list, zip(*stated, strict=True)),
            strict=False,
        )
    ) or {
        "chunk_s": [],
        "chunk_kind": [],
        "chunk_tokens": [],
    }


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
        self.rows = [row for row in self.rows if not any(row is one for one in rows)]

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
        found: dict[str, Any] = json.loads((self.folder / "verdict.json").read_bytes())
        return found


@pytest.fixture
def run(tmp_path: Path, no_page: None) -> Run:  # noqa: ARG001 - it only has to be there
    """A sound run, judged without its page."""
    return Run(tmp_path / "run")


def words(text: str) -> str:
    """Return a text whose lines were wrapped as one line."""
    return " ".join(text.split())


def _hostile(run: Run) -> None:
    run.change(run.of(class_="chat"), **{"class": HOSTILE})
    run.change(run.of("spec"), arm=HOSTILE, prompt_id=HOSTILE, content=HOSTILE)
    run.manifest["arms"][1]["name"] = HOSTILE


JUDGED: dict[str, tuple[Callable[[Run], object], int, str]] = {
    "no request of the variant": (lambda run: run.drop(run.of("spec")), 4, "spec was never asked"),
    "a class that the variant failed": (
        lambda run: run.fail(run.of("spec", "chat")),
        3,
        "NOT COMPARABLE",
    ),
    "a variant that answered nothing": (
        lambda run: run.fail(run.of("spec")),
        4,
        "spec answered none of 48 requests",
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
    "one prompt": (
        lambda run: run.drop([row for row in run.rows if row["prompt_id"] != "chat-0"]),
        0,
        "both arms answered 1 prompt; an interval needs 3",
    ),
    "a clock that was set back": (
        lambda run: run.change(run.rows[30:], start_s=3.0),
        0,
        "the clock of the records runs backwards, first at records.jsonl:31",
    ),
    "requests that end before they begin": (
        lambda run: run.change(run.of(), end_s=-1.0),
        0,
        "NO EVIDENCE",
    ),
    "times at both ends of what a number holds": (
        lambda run: run.change(
            run.of("spec"), headers_s=0.0, chunks=[[5e-324, "text", 1], [1e-300, "text", 7]]
        ),
        0,
        "spec against base: FASTER",
    ),
    "times of the control at the lower end of what a number holds": (
        lambda run: run.change(
            run.of("base#2"), headers_s=0.0, chunks=[[5e-324, "text", 1], [1e-300, "text", 7]]
        ),
        4,
        "asked twice, base differs from itself by more than 5%",
    ),
    "two baselines": (
        lambda run: run.manifest["arms"][1].update(role="baseline"),
        0,
        "spec against base: FASTER",
    ),
    "no baseline": (
        lambda run: run.manifest["arms"][0].update(role="variant"),
        0,
        "spec against base: FASTER",
    ),
    "a baseline behind its variant": (
        lambda run: run.manifest["arms"].reverse(),
        0,
        "spec against base: FASTER",
    ),
    "an arm that the manifest lacks": (
        lambda run: run.change(run.of("spec", "chat"), arm="ghost"),
        0,
        "the manifest names no arm ghost: nothing is known of it but its records",
    ),
    "two arms of one name": (
        lambda run: run.manifest["arms"].append(run.manifest["arms"][1]),
        0,
        "spec against base: FASTER",
    ),
    "a load that is not known": (
        lambda run: run.change(run.of(), concurrency=None),
        0,
        "a load that is not known",
    ),
    "no record": (
        lambda run: run.files.update({"records.jsonl": b""}),
        4,
        "base was never asked; spec was never",
    ),
    "a cut line of counters": (
        lambda run: run.files.update({"counters.jsonl": b'{"at_s":1.'}),
        0,
        "FASTER",
    ),
    "a suite that nobody knows": (
        lambda run: run.change(run.of(), suite="lost"),
        0,
        "spec against base: FASTER",
    ),
    "names with control characters": (_hostile, 0, "against base"),
    "errors with control characters": (
        lambda run: run.change(run.of(), error=HOSTILE),
        4,
        "failed with ev␛[2Jil",
    ),
    "a class of 5,000 letters": (
        lambda run: run.change(run.of(class_="chat"), **{"class": "c" * 5000}),
        0,
        "FASTER",
    ),
    "records of two generators": (
        lambda run: run.change(run.of("spec"), generator="llmperf"),
        0,
        "records of llmperf: 48",
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_can_be_judged_is_judged(run, capsys, case):
    spoil, code, sentence = JUDGED[case]
    spoil(run)

    assert run.report() == code

    said = capsys.readouterr()
    assert sentence in words(said.out)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", said.out + said.err)
    assert max(len(line) for line in said.out.splitlines() if str(run.folder) not in line) <= 100
    assert run.verdict()["baseline"] == "base"


REFUSED: dict[str, tuple[Callable[[Run], object], str, str]] = {
    "a newer line": (lambda run: run.rows[5].update(schema=3), "records.jsonl:6", "has schema 3"),
    "older lines alone": (
        lambda run: run.change(run.of(), schema=0),
        "records.jsonl:1",
        "has schema 0",
    ),
    "a line that was cut inside": (
        lambda run: run.spoil(lambda lines: lines.__setitem__(7, lines[7][:50] + b"\n")),
        "records.jsonl:8",
        "restore the line from a copy",
    ),
    "a round without end": (
        lambda run: run.rows[3].update(round=10**12),
        "records.jsonl:4",
        "$.round",
    ),
    "a time that is no number": (
        lambda run: run.spoil(
            lambda lines: lines.__setitem__(2, lines[2].replace(b'"end_s": 0.3', b'"end_s": NaN'))
        ),
        "records.jsonl:3",
        "JSON is malformed",
    ),
    "half a character": (
        lambda run: run.rows[4].update(text="\ud800"),
        "records.jsonl:5",
        "JSON is malformed",
    ),
    "lists in lists without end": (
        lambda run: run.spoil(
            lambda lines: lines.__setitem__(
                4, lines[4].replace(b": null", b": " + b"[" * 9000 + b"]" * 9000)
            )
        ),
        "records.jsonl:5",
        "restore the line from a copy",
    ),
    "rubbish among counters": (
        lambda run: run.files.update({"counters.jsonl": b"rubbish\n"}),
        "counters.jsonl:1",
        "remove it: acceptance is then absent",
    ),
    "rubbish about rounds": (
        lambda run: run.files.update({"rounds.jsonl": b"rubbish\n"}),
        "rounds.jsonl:1",
        "remove it: then no round is marked",
    ),
    "a newer manifest": (
        lambda run: run.manifest.update(schema=7),
        "manifest.json",
        "reads schema 2",
    ),
    "a manifest with rounds without end": (
        lambda run: run.manifest.update(control_rounds=10**12),
        "manifest.json",
        "$.control_rounds",
    ),
    "a variant that is named as the control": (
        lambda run: (run.drop(run.of("spec")), run.manifest["arms"][1].update(name="base#2")),
        "run/manifest.json",
        "no arm can be held against base: every other arm has its name or that of its control",
    ),
    "a variant that is named as the baseline": (
        lambda run: (run.drop(run.of("spec")), run.manifest["arms"][1].update(name="base")),
        "run/manifest.json",
        "no arm can be held against base: every other arm has its name or that of its control",
    ),
    "a tokenizer that is not there": (
        lambda run: run.flags.extend(["--tokenizer", str(run.folder / "lost.json")]),
        "lost.json",
        "or leave it out: characters are compared then",
    ),
    "a tokenizer that is none": (
        lambda run: run.flags.extend(["--tokenizer", str(run.folder / "manifest.json")]),
        "manifest.json",
        "it is no tokenizer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(run, capsys, case):
    spoil, place, sentence = REFUSED[case]
    spoil(run)

    assert run.report() == 2

    said = capsys.readouterr().err
    assert re.match(rf"error: \S*{re.escape(place)}: ", said)
    assert sentence in said
    assert not (run.folder / "verdict.json").exists()


@pytest.mark.parametrize("margin", ["0", "nan", "five"])
def test_a_margin_out_of_range_is_refused(run, capsys, margin):
    run.flags = [f"--margin={margin}"]
    assert run.report() == 2
    assert "--margin" in capsys.readouterr().err


def test_the_order_of_the_lines_changes_nothing_that_is_concluded(run):
    run.report()
    whole = run.verdict()
    run.rows = run.rows[1::2] + run.rows[::2]
    run.report()

    for part in ("headlines", "cells", "controls", "equality", "acceptance", "cost"):
        assert run.verdict()[part] == whole[part], part


def test_a_folder_in_the_verdicts_way_is_named_and_the_rest_is_said(run, capsys):
    (run.folder / "verdict.json" / "full").mkdir(parents=True)

    assert run.report() == 0

    said = capsys.readouterr()
    assert "spec against base: FASTER" in said.out
    assert said.err.startswith(
        f"warning: {run.folder}/verdict.json: the verdict cannot be written: Is a directory"
    )


def test_a_clock_of_a_second_boot_is_named_and_speed_ups_hold(run):
    run.report()
    whole = run.verdict()["cells"]
    run.change(run.rows[24:], start_s=3.0)
    run.manifest["resumed"] = [run.manifest["clock"]]
    run.report()

    assert [cell["speed_up"] for cell in run.verdict()["cells"]] == [
        cell["speed_up"] for cell in whole
    ]
    assert any(
        "records.jsonl:25: the machine was booted anew" in note for note in run.verdict()["notes"]
    )


def test_megabytes_of_text_are_compared(run):
    run.change(run.of(), text="word " * 5_000)
    run.change(run.of("spec", "chat"), text="word " * 5_000 + "more")
    run.report()

    equality = run.verdict()["equality"][0]
    assert (equality["identical"]["n"], equality["identical"]["of"]) == (24, 48)
    assert max(len(example["measured"]) for example in equality["examples"]) < 2000


@pytest.mark.proof
def test_a_class_of_5000_letters_is_drawn(tmp_path):
    run = Run(tmp_path / "run")
    run.change(run.of(class_="chat"), **{"class": "c" * 5000})
    assert run.report() == 0
    assert (run.folder / "report.html").read_text().startswith("<!doctype html>")
