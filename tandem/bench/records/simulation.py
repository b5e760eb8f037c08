"""A server's announcement that it is simulated, and the band over all figures of such a server.

Invariant: one announcement is enough, the header or the owner of the model; a server that
contradicts itself counts as simulated. `tandem/simulator` announces both, and tests compare the two
sides over HTTP.
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
        headers: the value of SIMULATED_HEADER in each of its answers; None if an answer has none.
        owner: `owned_by` of its model; None if absent.
    """
    return owner == SIMULATOR_OWNER or any(
        value is not None and value.strip() != DENIAL_VALUE for value in headers
    )


def combine_simulated(arms: Iterable[bool | None]) -> bool | None:
    """Return whether a run is simulated, as one simulated arm suffices; None if unknown."""
    answers = list(arms)
    if True in answers:
        return True
    return None if None in answers else False
