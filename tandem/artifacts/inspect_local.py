"""An artifact on local disk, held against the key it was made for: before it is stored, taken in, or served.

Invariant: whoever gets no fault may store it; what no source shows of it is said in sentences, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.inspect_cache import UNPROVEN_NOTE, inspect_cache_root, list_graph_failures
from tandem.artifacts.inspect_nxdi import config_notes, inspect_nxdi, read_config
from tandem.errors import StaleError
from tandem.spec.artifact_key import ArtifactKey

MAX_FAULTS = 12  # faults that a message names; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactInspection:
    """What was found of an artifact, in sentences: its faults, and what of it is unproven."""

    faults: tuple[str, ...]
    notes: tuple[str, ...]


def require_valid_artifact(folder: Path, key: ArtifactKey, *, cache: Path | None = None) -> tuple[str, ...]:
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
    local_inspection = inspect_artifact(folder, key, cache=cache)
    if local_inspection.faults:
        raise StaleError(
            format_faults(local_inspection.faults), where=str(folder),
            change="nothing was stored; compile it again with this key's own arguments",
        )  # fmt: skip
    return local_inspection.notes


def inspect_artifact(folder: Path, key: ArtifactKey, *, cache: Path | None = None) -> ArtifactInspection:
    """Return what is found of an artifact; the arguments are those of `require_valid_artifact`."""
    is_nxdi = key.nxdi is not None
    faults = list(inspect_nxdi(folder, key) if is_nxdi else inspect_cache_root(folder))
    if is_nxdi and cache is not None:
        faults += list_graph_failures(cache)
    config = read_config(folder)
    notes = tuple(config_notes(config, key)) if is_nxdi and isinstance(config, dict) else (UNPROVEN_NOTE,)
    return ArtifactInspection(faults=tuple(faults), notes=notes)


def format_faults(faults: Sequence[str]) -> str:
    """Return what is wrong as one message, a fault a line."""
    rest_lines = [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
    return (
        "the artifact is not what its key asks for, or not whole:\n"
        + "\n".join([*faults[:MAX_FAULTS], *rest_lines])
        + "\n"
    )
