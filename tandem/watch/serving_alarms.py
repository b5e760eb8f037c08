"""Alarms on the servers' pods, as Container Insights counts them, and the suppressor of a parked fleet.

Invariant: none fires on a server that nobody raised a node for. A first apply leaves one pending pod for each variant
(docs/decisions/0002), so desired minus ready would name every one of them for as long as any node lives; and no metric
of Container Insights without enhanced observability knows how many are desired.

What it sends tells two states apart (amazon-cloudwatch-agent, awscontainerinsightreceiver, its podstore): a pod of
which a container is on a node has a count of restarts, one that waits for a node, a device or a mount has none; and a
Service without a ready pod is not counted at all. So `not-ready` is a server whose pod runs and does not come up
(artifact, model, a slow start), and `not-started` one whose pod runs nothing while a sibling's does (claim, mount).
Which of these it is, no metric says: docs/runbook.md does.

What is not counted may never have been sent. The user guide says that arithmetic takes a missing value for 0, and not
whether it does so of a metric without any: so each of these is filled, and stands in a difference all the same. A
filled newest minute, which has no value yet, is one of many that must breach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.spec import names
from tandem.spec.catalogue import catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.watch.alarm import MOST_ALARM_METRICS, Alarm
from tandem.watch.scope import Scope
from tandem.watch.source import Cell, sent
from tandem.watch.widget import Expression, Line

INSIGHTS = "container-insights"
LOG_FILTER = "log-filter"
NODES = "accelerator_nodes"
RESTARTS = "pod_number_of_container_restarts"  # its presence says that a container of the pod is on a node
READY = "service_number_of_running_pods"
RUNNING = "namespace_number_of_running_pods"

NOT_READY, NOT_STARTED, NOTHING_RUNS, PARKED = "not-ready", "not-started", "nothing-runs", "parked"
PERIOD_S = 60  # Container Insights collects every minute
# A node's event may fall into the next minute: one minute without is no parked fleet, three are.
PARKED_PERIODS = 3
MOST_SIBLINGS = MOST_ALARM_METRICS - 1
MOST_NAMESPACES = MOST_ALARM_METRICS - 1


def parked(scope: Scope) -> Alarm | None:
    """Return the suppressor, in alarm while no accelerator node lives; None where nobody counts the nodes."""
    environment = scope.environment
    if not _counts_nodes(environment):
        return None
    return Alarm(
        name=names.alarm(environment, PARKED),
        says=f"No accelerator node of {environment.name} lives: its alarms notify nobody. This is no fault.",
        reason=f"fewer than one node for {PARKED_PERIODS} minutes; silence is no proof of a parked fleet, so that it "
        "mutes nothing",
        anchor=PARKED,
        publishers=(LOG_FILTER,),
        lines=(Cell(environment, LOG_FILTER, {}).line(NODES, "Sum", id_="nodes", shown=True),),
        comparison="below",
        threshold=1,
        period_s=PERIOD_S,
        periods=PARKED_PERIODS,
        datapoints=PARKED_PERIODS,
        missing="notBreaching",
    )


def serving_alarms(scope: Scope) -> tuple[Alarm, ...]:
    """Return the alarms on pods; none where Container Insights is off."""
    environment = scope.environment
    found: list[Alarm] = []
    if not _insights(environment):
        return ()
    for watching in scope.experiments:
        experiment = watching.experiment
        together = _together(environment, experiment)
        for variant in experiment.all_variants():
            found.append(_not_ready(environment, experiment, variant))
            if together:
                found.append(_not_started(environment, experiment, variant))
    if _counts_nodes(environment) and len(scope.experiments) <= MOST_NAMESPACES:
        found.append(_nothing_runs(scope))
    return tuple(found)


def unwatched(scope: Scope) -> Iterator[str]:
    """Yield what no alarm on pods sees, and why."""
    environment = scope.environment
    if not _insights(environment):
        yield "No server is watched for being ready: Container Insights is off or has no recorded sample."
        return
    for watching in scope.experiments:
        experiment = watching.experiment
        if not _together(environment, experiment):
            yield (
                f"A server of {experiment.name} that runs nothing (no devices, no mount) is not seen while others "
                f"run: {_why_not_together(environment, experiment)}, and no metric says which of them was raised."
            )
    yield (
        "A silent CloudWatch agent is not seen: no server is watched then, and the fleet does not count as parked, so "
        "that what the bench sends still calls."
    )
    if len(scope.experiments) > MOST_NAMESPACES:
        yield (
            f"Nodes on which nothing runs are not seen: an alarm reads {MOST_ALARM_METRICS} metrics, the nodes and "
            f"{MOST_NAMESPACES} experiments, and there are {len(scope.experiments)}."
        )


def _insights(environment: Environment) -> bool:
    needed = (RESTARTS, READY, RUNNING)
    return environment.observability.container_insights and all(sent(INSIGHTS, name) for name in needed)


def _counts_nodes(environment: Environment) -> bool:
    """Whether somebody counts accelerator nodes: a filter on Container Insights' own log."""
    return environment.observability.container_insights and sent(LOG_FILTER, NODES)


def _slots(environment: Environment, experiment: Experiment) -> int:
    """Return how many servers of an experiment the largest fleet holds at once."""
    devices = catalogue().instances.instances[environment.capacity.instance_type].devices.value or 0
    return environment.capacity.nodes * (devices // experiment.serving.devices)


def _together(environment: Environment, experiment: Experiment) -> bool:
    """Whether all servers of an experiment run at once, so that one of them that waits alone is no choice."""
    return 1 < len(experiment.all_variants()) <= _slots(environment, experiment)


def _why_not_together(environment: Environment, experiment: Experiment) -> str:
    count, slots = len(experiment.all_variants()), _slots(environment, experiment)
    return "it has one variant" if count == 1 else f"of its {count} variants {slots} fit the fleet"


def _pod(environment: Environment, experiment: Experiment, variant: Variant) -> Cell:
    place = {"Namespace": names.namespace(experiment), "ClusterName": names.cluster(environment)}
    return Cell(environment, INSIGHTS, {"PodName": variant.name, **place})


def _service(environment: Environment, experiment: Experiment, variant: Variant) -> Cell:
    place = {"Namespace": names.namespace(experiment), "ClusterName": names.cluster(environment)}
    return Cell(environment, INSIGHTS, {"Service": variant.name, **place})


def _not_ready(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    minutes = environment.observability.not_ready_minutes
    return _steady(
        environment,
        _Fault(
            what=NOT_READY,
            parts=(experiment.name, variant.name),
            says=f"The pod of {variant.name} of {experiment.name} in {environment.name} runs and is not ready.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): a warm start reads the weights from S3 "
            "and takes minutes, and the startup probe ends one that never will after an hour",
        ),
        (
            _pod(environment, experiment, variant).line(RESTARTS, "Maximum", id_="restarts"),
            _service(environment, experiment, variant).line(READY, "Maximum", id_="ready"),
            Expression(
                text="(restarts >= 0) - (restarts >= 0) * (FILL(ready, 0) > 0)", label="pods not ready", id="waiting"
            ),
        ),
    )


def _not_started(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    minutes = environment.observability.not_ready_minutes
    others = [other for other in experiment.all_variants() if other is not variant][:MOST_SIBLINGS]
    siblings = [
        _pod(environment, experiment, other).line(RESTARTS, "Maximum", id_=f"s{at}") for at, other in enumerate(others)
    ]
    beside = _any_above_0([f"(FILL({each.id}, -1) >= 0)" for each in siblings])
    return _steady(
        environment,
        _Fault(
            what=NOT_STARTED,
            parts=(experiment.name, variant.name),
            says=f"No container of {variant.name} of {experiment.name} in {environment.name} runs, while one of "
            "another variant does.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): all variants fit the fleet at once, and "
            "healthy devices are allocated and volumes mounted soon after a node has joined",
        ),
        (
            _pod(environment, experiment, variant).line(RESTARTS, "Maximum", id_="restarts"),
            *siblings,
            Expression(
                text=f"{beside} - {beside} * (FILL(restarts, -1) >= 0)", label="servers that run nothing", id="waiting"
            ),
        ),
    )


def _nothing_runs(scope: Scope) -> Alarm:
    environment = scope.environment
    minutes = environment.observability.not_ready_minutes
    cluster = names.cluster(environment)
    namespaces = [names.namespace(watching.experiment) for watching in scope.experiments]
    spaces = [
        Cell(environment, INSIGHTS, {"Namespace": namespace, "ClusterName": cluster}).line(
            RUNNING, "Maximum", id_=f"r{at}"
        )
        for at, namespace in enumerate(namespaces)
    ]
    running = _any_above_0([f"FILL({each.id}, 0)" for each in spaces])
    return _steady(
        environment,
        _Fault(
            what=NOTHING_RUNS,
            parts=(),
            says=f"Accelerator nodes of {environment.name} live, and no pod of any experiment is in phase Running.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): a raised node has a server or a compile "
            "job within that time, or it is paid for nothing",
        ),
        (
            Cell(environment, LOG_FILTER, {}).line(NODES, "Sum", id_="nodes"),
            *spaces,
            Expression(text=f"nodes - nodes * {running}", label="nodes without a pod", id="idle"),
        ),
    )


def _any_above_0(counts: list[str]) -> str:
    """Return the expression that is 1 where the sum of counts is above 0."""
    together = counts[0] if len(counts) == 1 else f"({' + '.join(counts)})"
    return f"({together} > 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What an alarm is called and says; `parts` follow `what` in its name."""

    what: str
    parts: tuple[str, ...]
    says: str
    reason: str


def _steady(environment: Environment, fault: _Fault, lines: tuple[Line | Expression, ...]) -> Alarm:
    """Return an alarm on what is above 0 in every minute.

    A minute without data is none that breaches: treated as missing, the first minutes of a start that was then parked
    would become an alarm half an hour later.
    """
    minutes = environment.observability.not_ready_minutes
    counted = any(isinstance(each, Line) and each.metric == NODES for each in lines)
    return Alarm(
        name=names.alarm(environment, fault.what, *fault.parts),
        says=fault.says,
        reason=fault.reason,
        anchor=fault.what,
        publishers=(LOG_FILTER, INSIGHTS) if counted else (INSIGHTS,),
        lines=lines,
        comparison="above",
        threshold=0,
        period_s=PERIOD_S,
        periods=minutes,
        datapoints=minutes,
        missing="notBreaching",
    )
