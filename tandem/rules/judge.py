"""Hold declared files against the table.

Invariant: each fault is told once, at the key that must change, with rule, source and date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import DatedEnvironment, Hosting, Stamp, Trial, stamp, trial
from tandem.rules.table import RULES
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import Document
from tandem.spec.environment import Environment
from tandem.spec.faults import Fault
from tandem.spec.load import Workspace
from tandem.spec.substitutes import names_stand_in


def judge(workspace: Workspace, catalogue: Catalogue, now: datetime | None = None) -> tuple[Fault, ...]:
    """Return every refusal and warning of a workspace, file by file.

    A file of bad form is judged too, as far as its spoilt leaves do not matter: what is told of it holds with two legal
    values of each. The text is then of the value nearest to the spoilt one.

    An experiment is judged once, whatever hosts it; what depends on the environment is told in the
    environment's file, at the entry that hosts the experiment.

    Args:
        workspace: the declared files.
        catalogue: the data they are held against.
        now: the moment, UTC, by which dates are judged; None judges no date, as a synthesis must.
    """
    if not workspace.mended:
        return _judge_good(workspace, catalogue, now)
    first, second = (_judge_good(mended, catalogue, now) for mended in workspace.mended)
    both = {_fault_identity(fault) for fault in second}
    return tuple(fault for fault in first if _fault_identity(fault) in both and not _is_spoilt(fault, workspace.faults))


def _fault_identity(fault: Fault) -> tuple[str, str, str | None, str]:
    """Return what two faults of one cause share, whatever legal value stands in for a spoilt leaf."""
    return fault.file, fault.path, fault.rule, fault.got


def _is_spoilt(fault: Fault, faults: Iterable[Fault]) -> bool:
    """Return whether a fault is told at a leaf of bad form, around or inside it, or names what stands in for it."""
    return names_stand_in(f"{fault.got} {fault.allowed} {fault.change}") or any(
        fault.file == other.file
        and (fault.path == other.path or _is_inside(fault.path, other.path) or _is_inside(other.path, fault.path))
        for other in faults
    )


def _is_inside(path: str, outer: str) -> bool:
    """Return whether a key path lies inside another."""
    return path.startswith((f"{outer}.", f"{outer}["))


def _judge_good(workspace: Workspace, catalogue: Catalogue, now: datetime | None) -> tuple[Fault, ...]:
    """Return the faults of a workspace in which every file is of good form."""
    trials = {
        name: trial(declared.experiment, catalogue)
        for name, declared in workspace.experiments.items()
        if declared.experiment is not None
    }
    environments = {
        name: declared.environment
        for name, declared in workspace.environments.items()
        if declared.environment is not None
    }
    faults: list[Fault] = []
    for name, environment in environments.items():
        others = tuple(other for other in environments.values() if other is not environment)
        document = workspace.environments[name].document
        subjects = [*_subjects(environment, others, trials, catalogue), *_dated_subjects(environment, now)]
        faults += _held(subjects, document)
    for name, subject in trials.items():
        faults += _held([subject], workspace.experiments[name].document)
    return tuple(faults)


def _subjects(
    environment: Environment, others: tuple[Environment, ...], trials: dict[str, Trial], catalogue: Catalogue
) -> Iterator[Stamp | Hosting]:
    hosted = dict.fromkeys(name for name in environment.experiments if name in trials)
    place = stamp(environment, tuple(trials[name].experiment for name in hosted), others, catalogue)
    yield place
    for name in hosted:
        yield Hosting(
            environment=environment, catalogue=catalogue, instance=place.instance, trial=trials[name],
            path=f"experiments[{environment.experiments.index(name)}]",
        )  # fmt: skip


def _dated_subjects(environment: Environment, now: datetime | None) -> Iterator[DatedEnvironment]:
    if now is not None:
        yield DatedEnvironment(environment=environment, now=now)


def _held(subjects: Iterable[Stamp | Trial | Hosting | DatedEnvironment], document: Document) -> list[Fault]:
    """Return the faults of one file, each once, from top to bottom."""
    faults = {
        (rule.id, finding.path, finding.got): _fault(rule, finding, document)
        for subject in subjects
        for rule in RULES
        if isinstance(subject, rule.of)
        for finding in rule.find(subject)
    }
    return sorted(faults.values(), key=lambda fault: fault.line or 0)


def _fault(rule: Rule[object], finding: Finding, document: Document) -> Fault:
    source = f"{finding.source.where}, {finding.source.date}" if finding.source else f"{rule.source}, {rule.date}"
    return Fault(
        file=document.file, path=finding.path, got=finding.got, allowed=finding.allowed, change=finding.change,
        line=document.lines.get(finding.path), rule=rule.id, source=source, severity=rule.severity,
    )  # fmt: skip
