"""Every call of AWS that a command makes, and the action that IAM holds it against.

Invariant: a table here is no wish: tests hold each against what the programs say and against what was recorded of them.
"""

from __future__ import annotations

from tandem.ops import status
from tandem.ops.doctor.call_policy import DOCTOR_CALLS as DOCTOR
from tandem.ops.doctor.call_policy import PROOF_CALLS
from tandem.ops.faults import FREE_ACTIONS, find_action

OperationCalls = tuple[tuple[str, str], ...]
"""Service as boto3 names it, and operation as the API reference spells it."""

IDENTITY_CALLS = (("sts", "GetCallerIdentity"),)
OBSERVE_CALLS = (("s3", "GetObject"), ("eks", "DescribeNodegroup"), ("ec2", "DescribeInstances"))
STOP_CALLS = (
    *IDENTITY_CALLS, *OBSERVE_CALLS, ("eks", "DescribeCluster"), ("s3", "PutObject"), ("eks", "UpdateNodegroupConfig"),
    ("ec2", "TerminateInstances"), ("sns", "Publish"),
    ("cloudwatch", "GetMetricStatistics"), ("autoscaling", "DescribeAutoScalingGroups"),
    ("autoscaling", "SuspendProcesses"), ("autoscaling", "UpdateAutoScalingGroup"), ("scheduler", "ListSchedules"),
)  # fmt: skip
# for whoever may not size a node group: IAM knows one action for every size, the function knows 0 alone
STOP_FUNCTION_CALLS = (
    *IDENTITY_CALLS,
    *OBSERVE_CALLS,
    ("eks", "DescribeCluster"),
    ("lambda", "Invoke"),
    ("cloudwatch", "GetMetricStatistics"),
)
RELEASE_CALLS = (*IDENTITY_CALLS, *OBSERVE_CALLS, ("s3", "PutObject"), ("scheduler", "DeleteSchedule"))
END_CALLS = (
    *IDENTITY_CALLS,
    *OBSERVE_CALLS,
    ("s3", "PutObject"),
    ("eks", "UpdateNodegroupConfig"),
    ("scheduler", "DeleteSchedule"),
)
RELABEL_CALLS = (*IDENTITY_CALLS, *OBSERVE_CALLS, ("s3", "PutObject"), ("eks", "UpdateNodegroupConfig"))
START_CALLS = (
    *IDENTITY_CALLS, *OBSERVE_CALLS, ("ec2", "DescribeCapacityReservations"), ("cloudwatch", "GetMetricStatistics"),
    ("budgets", "DescribeBudget"), ("budgets", "DescribeNotificationsForBudget"),
    ("budgets", "DescribeSubscribersForNotification"),
    ("lambda", "GetFunctionConfiguration"), ("s3", "PutObject"), ("scheduler", "CreateSchedule"),
    ("scheduler", "GetSchedule"), ("scheduler", "ListSchedules"), ("scheduler", "DeleteSchedule"),
    ("eks", "UpdateNodegroupConfig"), ("autoscaling", "DescribeAutoScalingGroups"),
    ("autoscaling", "ResumeProcesses"), ("sns", "Publish"),
)  # fmt: skip
DESTROY_CALLS = (
    *IDENTITY_CALLS, *OBSERVE_CALLS,
    ("cloudformation", "DescribeStacks"), ("cloudformation", "ListStackResources"),
    ("cloudformation", "DescribeStackEvents"), ("cloudformation", "DeleteStack"),
    ("eks", "DescribeCluster"), ("eks", "ListNodegroups"), ("eks", "ListPodIdentityAssociations"),
    ("s3", "HeadBucket"), ("s3", "ListObjectVersions"), ("logs", "DescribeLogGroups"),
    ("ec2", "DescribeNetworkInterfaces"), ("ec2", "DescribeVolumes"), ("ec2", "DescribeSnapshots"),
    ("ec2", "DescribeNatGateways"), ("ec2", "DescribeAddresses"), ("ec2", "DescribeVpcEndpoints"),
    ("ec2", "DescribeSecurityGroups"), ("ec2", "DescribeLaunchTemplates"), ("ec2", "DescribeSubnets"),
    ("ec2", "DescribeVpcs"), ("ec2", "DeleteNetworkInterface"), ("ec2", "DeleteSecurityGroup"),
    ("elbv2", "DescribeLoadBalancers"), ("elbv2", "DescribeTargetGroups"), ("elbv2", "DescribeTags"),
    ("elb", "DescribeLoadBalancers"), ("elb", "DescribeTags"),
    ("scheduler", "ListScheduleGroups"), ("scheduler", "ListSchedules"), ("events", "ListRules"),
    ("iam", "ListRoles"), ("iam", "ListRoleTags"), ("iam", "ListPolicies"), ("ecr", "DescribeRepositories"),
    ("kms", "ListKeys"), ("kms", "DescribeKey"), ("kms", "ListResourceTags"),
    ("cloudwatch", "ListDashboards"), ("cloudwatch", "DescribeAlarms"), ("sns", "ListTopics"),
    ("sqs", "ListQueues"), ("lambda", "ListFunctions"), ("codebuild", "ListProjects"), ("budgets", "DescribeBudgets"),
)  # fmt: skip
LIFT_PROTECTION_CALLS = (
    ("cloudformation", "UpdateTerminationProtection"),
    ("eks", "UpdateClusterConfig"),
    ("eks", "DescribeUpdate"),
)
"""What `destroy` adds where something is protected."""

ARTIFACT_READ_CALLS = (
    ("s3", "ListObjectsV2"),
    ("s3", "GetObject"),
    ("s3", "HeadObject"),
    ("s3", "ListMultipartUploads"),
)
ARTIFACT_IMPORT_CALLS = (
    *ARTIFACT_READ_CALLS,
    ("s3", "PutObject"),
    ("s3", "CreateMultipartUpload"),
    ("s3", "UploadPart"),
    ("s3", "ListParts"),
    ("s3", "CompleteMultipartUpload"),
    ("s3", "AbortMultipartUpload"),
)
ARTIFACT_GC_CALLS = (
    *ARTIFACT_READ_CALLS, ("s3", "DeleteObject"), ("s3", "DeleteObjects"), ("s3", "AbortMultipartUpload"),
    ("s3", "GetBucketVersioning"), ("s3", "PutObject"),
)  # fmt: skip
PUBLISH_CALLS = (
    *IDENTITY_CALLS, ("cloudwatch", "PutMetricData"), ("s3", "ListObjectsV2"),
    ("s3", "GetObject"), ("s3", "PutObject"), ("s3", "CreateMultipartUpload"), ("s3", "UploadPart"),
    ("s3", "CompleteMultipartUpload"), ("s3", "AbortMultipartUpload"),
)  # fmt: skip

COMMAND_CALLS: dict[str, OperationCalls] = {
    "status": status.STATUS_CALLS,
    "doctor": DOCTOR,
    "stop by the function": STOP_FUNCTION_CALLS,
    "artifacts list and explain": ARTIFACT_READ_CALLS,
    "artifacts import": ARTIFACT_IMPORT_CALLS,
    "bench publish": PUBLISH_CALLS,
    "stop": STOP_CALLS,
    "stop --end": END_CALLS,
    "stop --release": RELEASE_CALLS,
    "relabel": RELABEL_CALLS,
    "start": START_CALLS,
    "doctor --prove-stop": PROOF_CALLS,
    "artifacts gc": ARTIFACT_GC_CALLS,
    "destroy": DESTROY_CALLS,
    "destroy what is protected": LIFT_PROTECTION_CALLS,
}
"""Command to its calls; the last two lines of a command's own are what it asks beside `doctor` and `destroy`."""


def list_command_actions(command: str) -> frozenset[str]:
    """Return the actions that a command's calls are held against; calls that need no right have none."""
    return frozenset(find_action(*call) for call in COMMAND_CALLS[command]) - FREE_ACTIONS
