"""Absolute figures of each arm, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed import Asked, observed

from tandem.judge.arm_figures import measure_arms
from tandem.judge.schema import BottleneckRound, RunControls

LIMITS = {"ttft_ms": 150.0}


def ask(arm: str = "base", round_: int = 0, **changes: float | str | None) -> Asked:
    """One request of one second, its round's number of 10 seconds after the run's start."""
    return Asked(**{"arm": arm, "round": round_, "start_s": 10.0 * round_, **changes})  # type: ignore[arg-type]


def test_requests_per_second_are_of_busy_time():
    requests = [
        ask(),
        ask(start_s=0.5),
        ask(round_=1),
        ask(round_=1, start_s=10.0, error="closed"),
        ask("spec"),
    ]
    base, spec = measure_arms(observed(requests), RunControls())
    assert (base.arm, base.requests, spec.arm, spec.requests) == ("base", 4, "spec", 1)
    assert base.requests_per_s == pytest.approx(3 / 2.5)
    assert spec.requests_per_s == pytest.approx(1.0)


def test_each_load_has_its_figures_and_the_servers_address():
    requests = [ask(concurrency=1), ask(concurrency=8), ask("spec", concurrency=8)]
    figures = measure_arms(observed(requests), RunControls())
    assert [(row.arm, row.load.concurrency, row.url) for row in figures] == [
        ("base", 1, "http://127.0.0.1:1"),
        ("base", 8, "http://127.0.0.1:1"),
        ("spec", 8, "http://127.0.0.1:1"),
    ]


def test_marked_rounds_and_controls_are_in_no_figure():
    controls = RunControls(marked=(BottleneckRound(round=1, sentence=""),))
    requests = [ask(), ask(round_=1), ask("base#2"), ask("spec")]
    assert [(row.arm, row.requests) for row in measure_arms(observed(requests), controls)] == [
        ("base", 1),
        ("spec", 1),
    ]


def test_requests_within_the_limits_are_counted():
    requests = [ask(ttft_ms=100.0), ask(ttft_ms=200.0), ask(ttft_ms=100.0, error="closed")]
    (base,) = measure_arms(observed(requests, goodput=LIMITS), RunControls())
    assert base.within_limits == 1


def test_attainment_is_unknown_without_limits_or_figures():
    limits = observed([ask(), ask()], goodput=LIMITS)
    figures = {**limits.figures, "ttft_ms": limits.figures["ttft_ms"] * float("nan")}
    for table in (observed([ask(), ask()]), replace(limits, figures=figures)):
        (base,) = measure_arms(table, RunControls())
        assert base.within_limits is None


def test_an_arm_that_answered_nothing_has_no_times():
    (base,) = measure_arms(observed([ask(error="closed", e2e_ms=1000.0)]), RunControls())
    assert (base.requests, base.requests_per_s, base.ttft_p50_ms, base.tpot_p99_ms) == (
        1,
        0.0,
        None,
        None,
    )
