"""Tokens a step, by arm and class: which method each figure is from, and that it is the summary's
own."""

from __future__ import annotations

import itertools
from pathlib import Path

import measured
import pytest

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.figures.summary import summarize_run
from tandem.bench.records import manifest
from tandem.bench.records.counters import MetricsScrape
from tandem.judge.acceptance import compute_acceptance
from tandem.judge.schema import ClassAcceptance

ROOT = Path(__file__).parents[2]
REAL = ROOT / "tests/benchmarks/real_run/ngram"

# vLLM's own engine, of 2 requests of 8 tokens in 3 chunks each: 2 first tokens, 4 steps, 14 tokens
# later
STEPS = {
    "generation_tokens": 16.0,
    "first_tokens": 2.0,
    "decode_steps": 4.0,
    "request_tokens_sum": 16.0,
}
DRAFTS = {
    "drafts": 4.0,
    "draft_tokens": 12.0,
    "accepted_tokens": 10.0,
    "accepted_at_1": 4.0,
    "accepted_at_2": 3.0,
}


def turn(counted: dict[str, float] | None, **changes: object) -> list[MetricsScrape]:
    """The scrapes around one turn of `spec`."""
    fields = {"at_s": 1.0, "arm": "spec", "class_": "repeat", "concurrency": 4, **changes}
    before = None if counted is None else dict.fromkeys(counted, 0.0)
    return [
        MetricsScrape(**{**fields, "when": "before", "counters": before}),
        MetricsScrape(**{**fields, "when": "after", "counters": counted}),
    ]


def found(
    folder: Path,
    scrapes: list[MetricsScrape] | None,
    records: list | None = None,
    **changes: object,
) -> dict[tuple[str, str], ClassAcceptance]:
    """Two requests of each arm; what is accepted, by arm and class."""
    every = records or [
        measured.record(
            request_id=f"{arm}{number}", arm=arm, prompt_id=f"p{number}", start_s=1000.0 + number
        )
        for arm, number in itertools.product(("base", "spec"), range(2))
    ]
    seen = read_request_table(measured.write_run(folder, every, scrapes, **changes))
    return {(entry.arm, entry.class_): entry for entry in compute_acceptance(seen)}


@pytest.mark.parametrize(
    ("counts", "method", "length", "per_position", "bias"),
    [
        (
            STEPS | DRAFTS,
            "counters",
            1 + 10 / 4,
            (1.0, 0.75),
            "Steps without a draft are not in it",
        ),
        (STEPS, "steps of the counters", 14 / 4, (), "counts no drafts"),
        (None, "tokens per chunk", 14 / 4, (), "too high where two steps came as one chunk"),
    ],
    ids=["live counters", "flat counters", "no counters"],
)
def test_each_method_gives_its_figures_and_says_its_bias(
    tmp_path, counts, method, length, per_position, bias
):
    acceptance = found(tmp_path, turn(counts) if counts else None)["spec", "repeat"]
    assert (acceptance.method, acceptance.acceptance_length, acceptance.per_position) == (
        method,
        length,
        per_position,
    )
    assert acceptance.target_steps_per_token == 6 / 16
    assert bias in acceptance.sentence


def test_answers_that_nobody_counted_leave_it_absent(tmp_path):
    silent = measured.chunks((0.1, "role"), (0.2, "text"), (0.3, "text"))
    records = [
        measured.record(
            request_id=arm, arm=arm, chunks=silent, completion_tokens=None, counted_by=None
        )
        for arm in ("base", "spec")
    ]

    acceptance = found(tmp_path, None, records)["spec", "all"]

    assert (acceptance.method, acceptance.acceptance_length, acceptance.target_steps_per_token) == (
        "absent",
        None,
        None,
    )
    assert "no answer whose tokens the server counted" in acceptance.sentence.lower()


def test_an_arm_without_speculation_has_no_acceptance(tmp_path):
    plain = measured.arm("base", role="baseline", speculation=manifest.Speculation(method=None))
    acceptance = found(tmp_path, None, arms=(plain, measured.arm("spec")))["base", "all"]
    assert acceptance.acceptance_length is None
    assert acceptance.target_steps_per_token == 6 / 16
    assert "it does not speculate" in acceptance.sentence.lower()


def test_loads_of_a_class_are_summed_and_not_averaged(tmp_path):
    more = {name: 9 * value for name, value in (STEPS | DRAFTS).items()} | {"accepted_tokens": 18.0}
    acceptance = found(tmp_path, [*turn(STEPS | DRAFTS), *turn(more, concurrency=8)])[
        "spec", "repeat"
    ]
    assert acceptance.acceptance_length == 1 + (10 + 18) / (4 + 36)


def test_counters_of_mixed_classes_are_of_all_alone(tmp_path):
    acceptance = found(tmp_path, turn(STEPS | DRAFTS, class_=None))
    assert acceptance["spec", "all"].method == "counters"
    assert acceptance["spec", "repeat"].method == "tokens per chunk"


def test_counters_that_hold_more_than_the_records_are_doubted(tmp_path):
    more = {name: 2 * value for name, value in (STEPS | DRAFTS).items()}
    assert (
        "another client asked it"
        not in found(tmp_path / "one", turn(STEPS | DRAFTS))["spec", "all"].sentence
    )
    assert "another client asked it" in found(tmp_path / "two", turn(more))["spec", "all"].sentence
    assert (
        "another client asked it"
        in found(tmp_path / "all", turn(more, class_=None))["spec", "all"].sentence
    )


def test_a_real_vllm_has_the_figures_of_its_summary():
    acceptance = {
        (item.arm, item.class_): item for item in compute_acceptance(read_request_table(REAL))
    }
    cells = {(cell.arm, cell.class_, cell.metric): cell.mean for cell in summarize_run(REAL).cells}

    for (arm, class_), entry in acceptance.items():
        assert entry.target_steps_per_token == pytest.approx(
            cells[arm, class_, "target_steps_per_token"], abs=1e-6
        )
        assert (entry.acceptance_length is None) == (arm == "base")
        if arm == "ngram":
            assert entry.acceptance_length == pytest.approx(
                cells[arm, class_, "acceptance_length"], abs=1e-6
            )
            assert len(entry.per_position) == 7
            assert entry.method == "counters"
