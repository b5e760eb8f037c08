"""An environment, its bucket, and everybody else who uses that bucket, from the declared files.

Invariant: an environment that names the same bucket counts, whether it was asked for or not; what of it cannot
be read is told, so that nobody takes the unknown for unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.artifacts.needs import Need, needs, together
from tandem.commands.inputs import Inputs, legal, read
from tandem.commands.selection import Selection
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the commands of a bucket start from.

    Args:
        environment: the one that was named.
        hosted: its experiments.
        catalogue: what their names stand for.
        needed: what it and all others of the same bucket need, each once.
        sharing: names of the other environments of the same bucket.
        unread: why the needs of another environment are not known, or may not be.
    """

    environment: Environment
    hosted: tuple[Experiment, ...]
    catalogue: Catalogue
    needed: tuple[Need, ...]
    sharing: tuple[str, ...]
    unread: tuple[Fault, ...]

    @property
    def bucket(self) -> str:
        """Return the bucket's name."""
        return names.bucket(self.environment)


def scene(chosen: Selection, name: str) -> Scene:
    """Load an environment and whoever shares its bucket, of the same folders.

    Raises:
        SpecError: the environment or what it hosts is refused.
    """
    everything = read(replace(chosen, names=(), strict=False))
    environment = next((found for found in everything.environments() if found.name == name), None)
    if environment is None or _refusals(everything, {_path(chosen.environments, name)}, chosen, [environment]):
        legal(replace(chosen, names=(name,), strict=False))  # raises with what is wrong of this one alone
    assert environment is not None
    hosted = everything.hosted(environment)
    sharing = [
        other
        for other in everything.environments()
        if other.name != name and names.bucket(other) == names.bucket(environment)
    ]
    parsed = {declared.document.file for declared in everything.workspace.environments.values()}
    files = {str(path) for path in chosen.environments.glob("*.yaml")} - parsed  # nobody knows which bucket these name
    files |= {_path(chosen.environments, other.name) for other in sharing}
    unread = _refusals(everything, files, chosen, sharing)
    refused = {fault.file for fault in unread}
    others = {
        other.name: needs(
            [each for each in everything.hosted(other) if _path(chosen.experiments, each.name) not in refused],
            everything.catalogue,
        )
        for other in sharing
    }
    return Scene(
        environment=environment, hosted=tuple(hosted), catalogue=everything.catalogue,
        needed=together(needs(hosted, everything.catalogue), others), sharing=tuple(others), unread=unread,
    )  # fmt: skip


def _refusals(
    everything: Inputs, files: set[str], chosen: Selection, environments: Sequence[Environment]
) -> tuple[Fault, ...]:
    """Return the refusals of environment files, and of what the environments host."""
    files = files | {_path(chosen.experiments, name) for other in environments for name in other.experiments}
    return tuple(fault for fault in everything.faults if fault.severity == "refusal" and fault.file in files)


def _path(folder: Path, name: str) -> str:
    return str(folder / f"{name}.yaml")
