"""Conversion from the monotonic clock of the records to the calendar.

Invariant: only the clocks in the manifest convert a moment, so the same folder gives the same
calendar on every machine.

The manifest has the clock of the run's start and one clock for each resume. A request belongs to
the latest clock that was read before the request began. After a reboot the monotonic clock
restarts, and a request may then be later than several clocks; so the order of the file decides: if
a request ends earlier than the request written before it, the next clock after a reboot begins.
Without such a step, a clock with a lower reading than the previous clock is used only for requests
too early for the previous one. One case is unsolved: the machine was rebooted, its new clock was
already past the start of the first run, and no request was recorded after that; then the last
requests of the first run count as requests of the second, and get too late a time.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.records.manifest import RunManifest, parse_moment

# a request ends so much before the previous one only after a reboot: records are in the order of
# ends
_STEP_S = 5.0
ADJUSTMENT_S = 60.0  # two clocks of one boot differ by less, even if the calendar was set meanwhile


def compute_utc_s(run: RunManifest, start_s: Values, end_s: Values) -> Values:
    """Return the start time of each request, in seconds of Unix time.

    Args:
        run: has the clocks.
        start_s: start times in seconds on the records' clock, in the order of the file.
        end_s: end times on the same clock.

    Raises:
        InputError: a clock of the manifest has an invalid time.
    """
    readings = [run.clock, *run.resumed]
    at_s = np.array([clock.monotonic_s for clock in readings])
    # of each clock, its zero
    zero_s = np.array([parse_moment(clock.utc).timestamp() for clock in readings]) - at_s
    # clocks that were read after a reboot
    is_reboot = (np.diff(at_s) < 0) | (np.abs(np.diff(zero_s)) > ADJUSTMENT_S)
    reboot_clocks = (np.flatnonzero(is_reboot) + 1).tolist()
    edges = [(0, 0)]
    for place in (np.flatnonzero(np.diff(end_s) < -_STEP_S) + 1).tolist():
        later_clocks = [clock for clock in reboot_clocks if clock > edges[-1][1]]
        clock = next((clock for clock in later_clocks if at_s[clock] <= start_s[place]), None)
        if clock is not None:
            edges.append((place, clock))

    request_clocks = np.zeros(len(start_s), np.intp)
    for (begin, first), (end, next_first) in pairwise([*edges, (len(start_s), len(readings))]):
        part = slice(begin, end)
        request_clocks[part] = _find_clocks(at_s, start_s[part], range(first, next_first))
    utc_s: Values = start_s + zero_s[request_clocks]
    return utc_s


def _find_clocks(at_s: Values, start_s: Values, clocks: range) -> IntArray:
    """Return the clock of each request among those that one boot may have."""
    request_clocks = np.full(len(start_s), clocks.start)
    for clock in clocks[1:]:
        is_later = start_s >= at_s[clock]
        if at_s[clock] < at_s[clock - 1]:
            is_later &= start_s < at_s[request_clocks]
        request_clocks[is_later] = clock
    return request_clocks
