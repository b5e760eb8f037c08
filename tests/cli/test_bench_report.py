from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from measured import arm, chunks, failed, record
from measured import write_run as write_any

from tandem.bench.plan.schedule import FEWEST_ROUNDS, control_numbers
from tandem.bench.records.manifest import RunEnd
from tandem.bench.records.record import RequestRecord
from tandem.cli.program import main

WORDS = [f"p{number}" for number in range(12)]

ASKED = [("base", "spec")] * FEWEST_ROUNDS
"""Who is asked in each round: the control round stands in the middle."""

ASKED.insert(*control_numbers(FEWEST_ROUNDS, 1), ("base", "base#2"))


def write_run(folder: Path, records: list[RequestRecord], **changes: object) -> Path:
    """A run of one arm: it has figures, and no verdict."""
    return write_any(folder, records, **{"arms": (arm("base", role="baseline"),), **changes})


def write_pair(folder: Path, factor: float = 2.0) -> Path:
    """A run of `base`, a `spec` that takes `factor` times less, and a control that takes `control`
    times more."""
    ends = {"base": 1.0, "spec": 1 / factor, "base#2": 1.0}
    records = [
        record(
            request_id=f"{name}.{word}.{number}",
            arm=name,
            prompt_id=word,
            round=number,
            end_s=0.3 * scale * (1 + 0.001 * len(word)),
            chunks=chunks((0.2 * scale, "text", 1), (0.29 * scale, "text", 7)),
        )
        for number, pair in enumerate(ASKED)
        for name, scale in ends.items()
        if name in pair
        for word in WORDS
    ]
    return write_any(folder, records, rounds=FEWEST_ROUNDS)


@pytest.fixture
def judged(tmp_path):
    return write_pair(tmp_path / "run")


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("flags", [[], ["--figures"]], ids=["one arm", "asked for figures alone"])
def test_json_without_a_verdict_is_the_summary(tmp_path, capsys, flags):
    folder = write_run(tmp_path / "run", [record(text="é")])
    assert main(["bench", "report", str(folder), "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(
        (folder / "summary.json").read_text()
    ) | {"exit_code": 0}


@pytest.mark.usefixtures("no_page")
def test_a_cut_request_that_was_sent_again_is_no_failure(tmp_path):
    records = [record(), failed(error="interrupted"), record(request_id="r-0~1")]
    assert main(["bench", "report", str(write_run(tmp_path / "run", records))]) == 0
    cut = write_run(tmp_path / "cut", records, ended=RunEnd(reason="interrupted", utc="2026"))
    assert main(["bench", "report", str(cut)]) == 1


@pytest.mark.usefixtures("no_page")
def test_a_folder_that_takes_no_summary_is_reported(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [record(chunks=chunks((0.2, "text", 8)))])
    (folder / "summary.json.new").mkdir()

    assert main(["bench", "report", str(folder)]) == 0

    output = capsys.readouterr()
    assert "concurrency 4: latencies" in output.out
    assert "warning: " in output.err
    assert "the summary cannot be written" in output.err


def test_the_last_line_is_the_page_to_open(judged, capsys):
    assert main(["bench", "report", str(judged)]) == 0

    out = capsys.readouterr().out
    assert out.splitlines()[-1] == str(judged / "report.html")
    assert "spec against base: FASTER (restarts not tested)" in out
    assert (judged / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("no_page")
def test_a_wider_margin_calls_a_small_difference_the_same(tmp_path):
    folder = write_pair(tmp_path / "run", factor=1.08)
    verdicts = []
    for margin in ("0.05", "0.1"):
        main(["bench", "report", str(folder), "--margin", margin])
        verdicts.append(
            json.loads((folder / "verdict.json").read_text())["headlines"][0]["finding"]
        )

    assert verdicts == ["faster", "same"]


@pytest.mark.usefixtures("no_page")
def test_the_files_that_a_verdict_names_are_all_it_needs(judged, tmp_path):
    (judged / "rounds.jsonl").write_text(
        '{"round":1,"wall_s":9.0,"client_cpu":0.99,"lag_p90_s":0.0}\n'
    )
    main(["bench", "report", str(judged)])
    verdict = (judged / "verdict.json").read_bytes()
    assert json.loads(verdict)["controls"]["marked"]

    copy = tmp_path / "copy" / "run"
    copy.mkdir(parents=True)
    names = re.findall(r"\w+\.jsonl?", json.loads(verdict)["recompute"][1])
    for name in names:
        if (judged / name).exists():
            (copy / name).write_bytes((judged / name).read_bytes())
    main(["bench", "report", str(copy)])

    assert (copy / "verdict.json").read_bytes() == verdict
