"""Who may do what: one row a right, with the command or the page that needs it.

Invariant: a row's actions are all taken on the same kind of resource and under the same condition, and a row that no
command calls for says why it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.ops.people.command_calls import COMMAND_CALLS, list_command_actions
from tandem.spec.names import PEOPLE, PeopleKind

PIPELINE: PeopleKind = "pipeline"


@dataclass(frozen=True, slots=True)
class IamRight:
    """Some actions on one place.

    Args:
        kinds: whose policy has it. Each kind of people has the policies of the kinds before it beside its own.
        target: the place's name in `build_targets`.
        commands: keys of COMMAND_CALLS, of which one at least makes a call for each action.
        reason: for what no command calls: who needs it, and where that is written.
    """

    kinds: tuple[PeopleKind, ...]
    target: str
    actions: tuple[str, ...]
    commands: tuple[str, ...]
    reason: str


def _build_rights(kinds: tuple[PeopleKind, ...], *rows: tuple[str, ...]) -> Iterator[IamRight]:
    """Yield rows of place, actions, and commands or a reason or both; white space parts actions, a comma commands."""
    for target, actions, *needs in rows:
        commands = tuple(needs[0].split(", ")) if needs[0].split(", ")[0] in COMMAND_CALLS else ()
        yield IamRight(
            kinds, target, tuple(actions.split()), commands, needs[-1] if len(needs) > bool(commands) else ""
        )


_VIEWERS: tuple[PeopleKind, ...] = ("viewer", PIPELINE)
_OBSERVE = "status, doctor, stop by the function, stop, stop --end, stop --release, start, relabel, destroy"
_ARTIFACTS = "artifacts list and explain, artifacts import, artifacts gc"
_WATCH_ACTIONS = (
    "ec2:DescribeAvailabilityZones ec2:DescribeCapacityReservations ec2:DescribeInstanceTypeOfferings "
    "ec2:DescribeInstances ec2:DescribeRegions ec2:DescribeSubnets eks:DescribeAddonVersions "
    "eks:DescribeClusterVersions servicequotas:ListAWSDefaultServiceQuotas "
    "servicequotas:ListServiceQuotas"
)
_SEARCH_ACTIONS = (
    "codebuild:ListProjects ec2:DescribeAddresses ec2:DescribeLaunchTemplates ec2:DescribeNatGateways "
    "ec2:DescribeNetworkInterfaces ec2:DescribeSecurityGroups ec2:DescribeSnapshots ec2:DescribeVolumes "
    "ec2:DescribeVpcEndpoints ec2:DescribeVpcs elasticloadbalancing:DescribeLoadBalancers "
    "elasticloadbalancing:DescribeTags elasticloadbalancing:DescribeTargetGroups events:ListRules "
    "kms:ListKeys lambda:ListFunctions logs:DescribeLogGroups scheduler:ListScheduleGroups "
    "sns:ListTopics sqs:ListQueues"
)
_ENCRYPTED_REASON = (
    "what SNS asks of whoever publishes to an encrypted topic (SNS developer guide, key management), and "
    "SQS of whoever reads from an encrypted queue: start, stop, doctor --prove-stop"
)

_DECRYPT_REASON = "what S3 asks of whoever reads an object under a customer key (artifacts.kms_key_arn): status, doctor"
_METRIC_COMMANDS = "status, start, stop by the function, stop, destroy"
_CONSOLE_REASON = "the console lists dashboards and fills their widgets with these: docs/watch.md"
_ENCRYPT_REASON = (
    "what S3 asks of whoever writes an object under a customer key: artifacts import, bench publish, start"
)
_INVOKE_REASON = "sees whether the reaper can run, and makes it look now: docs/runbook.md"
_ROLE_REASON = "what Scheduler asks of whoever makes a schedule with a role: start, doctor --prove-stop"
_RULE_REASON = "enables the reaper's rule again where somebody disabled it: docs/runbook.md"
_CONCURRENCY_REASON = "takes away a reservation that keeps a function from running: docs/runbook.md"
_SUBSCRIBE_REASON = "subscribes again who let a confirmation lapse: the line subscriptions of docs/doctor.md"
_DEPLOY_REASON = "`cdk deploy` and `cdk diff` do all in the bootstrap's own roles: docs/deploy.md"

RIGHTS = (
    # viewer, and what of it a pipeline needs
    *_build_rights(
        _VIEWERS,
        ("everywhere", _WATCH_ACTIONS, _OBSERVE),
        ("mirrors", "ecr:DescribePullThroughCacheRules", "doctor"),
        ("images", "ecr:DescribeImages", "doctor"),
        ("the world", "ce:ListCostAllocationTags s3:ListAllMyBuckets", "doctor"),
        ("stacks", "cloudformation:DescribeStacks", "doctor"),
        ("cluster", "eks:DescribeCluster", "status, doctor, stop by the function, stop, destroy"),
        ("node group", "eks:DescribeNodegroup", _OBSERVE),
        ("guard's objects", "s3:GetObject", _OBSERVE),
        # without a prefix: who may not list a bucket is told of a missing object as of a forbidden one
        ("buckets", "s3:ListBucket", f"doctor, bench publish, destroy, {_ARTIFACTS}"),
        ("bucket's key as it stands", "kms:DescribeKey", "doctor"),
        ("bucket's key", "kms:Decrypt", _DECRYPT_REASON),
        ("principals", "iam:GetRole", "doctor"),
        ("users", "iam:GetUser", "doctor"),
        ("boundary", "iam:GetPolicy", "doctor"),
        ("secret", "secretsmanager:DescribeSecret", "doctor"),
        ("topic", "sns:ListSubscriptionsByTopic", "doctor"),
        ("bootstrap version", "ssm:GetParameter", "doctor"),
        ("budgets", "budgets:ViewBudget", "status, start, doctor"),
    ),
    *_build_rights(
        ("viewer",),
        ("everywhere", "cloudwatch:DescribeAlarms cloudwatch:GetMetricStatistics", _METRIC_COMMANDS),
    ),
    *_build_rights(
        _VIEWERS,
        ("schedules", "scheduler:GetSchedule", "status, start, doctor"),
        (
            "everywhere",
            "autoscaling:DescribeAutoScalingGroups scheduler:ListSchedules",
            "status, start, stop, doctor, destroy",
        ),
        ("functions", "lambda:GetFunctionConfiguration", "status, start, doctor"),
    ),
    *_build_rights(
        ("viewer",),
        ("dashboards", "cloudwatch:GetDashboard", "opens the dashboards in the console: docs/watch.md"),
        ("everywhere", "cloudwatch:GetMetricData cloudwatch:ListDashboards", "destroy", _CONSOLE_REASON),
        ("stop function", "lambda:InvokeFunction", "stop by the function"),
    ),
    *_build_rights(
        ("engineer",),
        ("models and artifacts", "s3:GetObject", _ARTIFACTS),
        ("bucket", "s3:ListBucketMultipartUploads", _ARTIFACTS),
        ("artifacts", "s3:AbortMultipartUpload s3:PutObject", "artifacts import, artifacts gc"),
        ("results", "s3:AbortMultipartUpload s3:GetObject s3:PutObject", "bench publish"),
        ("bucket's key", "kms:GenerateDataKey", _ENCRYPT_REASON),
        ("own metrics", "cloudwatch:PutMetricData", "bench publish"),
        ("logs", "logs:FilterLogEvents", "reads what servers and both functions said: docs/runbook.md"),
        ("functions", "lambda:GetFunctionConcurrency lambda:InvokeFunction", _INVOKE_REASON),
    ),
    *_build_rights(
        ("operator",),
        ("fence", "s3:PutObject", "stop, stop --release"),
        ("leases", "s3:PutObject", "start, stop --end, stop --release, relabel"),
        ("node group", "eks:UpdateNodegroupConfig", "start, stop, stop --end, relabel"),
        ("accelerators", "ec2:TerminateInstances", "stop"),
        # a stop suspends launches where EKS does not follow, a start resumes them
        (
            "Auto Scaling groups",
            "autoscaling:ResumeProcesses autoscaling:SuspendProcesses autoscaling:UpdateAutoScalingGroup",
            "start, stop",
        ),
        ("topic", "sns:Publish", "start, stop"),
        ("topic's key", "kms:Decrypt kms:GenerateDataKey", _ENCRYPTED_REASON),
        (
            "schedules",
            "scheduler:CreateSchedule scheduler:DeleteSchedule",
            "start, stop --end, stop --release, doctor --prove-stop",
        ),
        ("scheduler role", "iam:PassRole", _ROLE_REASON),
        ("going stacks", "cloudformation:DeleteStack", "destroy"),
        ("all stacks", "cloudformation:DescribeStackEvents cloudformation:ListStackResources", "destroy"),
        # without a name: whose a stack is, and which neighbour's names begin alike, is told by the tags of all
        ("everywhere", "cloudformation:DescribeStacks", "destroy"),
        ("cluster", "eks:ListNodegroups eks:ListPodIdentityAssociations", "destroy"),
        ("node groups", "eks:DescribeNodegroup", "destroy"),
        ("buckets", "s3:ListBucketVersions", "destroy"),
        ("CNI's interfaces", "ec2:DeleteNetworkInterface", "destroy"),
        ("EKS's groups", "ec2:DeleteSecurityGroup", "destroy"),
        ("in-tree groups", "ec2:DeleteSecurityGroup", "destroy"),
        ("roles", "iam:ListRoleTags", "destroy"),
        ("repositories", "ecr:DescribeRepositories", "destroy"),
        ("keys", "kms:DescribeKey kms:ListResourceTags", "destroy"),
        ("all budgets", "budgets:ViewBudget", "destroy"),
        ("everywhere", _SEARCH_ACTIONS, "destroy"),
        ("the world", "iam:ListPolicies iam:ListRoles", "destroy"),
    ),
    *_build_rights(
        ("admin",),
        ("going stacks", "cloudformation:UpdateTerminationProtection", "destroy what is protected"),
        ("cluster", "eks:DescribeUpdate eks:UpdateClusterConfig", "destroy what is protected"),
        ("guard's rules", "events:DescribeRule events:EnableRule", _RULE_REASON),
        ("functions", "lambda:DeleteFunctionConcurrency", _CONCURRENCY_REASON),
        ("dead letters", "sqs:PurgeQueue", "empties the queue, which ends its alarm: docs/runbook.md"),
        ("topic", "sns:Subscribe", _SUBSCRIBE_REASON),
        ("alarms", "cloudwatch:SetAlarmState", "tries the way from an alarm to a person: docs/deploy.md"),
        ("updates", "eks:DescribeUpdate eks:ListUpdates", "doctor --prove-stop"),
        ("dead letters", "sqs:DeleteMessage sqs:GetQueueUrl sqs:ReceiveMessage", "doctor --prove-stop"),
        ("artifacts", "s3:DeleteObject", "artifacts gc"),
        ("models", "s3:AbortMultipartUpload s3:DeleteObject s3:PutObject", "artifacts gc"),
        ("bucket", "s3:GetBucketVersioning", "artifacts gc"),
    ),
    *_build_rights(
        (PIPELINE,),
        ("bootstrap roles", "sts:AssumeRole", _DEPLOY_REASON),
    ),
)


def list_rights(kind: PeopleKind) -> tuple[IamRight, ...]:
    """Return the rows of one kind's own policy."""
    return tuple(right for right in RIGHTS if kind in right.kinds)


def list_policy_kinds(kind: PeopleKind) -> tuple[PeopleKind, ...]:
    """Return whose policies somebody of a kind has, the own last; the pipeline is the last of PEOPLE."""
    return (PIPELINE,) if kind == PIPELINE else PEOPLE[: PEOPLE.index(kind) + 1]


def can_run_command(kind: PeopleKind, command: str) -> bool:
    """Return whether somebody of a kind has every right that a command needs."""
    own_kinds, actions = set(list_policy_kinds(kind)), list_command_actions(command)
    return all(
        own_kinds & set(right.kinds) for right in RIGHTS if command in right.commands and actions & set(right.actions)
    )


_REASON_ROWS = (
    (
        "everywhere, the world, mirrors: the action takes no narrower resource; the condition asks for the"
        " environment's region where there is one"
    ),
    "own metrics: metrics are no resources; the condition asks for the environment's own namespace",
    "node group, updates, stacks, going stacks: AWS ends the ARN with an id of its own; all before it is literal",
    "node groups: names and ids of another tool's node groups are not known; they are only read, to be left alone",
    (
        "accelerators, Auto Scaling groups, CNI's interfaces, EKS's groups, in-tree groups, topic's key: ids are not"
        " known beforehand; the condition asks for the tag or alias of this environment's own"
    ),
    "logs: the streams of a log group are not known beforehand; the group is literal",
    "guard's rules: CloudFormation ends the name of the rule; the stack's name before it is literal",
    "schedules: a schedule has the name of a run, which is not known beforehand; the group is literal",
    "all budgets: AWS Budgets lists budgets of the whole account; they are only read",
    "alarms: what a composite alarm watches follows its environment's name and the word notify",
    "dashboards: dashboards begin with the environment's name; what they show follows",
    (
        "guard's objects, leases, models and artifacts, artifacts, models, results: names of runs and keys of objects"
        " are not known beforehand; bucket and prefix are literal"
    ),
    "images: behind a mirror an image may lie in any repository of the account; it is only read",
    "repositories, roles, keys: what is searched for after a teardown has no name that is known; it is only read",
    "secret: Secrets Manager ends the ARN with six characters of its own",
    "all stacks: eight names would make the policy longer than IAM takes; stacks are only read",
)
TARGET_REASONS = {
    target: reason
    for targets, _, reason in (row.partition(": ") for row in _REASON_ROWS)
    for target in targets.split(", ")
}
"""Why a place has a wildcard; one without has none."""

WILDCARD_REASONS = {
    "cloudformation:DescribeStacks": "destroy asks without a name, which lists all stacks and is no stack's ARN",
    "cloudwatch:DescribeAlarms": "composite alarms are shown to who may see all (API reference, DescribeAlarms)",
    "cloudwatch:GetMetricData": "its resource is a dataset, which plain metrics are not",
    "cloudwatch:PutMetricData": "its resource is a dataset, which plain metrics are not",
}
"""Actions that take a resource by the reference, and `*` all the same."""
