"""Load declared environments and experiments from their folders.

Invariant: form only. What passes here is typed; whether it is legal is said by `tandem.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

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


def load_workspace(environments: Path, experiments: Path, names: tuple[str, ...] = ()) -> Workspace:
    """Read the environments named (all when none is) and every experiment.

    Raises:
        SpecError: a folder does not exist, or a named environment has no file.
    """
    faults: list[SpecFault] = []
    if not (_list_files(environments) or _list_files(experiments)):
        faults.append(_empty_folders_fault(environments, experiments))
    environment_pairs: list[tuple[YamlDocument, Environment]] = []
    substitute_pairs: list[tuple[YamlDocument, tuple[SpecRecord, SpecRecord]]] = []
    environment_pairs += _parse_files(environments, names, Environment, faults, substitute_pairs)
    environment_records = [*(record for _, record in environment_pairs), *(pair[0] for _, pair in substitute_pairs)]
    experiment_names = {
        name for record in environment_records if isinstance(record, Environment) for name in record.experiments
    }
    present_names = {path.stem for path in _list_files(experiments)}
    names_to_load = tuple(sorted(experiment_names & present_names)) if names else ()
    experiment_pairs = (
        list(_parse_files(experiments, names_to_load, Experiment, faults, substitute_pairs))
        if names_to_load or not names
        else []
    )
    faults += [
        _wrong_suffix_fault(path) for folder in (environments, experiments) for path in sorted(folder.glob("*.yml"))
    ]
    faults += [
        _unknown_experiment_fault(document, index, name, sorted(present_names))
        for document, record in environment_pairs
        for index, name in enumerate(record.experiments)
        if name not in present_names
    ]
    workspace = _build_workspace(environment_pairs, experiment_pairs)
    substitute_workspaces = (
        [
            _build_workspace(
                [*environment_pairs, *_select_substitutes(substitute_pairs, Environment, choice_index)],
                [*experiment_pairs, *_select_substitutes(substitute_pairs, Experiment, choice_index)],
            )
            for choice_index in (0, 1)
        ]
        if substitute_pairs
        else []
    )
    return replace(workspace, faults=tuple(faults), substitutes=tuple(substitute_workspaces))


def _build_workspace(
    environments: Iterable[tuple[YamlDocument, Environment]], experiments: Iterable[tuple[YamlDocument, Experiment]]
) -> Workspace:
    """Join parsed files under their names."""
    return Workspace(
        environments={
            record.name: SpecFile(document=document, environment=record) for document, record in environments
        },
        experiments={record.name: SpecFile(document=document, experiment=record) for document, record in experiments},
    )


def _select_substitutes(
    substitute_pairs: Iterable[tuple[YamlDocument, tuple[SpecRecord, SpecRecord]]], kind: type[R], choice_index: int
) -> Iterator[tuple[YamlDocument, R]]:
    """Yield the mended records of one kind, with the first or the second legal values."""
    for document, pair in substitute_pairs:
        record = pair[choice_index]
        if isinstance(record, kind):
            yield document, record


def _parse_files(
    folder: Path,
    names: tuple[str, ...],
    record: type[R],
    faults: list[SpecFault],
    substitute_pairs: list[tuple[YamlDocument, tuple[SpecRecord, SpecRecord]]],
) -> Iterator[tuple[YamlDocument, R]]:
    files = _list_files(folder)
    if names:
        by_name = {path.stem: path for path in files}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise SpecError([_missing_file_fault(folder, name, sorted(by_name)) for name in missing])
        files = [by_name[name] for name in names]
    for path in files:
        try:
            document = read_document(path)
        except SpecError as error:
            faults.extend(error.faults)
            continue
        try:
            yield document, parse_record(record, document, name=path.stem)
        except SpecError as error:
            faults.extend(error.faults)
            pair = build_substitutes(record, document, error.faults, path.stem)
            if pair is not None:
                substitute_pairs.append((document, pair))


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise SpecError(
            [SpecFault(file=str(folder), path="", got="no such folder", allowed="a folder of YAML files",
                   change="create it, or name another by --environments or --experiments")]
        )  # fmt: skip
    return sorted(folder.glob("*.yaml"))


def _empty_folders_fault(environments: Path, experiments: Path) -> SpecFault:
    return SpecFault(
        file=str(environments), path="", got=f"no .yaml file here, and none in {experiments}",
        allowed="one environment or experiment at least",
        change="start from `tandem new NAME`, or name other folders by --environments and --experiments",
    )  # fmt: skip


def _missing_file_fault(folder: Path, name: str, present_names: list[str]) -> SpecFault:
    return SpecFault(
        file=str(folder / f"{name}.yaml"), path="", got="no such file", allowed=", ".join(present_names) or "none yet",
        change=f"name one of these, or make it with `{quote_command('tandem', 'new', name)}`",
    )  # fmt: skip


def _wrong_suffix_fault(path: Path) -> SpecFault:
    return SpecFault(
        file=str(path), path="", got="a file that is passed over for its ending, .yml", allowed="files ending in .yaml",
        change=f"rename it to {path.stem}.yaml",
    )  # fmt: skip


def _unknown_experiment_fault(document: YamlDocument, index: int, name: str, present_names: list[str]) -> SpecFault:
    path = f"experiments[{index}]"
    return SpecFault(
        file=document.file, path=path, got=repr(name), allowed=", ".join(present_names) or "none yet",
        change=f"write experiments/{name}.yaml, or host another", line=document.lines.get(path),
    )  # fmt: skip
