"""The Observability stack: dashboards, alarms, and the agent that watches the machine.

Invariant: tandem.monitoring computes all dashboards and alarms from the environment and its
experiments; this stack writes them down. It and Workloads are the only templates that an experiment
changes. The log groups exist before the agent does, with a retention and a key.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.addons import add_addon
from stacks.alarms import add_alarms
from stacks.dashboards import add_dashboard
from stacks.identity import add_pod_role
from stacks.policy import allow
from stacks.role import add_customer_key, add_log_group, allow_log_key
from stacks.stack import EnvironmentStack
from tandem.cloudwatch_metrics import CLOUDWATCH_METRICS, LOG_FILTER, cloudwatch_unit
from tandem.declarations import names
from tandem.declarations.arns import build_arn, build_topic_arn
from tandem.declarations.environment import Environment
from tandem.monitoring import agent
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.scope import MonitoringScope

# CreateLogGroup too: Fluent Bit tries to make its groups (auto_create_group), although they exist
# already, and accepts these.
_LOG_ACTIONS = (
    "logs:CreateLogGroup",
    "logs:CreateLogStream",
    "logs:DescribeLogStreams",
    "logs:PutLogEvents",
)
# the agent's reads of its own node; neither takes a narrower resource
_INSTANCE_ACTIONS = ("ec2:DescribeTags", "ec2:DescribeVolumes")


class ObservabilityStack(EnvironmentStack):
    """Monitoring of an environment; without Container Insights only dashboards and alarms.

    Args:
        monitoring_scope: the environment, its experiments and the load of their suites.
        agent_version: of the add-on; None leaves the choice to EKS.

    Raises:
        TemplateLimitError: a dashboard exceeds a limit of CloudWatch.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        monitoring_scope: MonitoringScope,
        agent_version: str | None,
    ) -> None:
        environment = monitoring_scope.environment
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: dashboards, alarms, Container Insights",
        )
        add_alarms(
            Construct(self, "Alarms"), build_alarms(monitoring_scope), build_topic_arn(environment)
        )
        dashboards_scope = Construct(self, "Dashboards")
        for dashboard in build_dashboards(monitoring_scope):
            add_dashboard(dashboards_scope, dashboard, environment.region)
        if environment.observability.container_insights:
            key = _add_log_key(Construct(self, "Key"), environment)
            _add_container_insights(
                Construct(self, "ContainerInsights"), environment, key, agent_version
            )


def _add_log_key(scope: Construct, environment: Environment) -> kms.Key:
    """Add the key of container logs; CloudWatch Logs uses it for this cluster's groups alone."""
    name = names.cluster_name(environment)
    groups = build_arn(
        environment, "logs", f"log-group:{names.container_log_group_name(environment, '*')}"
    )
    return add_customer_key(
        scope,
        environment,
        alias=f"alias/{name}-watch",
        description=f"Container logs of {name}",
        users=[allow_log_key(environment, "ArnLike", groups)],
    )


def _add_container_insights(
    scope: Construct, environment: Environment, key: kms.IKey, version: str | None
) -> None:
    """Add log groups, their metric filter, the agent's role, and the add-on."""
    groups = {}
    for kind in names.CONTAINER_LOG_KINDS:
        name = names.container_log_group_name(environment, kind)
        groups[name] = add_log_group(
            scope, kind, environment.log_retention_days, name=name, key=key
        )
    performance_group = names.container_log_group_name(environment, "performance")
    _add_node_filter(scope, environment, performance_group).node.add_dependency(
        groups[performance_group]
    )
    addon = add_addon(
        scope,
        agent.ADDON,
        cluster_ref=names.cluster_name(environment),
        versions={agent.ADDON: version},
        configuration=agent.build_addon_configuration(environment),
        role_arns={agent.SERVICE_ACCOUNT: _add_agent_role(scope, environment).attr_arn},
    )
    # the agent would make them without retention and without our key
    addon.node.add_dependency(*groups.values())


def _add_node_filter(
    scope: Construct, environment: Environment, log_group: str
) -> logs.CfnMetricFilter:
    """Count accelerator nodes: 0 in a minute of other events only, no value without events."""
    name = agent.ACCELERATOR_NODES
    transformation = logs.CfnMetricFilter.MetricTransformationProperty(
        metric_name=name,
        metric_namespace=names.bench_namespace(environment),
        metric_value="1",
        default_value=0,
        unit=cloudwatch_unit(CLOUDWATCH_METRICS[LOG_FILTER, name]),
    )
    return logs.CfnMetricFilter(
        scope,
        name,
        filter_name=name,
        log_group_name=log_group,
        filter_pattern=agent.build_node_pattern(environment),
        metric_transformations=[transformation],
    )


def _add_agent_role(scope: Construct, environment: Environment) -> iam.CfnRole:
    """Add the role of the agents, which write only to their own log groups.

    They put no metric: CloudWatch extracts the metrics from the agents' logs (embedded metric
    format), so they need no PutMetricData. CloudWatchAgentServerPolicy, AWS's policy for them,
    would let them write any metric and any log of the account. Their calls are those of that policy
    and of the add-on's chart for logs and for EC2. Unproven on EKS, where an AccessDenied in an
    agent's log would name a missing right.
    """
    groups = []
    for kind in names.CONTAINER_LOG_KINDS:
        name = names.container_log_group_name(environment, kind)
        group = build_arn(environment, "logs", f"log-group:{name}")
        groups += [group, f"{group}:log-stream:*"]

    return add_pod_role(
        Construct(scope, "AgentRole"),
        environment=environment,
        namespace=agent.NAMESPACE,
        account=agent.SERVICE_ACCOUNT,
        policy_name="watch",
        statements=[allow(_LOG_ACTIONS, groups), allow(_INSTANCE_ACTIONS, ["*"])],
        reasons={
            "arn:*:log-group:*": (
                "a stream of the literal log group is named after its node, not known beforehand"
            ),
            "[*]": "reading tags and volumes of instances takes no narrower resource",
        },
    )
