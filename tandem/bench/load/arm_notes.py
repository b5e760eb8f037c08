"""Notes on what the arms of a run have in common, or have not.

Invariant: a note stops no run; whoever measures one server twice may mean to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from urllib.parse import urlsplit

from tandem.bench.plan.server_access import read_origin
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.manifest import ManifestArm

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared, not bound


def list_arm_notes(arms: Sequence[ManifestArm], settings: RunSettings) -> Iterator[str]:
    """Yield a sentence for each pair that is one server, and each field that only some are sent.

    Args:
        arms: after the probe, which leaves out what a server refuses.
        settings: of the run: a header of an arm may lead to another server, and at temperature 0 no
            seed has an effect.
    """
    access = settings.access
    for arm, other_arm in combinations(arms, 2):
        is_same_request = (
            arm.model == other_arm.model
            and arm.extra_body == other_arm.extra_body
            and access.get(arm.name) == access.get(other_arm.name)
        )
        if is_same_request and is_same_server(arm, other_arm):
            yield (
                f"{arm.name} and {other_arm.name} are one address with one model: you compare a"
                " server with itself"
            )
    field_names = ("temperature", "seed") if settings.manifest.temperature else ("temperature",)
    for field_name in field_names:
        names = [arm.name for arm in arms if field_name in arm.left_out]
        if 0 < len(names) < len(arms):
            yield (
                f"only {' and '.join(names)} is not sent {field_name}: the arms sample unlike,"
                f" which may change lengths and times; --leave-out {field_name} treats all alike"
            )


def is_same_server(arm: ManifestArm, other_arm: ManifestArm) -> bool:
    """Return whether two arms have one address; all names of this machine are one."""
    return _read_address(arm.api_root) == _read_address(other_arm.api_root)


def _read_address(url: str) -> tuple[str, str, int | None, str]:
    scheme, host, port = read_origin(url)
    return scheme, "localhost" if host in _LOOPBACK_HOSTS else host, port, urlsplit(url).path
