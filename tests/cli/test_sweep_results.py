"""`tandem results` of a sweep: the table of its candidates, and the folder with page, decision and
edit."""

from __future__ import annotations

import json

import msgspec
import pytest
from run_records import RUN, make_record, make_step, put_run, tandem

from tandem.judge.sweep_record import CandidateRecord, PairEvidence, SweepRecord

pytestmark = pytest.mark.endpoint

SENTENCE = "Qwen/Qwen3-1.7B with window 5: 1.62 times as fast as plain decoding (1.55 to 1.70)"
EVIDENCE = PairEvidence(
    score=1.62,
    speed_ups={"open, concurrency 4": 1.62},
    tokens={"open, concurrency 4": 2.2},
    log_sd=0.02,
    goodput_per_usd=(250_000.0, 400_000.0),
)
MEASURED = CandidateRecord(
    variant="qwen-sd-qwen3-1-7b-k5",
    draft="Qwen/Qwen3-1.7B",
    num_speculative_tokens=5,
    state="measured",
    speed_up=(1.62, 1.55, 1.7),
    results=f"{RUN}-p01",
    evidence=EVIDENCE,
    node_minutes=60,
    compile_minutes=20,
    usd=35.76,
)
LEFT_OUT = CandidateRecord(
    variant="qwen-sd-qwen3-1-7b-k15",
    draft="Qwen/Qwen3-1.7B",
    num_speculative_tokens=15,
    state="eliminated",
    reason="at most 1.13 times, and 1.62 is measured",
    decided_at="2026-11-27T20:38:31+00:00",
)


def put_decision(fleet, **changes):
    """Write a decided sweep of one measured pair."""
    fields = {
        "run": RUN,
        "experiment": "post-drafts-windows",
        "winner": MEASURED.variant,
        "word": "decided",
        "sentence": SENTENCE,
        "node_minutes": 70,
        "compile_minutes": 20,
        "usd": 41.72,
        "budget_usd": 50,
        "candidates": (MEASURED, LEFT_OUT),
        **changes,
    }
    decision = msgspec.to_builtins(SweepRecord(**fields))
    judge = make_step(
        9, "judge", result={"sentence": SENTENCE, "is_void": False, "decision": decision}
    )
    record = make_record(fleet, state="judged", verdict=SENTENCE, experiment="post-drafts-windows")
    put_run(fleet, record, (judge,))


@pytest.fixture
def screen(fleet, capsys):
    """The lines of `tandem results`."""
    put_decision(fleet)
    assert tandem(fleet, f"results {RUN}") == 0
    return capsys.readouterr().out.splitlines()


def test_measured_candidate_has_its_interval_and_its_goodput(screen):
    row = next(line for line in screen if line.strip().startswith(MEASURED.variant))
    assert row.split() == [
        MEASURED.variant,
        "measured",
        "1.62",
        "1.55",
        "to",
        "1.70",
        "1.60",
        "x",
        "plain",
        "60",
        "35.76",
    ]


def test_json_has_the_whole_decision(fleet, capsys):
    put_decision(fleet)
    assert tandem(fleet, f"results {RUN}", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["decision"]["winner"], document["exit_code"]) == (MEASURED.variant, 0)


@pytest.fixture
def folder(fleet, tmp_path, capsys):
    """The folder of `tandem results --out`, and what the command printed."""
    put_decision(fleet)
    out = tmp_path / "sweep"
    assert tandem(fleet, f"results {RUN}", "--out", str(out)) == 0
    return out, capsys.readouterr().out


def test_folder_has_decision_page_and_edit(folder):
    out, _ = folder
    assert sorted(path.name for path in out.iterdir()) == [
        "decision.html",
        "decision.json",
        "experiment.patch",
    ]


def test_next_step_applies_the_edit(folder):
    out, output = folder
    assert f"git apply {out}/experiment.patch" in output


def test_decision_of_another_schema_is_refused_with_both(fleet, capsys):
    put_decision(fleet, schema=2)
    assert tandem(fleet, f"results {RUN}") == 2
    assert "the decision has schema 2; this version of Tandem reads schema 1" in " ".join(
        capsys.readouterr().err.split()
    )


def test_unfinished_sweep_edits_nothing(fleet, tmp_path):
    put_decision(fleet, word="unfinished")
    assert tandem(fleet, f"results {RUN}", "--out", str(tmp_path / "sweep")) == 0
    assert not (tmp_path / "sweep" / "experiment.patch").exists()


def test_existing_folder_is_refused(fleet, tmp_path, capsys):
    put_decision(fleet)
    assert tandem(fleet, f"results {RUN}", "--out", str(tmp_path)) == 2
    assert "name a new folder" in capsys.readouterr().err
