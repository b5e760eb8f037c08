"""From the monotonic clock of the records to the calendar.

Invariant: a moment is moved by the clocks in the manifest and by nothing else, so the same folder gives the same
calendar on every machine.

The manifest has the clock of the run's start and one for each time it was resumed. A request belongs to the latest of
them that had been read when it began. After a reboot the monotonic clock begins anew, and then a request may be later
than several clocks; so the order of the file decides: where requests suddenly end earlier than those written before
them, the next clock that was read after a reboot begins. Without such a step, a clock that stands behind the one before
it is taken only for what cannot be of the one before. One case stays open: the machine was started anew, its new clock
was further on than where the first run began, and no request was recorded after that; then the last requests of the
first run are taken for those of the second, and stand too late.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.manifest import Manifest, moment
from tandem.bench.quantiles import Values

_STEP_S = (
    5.0  # how much earlier than the one before a request ends only after a reboot: records are written as they end
)
_ADJUSTED_S = 60.0  # two clocks of one boot differ by less, however the calendar was set meanwhile


class _Clocks(NamedTuple):
    """Each clock's moment, and where its zero lies on the calendar."""

    at_s: Values
    zero_s: Values


def utc_s(run: Manifest, start_s: Values, end_s: Values) -> Values:
    """Return when each request was begun, in seconds of Unix time.

    Args:
        run: has the clocks.
        start_s: when they were begun, on the records' clock, in the order of the file.
        end_s: when they ended, on the same clock.

    Raises:
        BenchError: a clock of the manifest shows no moment.
    """
    read = [run.clock, *run.resumed]
    at_s = np.array([clock.monotonic_s for clock in read])
    clocks = _Clocks(at_s, np.array([moment(clock.utc).timestamp() for clock in read]) - at_s)
    which = np.zeros(len(start_s), np.intp)
    edges = [(0, 0), *_restarts(clocks, start_s, end_s), (len(start_s), len(read))]
    for (begin, first), (end, beyond) in pairwise(edges):
        which[begin:end] = first
        mine, starts_s = which[begin:end], start_s[begin:end]
        for clock in range(first + 1, beyond):
            behind = at_s[clock] < at_s[clock - 1]
            mine[(starts_s >= at_s[clock]) & ((not behind) | (starts_s < at_s[mine]))] = clock
    moved: Values = start_s + clocks.zero_s[which]
    return moved


def _restarts(clocks: _Clocks, start_s: Values, end_s: Values) -> list[tuple[int, int]]:
    """Return the places in the file at which the monotonic clock began anew, and the clock that was read then."""
    behind = clocks.at_s[1:] < clocks.at_s[:-1]
    elsewhere = np.abs(np.diff(clocks.zero_s)) > _ADJUSTED_S
    anew = (np.flatnonzero(behind | elsewhere) + 1).tolist()
    steps: Whole = np.flatnonzero(np.diff(end_s) < -_STEP_S) + 1
    found: list[tuple[int, int]] = []
    for place in steps.tolist():
        clock = next((one for one in anew if clocks.at_s[one] <= start_s[place]), None)
        if clock is not None:
            found.append((place, clock))
            anew = [one for one in anew if one > clock]
    return found
