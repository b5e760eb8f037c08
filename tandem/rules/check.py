"""Check of declared files by all rules.

Invariant: each fault is reported once, at the key to change, with rule, source and date.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import chain

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.document import YamlDocument
from tandem.declarations.faults import SpecFault
from tandem.declarations.record import UnknownValueError
from tandem.declarations.workspace import Workspace
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
from tandem.rules.contexts import DateContext, EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import Rule

MODULES = (
    models,
    speculation,
    lengths,
    placement,
    compilation,
    capacity,
    software,
    network,
    naming,
    observability,
)
# in the order of the modules and of their functions
RULES: tuple[Rule, ...] = tuple(chain.from_iterable(module.RULES for module in MODULES))


def check_workspace(
    workspace: Workspace, catalogue: Catalogue, now: datetime | None = None
) -> tuple[SpecFault, ...]:
    """Return every refusal and warning of a workspace, file by file.

    A malformed file is judged too: a rule that reads a malformed key finds nothing.

    An experiment is judged once, for any number of environments; a fault that depends on the
    environment is reported in the environment's file, at the entry that hosts the experiment.

    Args:
        workspace: the declared files.
        catalogue: data files for the rules.
        now: present time, UTC, for rules on dates; None skips these rules, which a synthesis must
            do.
    """
    experiments = workspace.experiments | workspace.partial_experiments
    environments = workspace.environments | workspace.partial_environments
    faults: list[SpecFault] = []
    for name, file in environments.items():
        environment = file.record
        names = file.record.__dict__.get("experiments", ())
        hosted = {entry: experiments[entry].record for entry in names if entry in experiments}
        peers = tuple(peer.record for peer_name, peer in environments.items() if peer_name != name)
        contexts: list[object] = [
            EnvironmentContext(
                environment=environment,
                catalogue=catalogue,
                experiments=tuple(hosted.values()),
                other_environments=peers,
            )
        ]
        for entry, experiment in hosted.items():
            path = f"experiments[{names.index(entry)}]"
            contexts.append(
                HostingContext(
                    experiment=experiment, catalogue=catalogue, environment=environment, path=path
                )
            )
        if now:
            contexts.append(DateContext(environment=environment, now=now))
        faults += _list_faults(contexts, file.document)
    for experiment_file in experiments.values():
        context = ExperimentContext(experiment=experiment_file.record, catalogue=catalogue)
        arms: tuple[object, ...] = ()
        with contextlib.suppress(UnknownValueError):
            arms = context.arms
        faults += _list_faults([context, *arms], experiment_file.document)
    return tuple(faults)


def _list_faults(contexts: Iterable[object], document: YamlDocument) -> list[SpecFault]:
    """Return the faults of one file, each once, from top to bottom."""
    faults = {}
    for context in contexts:
        # exact type: HostingContext is an ExperimentContext, whose rules judge the experiment
        # itself
        own_rules = [rule for rule in RULES if rule.context_type is type(context)]
        for rule in own_rules:
            for finding in rule.judge(context):
                source = f"{rule.source}, {rule.date}"
                if finding.figure and finding.figure.source:
                    where = finding.figure.source
                    source = f"{where.where}, {where.date}"
                fault = document.build_fault(
                    finding.path, finding.got, finding.allowed, finding.change
                )
                fault = replace(fault, rule=rule.id, source=source, severity=rule.severity)
                faults[rule.id, finding.path, finding.got] = fault
    return sorted(faults.values(), key=lambda fault: fault.line or 0)
