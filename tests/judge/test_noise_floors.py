"""The baseline against itself: floors of every cell, and a run that fails them is void."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from observed import Truth, drawn, table, with_figures

from tandem.bench.figures.request_table import RequestTable
from tandem.judge.controls import FALSE_VOID_RATE, check_controls
from tandem.judge.pairs import JUDGED_METRICS
from tandem.judge.schema import ControlCheck, RunControls

CLASSES = ("repeat", "code", "chat")
ALIKE = dict.fromkeys(CLASSES, 1.0)
TIMES = [1000.0, 1100.0, 900.0, 1500.0, 700.0, 1300.0]


def run(control: float = 1.0, **truth) -> RequestTable:
    ratio = {
        "spec": {"repeat": 3.0, "code": 1.5, "chat": 1.0},
        "base#2": dict.fromkeys(CLASSES, control),
    }
    return drawn(
        Truth(**{"ratio": ratio, "rounds": 1, "spread": 0.0 if control != 1 else 0.1, **truth}),
        0,
    )


def itself(seen: RequestTable) -> ControlCheck:
    return next(
        check for check in check_controls(seen).checks if check.name == "baseline against itself"
    )


def test_every_judged_metric_of_every_class_has_a_floor():
    controls = check_controls(run())
    assert {(floor.class_, floor.metric) for floor in controls.floors} == {
        (class_, metric) for class_, metric in itertools.product(CLASSES, JUDGED_METRICS)
    }
    assert not controls.void


def test_a_floor_is_the_farther_end_of_the_interval():
    for floor in check_controls(run(noise=0.1)).floors:
        assert floor.ratio == pytest.approx(max(floor.speed_up.high, 1 / floor.speed_up.low))


@pytest.mark.parametrize("control", [0.8, 1.25])
def test_a_baseline_unlike_itself_voids_the_run(control):
    controls = check_controls(run(control))
    assert len(controls.void) == 1
    assert controls.void[0].startswith("asked twice, base differs from itself by more than 5%: ")
    assert itself(run(control)).result == "failed"


def test_a_difference_inside_the_margin_voids_nothing():
    seen = run(1.04, noise=0.001)
    assert itself(seen).result == "passed"
    assert max(floor.ratio for floor in check_controls(seen).floors) > 1.03


def test_ttft_may_differ_by_the_clients_lag():
    seen = run(noise=0.0, spread=0.0)
    control = seen.arm_mask("base#2")
    later = seen.figures["ttft_ms"] + np.where(control, 4.0, 0.0)
    assert itself(with_figures(seen, ttft_ms=later)).result == "passed"
    assert (
        itself(with_figures(seen, ttft_ms=later + np.where(control, 20.0, 0.0))).result == "failed"
    )


@pytest.mark.parametrize(
    "seen",
    [
        table({"repeat": {"base": TIMES, "spec": TIMES}}),
        table({"repeat": {"base": TIMES, "spec": TIMES, "base#2": TIMES[:2]}}),
    ],
    ids=["not asked", "two prompts"],
)
def test_without_a_usable_control_there_is_no_floor(seen):
    controls = check_controls(seen)
    assert (itself(seen).result, controls.floors) == ("absent", ())
    assert "no noise floor" in itself(seen).sentence


def voided(seeds: Sequence[int], *, turn: float) -> tuple[float, float]:
    """Share of healthy runs that are void, and the median of their highest floors of e2e_ms.

    `turn` is the sd of what all requests of one turn share, such as another program's seconds on
    the machine, which intervals over prompts do not know of.
    """
    result: list[RunControls] = []
    for seed in seeds:
        seen = drawn(Truth(ratio={"base#2": ALIKE}, rounds=1, slots=1, noise=0.05), seed)
        half = seen.prompt % 2
        shared = np.random.default_rng([seed, 1]).normal(0, turn, (2, len(CLASSES), 2))
        factor = np.exp(shared[seen.arm, seen.class_, half])
        times = {name: seen.figures[name] * factor for name in ("e2e_ms", "ttft_ms", "tpot_ms")}
        result.append(check_controls(with_figures(seen, **times)))
    highest = [
        max(floor.ratio for floor in entry.floors if floor.metric == "e2e_ms") for entry in result
    ]
    return sum(bool(item.void) for item in result) / len(result), float(np.median(highest))


def test_no_healthy_run_of_12_prompts_is_void():
    share, floor = voided(range(24), turn=0.02)
    assert share == 0
    assert floor < 1.1


@pytest.mark.proof
@pytest.mark.parametrize("turn", [0.0, 0.02, 0.03])
def test_of_a_thousand_healthy_runs_few_are_void(turn):
    assert voided(range(1000), turn=turn)[0] < FALSE_VOID_RATE
