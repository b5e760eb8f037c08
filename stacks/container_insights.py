"""Container Insights: the add-on whose agent watches nodes and servers, its role, and the log groups it writes to.

Invariant: the log groups exist before the agent does, with a retention and a key, and the agent may write to these and
to nothing else. It puts no metric by itself: CloudWatch takes the metrics out of what the agents log (embedded metric
format), so they need no PutMetricData. CloudWatchAgentServerPolicy, which AWS offers for them, would let them write any
metric and any log of the account. What they call is what that policy and the add-on's chart name for logs and for EC2;
unproven on EKS, where an AccessDenied in an agent's log would name what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.addons import add_addon
from stacks.aws_location import locate_environment
from stacks.identity import PodRole
from stacks.nag import acknowledge_findings
from stacks.policy import allow
from stacks.role import add_log_group
from tandem.monitoring.agent import ADDON, NAMESPACE, SERVICE_ACCOUNT
from tandem.monitoring.log_filters import LogFilter
from tandem.spec import names
from tandem.spec.environment import Environment

# CreateLogGroup too: Fluent Bit asks to make its groups (auto_create_group) and is content that they are there
_LOG_ACTIONS = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")
# the agent's own look at the node that it is on; neither takes a narrower resource
_INSTANCE_ACTIONS = ("ec2:DescribeTags", "ec2:DescribeVolumes")


class ContainerInsights(Construct):
    """Log groups, what is counted in them, the agent's role, and the add-on."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, key_arn: str, filters: Sequence[LogFilter],
        configuration: Mapping[str, Any], version: str | None,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        groups = {kind: _add_log_group(self, kind, environment, key_arn) for kind in names.CONTAINER_LOG_KINDS}
        by_name = {group.log_group_name: group for group in groups.values()}
        for log_filter in filters:
            _add_metric_filter(self, log_filter).add_resource_dependency(by_name[log_filter.log_group])
        association = eks.CfnAddon.PodIdentityAssociationProperty(
            role_arn=_add_agent_role(self, environment).arn, service_account=SERVICE_ACCOUNT
        )
        agent = add_addon(
            self, ADDON, cluster_ref=names.cluster_name(environment), versions={ADDON: version},
            configuration=configuration, pod_identity_associations=[association],
        )  # fmt: skip
        for group in groups.values():
            agent.add_resource_dependency(group)  # the agent would make it, kept for ever and under no key of ours


def _add_log_group(scope: Construct, kind: str, environment: Environment, key_arn: str) -> logs.CfnLogGroup:
    name = names.container_log_group_name(environment, kind)
    return add_log_group(scope, kind, environment.log_retention_days, name=name, key_arn=key_arn)


def _add_metric_filter(scope: Construct, log_filter: LogFilter) -> logs.CfnMetricFilter:
    transformation = logs.CfnMetricFilter.MetricTransformationProperty(
        metric_name=log_filter.metric, metric_namespace=log_filter.namespace, metric_value=log_filter.value,
        default_value=log_filter.default, unit=log_filter.unit,
    )  # fmt: skip
    return logs.CfnMetricFilter(
        scope,
        log_filter.name,
        filter_name=log_filter.name,
        log_group_name=log_filter.log_group,
        filter_pattern=log_filter.pattern,
        metric_transformations=[transformation],
    )


def _add_agent_role(scope: Construct, environment: Environment) -> PodRole:
    location = locate_environment(environment)
    groups = [
        location.arn("logs", f"log-group:{names.container_log_group_name(environment, kind)}{stream_suffix}")
        for kind in names.CONTAINER_LOG_KINDS
        for stream_suffix in ("", ":log-stream:*")
    ]
    role = PodRole(
        scope,
        "AgentRole",
        cluster_name=names.cluster_name(environment),
        location=location,
        namespace=NAMESPACE,
        account=SERVICE_ACCOUNT,
        statements=[allow(_LOG_ACTIONS, groups), allow(_INSTANCE_ACTIONS, ["*"])],
        policy_name="watch",
    )
    stream_suffix = "a stream is named after its node, which is not known beforehand; the log group is literal"
    reasons = {f"AwsSolutions-IAM5[Resource::{arn}]": stream_suffix for arn in groups if arn.endswith("*")}
    instance_reason = "reading tags and volumes of instances takes no narrower resource"
    acknowledge_findings(role.role, reasons | {"AwsSolutions-IAM5[Resource::*]": instance_reason})
    return role
