"""An artifact on local disk, held against the key it was made for: before it is stored, taken in, or served.

Invariant: whoever gets no fault may store it; what no source shows of it is said in sentences, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.fault import StaleError
from tandem.artifacts.inspect_cache import UNPROVEN, failed_graphs, inspect_cache_root
from tandem.artifacts.inspect_nxdi import config_notes, inspect_nxdi, read_config
from tandem.spec.artifact_key import ArtifactKey

SHOWN = 12  # faults that a message names; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found of an artifact, in sentences: its faults, and what of it is unproven."""

    faults: tuple[str, ...]
    notes: tuple[str, ...]


def inspect_local(folder: Path, key: ArtifactKey, *, cache: Path | None = None) -> tuple[str, ...]:
    """Refuse an artifact that is not whole, or not the key's.

    Args:
        folder: the artifact's.
        key: what it was compiled for.
        cache: of the compiler that made it, where it is still there.

    Returns:
        what of it is unproven, in sentences.

    Raises:
        StaleError: it has faults; each is named, one a line.
    """
    found = inspection(folder, key, cache=cache)
    if found.faults:
        raise StaleError(
            spoken(found.faults), where=str(folder),
            change="nothing was stored; compile it again with this key's own arguments",
        )  # fmt: skip
    return found.notes


def inspection(folder: Path, key: ArtifactKey, *, cache: Path | None = None) -> Inspection:
    """Return what is found of an artifact; the arguments are those of `inspect_local`."""
    is_nxdi = key.nxdi is not None
    faults = list(inspect_nxdi(folder, key) if is_nxdi else inspect_cache_root(folder))
    if is_nxdi and cache is not None:
        faults += failed_graphs(cache)
    config = read_config(folder)
    notes = tuple(config_notes(config, key)) if is_nxdi and isinstance(config, dict) else (UNPROVEN,)
    return Inspection(faults=tuple(faults), notes=notes)


def spoken(faults: Sequence[str]) -> str:
    """Return what is wrong as one message, a fault a line."""
    more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
    return "the artifact is not what its key asks for, or not whole:\n" + "\n".join([*faults[:SHOWN], *more]) + "\n"
