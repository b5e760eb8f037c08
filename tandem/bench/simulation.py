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


class ServerAnnouncement(NamedTuple):
    """What a server says of itself; `note` is a sentence where it contradicts itself."""

    simulated: bool
    note: str | None = None


def read_announcement(headers: Iterable[str | None], owner: str | None) -> ServerAnnouncement:
    """Return what a server announces.

    Args:
        headers: the value of HEADER in each of its answers; None where an answer has none.
        owner: `owned_by` of its model; None where it lists none.
    """
    values = {value.strip() for value in headers if value is not None}
    is_simulated = owner == OWNER or bool(values - {DENIAL})
    if is_simulated and DENIAL in values:
        evidence = f"owned_by is {OWNER}" if owner == OWNER else f"{HEADER} is {min(values - {DENIAL})!r} elsewhere"
        return ServerAnnouncement(is_simulated, f"{HEADER} is {DENIAL} and {evidence}: it counts as simulated")
    return ServerAnnouncement(is_simulated)


def combine_simulated(arms: Iterable[bool | None]) -> bool | None:
    """Return whether a run is simulated: one simulated arm suffices; None where an arm is not known and none is."""
    answers = list(arms)
    return True if True in answers else None if None in answers else False
