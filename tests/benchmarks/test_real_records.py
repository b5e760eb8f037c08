"""The kept records of `make real`: two whole runs of real servers, small, that every reader of a
run reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import real
import real_records
import real_table
from real_records import FACTS, PACKED, keep_records, restore_records

RECORDED = Path(__file__).parent / "real_run"


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    return restore_records(tmp_path_factory.mktemp("restored") / "real")


@pytest.fixture(scope="module")
def runs(restored):
    pairs = json.loads((restored / FACTS).read_text())["pairs"]
    runs = {}
    for name, pair in pairs.items():
        speculations = pair["speculation"].items()
        windows = {
            arm: (settings or {}).get("num_speculative_tokens", 0) for arm, settings in speculations
        }
        runs[name] = real_table.read(restored / pair["folder"], windows)
    return runs


def test_every_turn_of_a_speculating_arm_counted_drafts_by_position(runs):
    for run in runs.values():
        variant = run.arms[1]
        positions = {f"accepted_at_{place}" for place in range(1, run.windows[variant] + 1)}

        for turn in run.of(variant):
            assert positions | {"drafts", "accepted_tokens", "decode_steps"} <= set(
                turn.change.counts
            )


def test_streams_and_counters_of_kept_runs_agree(runs):
    assert [real_table.contradictions(run) for run in runs.values()] == [[], []]


def test_kept_files_name_no_path_of_a_machine(restored):
    holders = [
        path.name
        for path in restored.rglob("*.json*")
        if re.search(r"(?<![\w.])/(?:home|root|Users|work|tmp|var)/\w", path.read_text())
    ]

    assert holders == []


def test_a_kept_run_has_the_bytes_that_were_measured(tmp_path):
    keep_records(RECORDED, ["ngram"], "measured", tmp_path / "kept")
    folder = restore_records(tmp_path / "restored", tmp_path / "kept") / "ngram"

    names = [name for name in PACKED if (RECORDED / "ngram" / name).exists()]
    assert len(names) == 2
    assert [(folder / name).read_bytes() for name in names] == [
        (RECORDED / "ngram" / name).read_bytes() for name in names
    ]


def test_the_flag_keeps_the_records_of_a_measurement(monkeypatch, tmp_path):
    monkeypatch.setattr(real_records, "KEPT", tmp_path / "kept")
    assert real.main(["--report", str(RECORDED), "--no-docs", "--keep"]) == real.OK
    assert (tmp_path / "kept" / "ngram" / "records.jsonl.gz").exists()
    assert (
        json.loads((RECORDED / FACTS).read_text())["machine"]
        in (tmp_path / "kept" / "README.md").read_text()
    )
