"""What more starts of each server cost, and what the verdict then covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.run.run_estimate import RunEstimate
from tandem.run.run_plan import RunPlanInputs, estimate_run

STARTS_CHOICES = (1, 2, 6)
STARTS_OF_WORD = 6  # tandem.judge.interval.FEWEST_STARTS, which is loaded with scipy


@dataclass(frozen=True, kw_only=True)
class StartsOption:
    """The cost of so many starts of each server, and the basis of the verdict's word with them."""

    starts: int
    rounds: int
    word_scope: str
    estimate: RunEstimate


def compare_starts(inputs: RunPlanInputs) -> tuple[StartsOption, ...]:
    """Return the cost of 1, 2 and 6 starts of each server, with no fewer rounds than starts."""
    options = []
    for starts in STARTS_CHOICES:
        rounds = max(inputs.request.rounds, starts)
        request = msgspec.structs.replace(inputs.request, starts=starts, rounds=rounds)
        estimate = estimate_run(replace(inputs, request=request))
        word_scope = describe_word_scope(rounds, starts)
        options.append(
            StartsOption(starts=starts, rounds=rounds, word_scope=word_scope, estimate=estimate)
        )
    return tuple(options)


def describe_word_scope(rounds: int, starts: int) -> str:
    """Return the basis of the verdict's word (tandem.judge.headline)."""
    if rounds < FEWEST_ROUNDS:
        return "no verdict"
    return "restarts covered" if starts >= STARTS_OF_WORD else "restarts not covered"
