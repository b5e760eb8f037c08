"""An environment, its bucket, and everybody else who uses that bucket, from the declared files.

Invariant: an environment that names the same bucket counts, whether the command names it or not;
what of it cannot be read is reported, so that nobody takes the unknown for unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tandem.artifacts.needs import BucketNeed, list_needs, merge_needs
from tandem.cli.inputs import CommandInputs, read_inputs, read_legal_inputs
from tandem.cli.selection import Selection
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.faults import SpecFault


@dataclass(frozen=True, kw_only=True)
class BucketContext:
    """What the commands of a bucket start from.

    Args:
        environment: the one that was named.
        needs: what it and all others of the same bucket need, each once.
        sharing: names of the other environments of the same bucket.
        unread: why the needs of another environment are not known, or may not be.
    """

    environment: Environment
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
    """Load an environment and those that share its bucket, of the same folders.

    Raises:
        SpecError: the environment or what it hosts is refused.
    """
    all_inputs = read_inputs(selection.narrow(()))
    environments = {environment.name: environment for environment in all_inputs.environments()}
    environment = environments.pop(name, None)
    if environment is None or _list_refusals(all_inputs, selection, [environment]):
        read_legal_inputs(selection.narrow((name,)))  # raises with what is wrong of this one alone
    assert environment is not None
    bucket = names.bucket_name(environment)
    sharing = [sharer for sharer in environments.values() if names.bucket_name(sharer) == bucket]
    unread_files = _find_unread_files(all_inputs, selection)
    unread = _list_refusals(all_inputs, selection, sharing, unread_files)
    refused_files = {fault.file for fault in unread}
    catalogue = all_inputs.catalogue
    needs = list(list_needs(environment.name, all_inputs.list_experiments(environment), catalogue))
    for sharer in sharing:
        legal = [
            experiment
            for experiment in all_inputs.list_experiments(sharer)
            if str(selection.experiments / f"{experiment.name}.yaml") not in refused_files
        ]
        needs += list_needs(sharer.name, legal, catalogue, is_foreign=True)
    return BucketContext(
        environment=environment,
        needs=merge_needs(needs),
        sharing=tuple(sharer.name for sharer in sharing),
        unread=unread,
    )


def _find_unread_files(all_inputs: CommandInputs, selection: Selection) -> set[str]:
    """Return the environment files that have no form: nobody knows which bucket they name."""
    known_files = {file.document.file for file in all_inputs.workspace.environments.values()}
    return {str(path) for path in selection.environments.glob("*.y*ml")} - known_files


def _list_refusals(
    all_inputs: CommandInputs,
    selection: Selection,
    environments: Iterable[Environment],
    files: Iterable[str] = (),
) -> tuple[SpecFault, ...]:
    """Return the refusals of environments, of what they host, and of other files."""
    files = set(files)
    for environment in environments:
        files.add(str(selection.environments / f"{environment.name}.yaml"))
        files |= {
            str(selection.experiments / f"{experiment}.yaml")
            for experiment in environment.experiments
        }
    return tuple(
        fault for fault in all_inputs.faults if fault.severity == "refusal" and fault.file in files
    )
