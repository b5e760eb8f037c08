"""Drift, order and first round: what time and order did to one and the same arm."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from observed import Asked, observed

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import ControlCheck
from tandem.judge.time_effects import build_timeline, check_drift, check_order, check_warm_up

PROMPTS = 12
HOUR_S = 3600.0


class At(NamedTuple):
    """Of whom a request is asked, in which round, and whether second in its pass."""

    arm: str
    round: int
    second: bool


def asked(
    log: Callable[[At], float],
    *,
    rounds: int = 4,
    halves: bool = True,
    arms: tuple[str, ...] = ("base", "spec"),
    noise: float = 0.01,
) -> RequestTable:
    """A B B A in each round, an hour apart; `log` adds to the log time: of an arm, a round, and
    asked second or not."""
    rng = np.random.default_rng(7)
    lengths = rng.normal(7, 0.4, PROMPTS)
    requests = []
    for number in range(rounds):
        for prompt, length in enumerate(lengths):
            half = prompt % 2 if halves else 0
            for place, arm in enumerate(arms):
                second = (place + half) % 2 == 1
                added = (
                    log(At(arm, number, second))
                    - (0.4 if arm == "spec" else 0.0)
                    + rng.normal(0, noise)
                )
                slot = 2 * half + second
                at_s = number * HOUR_S + slot * 60 + prompt
                e2e_ms = math.exp(length + added)
                requests.append(
                    Asked(
                        arm=arm,
                        prompt=f"p{prompt}",
                        round=number,
                        slot=slot,
                        e2e_ms=e2e_ms,
                        start_s=at_s,
                    )
                )
    return observed(requests, arms=arms)


def check(seen: RequestTable, name: str) -> ControlCheck:
    timeline = build_timeline(RequestPairing(seen))
    if name == "drift":
        result, sentence = check_drift(timeline)
    else:
        result, sentence = {"order": check_order, "warm-up": check_warm_up}[name](seen, timeline)
    return ControlCheck(name=name, result=result, sentence=sentence)


def steady(_: At) -> float:
    return 0.0


def test_a_steady_run_passes():
    seen = asked(steady)
    assert {check(seen, name).result for name in ("drift", "order", "warm-up")} == {"passed"}


@pytest.mark.parametrize(("step", "word"), [(0.1, "slower"), (-0.1, "faster")])
def test_an_arm_that_drifts_is_named_with_its_change(step, word):
    finding = check(asked(lambda at: step * at.round * (at.arm == "spec")), "drift")
    change = abs(math.expm1(3 * step))
    assert finding.result == "caution"
    assert finding.sentence.startswith("from its first round to its last, spec became ")
    assert float(finding.sentence.split("became ")[1].split("%")[0]) == pytest.approx(
        100 * change, rel=0.05
    )
    assert f"% {word} (" in finding.sentence


def test_a_drift_inside_the_margin_is_none():
    assert check(asked(lambda at: 0.01 * at.round), "drift").result == "passed"


@pytest.mark.parametrize("name", ["drift", "warm-up"])
def test_what_touches_both_arms_alike_is_no_caution(name):
    assert check(asked(lambda at: 0.2 * at.round), name).result == "passed"


def test_noise_is_no_drift():
    assert check(asked(steady, noise=0.3), "drift").result == "passed"


def test_who_is_asked_second_and_slower_shows_as_an_order():
    finding = check(asked(lambda at: 0.15 * at.second), "order")
    assert finding.result == "caution"
    assert float(finding.sentence.split("was ")[1].split("%")[0]) == pytest.approx(
        100 * math.expm1(0.15), rel=0.1
    )


def test_a_speed_up_is_no_order():
    assert check(asked(lambda at: -1.0 * (at.arm == "spec")), "order").result == "passed"


def test_one_order_alone_is_a_caution():
    finding = check(asked(steady, halves=False), "order")
    assert (finding.result, "one order only" in finding.sentence) == ("caution", True)


@pytest.mark.parametrize(("name", "seen"), [("drift", {"rounds": 1}), ("order", {"halves": False})])
def test_who_lacks_rounds_is_told_the_rounds_of_a_verdict(name, seen):
    assert re.findall(r"(?:--rounds|ask) (\d+)", check(asked(steady, **seen), name).sentence) == [
        str(FEWEST_ROUNDS)
    ]


def test_arms_that_are_asked_at_once_have_no_order():
    at_once = observed(
        [
            Asked(arm=arm, prompt=f"p{number}")
            for number, arm in itertools.product(range(4), ("base", "spec"))
        ],
        schedule="simultaneous",
    )
    assert check(at_once, "order").result == "absent"


def test_a_cold_first_round_is_a_caution_with_the_arm():
    finding = check(asked(lambda at: 0.3 * (at.round == 0) * (at.arm == "spec")), "warm-up")
    assert finding.result == "caution"
    assert finding.sentence.startswith("spec was 3")
    assert "% slower" in finding.sentence
