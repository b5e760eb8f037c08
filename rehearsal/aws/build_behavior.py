"""The quota and the length of builds at the local endpoint: knobs for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildBehavior:
    """Both knobs; `AwsEndpoint.set_builds` puts them into force.

    Args:
        most: builds that an account may run at once in a region; a new account may have 1, or 0
            (docs/image.md).
        duration_s: how long a build lasts longer than its work here, in seconds.
    """

    most: int = 1
    duration_s: float = 0.0
