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

import numpy as np

from tandem.bench.manifest import RunManifest, parse_moment
from tandem.bench.quantiles import Values

_STEP_S = 5.0  # a request ends so much earlier than the one before only after a reboot: records are written as they end
ADJUSTMENT_S = 60.0  # two clocks of one boot differ by less, however the calendar was set meanwhile


def compute_utc_s(run: RunManifest, start_s: Values, end_s: Values) -> Values:
    """Return when each request was begun, in seconds of Unix time.

    Args:
        run: has the clocks.
        start_s: when they were begun, on the records' clock, in the order of the file.
        end_s: when they ended, on the same clock.

    Raises:
        InputError: a clock of the manifest shows no moment.
    """
    readings = [run.clock, *run.resumed]
    at_s = np.array([clock.monotonic_s for clock in readings])
    zero_s = np.array([parse_moment(clock.utc).timestamp() for clock in readings]) - at_s  # of each clock, its zero
    # at which places of the file the monotonic clock began anew, and the clock that was read then
    reboot_clocks = (np.flatnonzero((np.diff(at_s) < 0) | (np.abs(np.diff(zero_s)) > ADJUSTMENT_S)) + 1).tolist()
    edges = [(0, 0)]
    for place in (np.flatnonzero(np.diff(end_s) < -_STEP_S) + 1).tolist():
        clock = next((clock for clock in reboot_clocks if clock > edges[-1][1] and at_s[clock] <= start_s[place]), None)
        if clock is not None:
            edges.append((place, clock))
    request_clocks = np.zeros(len(start_s), np.intp)
    for (begin, first), (end, next_first) in pairwise([*edges, (len(start_s), len(readings))]):
        request_clocks[begin:end] = first
        part_clocks, starts_s = request_clocks[begin:end], start_s[begin:end]
        for clock in range(first + 1, next_first):
            is_earlier = at_s[clock] < at_s[clock - 1]
            part_clocks[(starts_s >= at_s[clock]) & ((not is_earlier) | (starts_s < at_s[part_clocks]))] = clock
    utc_s: Values = start_s + zero_s[request_clocks]
    return utc_s
