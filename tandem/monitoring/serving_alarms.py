"""Alarms on the servers' pods by Container Insights, and the suppressor of a parked fleet.

Invariant: no alarm fires on a server for which nobody raised a node. A first apply leaves one
pending pod for each variant (docs/decisions/0002), so desired minus ready would name each of them
while any node lives. Without enhanced observability, no metric of Container Insights has the
desired number.

The sent metrics distinguish two states (amazon-cloudwatch-agent, awscontainerinsightreceiver, its
podstore). A pod with a container on a node has a count of restarts. One that waits for a node, a
device or a mount has none. A Service without a ready pod is not counted at all. So `not-ready` is a
server whose pod runs and does not become ready (artifact, model, a slow start). `not-started` is
one whose pod runs nothing while a sibling's does (claim, mount). No metric shows which of these
causes applies; docs/runbook-serving.md does.

A missing count may never have been sent. The user guide says that arithmetic takes a missing value
for 0, but not whether this holds for a metric without any value. So each of these is filled, and is
still in a difference. The filled newest minute, which has no value yet, is one of many that must
breach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tandem.cloudwatch_metrics import CONTAINER_INSIGHTS, LOG_FILTER
from tandem.declarations import names
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant
from tandem.monitoring.alarm import MAX_ALARM_METRICS, MetricAlarm, build_alarm
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import MathExpression, MetricLine

NODES = "accelerator_nodes"
# its presence says that a container of the pod is on a node
RESTARTS = "pod_number_of_container_restarts"
READY = "service_number_of_running_pods"
RUNNING = "namespace_number_of_running_pods"

UNREADY_SERVER = "not-ready"
NO_CONTAINER = "not-started"
IDLE_NODES = "nothing-runs"
PARKED_FLEET = "parked"
PERIOD_S = 60  # Container Insights collects every minute
# A node's event may fall into the next minute: one minute without events is no parked fleet, three
# are.
PARKED_PERIODS = 3
MAX_SIBLINGS = MAX_NAMESPACES = MAX_ALARM_METRICS - 1


def build_suppressor(scope: MonitoringScope) -> MetricAlarm | None:
    """Return the suppressor, in alarm while no accelerator node lives; None if uncounted."""
    environment = scope.environment
    if not environment.observability.container_insights:
        return None
    return build_alarm(
        environment,
        [PARKED_FLEET],
        f"No accelerator node of {environment.name} lives:"
        " its alarms notify nobody. This is no fault.",
        f"fewer than one node for {PARKED_PERIODS} minutes; silence is no proof of a parked fleet,"
        " so that it mutes nothing",
        MetricSource(environment, LOG_FILTER).line(NODES, "Sum", id="nodes", is_visible=True),
        comparison="below",
        threshold=1,
        period_s=PERIOD_S,
        periods=PARKED_PERIODS,
    )


def build_serving_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield the alarms on pods; none if Container Insights is off."""
    environment = scope.environment
    if not environment.observability.container_insights:
        return
    for experiment_scope in scope.experiments:
        experiment = experiment_scope.experiment
        for variant in experiment.all_variants():
            yield _unready_server_alarm(environment, experiment, variant)
            if 1 < len(experiment.all_variants()) <= count_server_slots(environment, experiment):
                yield _no_container_alarm(environment, experiment, variant)
    if len(scope.experiments) <= MAX_NAMESPACES:
        yield _idle_nodes_alarm(scope)


def count_server_slots(environment: Environment, experiment: Experiment) -> int:
    """Return how many servers of an experiment the largest fleet holds at once."""
    devices = (
        load_catalogue().instances.instances[environment.capacity.instance_type].devices.value or 0
    )
    return environment.capacity.nodes * (devices // experiment.serving.devices)


def _insights_line(
    environment: Environment, experiment: Experiment, metric: str, id_: str, **dimensions: str
) -> MetricLine:
    """Return the maximum of a metric of an experiment's namespace, by further dimensions."""
    location = {
        "Namespace": names.experiment_namespace(experiment),
        "ClusterName": names.cluster_name(environment),
    }
    return MetricSource(environment, CONTAINER_INSIGHTS, location | dimensions).line(
        metric, "Maximum", id=id_
    )


def _unready_server_alarm(
    environment: Environment, experiment: Experiment, variant: Variant
) -> MetricAlarm:
    formula = "(restarts >= 0) - (restarts >= 0) * (FILL(ready, 0) > 0)"
    return _build_steady_alarm(
        environment,
        [UNREADY_SERVER, experiment.name, variant.name],
        f"The pod of {variant.name} of {experiment.name} in {environment.name}"
        " runs and is not ready.",
        "a warm start reads the weights from S3 and takes minutes, and the startup probe ends one"
        " that never will after an hour",
        _insights_line(environment, experiment, RESTARTS, "restarts", PodName=variant.name),
        _insights_line(environment, experiment, READY, "ready", Service=variant.name),
        MathExpression(text=formula, label="pods not ready", id="waiting"),
    )


def _no_container_alarm(
    environment: Environment, experiment: Experiment, variant: Variant
) -> MetricAlarm:
    siblings = [sibling for sibling in experiment.all_variants() if sibling is not variant][
        :MAX_SIBLINGS
    ]
    sibling_lines = [
        _insights_line(environment, experiment, RESTARTS, f"s{index}", PodName=sibling.name)
        for index, sibling in enumerate(siblings)
    ]
    sibling_runs = _build_any_formula([f"(FILL({line.id}, -1) >= 0)" for line in sibling_lines])
    formula = f"{sibling_runs} - {sibling_runs} * (FILL(restarts, -1) >= 0)"
    return _build_steady_alarm(
        environment,
        [NO_CONTAINER, experiment.name, variant.name],
        f"No container of {variant.name} of {experiment.name} in {environment.name} runs, while one"
        " of another variant does.",
        "all variants fit the fleet at once, and healthy devices are allocated and volumes mounted"
        " soon after a node has joined",
        _insights_line(environment, experiment, RESTARTS, "restarts", PodName=variant.name),
        *sibling_lines,
        MathExpression(text=formula, label="servers that run nothing", id="waiting"),
    )


def _idle_nodes_alarm(scope: MonitoringScope) -> MetricAlarm:
    environment = scope.environment
    namespace_lines = [
        _insights_line(environment, experiment_scope.experiment, RUNNING, f"r{index}")
        for index, experiment_scope in enumerate(scope.experiments)
    ]
    any_running = _build_any_formula([f"FILL({line.id}, 0)" for line in namespace_lines])
    return _build_steady_alarm(
        environment,
        [IDLE_NODES],
        f"Accelerator nodes of {environment.name} live,"
        " and no pod of any experiment is in phase Running.",
        "a raised node has a server or a compile job within that time, or it is paid for nothing",
        MetricSource(environment, LOG_FILTER).line(NODES, "Sum", id="nodes"),
        *namespace_lines,
        MathExpression(
            text=f"nodes - nodes * {any_running}", label="nodes without a pod", id="idle"
        ),
    )


def _build_any_formula(counts: list[str]) -> str:
    """Return the expression that is 1 if the sum of counts is above 0."""
    sum_text = counts[0] if len(counts) == 1 else f"({' + '.join(counts)})"
    return f"({sum_text} > 0)"


def _build_steady_alarm(
    environment: Environment,
    name_parts: Sequence[str],
    sentence: str,
    reason: str,
    *lines: MetricLine | MathExpression,
) -> MetricAlarm:
    """Return an alarm on an expression that is above 0 in every minute.

    A minute without data does not breach. Treated as missing, the first minutes of a start that was
    then parked would become an alarm half an hour later.
    """
    minutes = environment.observability.not_ready_minutes
    reason = f"for {minutes} minutes (observability.not_ready_minutes): {reason}"
    return build_alarm(
        environment, name_parts, sentence, reason, *lines, period_s=PERIOD_S, periods=minutes
    )
