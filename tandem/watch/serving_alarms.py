"""Alarms on the servers' pods, as Container Insights counts them, and the suppressor of a parked fleet.

Invariant: none fires on a server that nobody raised a node for. A first apply leaves one pending pod for each variant
(docs/decisions/0002), so desired minus ready alone would name every one of them for as long as any node lives.

What Container Insights publishes decides what is told apart (amazon-cloudwatch-agent, awscontainerinsightreceiver):
`pod_status_scheduled` is 0 for a pod without a node and 1 for one that has it, so an unscheduled pod (no capacity, a
claim that is not allocatable) and one that does not come up where it was put (mount, artifact) are two alarms. Why a
scheduled pod does not come up is said by no metric: a reason for waiting is counted for a pod's main containers alone,
and ours fails in an init container.
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
DESIRED, READY, SCHEDULED = "replicas_desired", "replicas_ready", "pod_status_scheduled"
RUNNING = "namespace_number_of_running_pods"

NOT_READY, NOT_SCHEDULED, NOTHING_RUNS, PARKED = "not-ready", "not-scheduled", "nothing-runs", "parked"
PERIOD_S = 60  # Container Insights collects every minute
# A node's count may fall into the next minute: one minute without is no parked fleet, three are.
PARKED_PERIODS = 3
MOST_SIBLINGS = MOST_ALARM_METRICS - 2
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
        lines=(Cell(environment, LOG_FILTER, {}).line(NODES, "Maximum", id_="nodes", shown=True),),
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
                found.append(_not_scheduled(environment, experiment, variant))
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
                f"A server of {experiment.name} that no node can take is not seen while others run: "
                f"{_why_not_together(environment, experiment)}, and no metric says which of the waiting was raised."
            )
    if len(scope.experiments) > MOST_NAMESPACES:
        yield (
            f"Nodes on which nothing runs are not seen: an alarm reads {MOST_ALARM_METRICS} metrics, the nodes and "
            f"{MOST_NAMESPACES} experiments, and there are {len(scope.experiments)}."
        )


def _insights(environment: Environment) -> bool:
    needed = (DESIRED, READY, SCHEDULED, RUNNING)
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
    """Return a server's pod: the largest value of a minute is read, for two agents count a pod that is pending."""
    place = {"Namespace": names.namespace(experiment), "ClusterName": names.cluster(environment)}
    return Cell(environment, INSIGHTS, {"PodName": variant.name, **place})


def _not_ready(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    minutes = environment.observability.not_ready_minutes
    pod = _pod(environment, experiment, variant)
    return _steady(
        environment,
        _Fault(
            what=NOT_READY,
            parts=(experiment.name, variant.name),
            says=f"{variant.name} of {experiment.name} in {environment.name} has a node and is not ready.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): a warm start reads the weights from S3 "
            "and takes minutes, and the startup probe ends one that never will after an hour",
        ),
        (
            pod.line(DESIRED, "Maximum", id_="desired"),
            pod.line(READY, "Maximum", id_="ready"),
            pod.line(SCHEDULED, "Maximum", id_="scheduled"),
            Expression(text="(desired - ready) * scheduled", label="servers not ready", id="waiting"),
        ),
    )


def _not_scheduled(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    minutes = environment.observability.not_ready_minutes
    pod = _pod(environment, experiment, variant)
    others = [other for other in experiment.all_variants() if other is not variant][:MOST_SIBLINGS]
    siblings = [
        _pod(environment, experiment, other).line(SCHEDULED, "Maximum", id_=f"s{at}") for at, other in enumerate(others)
    ]
    beside = "s0" if len(siblings) == 1 else f"MAX([{', '.join(str(each.id) for each in siblings)}])"
    return _steady(
        environment,
        _Fault(
            what=NOT_SCHEDULED,
            parts=(experiment.name, variant.name),
            says=f"{variant.name} of {experiment.name} in {environment.name} gets no node while another variant "
            "has one.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): all variants fit the fleet at once, and "
            "a claim on healthy devices is allocated soon after its node has joined",
        ),
        (
            pod.line(DESIRED, "Maximum", id_="desired"),
            pod.line(SCHEDULED, "Maximum", id_="scheduled"),
            *siblings,
            Expression(text=f"desired * (1 - scheduled) * {beside}", label="servers without a node", id="waiting"),
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
    running = " + ".join(str(each.id) for each in spaces)
    return _steady(
        environment,
        _Fault(
            what=NOTHING_RUNS,
            parts=(),
            says=f"Accelerator nodes of {environment.name} live, and no pod of any experiment runs.",
            reason=f"for {minutes} minutes (observability.not_ready_minutes): a raised node has a server or a compile "
            "job within that time, or it is paid for nothing",
        ),
        (
            Cell(environment, LOG_FILTER, {}).line(NODES, "Maximum", id_="nodes"),
            *spaces,
            # a namespace without a running pod is not counted at all; in a difference what is missing counts as 0
            Expression(text=f"nodes - nodes * (({running}) > 0)", label="nodes without a pod", id="idle"),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What an alarm is called and says; `parts` follow `what` in its name."""

    what: str
    parts: tuple[str, ...]
    says: str
    reason: str


def _steady(environment: Environment, fault: _Fault, lines: tuple[Line | Expression, ...]) -> Alarm:
    """Return an alarm on what is above 0 in every minute; without data nobody knows, and nobody is called."""
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
        missing="missing",
    )
