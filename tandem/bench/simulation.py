"""How a server says that it is simulated, and the band over everything that was measured of such a server.

Invariant: one announcement is enough, the header or the owner of the model; a server that contradicts itself counts as
simulated. `tandem/simulator` announces both, and tests hold the two sides against each other over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable

SIMULATED_HEADER = "x-tandem-simulated"
SIMULATOR_OWNER = "tandem-simulator"
DENIAL_VALUE = "0"
SIMULATED_BAND = "SIMULATED SERVERS: these figures test Tandem, not Trainium"


def is_announced(headers: Iterable[str | None], owner: str | None) -> bool:
    """Return whether a server announces that it is simulated.

    Args:
        headers: the value of SIMULATED_HEADER in each of its answers; None where an answer has none.
        owner: `owned_by` of its model; None where it lists none.
    """
    return owner == SIMULATOR_OWNER or any(value is not None and value.strip() != DENIAL_VALUE for value in headers)


def combine_simulated(arms: Iterable[bool | None]) -> bool | None:
    """Return whether a run is simulated: one simulated arm suffices; None where an arm is not known and none is."""
    answers = list(arms)
    return True if True in answers else None if None in answers else False
