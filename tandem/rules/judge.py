"""Hold declared files against the table.

Invariant: each fault is told once, at the key that must change, with rule, source and date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import Hosting, Stamp, Trial, stamp, trial
from tandem.rules.table import RULES
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import Document
from tandem.spec.environment import Environment
from tandem.spec.faults import Fault
from tandem.spec.load import Workspace


def judge(workspace: Workspace, catalogue: Catalogue) -> tuple[Fault, ...]:
    """Return every refusal and warning of a workspace, file by file.

    An experiment is judged once, whatever hosts it; what depends on the environment is told in the
    environment's file, at the entry that hosts the experiment.
    """
    trials = {
        name: trial(declared.experiment, catalogue)
        for name, declared in workspace.experiments.items()
        if declared.experiment is not None
    }
    faults: list[Fault] = []
    for declared in workspace.environments.values():
        faults += _held(_subjects(declared.environment, trials, catalogue), declared.document)
    for name, declared in workspace.experiments.items():
        faults += _held([trials[name]], declared.document)
    return tuple(faults)


def _subjects(
    environment: Environment | None, trials: dict[str, Trial], catalogue: Catalogue
) -> Iterator[Stamp | Hosting]:
    if environment is None:
        return
    hosted = tuple(trials[name].experiment for name in environment.experiments if name in trials)
    place = stamp(environment, hosted, catalogue)
    yield place
    seen: set[str] = set()
    for index, name in enumerate(environment.experiments):
        if name in trials and name not in seen:
            seen.add(name)
            yield Hosting(
                environment=environment, catalogue=catalogue, instance=place.instance, trial=trials[name],
                path=f"experiments[{index}]",
            )  # fmt: skip


def _held(subjects: Iterable[Stamp | Trial | Hosting], document: Document) -> list[Fault]:
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
