"""Flow logs: who talked to whom in the VPC."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.policy import allow, policy_document


class FlowLogs(Construct):
    """All traffic of a VPC into a log group that forgets after the declared days."""

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, account: str, retention_days: int) -> None:
        super().__init__(scope, id_)
        group = logs.CfnLogGroup(self, "LogGroup", retention_in_days=retention_days)
        group.apply_removal_policy(RemovalPolicy.DESTROY)
        trust = allow(
            ["sts:AssumeRole"], service="vpc-flow-logs.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": account}},
        )  # fmt: skip
        writes = allow(["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"], [group.attr_arn])
        role = iam.CfnRole(
            self, "Role", assume_role_policy_document=policy_document(trust),
            policies=[iam.CfnRole.PolicyProperty(policy_name="write", policy_document=policy_document(writes))],
        )  # fmt: skip
        ec2.CfnFlowLog(
            self, "FlowLog", resource_id=vpc_id, resource_type="VPC", traffic_type="ALL",
            log_destination_type="cloud-watch-logs", log_group_name=group.ref,
            deliver_logs_permission_arn=role.attr_arn,
        )  # fmt: skip
