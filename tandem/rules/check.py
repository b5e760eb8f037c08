"""Hold declared files against the table of all rules.

Invariant: each fault is told once, at the key that must change, with rule, source and date.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from tandem.rules import (
    capacity,
    compilation,
    lengths,
    models,
    naming,
    network,
    observability,
    placement,
    software,
    speculation,
)
from tandem.rules.contexts import DateContext, EnvironmentContext, HostingContext, build_experiment_context
from tandem.rules.rule import Rule
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import YamlDocument
from tandem.spec.faults import SpecFault
from tandem.spec.substitutes import has_substitute
from tandem.spec.workspace import Workspace

MODULES = (models, speculation, lengths, placement, compilation, capacity, software, network, naming, observability)
# faults are told in this order
RULES: tuple[Rule[Any], ...] = tuple(rule for module in MODULES for rule in module.RULES)


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
    # what two faults of one cause share, whatever legal value stands in for a spoilt leaf
    lasting = {(fault.file, fault.path, fault.rule, fault.got) for fault in second_faults}
    return tuple(
        fault
        for fault in first_faults
        if (fault.file, fault.path, fault.rule, fault.got) in lasting and not _is_near(fault, workspace.faults)
    )


def _is_near(fault: SpecFault, form_faults: Iterable[SpecFault]) -> bool:
    """Return whether a fault is told at a leaf of bad form, around or inside it, or names what stands in for it."""
    return has_substitute(f"{fault.got} {fault.allowed} {fault.change}") or any(
        fault.file == form_fault.file
        and (
            fault.path == form_fault.path
            or fault.path.startswith((f"{form_fault.path}.", f"{form_fault.path}["))
            or form_fault.path.startswith((f"{fault.path}.", f"{fault.path}["))
        )
        for form_fault in form_faults
    )


def _check_valid_workspace(workspace: Workspace, catalogue: Catalogue, now: datetime | None) -> tuple[SpecFault, ...]:
    """Return the faults of a workspace in which every file is of good form."""
    experiments = {
        name: build_experiment_context(file.experiment, catalogue)
        for name, file in workspace.experiments.items()
        if file.experiment
    }
    files = [(file.environment, file.document) for file in workspace.environments.values() if file.environment]
    faults: list[SpecFault] = []
    for environment, document in files:
        instance = catalogue.instances.instances[environment.capacity.instance_type]
        own_contexts = {name: experiments[name] for name in environment.experiments if name in experiments}
        own = tuple(context.experiment for context in own_contexts.values())
        peers = tuple(peer for peer, _ in files if peer is not environment)
        contexts: list[object] = [
            EnvironmentContext(
                environment=environment,
                catalogue=catalogue,
                instance=instance,
                experiments=own,
                other_environments=peers,
            )
        ]
        for name, context in own_contexts.items():
            values = {item.name: getattr(context, item.name) for item in fields(context)}
            path = f"experiments[{environment.experiments.index(name)}]"
            contexts.append(HostingContext(**values, environment=environment, instance=instance, path=path))
        contexts += [DateContext(environment=environment, now=now)] if now else []
        faults += _list_faults(contexts, document)
    for name, context in experiments.items():
        faults += _list_faults([context], workspace.experiments[name].document)
    return tuple(faults)


def _list_faults(contexts: Iterable[object], document: YamlDocument) -> list[SpecFault]:
    """Return the faults of one file, each once, from top to bottom."""
    faults = {}
    for context in contexts:
        # a hosting is an experiment too, whose own rules have judged it
        for rule in (rule for rule in RULES if rule.context_type is type(context)):
            for finding in rule.judge(context):
                where = finding.source
                source = f"{where.where}, {where.date}" if where else f"{rule.source}, {rule.date}"
                fault = document.build_fault(finding.path, finding.got, finding.allowed, finding.change)
                fault = replace(fault, rule=rule.id, source=source, severity=rule.severity)
                faults[rule.id, finding.path, finding.got] = fault
    return sorted(faults.values(), key=lambda fault: fault.line or 0)
