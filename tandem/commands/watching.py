"""What is watched of an environment: the experiments it hosts with the traffic that their suites ask; and its cost.

Invariant: what is said of an environment here is said of one that broke no rule; of any other it would be guessed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tandem.bench.suites.suite import Suite, load
from tandem.metrics import EVERY
from tandem.spec.document import Document
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault
from tandem.spec.load import Workspace
from tandem.watch import alarms
from tandem.watch.alarm import MOST_ALARMS
from tandem.watch.cost import HOURS_OF_A_MONTH, Cost, cost
from tandem.watch.scope import Scope, Traffic, Watching

LIMIT = "observability.monthly_limit_usd"
SHOWN_USD = 0.005  # a row below half a cent is in the total alone
UNVERIFIED = "?"
_WIDTH = 100


def scope(environment: Environment, experiments: Iterable[Experiment]) -> Scope:
    """Return what dashboards, alarms and their cost are computed from.

    Args:
        environment: of good form.
        experiments: that it hosts, in its order.
    """
    return Scope(
        environment=environment,
        experiments=tuple(Watching(experiment=found, traffic=_traffic(found)) for found in experiments),
    )


def _traffic(experiment: Experiment) -> Traffic:
    """Read what the suites ask at most (`tandem bench run --full`); the default asks a part of it.

    Another load is watched all the same: it has series of its own, which the dashboards' variables do not offer.
    """
    suites = [_suite(name) for name in experiment.suites]
    return Traffic(
        suites={suite.name: suite.classes for suite in suites},
        concurrencies=tuple(sorted({streams for suite in suites for streams in suite.defaults.concurrency})),
    )


@cache
def _suite(name: str) -> Suite:
    """Read one of the built-in suites, which are all that an experiment may name, once for all that ask it."""
    return load(name)


def costs(workspace: Workspace, faults: Iterable[Fault]) -> dict[str, Cost]:
    """Return what watching each environment costs, by its name; one that is refused, or hosts what is, has no cost."""
    refused = {fault.file for fault in faults if fault.severity == "refusal"}
    found = {}
    for name, declared in workspace.environments.items():
        environment = declared.environment
        hosted = [workspace.experiments.get(each) for each in environment.experiments] if environment else []
        files = {declared.document.file, *(each.document.file for each in hosted if each)}
        if environment and not files & refused and all(each and each.experiment for each in hosted):
            found[name] = cost(scope(environment, [each.experiment for each in hosted if each and each.experiment]))
    return found


def unwatched(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Return what no alarm of an environment sees, a sentence each.

    Args:
        workspace: of what was declared.
        name: of an environment that is legal, with all that it hosts.
    """
    environment = workspace.environments[name].environment
    hosted = [workspace.experiments[each].experiment for each in environment.experiments] if environment else []
    return alarms.unwatched(scope(environment, [each for each in hosted if each])) if environment else ()


def unwatched_text(name: str, sentences: Sequence[str]) -> str:
    """Return what `tandem check` prints of it, within a screen; the reasons are in `--json`."""
    short = "; ".join(sentence.partition(":")[0].rstrip(".") for sentence in sentences)
    said = f"{name}: beyond its alarms: {short} (why: --json)"
    return textwrap.fill(said, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def over_limit(workspace: Workspace, found: Mapping[str, Cost]) -> Iterator[Fault]:
    """Yield a refusal for each environment whose watching may cost more than it admits."""
    for name, asked in found.items():
        declared = workspace.environments[name]
        limit = declared.environment.observability.monthly_limit_usd if declared.environment else asked.usd
        if asked.usd > limit:
            yield _over(declared.document, asked, limit)


def too_many_alarms(workspace: Workspace, known: Iterable[str]) -> Iterator[Fault]:
    """Yield a refusal for each environment with more alarms than its template takes.

    Args:
        workspace: of what was declared.
        known: names of environments that are legal, with all that they host.
    """
    for name in known:
        declared = workspace.environments[name]
        environment = declared.environment
        hosted = [workspace.experiments[each].experiment for each in environment.experiments] if environment else []
        found = [experiment for experiment in hosted if experiment]
        count = len(alarms.alarms(scope(environment, found)).alarms) if environment else 0
        if count > MOST_ALARMS:
            yield Fault(
                file=declared.document.file, path="experiments", got=f"{count} alarms on what is hosted",
                allowed=f"at most {MOST_ALARMS}, since a template takes 500 resources",
                change="host fewer variants in this environment, or take values out of observability.reference",
                line=declared.document.lines.get("experiments"),
            )  # fmt: skip


def never_measured(workspace: Workspace, known: Iterable[str]) -> Iterator[Fault]:
    """Yield a warning for each reference value of a cell that no suite asks: its alarm would never fire.

    Another suite or load may be asked by flags of `tandem bench run`, so that it may stand.

    Args:
        workspace: of what was declared.
        known: names of environments that are legal, with all that they host.
    """
    for name in known:
        declared = workspace.environments[name]
        reference = declared.environment.observability.reference if declared.environment else None
        for index, value in enumerate(reference.values if reference else ()):
            traffic = _traffic_of(workspace, value.experiment)
            path = f"observability.reference.values[{index}]"
            classes, loads = (*traffic.classes, EVERY), traffic.concurrencies
            if value.prompt_class not in classes:
                yield _unasked(declared.document, f"{path}.prompt_class", value.prompt_class, classes)
            if value.concurrency not in loads:
                yield _unasked(declared.document, f"{path}.concurrency", value.concurrency, loads)


def _traffic_of(workspace: Workspace, name: str) -> Traffic:
    experiment = workspace.experiments[name].experiment
    return _traffic(experiment) if experiment else Traffic(suites={}, concurrencies=())


def _unasked(document: Document, path: str, got: object, allowed: Iterable[object]) -> Fault:
    return Fault(
        file=document.file, path=path, got=f"{got}, which no suite of the experiment asks",
        allowed=", ".join(map(str, allowed)),
        change="write one of them, or measure it by a flag of `tandem bench run`: until then its alarm sees nothing",
        line=document.lines.get(path), severity="warning",
    )  # fmt: skip


def _over(document: Document, asked: Cost, limit: float) -> Fault:
    dearest = max(asked.parts, key=lambda part: part.usd)
    return Fault(
        file=document.file, path=LIMIT, got=f"{limit:g}",
        allowed=f"at least {asked.usd:.2f}: what watching may cost in a month",
        change=f"raise it, or declare fewer variants or experiments; {dearest.usd:.2f} of it are {dearest.name}: "
        f"{dearest.says}",
        line=document.lines.get(LIMIT),
    )  # fmt: skip


def cost_lines(name: str, asked: Cost, limit: float) -> Iterator[str]:
    """Yield what `tandem check` prints of one environment's watching."""
    yield f"{name}: watching costs at most {asked.usd:.2f} USD a month (limit {limit:g})"
    for part in asked.parts:
        if part.usd >= SHOWN_USD:
            mark = UNVERIFIED if part.name in asked.unverified else " "
            yield f"  {part.usd:9.2f}{mark} {part.name}: {part.says}"
    yield (
        f"  {asked.whole_month_usd:9.2f}  if the fleet lived all {HOURS_OF_A_MONTH:.0f} hours of a month; the budget "
        f"buys {asked.hours:.1f}"
    )
    if asked.unverified:
        yield f"  {UNVERIFIED} price not verified: read in others' records of AWS's prices, not in AWS's own text"
    yield f"  prices of {asked.region}; another region may ask more"


def cost_as_dict(asked: Cost, limit: float) -> dict[str, Any]:
    """Return one environment's cost of watching as `tandem check --json` prints it."""
    return {
        "usd": round(asked.usd, 2),
        "limit_usd": limit,
        "fleet_hours": round(asked.hours, 1),
        "whole_month_usd": round(asked.whole_month_usd, 2),
        "prices_of": asked.region,
        "parts": [
            {
                "name": part.name, "usd": round(part.usd, 4), "amount": round(part.amount, 4), "price": part.price,
                "says": part.says, "verified": part.name not in asked.unverified,
            }
            for part in asked.parts
        ],
    }  # fmt: skip
