"""Other programs' use of this machine, so that no time is measured on a busy one.

Invariant: our own processes do not count as others: this process, its ended children, and the named
process groups. Only Linux gives the figures (proc(5)); elsewhere every figure is None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MOST = 0.1  # of all CPUs; a desktop at rest takes 0.01 to 0.03
LOOK_S = 3.0
_IDLE = slice(3, 5)  # idle and iowait, of the eight that are not for guests (proc_stat(5))
_FIELDS = 8
# of /proc/PID/stat after the name (proc_pid_stat(5), fields 5, 14 and 15)
_GROUP = 2
_USER = 11
_SYSTEM = 12


@dataclass(frozen=True, slots=True)
class Taken:
    """Processor ticks since the machine's start: of all CPUs, of all that worked, of ours."""

    all: int
    busy: int
    ours: int


def taken(groups: Iterable[int] = ()) -> Taken | None:
    """Return the processor time so far; None if this system does not give it.

    Args:
        groups: process groups whose work is ours.
    """
    try:
        fields = [
            int(value)
            for value in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:][:_FIELDS]
        ]
    except (OSError, ValueError):
        return None
    spent = os.times()
    own_s = spent.user + spent.system + spent.children_user + spent.children_system
    ours = round(own_s * os.sysconf("SC_CLK_TCK")) + sum(_of_group(set(groups)))
    return Taken(all=sum(fields), busy=sum(fields) - sum(fields[_IDLE]), ours=ours)


def _of_group(groups: set[int]) -> Iterable[int]:
    for stat in PROC.glob("[0-9]*/stat") if groups else ():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[_GROUP]) in groups:
            yield int(fields[_USER]) + int(fields[_SYSTEM])


def share(before: Taken | None, after: Taken | None) -> float | None:
    """Return others' share of all CPUs between two looks, 0 to 1; None if not known."""
    if before is None or after is None or after.all <= before.all:
        return None
    theirs = (after.busy - before.busy) - (after.ours - before.ours)
    return min(max(theirs / (after.all - before.all), 0.0), 1.0)


def look(seconds: float = LOOK_S, groups: Iterable[int] = ()) -> float | None:
    """Return the share that others take during the next seconds."""
    named = tuple(groups)
    before = taken(named)
    time.sleep(seconds)
    return share(before, taken(named))
