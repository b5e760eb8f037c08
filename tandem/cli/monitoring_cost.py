"""What is watched of an environment: the experiments it hosts with the traffic that their suites ask; and its cost.

Invariant: what is said of an environment here is said of one that broke no rule; of any other it would be guessed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tandem.bench.suites.suite import Suite, load_suite
from tandem.metrics import ALL_VALUES
from tandem.monitoring import alarms
from tandem.monitoring.alarm import MAX_ALARMS
from tandem.monitoring.cost import HOURS_PER_MONTH, MonitoringCost, compute_monitoring_cost
from tandem.monitoring.scope import ExperimentScope, MonitoringScope, SuiteTraffic
from tandem.spec.document import YamlDocument
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecFault
from tandem.spec.workspace import Workspace

LIMIT_PATH = "observability.monthly_limit_usd"
MIN_ROW_USD = 0.005  # a row below half a cent is in the total alone
UNVERIFIED_MARK = "?"
_WIDTH = 100


def build_scope(environment: Environment, experiments: Iterable[Experiment]) -> MonitoringScope:
    """Return what dashboards, alarms and their cost are computed from.

    Args:
        environment: of good form.
        experiments: that it hosts, in its order.
    """
    return MonitoringScope(
        environment=environment,
        experiments=tuple(
            ExperimentScope(experiment=experiment, traffic=_compute_traffic(experiment)) for experiment in experiments
        ),
    )


def _compute_traffic(experiment: Experiment) -> SuiteTraffic:
    """Read what the suites ask at most (`tandem bench run --full`); the default asks a part of it.

    Another load is watched all the same: it has series of its own, which the dashboards' variables do not offer.
    """
    suites = [_load_suite(name) for name in experiment.suites]
    return SuiteTraffic(
        suites={suite.name: suite.classes for suite in suites},
        concurrencies=tuple(sorted({streams for suite in suites for streams in suite.defaults.concurrency})),
    )


@cache
def _load_suite(name: str) -> Suite:
    """Read one of the built-in suites, which are all that an experiment may name, once for all that ask it."""
    return load_suite(name)


def compute_costs(workspace: Workspace, faults: Iterable[SpecFault]) -> dict[str, MonitoringCost]:
    """Return what watching each environment costs, by its name; one that is refused, or hosts what is, has no cost."""
    refused_files = {fault.file for fault in faults if fault.severity == "refusal"}
    cost_by_name = {}
    for name, declaration in workspace.environments.items():
        environment = declaration.environment
        declarations = [workspace.experiments.get(entry) for entry in environment.experiments] if environment else []
        files = {declaration.document.file, *(entry.document.file for entry in declarations if entry)}
        if environment and not files & refused_files and all(entry and entry.experiment for entry in declarations):
            cost_by_name[name] = compute_monitoring_cost(
                build_scope(environment, [entry.experiment for entry in declarations if entry and entry.experiment])
            )
    return cost_by_name


def list_blind_spots(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Return what no alarm of an environment sees, a sentence each.

    Args:
        workspace: of what was declared.
        name: of an environment that is legal, with all that it hosts.
    """
    return alarms.list_coverage_gaps(_read_scope(workspace, name))


def _read_scope(workspace: Workspace, name: str) -> MonitoringScope:
    """Return the scope of an environment that is legal, with all that it hosts."""
    environment = workspace.environments[name].environment
    assert environment is not None, "a legal environment was read"
    experiments = [workspace.experiments[entry].experiment for entry in environment.experiments]
    return build_scope(environment, [entry for entry in experiments if entry])


def format_blind_spots(name: str, sentences: Sequence[str]) -> str:
    """Return what `tandem check` prints of it, within a screen; the reasons are in `--json`."""
    short = "; ".join(sentence.partition(":")[0].rstrip(".") for sentence in sentences)
    text = f"{name}: beyond its alarms: {short} (why: --json)"
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def list_cost_faults(workspace: Workspace, cost_by_name: Mapping[str, MonitoringCost]) -> Iterator[SpecFault]:
    """Yield a refusal for each environment whose watching may cost more than it admits."""
    for name, cost in cost_by_name.items():
        declaration = workspace.environments[name]
        limit = declaration.environment.observability.monthly_limit_usd if declaration.environment else cost.usd
        if cost.usd > limit:
            dearest = max(cost.parts, key=lambda part: part.usd)
            yield SpecFault(
                file=declaration.document.file, path=LIMIT_PATH, got=f"{limit:g}",
                allowed=f"at least {cost.usd:.2f}: what watching may cost in a month",
                change=f"raise it, or declare fewer variants or experiments; {dearest.usd:.2f} of it are "
                f"{dearest.name}: {dearest.explanation}",
                line=declaration.document.lines.get(LIMIT_PATH),
            )  # fmt: skip


def list_alarm_faults(workspace: Workspace, environment_names: Iterable[str]) -> Iterator[SpecFault]:
    """Yield a refusal for each environment with more alarms than its template takes.

    Args:
        workspace: of what was declared.
        environment_names: names of environments that are legal, with all that they host.
    """
    for name in environment_names:
        declaration = workspace.environments[name]
        count = len(alarms.build_alarms(_read_scope(workspace, name)).alarms)
        if count > MAX_ALARMS:
            yield SpecFault(
                file=declaration.document.file, path="experiments", got=f"{count} alarms on what is hosted",
                allowed=f"at most {MAX_ALARMS}, since a template takes 500 resources",
                change="host fewer variants in this environment, or take values out of observability.reference",
                line=declaration.document.lines.get("experiments"),
            )  # fmt: skip


def list_reference_faults(workspace: Workspace, environment_names: Iterable[str]) -> Iterator[SpecFault]:
    """Yield a warning for each reference value of a cell that no suite asks: its alarm would never fire.

    Another suite or load may be asked by flags of `tandem bench run`, so that it may stand.

    Args:
        workspace: of what was declared.
        environment_names: names of environments that are legal, with all that they host.
    """
    for name in environment_names:
        declaration = workspace.environments[name]
        reference = declaration.environment.observability.reference if declaration.environment else None
        for index, value in enumerate(reference.values if reference else ()):
            experiment = workspace.experiments[value.experiment].experiment
            traffic = _compute_traffic(experiment) if experiment else SuiteTraffic(suites={}, concurrencies=())
            path = f"observability.reference.values[{index}]"
            classes, loads = (*traffic.classes, ALL_VALUES), traffic.concurrencies
            if value.prompt_class not in classes:
                yield _build_reference_fault(declaration.document, f"{path}.prompt_class", value.prompt_class, classes)
            if value.concurrency not in loads:
                yield _build_reference_fault(declaration.document, f"{path}.concurrency", value.concurrency, loads)


def _build_reference_fault(
    document: YamlDocument, path: str, value: object, known_values: Iterable[object]
) -> SpecFault:
    return SpecFault(
        file=document.file, path=path, got=f"{value}, which no suite of the experiment asks",
        allowed=", ".join(map(str, known_values)),
        change="write one of them, or measure it by a flag of `tandem bench run`: until then its alarm sees nothing",
        line=document.lines.get(path), severity="warning",
    )  # fmt: skip


def format_cost(name: str, watching_cost: MonitoringCost, limit: float) -> Iterator[str]:
    """Yield what `tandem check` prints of one environment's watching."""
    yield f"{name}: watching costs at most {watching_cost.usd:.2f} USD a month (limit {limit:g})"
    for part in watching_cost.parts:
        if part.usd >= MIN_ROW_USD:
            mark = UNVERIFIED_MARK if part.name in watching_cost.unverified_parts else " "
            yield f"  {part.usd:9.2f}{mark} {part.name}: {part.explanation}"
    yield (
        f"  {watching_cost.whole_month_usd:9.2f}  if the fleet lived all {HOURS_PER_MONTH:.0f} hours of a "
        "month; the budget "
        f"buys {watching_cost.hours:.1f}"
    )
    if watching_cost.unverified_parts:
        yield f"  {UNVERIFIED_MARK} price not verified: read in others' records of AWS's prices, not in AWS's own text"
    yield f"  prices of {watching_cost.region}; another region may ask more"


def cost_as_dict(watching_cost: MonitoringCost, limit: float) -> dict[str, Any]:
    """Return one environment's cost of watching as `tandem check --json` prints it."""
    return {
        "usd": round(watching_cost.usd, 2),
        "limit_usd": limit,
        "fleet_hours": round(watching_cost.hours, 1),
        "whole_month_usd": round(watching_cost.whole_month_usd, 2),
        "prices_of": watching_cost.region,
        "parts": [
            {
                "name": part.name, "usd": round(part.usd, 4), "amount": round(part.amount, 4), "price": part.price,
                "says": part.explanation, "verified": part.name not in watching_cost.unverified_parts,
            }
            for part in watching_cost.parts
        ],
    }  # fmt: skip
