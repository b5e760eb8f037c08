"""How long a run will take and what it will cost: a stated guess.

Invariant: an estimate never decides what is done; every printed one says what it rests on.
"""

from __future__ import annotations

import math

from tandem.bench.plan import PlanTurn, RunPlan

FIRST_TOKEN_S = 0.5
TOKEN_S = 0.045  # what the post gives for a token without a gain (docs/measurement.md); an answer may end before


def estimate_turn_s(turn: PlanTurn) -> float:
    """Return how long a turn takes: as many requests at once as the load holds."""
    mean_s = sum(estimate_request_s(item.entry.max_tokens) for item in turn.items) / len(turn.items)
    if turn.arrivals_s:
        return turn.arrivals_s[-1] + mean_s
    return math.ceil(len(turn.items) / (turn.block.load.concurrency or 1)) * mean_s


def estimate_run_s(plan: RunPlan) -> float:
    """Return how long all rounds take, control rounds included; one round where the clock decides."""
    round_s = sum(map(estimate_turn_s, plan.round(plan.first_round)))  # the others of its kind ask as much
    if plan.rounds is None or not plan.manifest.control_rounds:
        return (plan.rounds or 1) * round_s
    control_s = sum(map(estimate_turn_s, plan.round(plan.control_round_numbers[0])))
    return plan.rounds * round_s + plan.manifest.control_rounds * control_s


def estimate_request_s(max_tokens: int) -> float:
    """Return the guess for one request that gives all its tokens."""
    return FIRST_TOKEN_S + TOKEN_S * max_tokens


def format_duration(seconds: float) -> str:
    """Return `45 s`, `3 min 20 s`, `2 h 05 min`."""
    total_s = round(seconds)
    if total_s < 60:  # noqa: PLR2004 - seconds
        return f"{total_s} s"
    if total_s < 3600:  # noqa: PLR2004 - an hour
        return f"{total_s // 60} min {total_s % 60:02} s"
    return f"{total_s // 3600} h {total_s % 3600 // 60:02} min"
