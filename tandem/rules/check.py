"""Hold declared files against the table.

Invariant: each fault is told once, at the key that must change, with rule, source and date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from tandem.rules.contexts import (
    DateContext,
    EnvironmentContext,
    ExperimentContext,
    HostingContext,
    build_environment_context,
    build_experiment_context,
)
from tandem.rules.rule import Rule, RuleFinding
from tandem.rules.table import RULES
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import YamlDocument
from tandem.spec.environment import Environment
from tandem.spec.faults import SpecFault
from tandem.spec.substitutes import has_substitute
from tandem.spec.workspace import Workspace


def check_workspace(workspace: Workspace, catalogue: Catalogue, now: datetime | None = None) -> tuple[SpecFault, ...]:
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
    if not workspace.substitutes:
        return _check_valid_workspace(workspace, catalogue, now)
    first_faults, second_faults = (
        _check_valid_workspace(substitute, catalogue, now) for substitute in workspace.substitutes
    )
    second_identities = {_fault_identity(fault) for fault in second_faults}
    return tuple(
        fault
        for fault in first_faults
        if _fault_identity(fault) in second_identities and not _is_near_form_fault(fault, workspace.faults)
    )


def _fault_identity(fault: SpecFault) -> tuple[str, str, str | None, str]:
    """Return what two faults of one cause share, whatever legal value stands in for a spoilt leaf."""
    return fault.file, fault.path, fault.rule, fault.got


def _is_near_form_fault(fault: SpecFault, faults: Iterable[SpecFault]) -> bool:
    """Return whether a fault is told at a leaf of bad form, around or inside it, or names what stands in for it."""
    return has_substitute(f"{fault.got} {fault.allowed} {fault.change}") or any(
        fault.file == form_fault.file
        and (
            fault.path == form_fault.path
            or _is_inside(fault.path, form_fault.path)
            or _is_inside(form_fault.path, fault.path)
        )
        for form_fault in faults
    )


def _is_inside(path: str, outer: str) -> bool:
    """Return whether a key path lies inside another."""
    return path.startswith((f"{outer}.", f"{outer}["))


def _check_valid_workspace(workspace: Workspace, catalogue: Catalogue, now: datetime | None) -> tuple[SpecFault, ...]:
    """Return the faults of a workspace in which every file is of good form."""
    experiment_contexts = {
        name: build_experiment_context(spec_file.experiment, catalogue)
        for name, spec_file in workspace.experiments.items()
        if spec_file.experiment is not None
    }
    environments = {
        name: spec_file.environment
        for name, spec_file in workspace.environments.items()
        if spec_file.environment is not None
    }
    faults: list[SpecFault] = []
    for name, environment in environments.items():
        other_environments = tuple(
            other_environment for other_environment in environments.values() if other_environment is not environment
        )
        document = workspace.environments[name].document
        contexts = [
            *_yield_contexts(environment, other_environments, experiment_contexts, catalogue),
            *_yield_date_contexts(environment, now),
        ]
        faults += _list_faults(contexts, document)
    for name, context in experiment_contexts.items():
        faults += _list_faults([context], workspace.experiments[name].document)
    return tuple(faults)


def _yield_contexts(
    environment: Environment,
    other_environments: tuple[Environment, ...],
    experiment_contexts: dict[str, ExperimentContext],
    catalogue: Catalogue,
) -> Iterator[EnvironmentContext | HostingContext]:
    hosted_names = dict.fromkeys(name for name in environment.experiments if name in experiment_contexts)
    environment_context = build_environment_context(
        environment, tuple(experiment_contexts[name].experiment for name in hosted_names), other_environments, catalogue
    )
    yield environment_context
    for name in hosted_names:
        yield HostingContext(
            environment=environment,
            catalogue=catalogue,
            instance=environment_context.instance,
            experiment_context=experiment_contexts[name],
            path=f"experiments[{environment.experiments.index(name)}]",
        )


def _yield_date_contexts(environment: Environment, now: datetime | None) -> Iterator[DateContext]:
    if now is not None:
        yield DateContext(environment=environment, now=now)


def _list_faults(
    contexts: Iterable[EnvironmentContext | ExperimentContext | HostingContext | DateContext], document: YamlDocument
) -> list[SpecFault]:
    """Return the faults of one file, each once, from top to bottom."""
    faults = {
        (rule.id, finding.path, finding.got): _build_fault(rule, finding, document)
        for context in contexts
        for rule in RULES
        if isinstance(context, rule.context_type)
        for finding in rule.find(context)
    }
    return sorted(faults.values(), key=lambda fault: fault.line or 0)


def _build_fault(rule: Rule[object], finding: RuleFinding, document: YamlDocument) -> SpecFault:
    source = f"{finding.source.where}, {finding.source.date}" if finding.source else f"{rule.source}, {rule.date}"
    return SpecFault(
        file=document.file, path=finding.path, got=finding.got, allowed=finding.allowed, change=finding.change,
        line=document.lines.get(finding.path), rule=rule.id, source=source, severity=rule.severity,
    )  # fmt: skip
