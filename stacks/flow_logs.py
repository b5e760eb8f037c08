"""Flow logs: who talked to whom in the VPC."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.policy import allow
from stacks.role import add_log_group, add_role


class FlowLogs(Construct):
    """All traffic of a VPC into a log group that forgets after the declared days."""

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, account: str, retention_days: int) -> None:
        super().__init__(scope, id_)
        group = add_log_group(self, "LogGroup", retention_days)
        writes = allow(["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"], [group.attr_arn])
        role = add_role(
            self, "vpc-flow-logs.amazonaws.com", policy_name="write", statements=[writes],
            conditions={"StringEquals": {"aws:SourceAccount": account}},
        )  # fmt: skip
        ec2.CfnFlowLog(
            self, "FlowLog", resource_id=vpc_id, resource_type="VPC", traffic_type="ALL",
            log_destination_type="cloud-watch-logs", log_group_name=group.ref,
            deliver_logs_permission_arn=role.attr_arn,
        )  # fmt: skip
