"""A sweep of candidates with faults: none wins however fast it is, and each reason is on the
screen.

The pairs are judged by records (`pair_records`). SEED=N of `make proof` repeats the long part.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from pair_records import FAULTS, GOOD, OTHER, judge_records
from sweep_life import HOURS, JudgedSweep, SmallSweep
from world_records import DEFAULT_SHAPE, QUICK_SHAPE

from tandem.cli.sweep_results import format_decision
from tandem.judge.sweep_record import PairVerdict, SweepRecord
from tandem.run.sweep_pairs import NO_FIGURES

PROOF_SWEEPS = 100
PROOF_WINS = 95
REASONS = {
    "garbage": "refused 72 of 72 outputs of the variant",
    "both garbage": "are empty or garbage",
    "cut": "it is cut short",
    "another text": "more than the baseline's own",
    "slowest fail": "8 of 72 requests",
    "some slow": "is not shown to be faster or slower",
}
"""Part of the reason that the screen gives, for a quick run."""


class SmallJudged(JudgedSweep):
    """A judged sweep of two candidates."""

    experiment = SmallSweep.experiment


def live(world, **fields):
    """Live a sweep to its end; return its decision."""
    world.ask(**{**HOURS, **fields})
    record = world.live()
    assert record["state"] == "judged", record["reason"]
    return msgspec.convert(world.read_decision(), SweepRecord)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A sweep of one candidate with each fault, the last of them good."""
    faults = (*(FAULTS[name] for name in REASONS), GOOD)
    world = JudgedSweep(faults=faults, folder=tmp_path_factory.mktemp("pairs"))
    return world, live(world)


def find_candidate(faulty, fault):
    """Return the record of the candidate with a fault."""
    world, decision = faulty
    variant = world.judged_variants[[*REASONS, "good"].index(fault)]
    return next(row for row in decision.candidates if row.variant == variant)


def test_good_candidate_wins_among_faulty_ones(faulty):
    _, decision = faulty
    assert decision.winner == find_candidate(faulty, "good").variant


@pytest.mark.parametrize("fault", REASONS)
def test_reason_of_a_rejected_candidate_is_on_the_screen(faulty, fault):
    _, decision = faulty
    screen = " ".join(" ".join(format_decision(decision)).split())
    place = screen.index(f"{find_candidate(faulty, fault).variant} (rejected): ")
    assert REASONS[fault] in screen[place:].partition("(rejected)")[2].partition("(rejected)")[0]


def test_pair_of_one_round_says_so(tmp_path):
    world = SmallJudged(faults=(FAULTS["one round"],) * 2, folder=tmp_path)
    decision = live(world, rounds=1, control_rounds=1)
    reasons = [row.reason for row in decision.candidates]
    assert all(reason.startswith("fewer than 4 rounds: ") for reason in reasons), reasons


@pytest.fixture(scope="module")
def as_good(tmp_path_factory):
    """A sweep whose candidates write another text and answer 400 items as well as plain
    decoding."""
    faults = (replace(OTHER, items=400),) * 2
    world = SmallJudged(faults=faults, folder=tmp_path_factory.mktemp("pairs"))
    return world, live(world)


def test_other_output_wins_at_the_same_quality(as_good):
    _, decision = as_good
    assert decision.winner


def test_decision_says_that_the_output_is_another(as_good):
    _, decision = as_good
    note = "its output is not shown to be that of plain decoding, but it answers the tasks as well"
    assert decision.output_note == f"{note} (sums: same, 400 items)"


def test_message_says_that_the_output_is_another(as_good):
    world, decision = as_good
    assert decision.output_note in world.account.messages[-1]["text"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            {"items": 199},
            "another output: .* sums: no evidence; .* 199 items: 200 or more are needed",
        ),
        ({"items": 400, "wrong_every": 10}, "worse at a task: sums: worse; 360 of 400 right"),
    ],
    ids=["few items", "worse"],
)
def test_other_output_without_the_same_quality_cannot_win(tmp_path, fault, reason):
    verdict, _ = judge_records(tmp_path / "pair", replace(OTHER, **fault), 1, ("plain", "fast"))
    obstacle = verdict.obstacle
    assert re.match(reason, f"{obstacle.word}: {obstacle.reason}"), obstacle


def judge_alone(tmp_path, **fault):
    """Return the records of a sweep whose first candidate has a fault and whose second is good."""
    world = SmallJudged(faults=(replace(GOOD, **fault), GOOD), folder=tmp_path)
    decision = live(world)
    assert decision.winner == world.judged_variants[1]
    return next(row for row in decision.candidates if row.variant == world.judged_variants[0])


def test_candidate_that_answers_one_class_with_nothing_is_rejected(tmp_path):
    row = judge_alone(tmp_path, empty_class="code-edit")
    assert (row.state, "refused 24 of 72 outputs of the variant" in row.reason) == (
        "rejected",
        True,
    ), row


def test_candidate_without_token_counts_fails_for_its_lack_of_figures(tmp_path):
    row = judge_alone(tmp_path, counts_tokens=False)
    assert (row.state, row.reason.startswith(NO_FIGURES)) == ("failed", True), row


def test_a_sweep_that_reads_no_verdict_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(PairVerdict, "obstacle", None)
    monkeypatch.setattr(PairVerdict, "has_figures", True)
    monkeypatch.setitem(globals(), "PROOF_SWEEPS", 1)
    with pytest.raises(AssertionError, match="times as fast"):
        test_hundred_sweeps_are_never_won_by_a_fault("garbage", tmp_path)


def test_page_has_no_figure_of_another_output(faulty):
    assert find_candidate(faulty, "garbage").speed_up is None


def read_screen(decision):
    """Return what the screen says of each candidate that has a reason, by its name and state."""
    screen = " ".join(" ".join(format_decision(decision)).split())
    return {
        (row.variant, row.state): f"{row.variant} ({row.state}): " in screen
        for row in decision.candidates
    }


@pytest.mark.proof
@pytest.mark.parametrize("fault", FAULTS)
def test_hundred_sweeps_are_never_won_by_a_fault(fault, tmp_path):
    base = int(os.environ.get("TANDEM_PROOF_SEED") or random.SystemRandom().randrange(1 << 20))
    is_short = fault == "one round"
    shape = DEFAULT_SHAPE if fault == "some slow" else QUICK_SHAPE
    words = Counter()
    wins = 0
    for number in range(PROOF_SWEEPS):
        faults = [FAULTS[fault], FAULTS[fault] if is_short else GOOD]
        place = number % 2  # the fault comes first or last
        world = SmallJudged(
            faults=faults[:: 1 - 2 * place], folder=tmp_path, seed=base + number, shape=shape
        )
        decision = live(world, **({"rounds": 1} if is_short else {}), control_rounds=1)
        faulty_variants = world.judged_variants if is_short else [world.judged_variants[place]]
        assert decision.winner not in faulty_variants, (base, number, decision.sentence)
        for row in decision.candidates:
            if row.variant in faulty_variants:
                assert read_screen(decision)[row.variant, "rejected"], (base, number, row)
                words[row.reason.partition(":")[0]] += 1
        wins += bool(decision.winner)
    sys.stderr.write(
        f"\n{fault}, SEED={base}: {PROOF_SWEEPS} sweeps, {wins} won by the good one,"
        f" {dict(words)}\n"
    )
    assert wins >= PROOF_WINS or is_short
