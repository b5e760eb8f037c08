"""How a server says that it is simulated, and the band over everything that was measured of such a server.

Invariant: one announcement is enough, the header or the owner of the model; a server that contradicts itself counts as
simulated. `tandem/simulator` announces both, and tests hold the two sides against each other over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SIMULATED_HEADER = "x-tandem-simulated"
SIMULATOR_OWNER = "tandem-simulator"
DENIAL_VALUE = "0"
SIMULATED_BAND = "SIMULATED SERVERS: these figures test Tandem, not Trainium"


class ServerAnnouncement(NamedTuple):
    """What a server says of itself; `note` is a sentence where it contradicts itself."""

    is_simulator: bool
    note: str | None = None


def read_announcement(headers: Iterable[str | None], owner: str | None) -> ServerAnnouncement:
    """Return what a server announces.

    Args:
        headers: the value of HEADER in each of its answers; None where an answer has none.
        owner: `owned_by` of its model; None where it lists none.
    """
    values = {value.strip() for value in headers if value is not None}
    is_simulator = owner == SIMULATOR_OWNER or bool(values - {DENIAL_VALUE})
    if not (is_simulator and DENIAL_VALUE in values):
        return ServerAnnouncement(is_simulator)
    evidence = f"owned_by is {SIMULATOR_OWNER}"
    if owner != SIMULATOR_OWNER:
        evidence = f"{SIMULATED_HEADER} is {min(values - {DENIAL_VALUE})!r} elsewhere"
    note = f"{SIMULATED_HEADER} is {DENIAL_VALUE} and {evidence}: it counts as simulated"
    return ServerAnnouncement(is_simulator, note)


def combine_simulated(arms: Iterable[bool | None]) -> bool | None:
    """Return whether a run is simulated: one simulated arm suffices; None where an arm is not known and none is."""
    answers = list(arms)
    return True if True in answers else None if None in answers else False
