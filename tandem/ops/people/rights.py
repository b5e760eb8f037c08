"""Who may do what: one row a right, with the command or the page that needs it.

Invariant: a row's actions are all taken on the same kind of resource and under the same condition, and a row that no
command calls for says why it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.ops.people.calls import actions_of
from tandem.ops.people.places import Where
from tandem.spec.names import PEOPLE, PeopleKind

PIPELINE: PeopleKind = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Some actions on one place.

    Args:
        kinds: whose policy has it. Each kind of people has the policies of the kinds before it beside its own.
        needs: keys of `calls.COMMANDS`, of which one at least makes a call for each action.
        why: for what no command calls: who needs it, and where that is written.
    """

    kinds: tuple[PeopleKind, ...]
    on: Where
    actions: tuple[str, ...]
    needs: tuple[str, ...] = ()
    why: str = ""


_SEES: tuple[PeopleKind, ...] = ("viewer", PIPELINE)
_LOOK = (
    "status", "doctor", "stop by the function", "stop", "stop --end", "stop --clear", "start", "relabel", "destroy",
)  # fmt: skip
_STORE = ("artifacts list and explain", "artifacts adopt", "artifacts collect")

RIGHTS = (
    # viewer, and what of it a pipeline needs
    Right(kinds=_SEES, on="everywhere", needs=_LOOK, actions=(
        "ec2:DescribeAvailabilityZones", "ec2:DescribeCapacityReservations", "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstances", "ec2:DescribeRegions", "ec2:DescribeSubnets", "eks:DescribeAddonVersions",
        "eks:DescribeClusterVersions", "servicequotas:ListAWSDefaultServiceQuotas", "servicequotas:ListServiceQuotas",
    )),
    Right(kinds=_SEES, on="mirrors", needs=("doctor",), actions=("ecr:DescribePullThroughCacheRules",)),
    Right(kinds=_SEES, on="images", needs=("doctor",), actions=("ecr:DescribeImages",)),
    Right(kinds=_SEES, on="the world", needs=("doctor",), actions=("ce:ListCostAllocationTags", "s3:ListAllMyBuckets")),
    Right(kinds=_SEES, on="stacks", needs=("doctor",), actions=("cloudformation:DescribeStacks",)),
    Right(kinds=_SEES, on="cluster", actions=("eks:DescribeCluster",), needs=(
        "status", "doctor", "stop by the function", "stop", "destroy",
    )),
    Right(kinds=_SEES, on="node group", needs=_LOOK, actions=("eks:DescribeNodegroup",)),
    Right(kinds=_SEES, on="guard's objects", needs=_LOOK, actions=("s3:GetObject",)),
    # without a prefix: who may not list a bucket is told of a missing object as of a forbidden one
    Right(kinds=_SEES, on="buckets", needs=("doctor", "bench publish", "destroy", *_STORE),
          actions=("s3:ListBucket",)),
    Right(kinds=_SEES, on="bucket's key as it stands", needs=("doctor",), actions=("kms:DescribeKey",)),
    Right(kinds=_SEES, on="bucket's key", actions=("kms:Decrypt",),
          why="what S3 asks of whoever reads an object under a customer key (artifacts.kms_key_arn): status, doctor"),
    Right(kinds=_SEES, on="principals", needs=("doctor",), actions=("iam:GetRole",)),
    Right(kinds=_SEES, on="users", needs=("doctor",), actions=("iam:GetUser",)),
    Right(kinds=_SEES, on="boundary", needs=("doctor",), actions=("iam:GetPolicy",)),
    Right(kinds=_SEES, on="secret", needs=("doctor",), actions=("secretsmanager:DescribeSecret",)),
    Right(kinds=_SEES, on="topic", needs=("doctor",), actions=("sns:ListSubscriptionsByTopic",)),
    Right(kinds=_SEES, on="bootstrap version", needs=("doctor",), actions=("ssm:GetParameter",)),
    Right(kinds=_SEES, on="budgets", needs=("status", "start", "doctor"), actions=("budgets:ViewBudget",)),
    Right(kinds=("viewer",), on="everywhere", actions=("cloudwatch:DescribeAlarms", "cloudwatch:GetMetricStatistics"),
          needs=("status", "start", "stop by the function", "stop", "destroy")),
    Right(kinds=_SEES, on="schedules", needs=("status", "start", "doctor"), actions=("scheduler:GetSchedule",)),
    Right(kinds=_SEES, on="everywhere", needs=("status", "start", "stop", "doctor", "destroy"), actions=(
        "autoscaling:DescribeAutoScalingGroups", "scheduler:ListSchedules",
    )),
    Right(kinds=_SEES, on="functions", needs=("status", "start", "doctor"),
          actions=("lambda:GetFunctionConfiguration",)),
    Right(kinds=("viewer",), on="dashboards", actions=("cloudwatch:GetDashboard",),
          why="opens the dashboards in the console: docs/watch.md"),
    Right(kinds=("viewer",), on="everywhere", needs=("bench publish", "destroy"),
          actions=("cloudwatch:GetMetricData", "cloudwatch:ListDashboards"),
          why="the console lists dashboards and fills their widgets with these: docs/watch.md"),
    Right(kinds=("viewer",), on="stop function", needs=("stop by the function",), actions=("lambda:InvokeFunction",)),

    # engineer
    Right(kinds=("engineer",), on="models and artifacts", needs=_STORE,
          actions=("s3:GetObject",)),
    Right(kinds=("engineer",), on="bucket", needs=_STORE,
          actions=("s3:ListBucketMultipartUploads",)),
    Right(kinds=("engineer",), on="artifacts", needs=("artifacts adopt", "artifacts collect"), actions=(
        "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:PutObject",
    )),
    Right(kinds=("engineer",), on="results", needs=("bench publish",), actions=(
        "s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject",
    )),
    Right(kinds=("engineer",), on="bucket's key", actions=("kms:GenerateDataKey",),
          why="what S3 asks of whoever writes an object under a customer key: artifacts adopt, bench publish, start"),
    Right(kinds=("engineer",), on="own metrics", needs=("bench publish",),
          actions=("cloudwatch:PutMetricData",)),
    Right(kinds=("engineer",), on="logs", actions=("logs:FilterLogEvents",),
          why="reads what servers and both functions said: docs/runbook.md"),
    Right(kinds=("engineer",), on="functions", actions=(
        "lambda:GetFunctionConcurrency", "lambda:InvokeFunction",
    ), why="sees whether the reaper can run, and makes it look now: docs/runbook.md"),

    # operator
    Right(kinds=("operator",), on="fence", needs=("stop", "stop --clear"), actions=("s3:PutObject",)),
    Right(kinds=("operator",), on="leases", needs=("start", "stop --end", "stop --clear", "relabel"),
          actions=("s3:PutObject",)),
    Right(kinds=("operator",), on="node group", needs=("start", "stop", "stop --end", "relabel"),
          actions=("eks:UpdateNodegroupConfig",)),
    Right(kinds=("operator",), on="accelerators", needs=("stop",), actions=("ec2:TerminateInstances",)),
    # a stop suspends launches where EKS does not follow, a start resumes them
    Right(kinds=("operator",), on="Auto Scaling groups", needs=("start", "stop"), actions=(
        "autoscaling:ResumeProcesses", "autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup",
    )),
    Right(kinds=("operator",), on="topic", needs=("start", "stop"), actions=("sns:Publish",)),
    Right(kinds=("operator",), on="topic's key", actions=("kms:Decrypt", "kms:GenerateDataKey"),
          why="what SNS asks of whoever publishes to an encrypted topic (SNS developer guide, key management), and SQS "
          "of whoever reads from an encrypted queue: start, stop, doctor --prove-stop"),
    Right(kinds=("operator",), on="schedules", needs=("start", "stop --end", "stop --clear", "doctor --prove-stop"),
          actions=("scheduler:CreateSchedule", "scheduler:DeleteSchedule")),
    Right(kinds=("operator",), on="scheduler role", actions=("iam:PassRole",),
          why="what Scheduler asks of whoever makes a schedule with a role: start, doctor --prove-stop"),
    Right(kinds=("operator",), on="going stacks", needs=("destroy",), actions=("cloudformation:DeleteStack",)),
    Right(kinds=("operator",), on="all stacks", needs=("destroy",), actions=(
        "cloudformation:DescribeStackEvents", "cloudformation:ListStackResources",
    )),
    # without a name: whose a stack is, and which neighbour's names begin alike, is told by the tags of all
    Right(kinds=("operator",), on="everywhere", needs=("destroy",), actions=("cloudformation:DescribeStacks",)),
    Right(kinds=("operator",), on="cluster", needs=("destroy",), actions=(
        "eks:ListNodegroups", "eks:ListPodIdentityAssociations",
    )),
    Right(kinds=("operator",), on="node groups", needs=("destroy",), actions=("eks:DescribeNodegroup",)),
    Right(kinds=("operator",), on="buckets", needs=("destroy",), actions=("s3:ListBucketVersions",)),
    Right(kinds=("operator",), on="CNI's interfaces", needs=("destroy",), actions=("ec2:DeleteNetworkInterface",)),
    Right(kinds=("operator",), on="EKS's groups", needs=("destroy",), actions=("ec2:DeleteSecurityGroup",)),
    Right(kinds=("operator",), on="in-tree groups", needs=("destroy",), actions=("ec2:DeleteSecurityGroup",)),
    Right(kinds=("operator",), on="roles", needs=("destroy",), actions=("iam:ListRoleTags",)),
    Right(kinds=("operator",), on="repositories", needs=("destroy",), actions=("ecr:DescribeRepositories",)),
    Right(kinds=("operator",), on="keys", needs=("destroy",), actions=("kms:DescribeKey", "kms:ListResourceTags")),
    Right(kinds=("operator",), on="all budgets", needs=("destroy",), actions=("budgets:ViewBudget",)),
    Right(kinds=("operator",), on="everywhere", needs=("destroy",), actions=(
        "codebuild:ListProjects", "ec2:DescribeAddresses", "ec2:DescribeLaunchTemplates", "ec2:DescribeNatGateways",
        "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSnapshots",
        "ec2:DescribeVolumes", "ec2:DescribeVpcEndpoints", "ec2:DescribeVpcs",
        "elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags",
        "elasticloadbalancing:DescribeTargetGroups", "events:ListRules", "kms:ListKeys", "lambda:ListFunctions",
        "logs:DescribeLogGroups", "scheduler:ListScheduleGroups", "sns:ListTopics", "sqs:ListQueues",
    )),
    Right(kinds=("operator",), on="the world", needs=("destroy",), actions=("iam:ListPolicies", "iam:ListRoles")),

    # admin
    Right(kinds=("admin",), on="going stacks", needs=("destroy what is protected",),
          actions=("cloudformation:UpdateTerminationProtection",)),
    Right(kinds=("admin",), on="cluster", needs=("destroy what is protected",), actions=(
        "eks:DescribeUpdate", "eks:UpdateClusterConfig",
    )),
    Right(kinds=("admin",), on="guard's rules", actions=("events:DescribeRule", "events:EnableRule"),
          why="enables the reaper's rule again where somebody disabled it: docs/runbook.md"),
    Right(kinds=("admin",), on="functions", actions=("lambda:DeleteFunctionConcurrency",),
          why="takes away a reservation that keeps a function from running: docs/runbook.md"),
    Right(kinds=("admin",), on="dead letters", actions=("sqs:PurgeQueue",),
          why="empties the queue, which ends its alarm: docs/runbook.md"),
    Right(kinds=("admin",), on="topic", actions=("sns:Subscribe",),
          why="subscribes again who let a confirmation lapse: the line subscriptions of docs/doctor.md"),
    Right(kinds=("admin",), on="alarms", actions=("cloudwatch:SetAlarmState",),
          why="tries the way from an alarm to a person: docs/deploy.md"),
    Right(kinds=("admin",), on="updates", needs=("doctor --prove-stop",), actions=(
        "eks:DescribeUpdate", "eks:ListUpdates",
    )),
    Right(kinds=("admin",), on="dead letters", needs=("doctor --prove-stop",), actions=(
        "sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage",
    )),
    Right(kinds=("admin",), on="artifacts", needs=("artifacts collect",), actions=("s3:DeleteObject",)),
    Right(kinds=("admin",), on="models", needs=("artifacts collect",), actions=(
        "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject",
    )),
    Right(kinds=("admin",), on="bucket", needs=("artifacts collect",), actions=("s3:GetBucketVersioning",)),

    # pipeline
    Right(kinds=(PIPELINE,), on="bootstrap roles", actions=("sts:AssumeRole",),
          why="`cdk deploy` and `cdk diff` do all in the bootstrap's own roles: docs/deploy.md"),
)  # fmt: skip


def rights(kind: PeopleKind) -> tuple[Right, ...]:
    """Return the rows of one kind's own policy."""
    return tuple(right for right in RIGHTS if kind in right.kinds)


def may(kind: PeopleKind, command: str) -> bool:
    """Return whether somebody of a kind has every right that a command needs."""
    mine = set(held(kind))
    needed = [right for right in RIGHTS if command in right.needs and set(right.actions) & actions_of(command)]
    return all(mine & set(right.kinds) for right in needed)


def held(kind: PeopleKind) -> tuple[PeopleKind, ...]:
    """Return whose policies somebody of a kind has, the own last."""
    people = tuple(one for one in PEOPLE if one != PIPELINE)
    return (PIPELINE,) if kind == PIPELINE else people[: people.index(kind) + 1]


_IDS = "AWS ends the ARN with an id of its own; all before it is literal"
_RUNS = "names of runs and keys of objects are not known beforehand; bucket and prefix are literal"
_TAGGED = "ids are not known beforehand; the condition asks for the tag or alias of this environment's own"
_LISTS = "the action takes no narrower resource; the condition asks for the environment's region where there is one"
_READS = "what is searched for after a teardown has no name that is known; it is only read"

REASONS: dict[Where, str] = {
    "everywhere": _LISTS,
    "the world": _LISTS,
    "mirrors": _LISTS,
    "own metrics": "metrics are no resources; the condition asks for the environment's own namespace",
    "node group": _IDS,
    "node groups": "names and ids of another tool's node groups are not known; they are only read, to be left alone",
    "updates": _IDS,
    "accelerators": _TAGGED,
    "Auto Scaling groups": _TAGGED,
    "CNI's interfaces": _TAGGED,
    "EKS's groups": _TAGGED,
    "in-tree groups": _TAGGED,
    "topic's key": _TAGGED,
    "logs": "the streams of a log group are not known beforehand; the group is literal",
    "guard's rules": "CloudFormation ends the name of the rule; the stack's name before it is literal",
    "schedules": "a schedule has the name of a run, which is not known beforehand; the group is literal",
    "all budgets": "AWS Budgets lists budgets of the whole account; they are only read",
    "alarms": "what a composite alarm watches follows its environment's name and the word notify",
    "dashboards": "dashboards begin with the environment's name; what they show follows",
    "guard's objects": _RUNS,
    "leases": _RUNS,
    "models and artifacts": _RUNS,
    "artifacts": _RUNS,
    "models": _RUNS,
    "results": _RUNS,
    "images": "behind a mirror an image may lie in any repository of the account; it is only read",
    "repositories": _READS,
    "secret": "Secrets Manager ends the ARN with six characters of its own",
    "stacks": _IDS,
    "going stacks": _IDS,
    "all stacks": "eight names would make the policy longer than IAM takes; stacks are only read",
    "roles": _READS,
    "keys": _READS,
}
"""Why a place has a wildcard; one without has none."""

WIDE = {
    "cloudformation:DescribeStacks": "destroy asks without a name, which lists all stacks and is no stack's ARN",
    "cloudwatch:DescribeAlarms": "composite alarms are shown to who may see all (API reference, DescribeAlarms)",
    "cloudwatch:GetMetricData": "its resource is a dataset, which plain metrics are not",
    "cloudwatch:PutMetricData": "its resource is a dataset, which plain metrics are not",
}
"""Actions that take a resource by the reference, and `*` all the same."""
