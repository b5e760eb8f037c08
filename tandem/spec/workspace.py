"""Load declared environments and experiments from their folders.

Invariant: form only. What passes here is typed; whether it is legal is said by `tandem.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from tandem.shell_command import quote_command
from tandem.spec.document import YamlDocument, read_document
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.record import SpecRecord, parse_record
from tandem.spec.substitutes import build_substitutes

R = TypeVar("R", bound=SpecRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A parsed file together with where its keys stand, so that a rule can name the line."""

    document: YamlDocument
    environment: Environment | None = None
    experiment: Experiment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """All that the chosen folders declare.

    Args:
        environments, experiments: name to declared file; only files of good form.
        faults: every fault of form, over all files.
        substitutes: the same twice, with files of bad form in it whose spoilt leaves have two other legal values; none
            where every file is of good form.
    """

    environments: dict[str, SpecFile] = field(default_factory=dict)
    experiments: dict[str, SpecFile] = field(default_factory=dict)
    faults: tuple[SpecFault, ...] = ()
    substitutes: tuple[Workspace, ...] = ()


@dataclass(frozen=True, slots=True)
class _ParsedFolder(Generic[R]):
    """The files of one kind: those of good form, and the others as far as they can be mended, each twice."""

    records: dict[str, tuple[YamlDocument, R]]
    mended: dict[str, tuple[YamlDocument, tuple[R, R]]]
    faults: list[SpecFault]


def load_workspace(environments: Path, experiments: Path, names: tuple[str, ...] = ()) -> Workspace:
    """Read the environments named (all when none is) and every experiment.

    Raises:
        SpecError: a folder does not exist, or a named environment has no file.
    """
    environment_files, experiment_files = _list_files(environments), _list_files(experiments)
    faults: list[SpecFault] = []
    if not (environment_files or experiment_files):
        got, allowed = f"no .yaml file here, and none in {experiments}", "one environment or experiment at least"
        change = "start from `tandem new NAME`, or name other folders by --environments and --experiments"
        faults.append(SpecFault(str(environments), "", got, allowed, change))
    present = ", ".join(sorted(environment_files)) or "none yet"
    missing = []
    for name in names:
        if name not in environment_files:
            change = f"name one of these, or make it with `{quote_command('tandem', 'new', name)}`"
            missing.append(SpecFault(str(environments / f"{name}.yaml"), "", "no such file", present, change))
    if missing:
        raise SpecError(missing)
    places = _parse_files(Environment, {name: environment_files[name] for name in names or environment_files})
    hosts = [record for _, record in places.records.values()] + [pair[0] for _, pair in places.mended.values()]
    host_names = {name for host in hosts for name in host.experiments}
    names_to_load = sorted(host_names & set(experiment_files)) if names else experiment_files
    pairs = _parse_files(Experiment, {name: experiment_files[name] for name in names_to_load})
    faults += places.faults + pairs.faults
    for folder in (environments, experiments):
        for path in sorted(folder.glob("*.yml")):
            got, change = "a file that is passed over for its ending, .yml", f"rename it to {path.stem}.yaml"
            faults.append(SpecFault(str(path), "", got, "files ending in .yaml", change))
    for document, environment in places.records.values():
        for index, name in enumerate(environment.experiments):
            if name not in experiment_files:
                allowed = ", ".join(sorted(experiment_files)) or "none yet"
                change = f"write experiments/{name}.yaml, or host another"
                faults.append(document.build_fault(f"experiments[{index}]", repr(name), allowed, change))
    workspace, *substitutes = (
        Workspace(
            environments=_wrap_files("environment", places, choice),
            experiments=_wrap_files("experiment", pairs, choice),
        )
        for choice in ((None, 0, 1) if places.mended or pairs.mended else (None,))
    )
    return replace(workspace, faults=tuple(faults), substitutes=tuple(substitutes))


def _list_files(folder: Path) -> dict[str, Path]:
    """Return name to file of a folder."""
    if not folder.is_dir():
        change = "create it, or name another by --environments or --experiments"
        raise SpecError([SpecFault(str(folder), "", "no such folder", "a folder of YAML files", change)])
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _parse_files(record: type[R], files: dict[str, Path]) -> _ParsedFolder[R]:
    folder: _ParsedFolder[R] = _ParsedFolder({}, {}, [])
    for name, path in files.items():
        try:
            document = read_document(path)
        except SpecError as error:
            folder.faults.extend(error.faults)
            continue
        try:
            folder.records[name] = document, parse_record(record, document, name=name)
        except SpecError as error:
            folder.faults.extend(error.faults)
            pair = build_substitutes(record, document, error.faults, name)
            if pair is not None:
                folder.mended[name] = document, pair
    return folder


def _wrap_files(kind: str, folder: _ParsedFolder[Any], choice: int | None) -> dict[str, SpecFile]:
    """Return the files of a folder by name; with `choice` also the mended ones, in their first or second form."""
    files = dict(folder.records)
    if choice is not None:
        files |= {name: (document, pair[choice]) for name, (document, pair) in folder.mended.items()}
    return {name: SpecFile(document=document, **{kind: record}) for name, (document, record) in files.items()}
