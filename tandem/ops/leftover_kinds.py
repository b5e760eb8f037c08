"""Kinds of leftovers that one call of their service lists, and the command that removes each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tandem.ops.destroy.fleet import ALIVE_STATES


class ListedKind(NamedTuple):
    """A kind whose resources one call lists.

    Args:
        service, operation: the call.
        rows_key: of its answer.
        id_key: of a row; empty if the row itself is the id.
        remove: the command of the service that removes; the id follows.
        parameters: of the call.
        name_key: of EC2's rows, a name or description that may show the owner of one without tags.
        states: in which a resource exists; empty if the list has nothing that is gone.
        note: what a person must know; the id follows.
    """

    service: str
    operation: str
    rows_key: str
    id_key: str
    remove: str
    parameters: Mapping[str, Any] = {}
    name_key: str = ""
    states: tuple[str, ...] = ()
    note: str = ""


LISTED_KINDS = {
    "instance": ListedKind(
        "ec2",
        "DescribeInstances",
        "Reservations",
        "InstanceId",
        "terminate-instances --instance-ids",
        states=ALIVE_STATES,
    ),
    "network interface": ListedKind(
        "ec2",
        "DescribeNetworkInterfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "delete-network-interface --network-interface-id",
        name_key="Description",
    ),
    "volume": ListedKind(
        "ec2",
        "DescribeVolumes",
        "Volumes",
        "VolumeId",
        "delete-volume --volume-id",
        states=("creating", "available", "in-use", "error"),
    ),
    "snapshot": ListedKind(
        "ec2",
        "DescribeSnapshots",
        "Snapshots",
        "SnapshotId",
        "delete-snapshot --snapshot-id",
        parameters={"OwnerIds": ["self"]},
    ),
    "NAT gateway": ListedKind(
        "ec2",
        "DescribeNatGateways",
        "NatGateways",
        "NatGatewayId",
        "delete-nat-gateway --nat-gateway-id",
        states=("pending", "available", "failed"),
    ),
    "elastic IP": ListedKind(
        "ec2", "DescribeAddresses", "Addresses", "AllocationId", "release-address --allocation-id"
    ),
    "VPC endpoint": ListedKind(
        "ec2",
        "DescribeVpcEndpoints",
        "VpcEndpoints",
        "VpcEndpointId",
        "delete-vpc-endpoints --vpc-endpoint-ids",
    ),
    "security group": ListedKind(
        "ec2",
        "DescribeSecurityGroups",
        "SecurityGroups",
        "GroupId",
        "delete-security-group --group-id",
        name_key="GroupName",
    ),
    "launch template": ListedKind(
        "ec2",
        "DescribeLaunchTemplates",
        "LaunchTemplates",
        "LaunchTemplateId",
        "delete-launch-template --launch-template-id",
        name_key="LaunchTemplateName",
    ),
    "subnet": ListedKind(
        "ec2", "DescribeSubnets", "Subnets", "SubnetId", "delete-subnet --subnet-id"
    ),
    "VPC": ListedKind("ec2", "DescribeVpcs", "Vpcs", "VpcId", "delete-vpc --vpc-id"),
    "ECR repository": ListedKind(
        "ecr",
        "DescribeRepositories",
        "repositories",
        "repositoryName",
        "delete-repository --force --repository-name",
    ),
    "dashboard": ListedKind(
        "cloudwatch",
        "ListDashboards",
        "DashboardEntries",
        "DashboardName",
        "delete-dashboards --dashboard-names",
    ),
    "SNS topic": ListedKind("sns", "ListTopics", "Topics", "TopicArn", "delete-topic --topic-arn"),
    # by default SQS gives 1,000 at most and no token of a next page
    "SQS queue": ListedKind(
        "sqs",
        "ListQueues",
        "QueueUrls",
        "",
        "delete-queue --queue-url",
        parameters={"MaxResults": 1000},
    ),
    "Lambda function": ListedKind(
        "lambda", "ListFunctions", "Functions", "FunctionName", "delete-function --function-name"
    ),
    "CodeBuild project": ListedKind(
        "codebuild", "ListProjects", "projects", "", "delete-project --name"
    ),
    "EventBridge rule": ListedKind(
        "events",
        "ListRules",
        "Rules",
        "Name",
        "delete-rule --name",
        note="its targets go first: aws events list-targets-by-rule --rule",
    ),
    # schedules of our group go with the group
    "schedule": ListedKind(
        "scheduler",
        "ListSchedules",
        "Schedules",
        "Name",
        "delete-schedule --name",
        parameters={"GroupName": "default"},
    ),
    "schedule group": ListedKind(
        "scheduler", "ListScheduleGroups", "ScheduleGroups", "Name", "delete-schedule-group --name"
    ),
    "budget": ListedKind(
        "budgets",
        "DescribeBudgets",
        "Budgets",
        "BudgetName",
        "delete-budget --account-id {account} --budget-name",
    ),
}
