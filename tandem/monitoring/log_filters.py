"""Metrics that CloudWatch Logs makes of log events, without an agent of ours.

Invariant: a filter has no dimensions, so that it is one metric whatever the events say.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import CLOUDWATCH_METRICS, LOG_FILTER, cloudwatch_unit
from tandem.spec import names
from tandem.spec.environment import Environment

ACCELERATOR_NODES = "accelerator_nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """One metric filter.

    Args:
        name: of the filter, unique in its log group.
        log_group: whose events it reads.
        pattern: in CloudWatch Logs' own language for JSON events.
        metric: name of the metric.
        namespace: of the metric.
        value: what a matching event counts.
        default: what a minute with events, none of which matches, counts; a minute without any event is no value.
        unit: as CloudWatch spells it.
    """

    name: str
    log_group: str
    pattern: str
    metric: str
    namespace: str
    value: str
    default: float
    unit: str


def build_log_filters(environment: Environment) -> tuple[LogFilter, ...]:
    """Return the metric filters of an environment; none without Container Insights, whose events they read.

    `accelerator_nodes` counts the events of type Node, of which the agent on each node writes one a minute. Events of
    the system nodes keep the log group going, so that 0 is reported while no accelerator node lives. It does not see a
    node whose agent is dead, nor one that has not joined the cluster: EC2 bills both.
    """
    if not environment.observability.container_insights:
        return ()
    instance_type = environment.capacity.instance_type
    return (
        LogFilter(
            name=ACCELERATOR_NODES,
            log_group=names.container_log_group_name(environment, "performance"),
            pattern=f'{{ ($.Type = "Node") && ($.InstanceType = "{instance_type}") }}',
            metric=ACCELERATOR_NODES,
            namespace=names.bench_namespace(environment),
            value="1",
            default=0,
            unit=cloudwatch_unit(CLOUDWATCH_METRICS[LOG_FILTER, ACCELERATOR_NODES]),
        ),
    )
