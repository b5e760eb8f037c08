"""Cost of a million good output tokens, for each arm at each load.

Invariant: worthless tokens (of a failed, garbled or late answer) are paid for and not counted. An
arm is not charged for time in which it got no request. Without a price there is no cost, and a
sentence says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.request_table import UNKNOWN, RequestTable
from tandem.judge.arm_figures import measure_busy_s, select_arm_rows
from tandem.judge.comparability import mask_content
from tandem.judge.schema import RunControls, TokenCost

GOOD_CONTENT = ("ok", "truncated")
"""Words of the content check whose tokens count: a text that max_tokens cut is good as far as it
goes."""

_HOUR_S = 3600.0
_MILLION = 1_000_000


class ArmWork(NamedTuple):
    """Work of one arm at one load.

    Args:
        request_count: requests that the arm got.
        good_tokens: good output tokens.
        busy_s: seconds in which at least one of the requests ran.
        bad_answers: requests that succeeded and whose tokens are not good.
        answers_without_tokens: good requests whose tokens nobody counted.
    """

    request_count: int
    good_tokens: int
    busy_s: float
    bad_answers: int
    answers_without_tokens: int


def compute_costs(
    table: RequestTable, *, usd_per_hour: float | None, controls: RunControls
) -> tuple[TokenCost, ...]:
    """Return one cost for each load and arm, except the control, which is the baseline's server.

    Args:
        table: the run.
        usd_per_hour: of all that the run occupies; None where --price is not given.
        controls: of the run; rounds that they mark are taken out.
    """
    arm_count = 1 + len(table.variants)
    costs = []
    for arm, load, rows in select_arm_rows(table, controls):
        work = measure_work(table, rows)
        usd = None
        if usd_per_hour is not None and work.good_tokens:
            usd = usd_per_hour / arm_count * work.busy_s / _HOUR_S / work.good_tokens * _MILLION
        sentences = _explain_cost(work, usd_per_hour, arm_count, has_limits=bool(table.run.goodput))
        costs.append(
            TokenCost(
                arm=arm,
                load=load,
                usd_per_hour=usd_per_hour,
                good_tokens=work.good_tokens,
                busy_s=round(work.busy_s, 3),
                usd_per_million_good_tokens=usd,
                sentence=" ".join(sentences),
            )
        )
    return tuple(costs)


def measure_work(table: RequestTable, rows: BoolArray) -> ArmWork:
    """Return the work of some requests of one arm.

    Good tokens are those of requests that succeeded, gave good text and kept every stated limit.
    """
    has_good_content = mask_content(table, GOOD_CONTENT) | (table.content == UNKNOWN)
    is_good = rows & table.limit_masks()[0] & has_good_content
    is_bad = rows & ~table.failed & ~is_good
    is_unknown = np.isnan(table.tokens)
    return ArmWork(
        request_count=int(rows.sum()),
        good_tokens=int(table.tokens[is_good & ~is_unknown].sum()),
        busy_s=measure_busy_s(table, rows),
        bad_answers=int(is_bad.sum()),
        answers_without_tokens=int((is_good & is_unknown).sum()),
    )


def _explain_cost(
    work: ArmWork, usd_per_hour: float | None, arm_count: int, *, has_limits: bool
) -> Iterator[str]:
    if usd_per_hour is None:
        yield "Cost not computed: pass `--price USD_PER_HOUR`, for all that the run occupied."
    elif not work.good_tokens:
        yield "There is no cost, because no output token of this arm counts."
    else:
        share = "the whole"
        if arm_count > 1:
            share = f"one of {arm_count} equal shares"
        yield (
            f"{usd_per_hour:g} USD an hour is the price of all that the run occupies; this arm is"
            f" charged {share} of it, for the time in which it was asked, at this load alone."
        )
    if work.bad_answers:
        reason = "not good text or beyond the stated limits" if has_limits else "not good text"
        yield (
            f"{work.bad_answers} of {work.request_count} answers are {reason}:"
            " paid for, and not counted."
        )
    if work.answers_without_tokens:
        yield (
            f"The tokens of {work.answers_without_tokens} answers are not known, so the true cost"
            " is lower."
        )
