"""What is watched of an environment: its experiments, their suites' traffic, and the cost.

Invariant: what is said of an environment here is said of one that broke no rule; of any other it
would be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from tandem.bench.suites.suite import REAL, load_suite
from tandem.cloudwatch_metrics import ALL_VALUES
from tandem.declarations.budgets import compute_run_usd
from tandem.declarations.document import YamlDocument
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecFault
from tandem.declarations.suite_file import SuiteFile
from tandem.declarations.workspace import Workspace
from tandem.monitoring import alarms
from tandem.monitoring.alarm import MAX_ALARMS
from tandem.monitoring.cost import HOURS_PER_MONTH, MonitoringCost, compute_monitoring_cost
from tandem.monitoring.scope import ExperimentScope, MonitoringScope

LIMIT_PATH = "observability.monthly_limit_usd"
MIN_ROW_USD = 0.005  # a row below half a cent is in the total alone
UNVERIFIED_MARK = "?"


def build_scope(environment: Environment, experiments: Iterable[Experiment]) -> MonitoringScope:
    """Return what dashboards, alarms and their cost are computed from.

    Its traffic is what the suites ask at most (`tandem bench run --full`); the default asks a part
    of it. Another load is watched all the same: it has series of its own, which the dashboards'
    variables do not offer.

    Args:
        environment: of good form.
        experiments: that it hosts, in its order.
    """
    scopes = []
    for experiment in experiments:
        classes = {}
        suite_loads = set[int]()
        for suite in experiment.suites:
            if isinstance(suite, SuiteFile):
                classes[suite.name] = tuple(suite.classes)
                suite_loads.update(REAL.concurrency)
            else:
                built_in = load_suite(suite)
                classes[suite] = built_in.classes
                suite_loads.update(built_in.defaults.concurrency)
        concurrencies = tuple(sorted(experiment.concurrency or suite_loads))
        scopes.append(
            ExperimentScope(experiment=experiment, suites=classes, concurrencies=concurrencies)
        )
    return MonitoringScope(environment=environment, experiments=tuple(scopes))


def compute_costs(workspace: Workspace, faults: Iterable[SpecFault]) -> dict[str, MonitoringCost]:
    """Return the cost of watching by environment; one with a refused experiment has none."""
    refused_files = {fault.file for fault in faults if fault.severity == "refusal"}
    cost_by_name = {}
    for name, declaration in workspace.environments.items():
        names = declaration.record.experiments
        files = workspace.experiments
        hosted = [files[entry] for entry in names if entry in files]
        is_legal = refused_files.isdisjoint(
            {declaration.document.file, *(file.document.file for file in hosted)}
        )
        if is_legal and len(hosted) == len(names):
            scope = build_scope(declaration.record, [file.record for file in hosted])
            cost_by_name[name] = compute_monitoring_cost(scope)
    return cost_by_name


def list_faults(
    workspace: Workspace, cost_by_name: Mapping[str, MonitoringCost]
) -> Iterator[SpecFault]:
    """Yield what is wrong with the watching of environments that are legal.

    A refusal for one whose watching may cost more than it admits, or that has more alarms than its
    template takes. A warning for each reference value of a cell that no suite asks: its alarm would
    never fire. Another suite or load may be asked by flags of `tandem bench run`, so that it may
    stand.
    """
    for name, cost in cost_by_name.items():
        document = workspace.environments[name].document
        scope = cost.scope
        limit = scope.environment.observability.monthly_limit_usd
        count = len(alarms.build_alarms(scope).alarms)
        if cost.usd > limit:
            dearest = max(cost.parts, key=lambda part: part.usd)
            part_text = f"{dearest.usd:.2f} of it are {dearest.name}: {dearest.explanation}"
            allowed = f"at least {cost.usd:.2f}: what watching may cost in a month"
            change = (
                f"raise it, {_advise_budget(cost)}or declare fewer variants or experiments;"
                f" {part_text}"
            )
            yield document.build_fault(LIMIT_PATH, f"{limit:g}", allowed, change)
        if count > MAX_ALARMS:
            allowed = f"at most {MAX_ALARMS}, as a template takes 500 resources"
            change = (
                "host fewer variants in this environment, or take values out of"
                " observability.reference"
            )
            yield document.build_fault(
                "experiments", f"{count} alarms on what is hosted", allowed, change
            )
        yield from _list_reference_faults(document, scope)


def _advise_budget(cost: MonitoringCost) -> str:
    """Say which monthly budget buys so few fleet hours that watching fits; empty if none."""
    environment = cost.scope.environment
    fleet_usd = cost.whole_month_usd - cost.parked_usd
    spare_usd = environment.observability.monthly_limit_usd - cost.parked_usd
    hours = spare_usd / fleet_usd * HOURS_PER_MONTH if fleet_usd else 0.0
    budget_usd = math.floor(hours * environment.capacity.nodes * environment.capacity.usd_per_hour)
    # guard.budget_usd takes no less than 1, and a node-hour may cost nothing
    if budget_usd < max(1, compute_run_usd(environment)):
        return ""
    return (
        f"lower guard.budget_usd to {budget_usd} (it buys {cost.hours:.0f} hours of the fleet a"
        " month), "
    )


def _list_reference_faults(document: YamlDocument, scope: MonitoringScope) -> Iterator[SpecFault]:
    """Yield the reference values that no suite asks; a rule refuses those of what is not hosted."""
    members = {member.experiment.name: member for member in scope.experiments}
    reference = scope.environment.observability.reference
    for index, value in enumerate(reference.values if reference else ()):
        member = members[value.experiment]
        known_values = {
            "prompt_class": (*member.classes, ALL_VALUES),
            "concurrency": member.concurrencies,
        }
        if member.unstated_suites:
            del known_values["prompt_class"]
        for key, known in known_values.items():
            if getattr(value, key) not in known:
                path = f"observability.reference.values[{index}].{key}"
                got = f"{getattr(value, key)}, which no suite of the experiment sends"
                change = "write one of them, or measure it with flags of `tandem bench run`"
                change += ": until then its alarm sees nothing"
                fault = document.build_fault(path, got, ", ".join(map(str, known)), change)
                yield replace(fault, severity="warning")


def list_cost_rows(watching_cost: MonitoringCost) -> Iterator[tuple[str, str]]:
    """Yield the parts of what watching an environment costs: USD, and of what."""
    for part in watching_cost.parts:
        if part.usd >= MIN_ROW_USD:
            mark = " " if part.is_verified else UNVERIFIED_MARK
            yield f"{part.usd:9.2f}{mark}", f"{part.name}: {part.explanation}"
    hours = f"{HOURS_PER_MONTH:.0f} hours of a month; the budget buys {watching_cost.hours:.1f}"
    yield f"{watching_cost.whole_month_usd:9.2f}", f"if the fleet lived all {hours}"
    if not all(part.is_verified for part in watching_cost.parts):
        yield (
            UNVERIFIED_MARK,
            "price not verified: read in others' records of AWS's prices, not in AWS's own text",
        )
    yield "", f"prices of {watching_cost.region}; another region may cost more"


def cost_as_dict(watching_cost: MonitoringCost) -> dict[str, Any]:
    """Return one environment's cost of watching as `tandem check --json` prints it."""
    return {
        "usd": watching_cost.usd,
        "limit_usd": watching_cost.scope.environment.observability.monthly_limit_usd,
        "fleet_hours": watching_cost.hours,
        "whole_month_usd": watching_cost.whole_month_usd,
        "prices_of": watching_cost.region,
        "parts": [asdict(part) for part in watching_cost.parts],
    }
