"""What a million good output tokens cost, of each arm at each load.

Invariant: tokens that are worth nothing (of a failed, garbled or late answer) are paid for and not counted; time in
which an arm was not asked is not charged to it; without a price there is no cost, and a sentence says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Mask
from tandem.bench.derive import Figures
from tandem.bench.judge.form import Controls, Cost
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.tally import judged
from tandem.bench.turns import busy_time_s

GOOD = ("ok", "truncated")
"""Words of the content check whose tokens count: a text that max_tokens cut was wanted as far as it goes."""

_HOUR_S = 3600.0
_MILLION = 1_000_000


class Work(NamedTuple):
    """What one arm did at one load.

    Args:
        requests: that were asked.
        tokens: good output tokens.
        busy_s: seconds in which at least one of the requests ran.
        bad: requests that succeeded and whose tokens are not good.
        untold: good requests whose tokens nobody counted.
        unchecked: good requests whose content nobody checked.
    """

    requests: int
    tokens: int
    busy_s: float
    bad: int
    untold: int
    unchecked: int


def costs(seen: Observations, *, usd_per_hour: float | None, controls: Controls | None = None) -> tuple[Cost, ...]:
    """Return one cost for each load and arm, the control left out: it is the baseline's server.

    Args:
        seen: the run.
        usd_per_hour: of all that the run occupies; None where nobody said.
        controls: of the run; rounds that they mark are taken out.
    """
    counted, good = rows_of(controls, seen), _good(seen)
    arms = [arm for arm in seen.arms if arm != seen.control]
    found = []
    for load in range(len(seen.loads)):
        at_load = counted & (seen.load == load)
        for arm in arms:
            done = work(seen, at_load & seen.of_arm(arm), good)
            if done.requests:
                found.append(_cost(arm, seen, load, done, usd_per_hour, servers=len(arms)))
    return tuple(found)


def rows_of(controls: Controls | None, seen: Observations) -> Mask:
    """Return which requests stand in rounds that no control marked and that are no control rounds."""
    marked = [one.round for one in controls.marked] if controls is not None else []
    return ~np.isin(seen.round, marked) & ~seen.in_control_rounds()


def work(seen: Observations, rows: Mask, good: Mask | None = None) -> Work:
    """Return what was done in some requests of one arm.

    Args:
        seen: the run.
        rows: the requests.
        good: of all requests, those whose tokens are worth something; worked out where it is not given.
    """
    counts = rows & (_good(seen) if good is None else good)
    untold = counts & np.isnan(seen.tokens)
    number = int(rows.sum())
    busy = busy_time_s(np.zeros(number, np.intp), seen.start_s[rows], seen.end_s[rows], 1) if number else np.zeros(1)
    return Work(
        requests=number,
        tokens=int(seen.tokens[counts & ~untold].sum()),
        busy_s=float(busy[0]),
        bad=int((rows & ~seen.failed & ~counts).sum()),
        untold=int(untold.sum()),
        unchecked=int((counts & (seen.content == UNKNOWN)).sum()),
    )


def _good(seen: Observations) -> Mask:
    """Return which requests succeeded, hold a text that is one, and kept every stated limit."""
    found = Figures(
        values=dict(seen.figures), gaps_ms=np.empty(0), gap_owners=np.empty(0, np.intp), suspects={},
        failed=seen.failed, counted=seen.tokens,
    )  # fmt: skip
    within, _ = judged(found, seen.run.goodput or {})
    words = [code for code, word in enumerate(seen.contents) if word in GOOD]
    good: Mask = within & np.isin(seen.content, [*words, UNKNOWN])
    return good


def _cost(  # noqa: PLR0913 - a cost is made of these
    arm: str, seen: Observations, load: int, done: Work, usd_per_hour: float | None, *, servers: int
) -> Cost:
    usd = None
    if usd_per_hour is not None and done.tokens:
        usd = usd_per_hour / servers * done.busy_s / _HOUR_S / done.tokens * _MILLION
    return Cost(
        arm=arm,
        load=seen.loads[load],
        usd_per_hour=usd_per_hour,
        good_tokens=done.tokens,
        busy_s=round(done.busy_s, 3),
        usd_per_million_good_tokens=usd,
        sentence=" ".join(_sentences(done, usd_per_hour, servers, limited=bool(seen.run.goodput))),
    )


def _sentences(done: Work, usd_per_hour: float | None, servers: int, *, limited: bool) -> list[str]:
    said = []
    if usd_per_hour is None:
        said.append("Nobody said what an hour of what the run occupied costs: give it, in USD, with --price.")
    elif not done.tokens:
        said.append("There is no cost, because no output token of this arm counts.")
    else:
        said.append(_of_what(usd_per_hour, servers))
    if done.bad:
        reason = "not good text or beyond the stated limits" if limited else "not good text"
        said.append(f"{done.bad} of {done.requests} answers are {reason}: paid for, and not counted.")
    if done.untold:
        said.append(f"The tokens of {done.untold} answers are not known, so the true cost is lower.")
    if done.unchecked:
        said.append(f"The text of {done.unchecked} answers was not checked.")
    return said


def _of_what(usd_per_hour: float, servers: int) -> str:
    whole = f"{usd_per_hour:g} USD an hour is the price of all that the run occupies"
    share = (
        f"this arm is charged one of {servers} equal shares of it"
        if servers > 1
        else "this arm is charged the whole of it"
    )
    return f"{whole}; {share}, for the time in which it was asked, at this load alone."
