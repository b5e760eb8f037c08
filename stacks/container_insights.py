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

from aws_cdk import RemovalPolicy
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.addons import addon
from stacks.identity import PodRole
from stacks.nag import acknowledge
from stacks.place import place_of
from stacks.policy import allow
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch.agent import ADDON, NAMESPACE, SERVICE_ACCOUNT
from tandem.watch.filters import LogFilter

# CreateLogGroup too: Fluent Bit asks to make its groups (auto_create_group) and is content that they are there
_WRITE = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")
# the agent's own look at the node that it is on; neither takes a narrower resource
_LOOK = ("ec2:DescribeTags", "ec2:DescribeVolumes")


class ContainerInsights(Construct):
    """Log groups, what is counted in them, the agent's role, and the add-on."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, key_arn: str, filters: Sequence[LogFilter],
        configuration: Mapping[str, Any], version: str | None,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        groups = {kind: _group(self, kind, environment, key_arn) for kind in names.CONTAINER_LOG_KINDS}
        by_name = {group.log_group_name: group for group in groups.values()}
        for found in filters:
            _count(self, found).add_resource_dependency(by_name[found.log_group])
        association = eks.CfnAddon.PodIdentityAssociationProperty(
            role_arn=_role(self, environment).arn, service_account=SERVICE_ACCOUNT
        )
        agent = addon(
            self, ADDON, cluster_ref=names.cluster(environment), versions={ADDON: version},
            configuration=configuration, pod_identity_associations=[association],
        )  # fmt: skip
        for group in groups.values():
            agent.add_resource_dependency(group)  # the agent would make it, kept for ever and under no key of ours


def _group(scope: Construct, kind: str, environment: Environment, key_arn: str) -> logs.CfnLogGroup:
    group = logs.CfnLogGroup(
        scope, kind, log_group_name=names.container_log_group(environment, kind),
        retention_in_days=environment.log_retention_days, kms_key_id=key_arn,
    )  # fmt: skip
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group


def _count(scope: Construct, found: LogFilter) -> logs.CfnMetricFilter:
    counted = logs.CfnMetricFilter.MetricTransformationProperty(
        metric_name=found.metric, metric_namespace=found.namespace, metric_value=found.value,
        default_value=found.default, unit=found.unit,
    )  # fmt: skip
    return logs.CfnMetricFilter(
        scope, found.name, filter_name=found.name, log_group_name=found.log_group, filter_pattern=found.pattern,
        metric_transformations=[counted],
    )  # fmt: skip


def _role(scope: Construct, environment: Environment) -> PodRole:
    place = place_of(environment)
    groups = [
        place.arn("logs", f"log-group:{names.container_log_group(environment, kind)}{streams}")
        for kind in names.CONTAINER_LOG_KINDS
        for streams in ("", ":log-stream:*")
    ]
    role = PodRole(
        scope, "AgentRole", cluster_name=names.cluster(environment), place=place, namespace=NAMESPACE,
        account=SERVICE_ACCOUNT, statements=[allow(_WRITE, groups), allow(_LOOK, ["*"])], policy_name="watch",
    )  # fmt: skip
    streams = "a stream is named after its node, which is not known beforehand; the log group is literal"
    reasons = {f"AwsSolutions-IAM5[Resource::{arn}]": streams for arn in groups if arn.endswith("*")}
    look = "reading tags and volumes of instances takes no narrower resource"
    acknowledge(role.role, reasons | {"AwsSolutions-IAM5[Resource::*]": look})
    return role
