"""Who may do what: one row a right, with the command or the page that needs it.

Invariant: a row's actions are all taken on the same kind of resource and under the same condition, and a row that no
command calls for says why it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.ops.people.command_calls import list_command_actions
from tandem.ops.people.policy_targets import TargetName
from tandem.spec.names import PEOPLE, PeopleKind

PIPELINE: PeopleKind = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class IamRight:
    """Some actions on one place.

    Args:
        kinds: whose policy has it. Each kind of people has the policies of the kinds before it beside its own.
        commands: keys of COMMAND_CALLS, of which one at least makes a call for each action.
        reason: for what no command calls: who needs it, and where that is written.
    """

    kinds: tuple[PeopleKind, ...]
    target: TargetName
    actions: tuple[str, ...]
    commands: tuple[str, ...] = ()
    reason: str = ""


_VIEWER_KINDS: tuple[PeopleKind, ...] = ("viewer", PIPELINE)
_OBSERVE_COMMANDS = (
    "status", "doctor", "stop by the function", "stop", "stop --end", "stop --release", "start", "relabel", "destroy",
)  # fmt: skip
_ARTIFACT_COMMANDS = ("artifacts list and explain", "artifacts import", "artifacts gc")

RIGHTS = (
    # viewer, and what of it a pipeline needs
    IamRight(
        kinds=_VIEWER_KINDS,
        target="everywhere",
        commands=_OBSERVE_COMMANDS,
        actions=(
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstances",
            "ec2:DescribeRegions",
            "ec2:DescribeSubnets",
            "eks:DescribeAddonVersions",
            "eks:DescribeClusterVersions",
            "servicequotas:ListAWSDefaultServiceQuotas",
            "servicequotas:ListServiceQuotas",
        ),
    ),
    IamRight(
        kinds=_VIEWER_KINDS, target="mirrors", commands=("doctor",), actions=("ecr:DescribePullThroughCacheRules",)
    ),
    IamRight(kinds=_VIEWER_KINDS, target="images", commands=("doctor",), actions=("ecr:DescribeImages",)),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="the world",
        commands=("doctor",),
        actions=("ce:ListCostAllocationTags", "s3:ListAllMyBuckets"),
    ),
    IamRight(kinds=_VIEWER_KINDS, target="stacks", commands=("doctor",), actions=("cloudformation:DescribeStacks",)),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="cluster",
        actions=("eks:DescribeCluster",),
        commands=(
            "status",
            "doctor",
            "stop by the function",
            "stop",
            "destroy",
        ),
    ),
    IamRight(kinds=_VIEWER_KINDS, target="node group", commands=_OBSERVE_COMMANDS, actions=("eks:DescribeNodegroup",)),
    IamRight(kinds=_VIEWER_KINDS, target="guard's objects", commands=_OBSERVE_COMMANDS, actions=("s3:GetObject",)),
    # without a prefix: who may not list a bucket is told of a missing object as of a forbidden one
    IamRight(
        kinds=_VIEWER_KINDS,
        target="buckets",
        commands=("doctor", "bench publish", "destroy", *_ARTIFACT_COMMANDS),
        actions=("s3:ListBucket",),
    ),
    IamRight(
        kinds=_VIEWER_KINDS, target="bucket's key as it stands", commands=("doctor",), actions=("kms:DescribeKey",)
    ),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="bucket's key",
        actions=("kms:Decrypt",),
        reason="what S3 asks of whoever reads an object under a customer key (artifacts.kms_key_arn): status, doctor",
    ),
    IamRight(kinds=_VIEWER_KINDS, target="principals", commands=("doctor",), actions=("iam:GetRole",)),
    IamRight(kinds=_VIEWER_KINDS, target="users", commands=("doctor",), actions=("iam:GetUser",)),
    IamRight(kinds=_VIEWER_KINDS, target="boundary", commands=("doctor",), actions=("iam:GetPolicy",)),
    IamRight(kinds=_VIEWER_KINDS, target="secret", commands=("doctor",), actions=("secretsmanager:DescribeSecret",)),
    IamRight(kinds=_VIEWER_KINDS, target="topic", commands=("doctor",), actions=("sns:ListSubscriptionsByTopic",)),
    IamRight(kinds=_VIEWER_KINDS, target="bootstrap version", commands=("doctor",), actions=("ssm:GetParameter",)),
    IamRight(
        kinds=_VIEWER_KINDS, target="budgets", commands=("status", "start", "doctor"), actions=("budgets:ViewBudget",)
    ),
    IamRight(
        kinds=("viewer",),
        target="everywhere",
        actions=("cloudwatch:DescribeAlarms", "cloudwatch:GetMetricStatistics"),
        commands=("status", "start", "stop by the function", "stop", "destroy"),
    ),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="schedules",
        commands=("status", "start", "doctor"),
        actions=("scheduler:GetSchedule",),
    ),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="everywhere",
        commands=("status", "start", "stop", "doctor", "destroy"),
        actions=(
            "autoscaling:DescribeAutoScalingGroups",
            "scheduler:ListSchedules",
        ),
    ),
    IamRight(
        kinds=_VIEWER_KINDS,
        target="functions",
        commands=("status", "start", "doctor"),
        actions=("lambda:GetFunctionConfiguration",),
    ),
    IamRight(
        kinds=("viewer",),
        target="dashboards",
        actions=("cloudwatch:GetDashboard",),
        reason="opens the dashboards in the console: docs/watch.md",
    ),
    IamRight(
        kinds=("viewer",),
        target="everywhere",
        commands=("destroy",),
        actions=("cloudwatch:GetMetricData", "cloudwatch:ListDashboards"),
        reason="the console lists dashboards and fills their widgets with these: docs/watch.md",
    ),
    IamRight(
        kinds=("viewer",),
        target="stop function",
        commands=("stop by the function",),
        actions=("lambda:InvokeFunction",),
    ),
    # engineer
    IamRight(
        kinds=("engineer",), target="models and artifacts", commands=_ARTIFACT_COMMANDS, actions=("s3:GetObject",)
    ),
    IamRight(
        kinds=("engineer",), target="bucket", commands=_ARTIFACT_COMMANDS, actions=("s3:ListBucketMultipartUploads",)
    ),
    IamRight(
        kinds=("engineer",),
        target="artifacts",
        commands=("artifacts import", "artifacts gc"),
        actions=(
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
            "s3:PutObject",
        ),
    ),
    IamRight(
        kinds=("engineer",),
        target="results",
        commands=("bench publish",),
        actions=(
            "s3:AbortMultipartUpload",
            "s3:GetObject",
            "s3:PutObject",
        ),
    ),
    IamRight(
        kinds=("engineer",),
        target="bucket's key",
        actions=("kms:GenerateDataKey",),
        reason="what S3 asks of whoever writes an object under a customer key: artifacts import, bench publish, start",
    ),
    IamRight(
        kinds=("engineer",), target="own metrics", commands=("bench publish",), actions=("cloudwatch:PutMetricData",)
    ),
    IamRight(
        kinds=("engineer",),
        target="logs",
        actions=("logs:FilterLogEvents",),
        reason="reads what servers and both functions said: docs/runbook.md",
    ),
    IamRight(
        kinds=("engineer",),
        target="functions",
        actions=(
            "lambda:GetFunctionConcurrency",
            "lambda:InvokeFunction",
        ),
        reason="sees whether the reaper can run, and makes it look now: docs/runbook.md",
    ),
    # operator
    IamRight(kinds=("operator",), target="fence", commands=("stop", "stop --release"), actions=("s3:PutObject",)),
    IamRight(
        kinds=("operator",),
        target="leases",
        commands=("start", "stop --end", "stop --release", "relabel"),
        actions=("s3:PutObject",),
    ),
    IamRight(
        kinds=("operator",),
        target="node group",
        commands=("start", "stop", "stop --end", "relabel"),
        actions=("eks:UpdateNodegroupConfig",),
    ),
    IamRight(kinds=("operator",), target="accelerators", commands=("stop",), actions=("ec2:TerminateInstances",)),
    # a stop suspends launches where EKS does not follow, a start resumes them
    IamRight(
        kinds=("operator",),
        target="Auto Scaling groups",
        commands=("start", "stop"),
        actions=(
            "autoscaling:ResumeProcesses",
            "autoscaling:SuspendProcesses",
            "autoscaling:UpdateAutoScalingGroup",
        ),
    ),
    IamRight(kinds=("operator",), target="topic", commands=("start", "stop"), actions=("sns:Publish",)),
    IamRight(
        kinds=("operator",),
        target="topic's key",
        actions=("kms:Decrypt", "kms:GenerateDataKey"),
        reason="what SNS asks of whoever publishes to an encrypted topic (SNS developer guide, key management), "
        "and SQS "
        "of whoever reads from an encrypted queue: start, stop, doctor --prove-stop",
    ),
    IamRight(
        kinds=("operator",),
        target="schedules",
        commands=("start", "stop --end", "stop --release", "doctor --prove-stop"),
        actions=("scheduler:CreateSchedule", "scheduler:DeleteSchedule"),
    ),
    IamRight(
        kinds=("operator",),
        target="scheduler role",
        actions=("iam:PassRole",),
        reason="what Scheduler asks of whoever makes a schedule with a role: start, doctor --prove-stop",
    ),
    IamRight(
        kinds=("operator",), target="going stacks", commands=("destroy",), actions=("cloudformation:DeleteStack",)
    ),
    IamRight(
        kinds=("operator",),
        target="all stacks",
        commands=("destroy",),
        actions=(
            "cloudformation:DescribeStackEvents",
            "cloudformation:ListStackResources",
        ),
    ),
    # without a name: whose a stack is, and which neighbour's names begin alike, is told by the tags of all
    IamRight(
        kinds=("operator",), target="everywhere", commands=("destroy",), actions=("cloudformation:DescribeStacks",)
    ),
    IamRight(
        kinds=("operator",),
        target="cluster",
        commands=("destroy",),
        actions=(
            "eks:ListNodegroups",
            "eks:ListPodIdentityAssociations",
        ),
    ),
    IamRight(kinds=("operator",), target="node groups", commands=("destroy",), actions=("eks:DescribeNodegroup",)),
    IamRight(kinds=("operator",), target="buckets", commands=("destroy",), actions=("s3:ListBucketVersions",)),
    IamRight(
        kinds=("operator",), target="CNI's interfaces", commands=("destroy",), actions=("ec2:DeleteNetworkInterface",)
    ),
    IamRight(kinds=("operator",), target="EKS's groups", commands=("destroy",), actions=("ec2:DeleteSecurityGroup",)),
    IamRight(kinds=("operator",), target="in-tree groups", commands=("destroy",), actions=("ec2:DeleteSecurityGroup",)),
    IamRight(kinds=("operator",), target="roles", commands=("destroy",), actions=("iam:ListRoleTags",)),
    IamRight(kinds=("operator",), target="repositories", commands=("destroy",), actions=("ecr:DescribeRepositories",)),
    IamRight(
        kinds=("operator",), target="keys", commands=("destroy",), actions=("kms:DescribeKey", "kms:ListResourceTags")
    ),
    IamRight(kinds=("operator",), target="all budgets", commands=("destroy",), actions=("budgets:ViewBudget",)),
    IamRight(
        kinds=("operator",),
        target="everywhere",
        commands=("destroy",),
        actions=(
            "codebuild:ListProjects",
            "ec2:DescribeAddresses",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeNatGateways",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSnapshots",
            "ec2:DescribeVolumes",
            "ec2:DescribeVpcEndpoints",
            "ec2:DescribeVpcs",
            "elasticloadbalancing:DescribeLoadBalancers",
            "elasticloadbalancing:DescribeTags",
            "elasticloadbalancing:DescribeTargetGroups",
            "events:ListRules",
            "kms:ListKeys",
            "lambda:ListFunctions",
            "logs:DescribeLogGroups",
            "scheduler:ListScheduleGroups",
            "sns:ListTopics",
            "sqs:ListQueues",
        ),
    ),
    IamRight(
        kinds=("operator",), target="the world", commands=("destroy",), actions=("iam:ListPolicies", "iam:ListRoles")
    ),
    # admin
    IamRight(
        kinds=("admin",),
        target="going stacks",
        commands=("destroy what is protected",),
        actions=("cloudformation:UpdateTerminationProtection",),
    ),
    IamRight(
        kinds=("admin",),
        target="cluster",
        commands=("destroy what is protected",),
        actions=(
            "eks:DescribeUpdate",
            "eks:UpdateClusterConfig",
        ),
    ),
    IamRight(
        kinds=("admin",),
        target="guard's rules",
        actions=("events:DescribeRule", "events:EnableRule"),
        reason="enables the reaper's rule again where somebody disabled it: docs/runbook.md",
    ),
    IamRight(
        kinds=("admin",),
        target="functions",
        actions=("lambda:DeleteFunctionConcurrency",),
        reason="takes away a reservation that keeps a function from running: docs/runbook.md",
    ),
    IamRight(
        kinds=("admin",),
        target="dead letters",
        actions=("sqs:PurgeQueue",),
        reason="empties the queue, which ends its alarm: docs/runbook.md",
    ),
    IamRight(
        kinds=("admin",),
        target="topic",
        actions=("sns:Subscribe",),
        reason="subscribes again who let a confirmation lapse: the line subscriptions of docs/doctor.md",
    ),
    IamRight(
        kinds=("admin",),
        target="alarms",
        actions=("cloudwatch:SetAlarmState",),
        reason="tries the way from an alarm to a person: docs/deploy.md",
    ),
    IamRight(
        kinds=("admin",),
        target="updates",
        commands=("doctor --prove-stop",),
        actions=(
            "eks:DescribeUpdate",
            "eks:ListUpdates",
        ),
    ),
    IamRight(
        kinds=("admin",),
        target="dead letters",
        commands=("doctor --prove-stop",),
        actions=(
            "sqs:DeleteMessage",
            "sqs:GetQueueUrl",
            "sqs:ReceiveMessage",
        ),
    ),
    IamRight(kinds=("admin",), target="artifacts", commands=("artifacts gc",), actions=("s3:DeleteObject",)),
    IamRight(
        kinds=("admin",),
        target="models",
        commands=("artifacts gc",),
        actions=(
            "s3:AbortMultipartUpload",
            "s3:DeleteObject",
            "s3:PutObject",
        ),
    ),
    IamRight(kinds=("admin",), target="bucket", commands=("artifacts gc",), actions=("s3:GetBucketVersioning",)),
    # pipeline
    IamRight(
        kinds=(PIPELINE,),
        target="bootstrap roles",
        actions=("sts:AssumeRole",),
        reason="`cdk deploy` and `cdk diff` do all in the bootstrap's own roles: docs/deploy.md",
    ),
)


def list_rights(kind: PeopleKind) -> tuple[IamRight, ...]:
    """Return the rows of one kind's own policy."""
    return tuple(right for right in RIGHTS if kind in right.kinds)


def can_run_command(kind: PeopleKind, command: str) -> bool:
    """Return whether somebody of a kind has every right that a command needs."""
    own_kinds = set(list_policy_kinds(kind))
    required_rights = [
        right for right in RIGHTS if command in right.commands and set(right.actions) & list_command_actions(command)
    ]
    return all(own_kinds & set(right.kinds) for right in required_rights)


def list_policy_kinds(kind: PeopleKind) -> tuple[PeopleKind, ...]:
    """Return whose policies somebody of a kind has, the own last."""
    person_kinds = tuple(person_kind for person_kind in PEOPLE if person_kind != PIPELINE)
    return (PIPELINE,) if kind == PIPELINE else person_kinds[: person_kinds.index(kind) + 1]


_ID_REASON = "AWS ends the ARN with an id of its own; all before it is literal"
_RUN_REASON = "names of runs and keys of objects are not known beforehand; bucket and prefix are literal"
_TAG_REASON = "ids are not known beforehand; the condition asks for the tag or alias of this environment's own"
_LIST_REASON = (
    "the action takes no narrower resource; the condition asks for the environment's region where there is one"
)
_READ_REASON = "what is searched for after a teardown has no name that is known; it is only read"

TARGET_REASONS: dict[TargetName, str] = {
    "everywhere": _LIST_REASON,
    "the world": _LIST_REASON,
    "mirrors": _LIST_REASON,
    "own metrics": "metrics are no resources; the condition asks for the environment's own namespace",
    "node group": _ID_REASON,
    "node groups": "names and ids of another tool's node groups are not known; they are only read, to be left alone",
    "updates": _ID_REASON,
    "accelerators": _TAG_REASON,
    "Auto Scaling groups": _TAG_REASON,
    "CNI's interfaces": _TAG_REASON,
    "EKS's groups": _TAG_REASON,
    "in-tree groups": _TAG_REASON,
    "topic's key": _TAG_REASON,
    "logs": "the streams of a log group are not known beforehand; the group is literal",
    "guard's rules": "CloudFormation ends the name of the rule; the stack's name before it is literal",
    "schedules": "a schedule has the name of a run, which is not known beforehand; the group is literal",
    "all budgets": "AWS Budgets lists budgets of the whole account; they are only read",
    "alarms": "what a composite alarm watches follows its environment's name and the word notify",
    "dashboards": "dashboards begin with the environment's name; what they show follows",
    "guard's objects": _RUN_REASON,
    "leases": _RUN_REASON,
    "models and artifacts": _RUN_REASON,
    "artifacts": _RUN_REASON,
    "models": _RUN_REASON,
    "results": _RUN_REASON,
    "images": "behind a mirror an image may lie in any repository of the account; it is only read",
    "repositories": _READ_REASON,
    "secret": "Secrets Manager ends the ARN with six characters of its own",
    "stacks": _ID_REASON,
    "going stacks": _ID_REASON,
    "all stacks": "eight names would make the policy longer than IAM takes; stacks are only read",
    "roles": _READ_REASON,
    "keys": _READ_REASON,
}
"""Why a place has a wildcard; one without has none."""

WILDCARD_REASONS = {
    "cloudformation:DescribeStacks": "destroy asks without a name, which lists all stacks and is no stack's ARN",
    "cloudwatch:DescribeAlarms": "composite alarms are shown to who may see all (API reference, DescribeAlarms)",
    "cloudwatch:GetMetricData": "its resource is a dataset, which plain metrics are not",
    "cloudwatch:PutMetricData": "its resource is a dataset, which plain metrics are not",
}
"""Actions that take a resource by the reference, and `*` all the same."""
