"""The estimated duration of a run.

Invariant: no estimate decides an action; every printed estimate states its basis.
"""

from __future__ import annotations

import math

from tandem.bench.plan.request_plan import PlanTurn, RunPlan

FIRST_TOKEN_S = 0.5
# the post's time per token without a gain (docs/measurement.md); an answer may end earlier
TOKEN_S = 0.045


def estimate_turn_s(turn: PlanTurn) -> float:
    """Return the duration of a turn, in seconds; requests run at the concurrency of the load."""
    mean_s = sum(estimate_request_s(item.entry.max_tokens) for item in turn.items) / len(turn.items)
    if turn.arrivals_s:
        return turn.arrivals_s[-1] + mean_s
    return math.ceil(len(turn.items) / (turn.block.load.concurrency or 1)) * mean_s


def estimate_run_s(plan: RunPlan) -> float:
    """Return the duration in seconds of all rounds; of one round if time limits the run."""
    # other rounds of this kind have as many requests
    round_s = sum(map(estimate_turn_s, plan.round(plan.first_round)))
    if plan.rounds is None or not plan.manifest.control_rounds:
        return (plan.rounds or 1) * round_s
    control_s = sum(map(estimate_turn_s, plan.round(plan.control_round_numbers[0])))
    return plan.rounds * round_s + plan.manifest.control_rounds * control_s


def estimate_request_s(max_tokens: int) -> float:
    """Return the estimated seconds of one request that gives all its tokens."""
    return FIRST_TOKEN_S + TOKEN_S * max_tokens


def format_duration(seconds: float) -> str:
    """Return a duration as text: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    total_s = round(seconds)
    if total_s < 60:  # noqa: PLR2004 - seconds
        return f"{total_s} s"
    if total_s < 3600:  # noqa: PLR2004 - an hour
        return f"{total_s // 60} min {total_s % 60:02} s"
    return f"{total_s // 3600} h {total_s % 3600 // 60:02} min"
