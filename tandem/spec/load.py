"""Load declared environments and experiments from their folders.

Invariant: form only. What passes here is typed; whether it is legal is said by `tandem.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tandem.shell_command import quote_command
from tandem.spec.document import Document, read_document
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError
from tandem.spec.record import Record, parse
from tandem.spec.substitutes import repaired

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A parsed file together with where its keys stand, so that a rule can name the line."""

    document: Document
    environment: Environment | None = None
    experiment: Experiment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """All that the chosen folders declare.

    Args:
        environments, experiments: name to declared file; only files of good form.
        faults: every fault of form, over all files.
        mended: the same twice, with files of bad form in it whose spoilt leaves have two other legal values; none
            where every file is of good form.
    """

    environments: dict[str, Declared] = field(default_factory=dict)
    experiments: dict[str, Declared] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    mended: tuple[Workspace, ...] = ()


def load(environments: Path, experiments: Path, names: tuple[str, ...] = ()) -> Workspace:
    """Read the environments named (all when none is) and every experiment.

    Raises:
        SpecError: a folder does not exist, or a named environment has no file.
    """
    faults: list[Fault] = []
    if not (_files(environments) or _files(experiments)):
        faults.append(_nothing(environments, experiments))
    good: list[tuple[Document, Environment]] = []
    mended: list[tuple[Document, tuple[Record, Record]]] = []
    good += _parsed(environments, names, Environment, faults, mended)
    hosting = [*(record for _, record in good), *(pair[0] for _, pair in mended)]
    hosted = {name for record in hosting if isinstance(record, Environment) for name in record.experiments}
    present = {path.stem for path in _files(experiments)}
    wanted = tuple(sorted(hosted & present)) if names else ()
    found = list(_parsed(experiments, wanted, Experiment, faults, mended)) if wanted or not names else []
    faults += [_misnamed(path) for folder in (environments, experiments) for path in sorted(folder.glob("*.yml"))]
    faults += [
        _dangling(document, index, name, sorted(present))
        for document, record in good
        for index, name in enumerate(record.experiments)
        if name not in present
    ]
    workspace = _workspace(good, found)
    twice = [_workspace([*good, *_of(mended, Environment, which)], [*found, *_of(mended, Experiment, which)])
             for which in (0, 1)] if mended else []  # fmt: skip
    return replace(workspace, faults=tuple(faults), mended=tuple(twice))


def _workspace(
    environments: Iterable[tuple[Document, Environment]], experiments: Iterable[tuple[Document, Experiment]]
) -> Workspace:
    """Join parsed files under their names."""
    return Workspace(
        environments={
            record.name: Declared(document=document, environment=record) for document, record in environments
        },
        experiments={record.name: Declared(document=document, experiment=record) for document, record in experiments},
    )


def _of(
    mended: Iterable[tuple[Document, tuple[Record, Record]]], kind: type[R], which: int
) -> Iterator[tuple[Document, R]]:
    """Yield the mended records of one kind, with the first or the second legal values."""
    for document, pair in mended:
        record = pair[which]
        if isinstance(record, kind):
            yield document, record


def _parsed(
    folder: Path,
    names: tuple[str, ...],
    record: type[R],
    faults: list[Fault],
    mended: list[tuple[Document, tuple[Record, Record]]],
) -> Iterator[tuple[Document, R]]:
    files = _files(folder)
    if names:
        by_name = {path.stem: path for path in files}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise SpecError([_missing(folder, name, sorted(by_name)) for name in missing])
        files = [by_name[name] for name in names]
    for path in files:
        try:
            document = read_document(path)
        except SpecError as error:
            faults.extend(error.faults)
            continue
        try:
            yield document, parse(record, document, name=path.stem)
        except SpecError as error:
            faults.extend(error.faults)
            pair = repaired(record, document, error.faults, path.stem)
            if pair is not None:
                mended.append((document, pair))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise SpecError(
            [Fault(file=str(folder), path="", got="no such folder", allowed="a folder of YAML files",
                   change="create it, or name another by --environments or --experiments")]
        )  # fmt: skip
    return sorted(folder.glob("*.yaml"))


def _nothing(environments: Path, experiments: Path) -> Fault:
    return Fault(
        file=str(environments), path="", got=f"no .yaml file here, and none in {experiments}",
        allowed="one environment or experiment at least",
        change="start from `tandem new NAME`, or name other folders by --environments and --experiments",
    )  # fmt: skip


def _missing(folder: Path, name: str, present: list[str]) -> Fault:
    return Fault(
        file=str(folder / f"{name}.yaml"), path="", got="no such file", allowed=", ".join(present) or "none yet",
        change=f"name one of these, or make it with `{quote_command('tandem', 'new', name)}`",
    )  # fmt: skip


def _misnamed(path: Path) -> Fault:
    return Fault(
        file=str(path), path="", got="a file that is passed over for its ending, .yml", allowed="files ending in .yaml",
        change=f"rename it to {path.stem}.yaml",
    )  # fmt: skip


def _dangling(document: Document, index: int, name: str, present: list[str]) -> Fault:
    path = f"experiments[{index}]"
    return Fault(
        file=document.file, path=path, got=repr(name), allowed=", ".join(present) or "none yet",
        change=f"write experiments/{name}.yaml, or host another", line=document.lines.get(path),
    )  # fmt: skip
