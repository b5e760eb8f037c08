"""Rights of people: one table of needs, from which policies and page follow.

Invariant: a right exists because a command makes its call, because AWS requires it in addition to a
call, or because a page sends people to it. Tests compare the calls with the programs and with
recorded calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from tandem.declarations.names import PEOPLE, PeopleKind
from tandem.ops.faults import AwsCall, list_calls

PIPELINE: PeopleKind = "pipeline"
# an action on the first target needs no statement if the same people have it on the second
WIDER_TARGETS = {"stop function": "functions", "proofs": "schedules"}
TargetRows = Mapping[str, str]


class IamRight(NamedTuple):
    """One action on one target.

    Args:
        kind: that has the right; the kinds of people after it have it too; None: the runner.
        need: the command, or the task on a page.
        target: its name in `build_targets`.
        action: as IAM spells it; empty for a call that needs no right.
        call: None for an action that AWS requires in addition to a call, and for the need of a
            page.
    """

    kind: PeopleKind | None
    need: str
    target: str
    action: str
    call: AwsCall | None


def _join_rows(*mappings: TargetRows) -> TargetRows:
    """Return the rows of several mappings; rows of the same target are joined."""
    calls: dict[str, list[str]] = {}
    for target, text in chain.from_iterable(rows.items() for rows in mappings):
        calls.setdefault(target, []).append(text)
    return {target: ", ".join(texts) for target, texts in calls.items()}


_OBSERVE = {
    "everywhere": "sts GetCallerIdentity, ec2 DescribeInstances DescribeCapacityReservations",
    "guard's objects": "s3 GetObject",
    "node group": "eks DescribeNodegroup",
}
_READ = {
    # without a prefix: people without ListBucket get the same answer for a missing object as for a
    # forbidden one
    "buckets": "s3 ListObjectsV2",
    "models and artifacts": "s3 GetObject HeadObject",
    "bucket": "s3 ListMultipartUploads",
}
_UPLOAD = (
    "s3 PutObject CreateMultipartUpload UploadPart CompleteMultipartUpload AbortMultipartUpload"
)
_BUDGET = "budgets DescribeBudget DescribeNotificationsForBudget DescribeSubscribersForNotification"
_DESCRIBE_FLEET = (
    "autoscaling DescribeAutoScalingGroups, scheduler ListSchedules, cloudwatch GetMetricStatistics"
)
_SIZE = {"node group": "eks UpdateNodegroupConfig"}
_PUBLISH = {"topic": "sns Publish", "topic's key": "kms:Decrypt kms:GenerateDataKey"}
_RUNS = {"buckets": "s3 ListObjectsV2", "runs": "s3 GetObject", "bucket's key": "kms:Decrypt"}
_REQUEST = {"own requests": "s3 PutObject", "bucket's key": "kms:GenerateDataKey"}
_STAGE_REQUEST = {"own stage requests": "s3 PutObject", "bucket's key": "kms:GenerateDataKey"}
# the checks of doctor that apply to staging as to any run
_STAGE_CHECKS = {
    "stacks": "cloudformation DescribeStacks",
    "images": "ecr DescribeImages",
    "buckets": "s3 HeadBucket",
    "keys as they stand": "kms DescribeKey",
}
_RELABEL = _join_rows(_OBSERVE, _SIZE, {"leases": "s3 PutObject"})
_END = _join_rows(_RELABEL, {"schedules": "scheduler DeleteSchedule"})
_RAISE = _join_rows(
    _RELABEL,
    _PUBLISH,
    {
        "everywhere": _DESCRIBE_FLEET,
        "budgets": _BUDGET,
        "functions": "lambda GetFunctionConfiguration",
        "fence": "s3 PutObject",  # a start that resumed launches removes their suspension from it
        "bucket's key": "kms:GenerateDataKey",
        "schedules": "scheduler CreateSchedule GetSchedule DeleteSchedule",
        "scheduler role": "iam:PassRole",
        "Auto Scaling groups": "autoscaling ResumeProcesses",
    },
)
_DOCTOR = _join_rows(
    _OBSERVE,
    {
        "everywhere": (
            "autoscaling DescribeAutoScalingGroups DescribeScheduledActions, scheduler"
            " ListSchedules, ec2 DescribeAvailabilityZones DescribeCapacityBlockExtensionHistory"
            " DescribeInstanceTypeOfferings DescribeRegions DescribeSubnets, eks"
            " DescribeAddonConfiguration DescribeAddonVersions DescribeClusterVersions,"
            " service-quotas ListAWSDefaultServiceQuotas ListServiceQuotas"
        ),
        "the world": "ce ListCostAllocationTags, pricing GetProducts, s3 ListBuckets",
        "stacks": "cloudformation DescribeStacks",
        "cluster": "eks DescribeCluster",
        "budgets": "budgets DescribeBudget",
        "images": "ecr DescribeImages",
        "mirrors": "ecr DescribePullThroughCacheRules",
        "principals": "iam GetRole",
        "users": "iam GetUser",
        "boundary": "iam GetPolicy",
        "buckets": "s3 HeadBucket",
        "bucket's key": "kms:Decrypt",
        "keys as they stand": "kms DescribeKey",
        "stop function": "lambda GetFunctionConfiguration",
        "secret": "secretsmanager DescribeSecret",
        "topic": "sns ListSubscriptionsByTopic",
        "bootstrap version": "ssm GetParameter",
        "node image parameter": "ssm GetParameter",
    },
)
NEEDS: dict[PeopleKind, dict[str, TargetRows]] = {
    "viewer": {
        "status": _join_rows(
            _OBSERVE,
            {
                "everywhere": (
                    "scheduler ListSchedules, cloudwatch GetMetricStatistics DescribeAlarms"
                ),
                "cluster": "eks DescribeCluster",
                "schedules": "scheduler GetSchedule",
                "functions": "lambda GetFunctionConfiguration",
                "budgets": _BUDGET,
                "bucket's key": "kms:Decrypt",
            },
        ),
        "doctor": _DOCTOR,
        "runs": _RUNS,
        "runs show": _RUNS,
        "runs follow": _RUNS,
        # for people who may not size a node group: IAM has one action for every size, the function
        # knows only 0
        "stop by the function": _join_rows(
            _OBSERVE,
            {
                "everywhere": "cloudwatch GetMetricStatistics",
                "cluster": "eks DescribeCluster",
                "stop function": "lambda Invoke",
            },
        ),
        "opens the dashboards in the console, which fills widgets with these: docs/watch.md": {
            "dashboards": "cloudwatch:GetDashboard",
            "everywhere": "cloudwatch:GetMetricData cloudwatch:ListDashboards",
        },
    },
    "engineer": {
        "artifacts list and explain": _READ,
        "artifacts import": _join_rows(
            _READ, {"artifacts": _UPLOAD, "bucket's key": "kms:GenerateDataKey"}
        ),
        "artifacts stage-task": {
            "task sets": "s3 GetObject PutObject",
            "bucket's key": "kms:Decrypt kms:GenerateDataKey",
        },
        "artifacts stage-suite": {
            "prompts": "s3 GetObject HeadObject PutObject",
            "bucket's key": "kms:Decrypt kms:GenerateDataKey",
        },
        "bench publish": {
            "everywhere": "sts GetCallerIdentity",
            "own metrics": "cloudwatch PutMetricData",
            "buckets": "s3 ListObjectsV2",
            "results": _UPLOAD,
            "bucket's key": "kms:GenerateDataKey",
        },
        "runs logs": _join_rows(_RUNS, {"logs": "logs FilterLogEvents"}),
        "results": _join_rows(_RUNS, {"results": "s3 GetObject"}),
        # sends a request that the runner takes for staging alone: it raises nothing, and looks at
        # no fleet
        "run --until stage": _join_rows(
            _RUNS,
            _STAGE_REQUEST,
            _STAGE_CHECKS,
            {"everywhere": "sts GetCallerIdentity", "models and artifacts": "s3 GetObject"},
        ),
        "runs cancel of a run that stages": _join_rows(_RUNS, _STAGE_REQUEST),
        "reads what servers and both functions said: docs/runbook.md": {
            "logs": "logs:FilterLogEvents"
        },
        "sees whether the reaper can run, and makes it look now: docs/runbook.md": {
            "functions": "lambda:GetFunctionConcurrency lambda:InvokeFunction"
        },
    },
    "operator": {
        "stop": _join_rows(
            _OBSERVE,
            _SIZE,
            _PUBLISH,
            {
                "everywhere": _DESCRIBE_FLEET,
                "cluster": "eks DescribeCluster",
                "fence": "s3 PutObject",
                "accelerators": "ec2 TerminateInstances",
                # a stop suspends launches if EKS does not follow, a start resumes them
                "Auto Scaling groups": "autoscaling SuspendProcesses UpdateAutoScalingGroup",
            },
        ),
        "stop --end": _END,
        "stop --release": _join_rows(
            _OBSERVE,
            {
                "fence": "s3 PutObject",
                "leases": "s3 PutObject",
                "schedules": "scheduler DeleteSchedule",
            },
        ),
        "relabel by the runner": _RELABEL,
        "start": _RAISE,
        # raises nothing itself: it looks at fleet, stops and bucket, and sends a request to the
        # runner
        "run": _join_rows(
            _OBSERVE,
            _RUNS,
            _REQUEST,
            {
                "everywhere": (
                    "ec2 DescribeCapacityBlockExtensionHistory DescribeInstanceTypeOfferings,"
                    " cloudwatch GetMetricStatistics, autoscaling DescribeAutoScalingGroups"
                    " DescribeScheduledActions, scheduler ListSchedules, service-quotas"
                    " ListAWSDefaultServiceQuotas ListServiceQuotas"
                ),
                "models and artifacts": "s3 GetObject",
                "prompts": "s3 GetObject HeadObject",
                "schedules": "scheduler GetSchedule",
                "budgets": _BUDGET,
                "functions": "lambda GetFunctionConfiguration",
            },
            _STAGE_CHECKS,
            {"topic": "sns ListSubscriptionsByTopic"},
        ),
        "runs cancel": _join_rows(_RUNS, _REQUEST),
        "destroy": _join_rows(
            _OBSERVE,
            {
                # without a name: the tags of all show whose a stack is, and which neighbours' names
                # begin alike
                "everywhere": (
                    "cloudformation DescribeStacks, logs DescribeLogGroups, ec2"
                    " DescribeNetworkInterfaces DescribeVolumes DescribeSnapshots"
                    " DescribeNatGateways DescribeAddresses DescribeVpcEndpoints"
                    " DescribeSecurityGroups DescribeLaunchTemplates DescribeSubnets DescribeVpcs,"
                    " elbv2 DescribeLoadBalancers DescribeTargetGroups DescribeTags, elb"
                    " DescribeLoadBalancers DescribeTags, scheduler ListScheduleGroups"
                    " ListSchedules, events ListRules, kms ListKeys, cloudwatch ListDashboards"
                    " DescribeAlarms, sns ListTopics, sqs ListQueues, lambda ListFunctions,"
                    " codebuild ListProjects"
                ),
                "the world": "iam ListRoles ListPolicies",
                "going stacks": "cloudformation DeleteStack",
                "all stacks": "cloudformation ListStackResources DescribeStackEvents",
                "cluster": "eks DescribeCluster ListNodegroups",
                "node groups": "eks DescribeNodegroup",
                "buckets": "s3 HeadBucket ListObjectVersions",
                "CNI's interfaces": "ec2 DeleteNetworkInterface",
                **dict.fromkeys(("EKS's groups", "in-tree groups"), "ec2 DeleteSecurityGroup"),
                "roles": "iam ListRoleTags",
                "repositories": "ecr DescribeRepositories",
                "keys": "kms DescribeKey ListResourceTags",
                "all budgets": "budgets DescribeBudgets",
            },
        ),
    },
    "admin": {
        "destroy what is protected": {
            "going stacks": "cloudformation UpdateTerminationProtection",
            "cluster": "eks UpdateClusterConfig DescribeUpdate",
        },
        "doctor --prove-stop": {
            "updates": "eks DescribeUpdate ListUpdates",
            "proofs": "scheduler CreateSchedule DeleteSchedule",
            "scheduler role": "iam:PassRole",
            "dead letters": "sqs DeleteMessage GetQueueUrl ReceiveMessage",
            "topic's key": "kms:Decrypt",
        },
        "artifacts gc": _join_rows(
            _READ,
            {
                "bucket": "s3 GetBucketVersioning",
                **dict.fromkeys(
                    ("artifacts", "models"),
                    "s3 DeleteObject DeleteObjects AbortMultipartUpload PutObject",
                ),
            },
        ),
        "deletes prompts, and results that quote them: docs/people.md": dict.fromkeys(
            ("prompts", "results"), "s3:DeleteObject s3:DeleteObjectVersion"
        ),
        "enables the reaper's rule again where somebody disabled it: docs/runbook.md": {
            "guard's rules": "events:DescribeRule events:EnableRule"
        },
        "takes away a reservation that keeps a function from running: docs/runbook.md": {
            "functions": "lambda:DeleteFunctionConcurrency"
        },
        "empties the queue, which ends its alarm: docs/runbook.md": {
            "dead letters": "sqs:PurgeQueue"
        },
        "subscribes again who let a confirmation lapse: docs/doctor.md": {"topic": "sns:Subscribe"},
        "tries the way from an alarm to a person: docs/deploy.md": {
            "alarms": "cloudwatch:SetAlarmState"
        },
    },
    PIPELINE: {
        "doctor": _DOCTOR,
        "`cdk deploy` and `cdk diff` do all in the bootstrap's own roles: docs/deploy.md": {
            "bootstrap roles": "sts:AssumeRole"
        },
    },
}
"""The first kind with the right, a command or a task on a page, a target, and the calls there.

Commas separate services; `kms:Decrypt` is no call but an action that AWS requires in addition to
one, or that a page needs. `doctor --prove-stop` and `destroy what is protected` list only calls in
addition to `doctor` and `destroy`.
"""


def _iterate_rights(kind: PeopleKind | None, need: str, rows: TargetRows) -> Iterator[IamRight]:
    for target, text in rows.items():
        for row in text.split(", "):
            if ":" in row:
                for action in row.split():
                    yield IamRight(kind, need, target, action, None)
            else:
                for call in list_calls(row):
                    yield IamRight(kind, need, target, call.action, call)


def _list_all_rights() -> Iterator[IamRight]:
    for kind, needs in NEEDS.items():
        for need, rows in needs.items():
            yield from _iterate_rights(kind, need, rows)


RIGHTS = tuple(_list_all_rights())
_RUNNER_ROWS = _join_rows(
    _RAISE,
    _END,
    {
        # EC2 lists an ended node for an hour: tandem/run/node_time.py
        "everywhere": "autoscaling DescribeScalingActivities",
        "bucket": "s3 ListObjectsV2",
        "models and artifacts": "s3 GetObject",
        "task sets": "s3 GetObject",
        "prompts": "s3 GetObject HeadObject",
        "runs": "s3 GetObject",
        "journal": "s3 PutObject",
        "results": "s3 GetObject",
        "bucket's key": "kms:Decrypt",
    },
)
RUNNER_RIGHTS = tuple(_iterate_rights(None, "the runner", _RUNNER_ROWS))
"""Rights of the runner's role: a raise, a relabel, a normal end and the nodes' time; requests,
journals, results."""

COMMANDS = tuple(dict.fromkeys(right.need for right in RIGHTS if not right.need.endswith(".md")))


def list_command_calls(*commands: str) -> frozenset[AwsCall]:
    """Return every AWS call of some commands."""
    return frozenset(right.call for right in RIGHTS if right.call and right.need in commands)


def list_policy_kinds(kind: PeopleKind) -> tuple[PeopleKind, ...]:
    """Return the kinds whose policies a kind's people have, own last; the pipeline ends PEOPLE."""
    if kind == PIPELINE:
        return (PIPELINE,)
    return PEOPLE[: PEOPLE.index(kind) + 1]


def list_rights(kind: PeopleKind) -> dict[str, list[str]]:
    """Return the rights of a kind's own policy, without earlier kinds': target to actions."""
    before = {
        (right.target, right.action)
        for right in RIGHTS
        if right.kind in list_policy_kinds(kind)[:-1]
    }
    own = [right for right in RIGHTS if right.kind == kind]
    held = before | {(right.target, right.action) for right in own}
    return group_rights(
        right
        for right in own
        if (right.target, right.action) not in before
        and (WIDER_TARGETS.get(right.target), right.action) not in held
    )


def group_rights(rights: Iterable[IamRight]) -> dict[str, list[str]]:
    """Return the actions of rights by their target, in alphabetical order."""
    pairs = sorted({(right.target, right.action) for right in rights if right.action})
    actions: dict[str, list[str]] = {}
    for target, action in pairs:
        actions.setdefault(target, []).append(action)
    return actions


def list_needs(target: str, actions: Collection[str]) -> list[str]:
    """Return the commands, and the tasks on pages, that need any of the actions on a target."""
    return list(
        dict.fromkeys(
            right.need for right in RIGHTS if right.target == target and right.action in actions
        )
    )


def can_run_command(kind: PeopleKind, command: str) -> bool:
    """Return whether a person of a kind has every right that a command needs."""
    return any(command in NEEDS[holder] for holder in list_policy_kinds(kind))


_REASON_ROWS = (
    (
        "everywhere, the world, mirrors: the action takes no narrower resource; the condition asks"
        " for the environment's region where there is one"
    ),
    "own metrics: metrics are no resources; the condition asks for the environment's own namespace",
    "node group, updates: AWS ends the ARN with an id of its own; all before it is literal",
    (
        "stacks, going stacks: AWS ends the ARN with an id of its own, and the builds' stacks begin"
        " with ENV-Image, as no stack of another environment does"
    ),
    (
        "node groups: names and ids of another tool's node groups are not known; they are only"
        " read, to be left alone"
    ),
    (
        "accelerators, Auto Scaling groups, CNI's interfaces, EKS's groups, in-tree groups, topic's"
        " key: ids are not known beforehand; the condition asks for the tag or alias of this"
        " environment's own"
    ),
    "logs: the streams of a log group are not known beforehand; the group is literal",
    (
        "guard's rules: CloudFormation ends the name of the rule;"
        " the stack's name before it is literal"
    ),
    "schedules, proofs: names of schedules are not known beforehand; the group is literal",
    "all budgets: AWS Budgets lists budgets of the whole account; they are only read",
    "alarms: what a composite alarm watches follows its environment's name and the word notify",
    "dashboards: dashboards begin with the environment's name; what they show follows",
    (
        "guard's objects, leases, runs, own requests, own stage requests, journal, models and"
        " artifacts, artifacts, models, task sets, prompts, results: names of runs and keys of"
        " objects are not known beforehand; bucket and prefix are literal, or the caller's own id"
    ),
    "images: behind a mirror an image may lie in any repository of the account; it is only read",
    (
        "repositories, roles, keys: what is searched for after a teardown has no name that is"
        " known; it is only read"
    ),
    "secret: Secrets Manager ends the ARN with six characters of its own",
    "all stacks: their names would make the policy longer than IAM takes; stacks are only read",
)
TARGET_REASONS: dict[str, str] = {}
for _row in _REASON_ROWS:
    _targets, _, _reason = _row.partition(": ")
    TARGET_REASONS |= dict.fromkeys(_targets.split(", "), _reason)
"""Why a target has a wildcard; one without a reason has none."""

WILDCARD_REASONS = {
    "cloudformation:DescribeStacks": (
        "destroy asks without a name, which lists all stacks and is no stack's ARN"
    ),
    "cloudwatch:DescribeAlarms": (
        "composite alarms are shown to who may see all (API reference, DescribeAlarms)"
    ),
    "cloudwatch:GetMetricData": "its resource is a dataset, which plain metrics are not",
    "cloudwatch:PutMetricData": "its resource is a dataset, which plain metrics are not",
}
"""Actions that take a resource by the reference, and still get `*`."""
