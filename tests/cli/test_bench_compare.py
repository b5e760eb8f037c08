"""`tandem bench compare`: what it ends with and prints."""

from __future__ import annotations

import json
from pathlib import Path

from measured import record, write_run

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.cli.program import main
from tandem.judge.compare import comparison as compare
from tandem.judge.schema import RunControls

DAYS = ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z")


def runs(folder: Path, **changes: object) -> list[str]:
    """Two runs of two arms and one prompt, a day apart; `changes` are of the later one's
    manifest."""
    records = [record(arm=arm, request_id=f"{arm}.0") for arm in ("base", "spec")]
    return [
        str(
            write_run(
                folder / f"day-{number}", records, created_utc=day, **(changes if number else {})
            )
        )
        for number, day in enumerate(DAYS)
    ]


def test_two_runs_that_were_compared_give_code_0(tmp_path, capsys):
    assert main(["bench", "compare", *runs(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "spec at concurrency 4: its own E2E" in out
    assert "no noise floor" in out


def test_json_has_what_differs_and_every_row(tmp_path, capsys):
    assert main(["bench", "compare", *runs(tmp_path, seed=9), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 2
    assert [difference["what"] for difference in document["differences"]] == ["seed"]
    assert {row["class"] for row in document["rows"]} == {"repeat"}


def test_a_simulated_run_is_held_against_no_other(tmp_path, capsys):
    assert main(["bench", "compare", *runs(tmp_path, simulated=True)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{SIMULATED_BAND}\n")
    assert "differs: simulated (so nothing is called): false -> true" in out


def test_a_run_in_which_a_control_failed_gives_code_4(tmp_path, capsys, monkeypatch):

    monkeypatch.setattr(
        compare, "check_controls", lambda _: RunControls(void=("the client was the bottleneck",))
    )
    assert main(["bench", "compare", *runs(tmp_path)]) == 4
    assert "void: day-0: the client was the bottleneck" in capsys.readouterr().out


def test_a_series_is_ordered_by_time(tmp_path, capsys):
    first, second = runs(tmp_path)
    records = [record(arm=arm, request_id=f"{arm}.0") for arm in ("base", "spec")]
    third = str(write_run(tmp_path / "day-2", records, created_utc="2026-11-03T00:00:00Z"))
    assert main(["bench", "compare", third, second, first, "--json"]) == 0

    series = json.loads(capsys.readouterr().out)
    pairs = [
        (entry["before"]["folder"], entry["after"]["folder"]) for entry in series["comparisons"]
    ]
    assert pairs == [("day-0", "day-1"), ("day-0", "day-2")]
