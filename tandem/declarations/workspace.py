"""Load declared environments and experiments from their folders.

Invariant: form only. What passes here is typed; whether it is legal is said by `tandem.rules`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tandem.declarations.checkout import BUILT_IN_EXPERIMENT, ROOT, find_built_in_experiment
from tandem.declarations.document import YamlDocument, read_document
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.record import SpecRecord, build_partial_record, parse_record
from tandem.shell_command import quote_command

R = TypeVar("R", bound=SpecRecord)


@dataclass(frozen=True, kw_only=True)
class SpecFile(Generic[R]):
    """A parsed file together with where its keys stand, so that a rule can name the line."""

    document: YamlDocument
    record: R


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """All that the chosen folders declare.

    Args:
        environments, experiments: name to declared file; only files of good form.
        faults: every fault of form, over all files.
        partial_environments, partial_experiments: the files of bad form, with what is legal in
            them; only rules read these.
    """

    environments: dict[str, SpecFile[Environment]] = field(default_factory=dict)
    experiments: dict[str, SpecFile[Experiment]] = field(default_factory=dict)
    faults: tuple[SpecFault, ...] = ()
    partial_environments: dict[str, SpecFile[Environment]] = field(default_factory=dict)
    partial_experiments: dict[str, SpecFile[Experiment]] = field(default_factory=dict)


def load_workspace(
    environments_folder: Path, experiments_folder: Path, names: tuple[str, ...] = ()
) -> Workspace:
    """Read the named environments and their experiments; all of both folders if none is named.

    Raises:
        SpecError: a folder does not exist, or a named environment has no file.
    """
    environment_files = _list_files(environments_folder)
    experiment_files = _list_files(experiments_folder)
    faults = []
    if not (environment_files or experiment_files):
        got = f"no .yaml file here, and none in {experiments_folder}"
        allowed = "one environment or experiment at least"
        change = (
            "start from `tandem new NAME`,"
            " or name other folders by --environments and --experiments"
        )
        faults.append(SpecFault(str(environments_folder), "", got, allowed, change))
    _require_named_files(environments_folder, environment_files, names)
    chosen_files = {name: environment_files[name] for name in names or environment_files}
    environments, partial_environments = _parse_files(Environment, chosen_files, faults)

    host_names = set()
    for file in (*environments.values(), *partial_environments.values()):
        host_names |= set(file.record.__dict__.get("experiments", ()))
    names_to_load = sorted(host_names & set(experiment_files)) if names else experiment_files
    hosted_files = {name: experiment_files[name] for name in names_to_load}
    experiments, partial_experiments = _parse_files(Experiment, hosted_files, faults)

    names_to_check = {*names, *host_names} if names else None
    for folder in (environments_folder, experiments_folder):
        faults += _refuse_endings(folder, names_to_check)
    for environment_file in environments.values():
        faults += _list_missing_experiments(environment_file, experiment_files)
    return Workspace(
        environments=environments,
        experiments=experiments,
        faults=tuple(faults),
        partial_environments=partial_environments,
        partial_experiments=partial_experiments,
    )


def _require_named_files(folder: Path, files: dict[str, Path], names: tuple[str, ...]) -> None:
    """Refuse the names that have no file."""
    faults = []
    for name in names:
        if name not in files:
            change = f"name one of these, or make it with `{quote_command('tandem', 'new', name)}`"
            faults.append(build_missing_fault(folder, name, files, change))
    if faults:
        raise SpecError(faults)


def build_missing_fault(folder: Path, name: str, names: Collection[str], change: str) -> SpecFault:
    """Return the fault of a name that has no file among those of its folder."""
    allowed = ", ".join(sorted(names)) or "none yet"
    return SpecFault(str(folder / f"{name}.yaml"), "", "file not found", allowed, change)


def _list_missing_experiments(
    file: SpecFile[Environment], experiment_files: dict[str, Path]
) -> list[SpecFault]:
    """Return a fault for each experiment that an environment hosts and no file declares."""
    allowed = ", ".join(sorted(experiment_files)) or "none yet"
    faults = []
    for index, name in enumerate(file.record.experiments):
        if name not in experiment_files:
            path = f"experiments[{index}]"
            change = f"write experiments/{name}.yaml, or host another"
            faults.append(file.document.build_fault(path, repr(name), allowed, change))
    return faults


def load_experiment(folder: Path, name: str, root: Path = ROOT) -> SpecFile[Experiment]:
    """Read one experiment, hosted or not; `post` comes with Tandem if the folder lacks it.

    Args:
        folder: of experiment files; it need not exist.
        name: of the experiment.
        root: of the checkout, or the folder that holds the installed `tandem`.

    Raises:
        SpecError: there is no such experiment, or its file is malformed.
    """
    files = {BUILT_IN_EXPERIMENT: find_built_in_experiment(root)}
    files.update({path.stem: path for path in folder.glob("*.yaml")})
    if name not in files:
        raise SpecError([build_missing_fault(folder, name, files, "name one of these")])
    document = read_document(files[name])
    return SpecFile(document=document, record=parse_record(Experiment, document, name=name))


def _list_files(folder: Path) -> dict[str, Path]:
    """Return name to file of a folder."""
    if not folder.is_dir():
        change = "create it, or name another by --environments or --experiments"
        raise SpecError(
            [SpecFault(str(folder), "", "folder not found", "a folder of YAML files", change)]
        )
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _refuse_endings(folder: Path, names: set[str] | None) -> list[SpecFault]:
    """Return a fault for each file of a folder that ends in .yml; None for every file."""
    faults = []
    for path in sorted(folder.glob("*.yml")):
        if names is None or path.stem in names:
            got = "a file that is passed over for its ending, .yml"
            change = f"rename it to {path.stem}.yaml"
            faults.append(SpecFault(str(path), "", got, "files ending in .yaml", change))
    return faults


def _parse_files(
    record: type[R], files: dict[str, Path], faults: list[SpecFault]
) -> tuple[dict[str, SpecFile[R]], dict[str, SpecFile[R]]]:
    """Return the files of good form and what is legal in others, whose faults go to `faults`."""
    whole_files = {}
    partial_files = {}
    for name, path in files.items():
        try:
            document = read_document(path)
        except SpecError as error:
            faults.extend(error.faults)
            continue
        try:
            whole_files[name] = SpecFile(
                document=document, record=parse_record(record, document, name=name)
            )
        except SpecError as error:
            faults.extend(error.faults)
            partial_record = build_partial_record(record, {**document.data, "name": name})
            partial_files[name] = SpecFile(document=document, record=partial_record)
    return whole_files, partial_files
