"""Every call of AWS that a command makes, and the action that IAM holds it against.

Invariant: a table here is no wish: tests hold each against what the programs say and against what was recorded of them.
"""

from __future__ import annotations

from tandem.ops.doctor.call_policy import DOCTOR_CALLS, PROOF_CALLS
from tandem.ops.faults import AwsCall, list_calls
from tandem.ops.status import STATUS_CALLS

OperationCalls = tuple[AwsCall, ...]

IDENTITY_CALLS = list_calls("sts GetCallerIdentity")
OBSERVE_CALLS = list_calls("s3 GetObject", "eks DescribeNodegroup", "ec2 DescribeInstances")
_LOOK_CALLS = (*IDENTITY_CALLS, *OBSERVE_CALLS)
_READ_CALLS = list_calls("s3 ListObjectsV2 GetObject HeadObject ListMultipartUploads")
_UPLOAD_CALLS = list_calls("s3 PutObject CreateMultipartUpload UploadPart CompleteMultipartUpload AbortMultipartUpload")
PUBLISH_CALLS = IDENTITY_CALLS + list_calls("cloudwatch PutMetricData", "s3 ListObjectsV2 GetObject") + _UPLOAD_CALLS

COMMAND_CALLS: dict[str, OperationCalls] = {
    "status": STATUS_CALLS,
    "doctor": DOCTOR_CALLS,
    # for whoever may not size a node group: IAM knows one action for every size, the function knows 0 alone
    "stop by the function": _LOOK_CALLS
    + list_calls("eks DescribeCluster", "lambda Invoke", "cloudwatch GetMetricStatistics"),
    "artifacts list and explain": _READ_CALLS,
    "artifacts import": _READ_CALLS + _UPLOAD_CALLS,
    "bench publish": PUBLISH_CALLS,
    "stop": _LOOK_CALLS
    + list_calls(
        "eks DescribeCluster UpdateNodegroupConfig",
        "s3 PutObject",
        "ec2 TerminateInstances",
        "sns Publish",
        "cloudwatch GetMetricStatistics",
        "autoscaling DescribeAutoScalingGroups SuspendProcesses UpdateAutoScalingGroup",
        "scheduler ListSchedules",
    ),
    "stop --end": _LOOK_CALLS + list_calls("s3 PutObject", "scheduler DeleteSchedule", "eks UpdateNodegroupConfig"),
    "stop --release": _LOOK_CALLS + list_calls("s3 PutObject", "scheduler DeleteSchedule"),
    "relabel": _LOOK_CALLS + list_calls("s3 PutObject", "eks UpdateNodegroupConfig"),
    "start": _LOOK_CALLS
    + list_calls(
        "ec2 DescribeCapacityReservations",
        "cloudwatch GetMetricStatistics",
        "budgets DescribeBudget DescribeNotificationsForBudget DescribeSubscribersForNotification",
        "lambda GetFunctionConfiguration",
        "s3 PutObject",
        "scheduler CreateSchedule GetSchedule ListSchedules DeleteSchedule",
        "eks UpdateNodegroupConfig",
        "autoscaling DescribeAutoScalingGroups ResumeProcesses",
        "sns Publish",
    ),
    "doctor --prove-stop": PROOF_CALLS,
    "artifacts gc": _READ_CALLS
    + list_calls("s3 DeleteObject DeleteObjects AbortMultipartUpload GetBucketVersioning PutObject"),
    "destroy": _LOOK_CALLS
    + list_calls(
        "cloudformation DescribeStacks ListStackResources DescribeStackEvents DeleteStack",
        "eks DescribeCluster ListNodegroups ListPodIdentityAssociations",
        "s3 HeadBucket ListObjectVersions",
        "logs DescribeLogGroups",
        "ec2 DescribeNetworkInterfaces DescribeVolumes DescribeSnapshots DescribeNatGateways DescribeAddresses",
        "ec2 DescribeVpcEndpoints DescribeSecurityGroups DescribeLaunchTemplates DescribeSubnets DescribeVpcs",
        "ec2 DeleteNetworkInterface DeleteSecurityGroup",
        "elbv2 DescribeLoadBalancers DescribeTargetGroups DescribeTags",
        "elb DescribeLoadBalancers DescribeTags",
        "scheduler ListScheduleGroups ListSchedules",
        "events ListRules",
        "iam ListRoles ListRoleTags ListPolicies",
        "ecr DescribeRepositories",
        "kms ListKeys DescribeKey ListResourceTags",
        "cloudwatch ListDashboards DescribeAlarms",
        "sns ListTopics",
        "sqs ListQueues",
        "lambda ListFunctions",
        "codebuild ListProjects",
        "budgets DescribeBudgets",
    ),
    "destroy what is protected": list_calls(
        "cloudformation UpdateTerminationProtection", "eks UpdateClusterConfig DescribeUpdate"
    ),
}
"""Command to its calls; of `doctor --prove-stop` and the last what they ask beside `doctor` and `destroy`."""


def list_command_actions(command: str) -> frozenset[str]:
    """Return the actions that a command's calls are held against; calls that need no right have none."""
    return frozenset(call.action for call in COMMAND_CALLS[command]) - {""}
