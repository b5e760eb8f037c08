"""An artifact on local disk, held against the key it was made for: before it is stored, taken in, or served.

Invariant: whoever gets no fault may store it; what no source shows of it is said in sentences, never left out.
"""

from __future__ import annotations

from pathlib import Path

from tandem.artifacts.fault import StaleError
from tandem.artifacts.inspect_cache import UNPROVEN, failed_graphs, inspect_cache_root
from tandem.artifacts.inspect_nxdi import config_notes, inspect_nxdi, read_config
from tandem.spec.artifact_key import ArtifactKey

SHOWN = 12  # faults that a message names; the rest is counted


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
    is_nxdi = key.nxdi is not None
    faults = list(inspect_nxdi(folder, key) if is_nxdi else inspect_cache_root(folder))
    if is_nxdi and cache is not None:
        faults += failed_graphs(cache)
    if faults:
        more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        raise StaleError(
            "the artifact is not what its key asks for, or not whole:\n" + "\n".join([*faults[:SHOWN], *more]) + "\n",
            where=str(folder), change="nothing was stored; compile it again with this key's own arguments",
        )  # fmt: skip
    config = read_config(folder)
    return tuple(config_notes(config, key)) if is_nxdi and isinstance(config, dict) else (UNPROVEN,)
