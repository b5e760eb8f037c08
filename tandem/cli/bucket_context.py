"""An environment, its bucket, and everybody else who uses that bucket, from the declared files.

Invariant: an environment that names the same bucket counts, whether it was asked for or not; what of it cannot
be read is told, so that nobody takes the unknown for unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.needs import BucketNeed, list_needs, merge_needs
from tandem.cli.inputs import CommandInputs, read_inputs, read_legal_inputs
from tandem.cli.selection import Selection
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecFault


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketContext:
    """What the commands of a bucket start from.

    Args:
        environment: the one that was named.
        experiments: its experiments.
        catalogue: what their names stand for.
        needs: what it and all others of the same bucket need, each once.
        sharing: names of the other environments of the same bucket.
        unread: why the needs of another environment are not known, or may not be.
    """

    environment: Environment
    experiments: tuple[Experiment, ...]
    catalogue: Catalogue
    needs: tuple[BucketNeed, ...]
    sharing: tuple[str, ...]
    unread: tuple[SpecFault, ...]

    @property
    def bucket(self) -> str:
        """Return the bucket's name."""
        return names.bucket_name(self.environment)

    @property
    def subject(self) -> str:
        """Return the names of all who use the bucket."""
        return " and ".join([self.environment.name, *self.sharing])


def load_bucket_context(selection: Selection, name: str) -> BucketContext:
    """Load an environment and whoever shares its bucket, of the same folders.

    Raises:
        SpecError: the environment or what it hosts is refused.
    """
    all_inputs = read_inputs(selection.narrow(()))
    environments = {environment.name: environment for environment in all_inputs.environments()}
    environment = environments.pop(name, None)
    own_file = {_spec_path(selection.environments, name)}
    if environment is None or _find_refusals(all_inputs, own_file, selection, [environment]):
        read_legal_inputs(selection.narrow((name,)))  # raises with what is wrong of this one alone
    assert environment is not None
    bucket = names.bucket_name(environment)
    sharing = [sharer for sharer in environments.values() if names.bucket_name(sharer) == bucket]
    parsed_files = {declaration.document.file for declaration in all_inputs.workspace.environments.values()}
    # nobody knows which bucket the others name
    files = {str(path) for path in selection.environments.glob("*.yaml")} - parsed_files
    files |= {_spec_path(selection.environments, sharer.name) for sharer in sharing}
    unread = _find_refusals(all_inputs, files, selection, sharing)
    refused_files = {fault.file for fault in unread}

    def list_legal_experiments(sharer: Environment) -> list[Experiment]:
        hosted = all_inputs.list_experiments(sharer)
        return [item for item in hosted if _spec_path(selection.experiments, item.name) not in refused_files]

    catalogue, experiments = all_inputs.catalogue, all_inputs.list_experiments(environment)
    other_needs = {sharer.name: list_needs(list_legal_experiments(sharer), catalogue) for sharer in sharing}
    return BucketContext(
        environment=environment,
        experiments=tuple(experiments),
        catalogue=catalogue,
        needs=merge_needs(list_needs(experiments, catalogue), other_needs),
        sharing=tuple(other_needs),
        unread=unread,
    )


def _find_refusals(
    all_inputs: CommandInputs, files: set[str], selection: Selection, environments: Sequence[Environment]
) -> tuple[SpecFault, ...]:
    """Return the refusals of environment files, and of what the environments host."""
    hosted_names = {name for environment in environments for name in environment.experiments}
    files = files | {_spec_path(selection.experiments, name) for name in hosted_names}
    return tuple(fault for fault in all_inputs.faults if fault.severity == "refusal" and fault.file in files)


def _spec_path(folder: Path, name: str) -> str:
    return str(folder / f"{name}.yaml")
