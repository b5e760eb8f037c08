"""The estimated duration of a run.

Invariant: no estimate decides an action; every printed estimate states its basis.
"""

from __future__ import annotations

import math

from tandem.bench.plan.knee_search import (
    FIRST_IN_FLIGHT,
    LEAST_COUNTED,
    RATE_FACTORS,
    ROUNDS,
    WARM_UP_LIMITS,
)
from tandem.bench.plan.request_plan import PlanTurn, RunPlan
from tandem.errors import InputError

FIRST_TOKEN_S = 0.5
# the post's time per token without a gain (docs/measurement.md); an answer may end earlier
TOKEN_S = 0.045
MAX_OPEN_CONNECTIONS = 64  # connections opened before an open loop; the loop may open more later
PILOT_TURNS = 8  # doubling three times and bisecting twice takes six


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


def estimate_work(plan: RunPlan, only_round: int | None) -> tuple[float, int | None]:
    """Return the seconds and requests of a process; no requests if time limits them, or a knee.

    Args:
        plan: of the run.
        only_round: number of the only round that the process measures; None for all.

    Raises:
        InputError: the plan has no such round.
    """
    if only_round is None:
        estimate_s = estimate_knee_s if plan.searches_knee else estimate_run_s
        return plan.manifest.duration_s or estimate_s(plan), plan.request_count
    round_total = plan.round_total or 0
    if not 0 <= only_round < round_total:
        change = f"name one of its {round_total} rounds, from 0"
        raise InputError(f"the plan has no round {only_round}", change=change)
    turns = plan.round(only_round)
    return sum(map(estimate_turn_s, turns)), sum(turn.request_count for turn in turns)


def estimate_knee_s(plan: RunPlan) -> float:
    """Return the duration in seconds of a search for the knee, near the rate of its first turn."""
    return len(plan.arms) * estimate_search_s(estimate_first_rate(plan))


def estimate_search_s(rate_per_s: float) -> float:
    """Return the duration in seconds of the search for one arm's knee near a rate.

    A pilot of PILOT_TURNS is assumed.
    """
    turns = ROUNDS * len(RATE_FACTORS) + PILOT_TURNS
    return turns * (WARM_UP_LIMITS[0] + LEAST_COUNTED) / rate_per_s


def estimate_first_rate(plan: RunPlan) -> float:
    """Return the rate at which FIRST_IN_FLIGHT requests of the estimated duration are in flight."""
    mean_s = sum(estimate_request_s(entry.max_tokens) for entry in plan.entries) / len(plan.entries)
    return FIRST_IN_FLIGHT / mean_s


def estimate_connections(turn: PlanTurn) -> int:
    """Return how many connections a turn is likely to need at once."""
    load = turn.block.load
    request_count = len(turn.items) or MAX_OPEN_CONNECTIONS  # a search's turn has no fixed number
    if load.concurrency is not None:
        return min(load.concurrency, request_count)
    longest_s = max(estimate_request_s(entry.max_tokens) for entry in turn.block.entries)
    return min(math.ceil((load.rate_per_s or 1.0) * longest_s), request_count, MAX_OPEN_CONNECTIONS)


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
