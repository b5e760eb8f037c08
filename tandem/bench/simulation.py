"""How a server says that it is simulated, and the band over everything that was measured of such a server.

Invariant: one announcement is enough, the header or the owner of the model; a server that contradicts itself counts as
simulated. `tandem/twin/server` announces both, and tests hold the two sides against each other over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

HEADER = "x-tandem-simulated"
OWNER = "tandem-simulator"
DENIAL = "0"
BAND = "SIMULATED SERVERS: these figures test Tandem, not Trainium"


class Announcement(NamedTuple):
    """What a server says of itself; `note` is a sentence where it contradicts itself."""

    simulated: bool
    note: str | None = None


def read_announcement(headers: Iterable[str | None], owner: str | None) -> Announcement:
    """Return what a server announces.

    Args:
        headers: the value of HEADER in each of its answers; None where an answer has none.
        owner: `owned_by` of its model; None where it lists none.
    """
    values = {value.strip() for value in headers if value is not None}
    simulated = owner == OWNER or bool(values - {DENIAL})
    if simulated and DENIAL in values:
        told = f"owned_by is {OWNER}" if owner == OWNER else f"{HEADER} is {min(values - {DENIAL})!r} elsewhere"
        return Announcement(simulated, f"{HEADER} is {DENIAL} and {told}: it counts as simulated")
    return Announcement(simulated)


def combine_simulated(arms: Iterable[bool | None]) -> bool | None:
    """Return whether a run is simulated: one simulated arm suffices; None where an arm is not known and none is."""
    known = list(arms)
    return True if True in known else None if None in known else False
