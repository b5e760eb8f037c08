"""What is left of an environment in an account: found by tag and by name, kind by kind.

Invariant: it only reads. What stays on purpose is told apart from an orphan, each orphan has the command that removes
it, and a kind that could not be searched is named: silence is never taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.ops import leftovers_ec2
from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.destroy.fleet import NOT_THERE
from tandem.ops.destroy.stacks import STAYS, stacks
from tandem.ops.fault import DeniedError, OpsError, code_of
from tandem.ops.left import Left
from tandem.ops.log_groups import KEPT_LOGS, log_groups
from tandem.ops.owned import Owned
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

Search = Callable[[Account, Owned], Iterator[Left]]
# an instance whose node group stands is replaced, and a cluster with a node group does not go
FIRST = ("node group", "instance", "Pod Identity association", "cluster")
MOST_AT_ONCE = 20  # load balancers of one DescribeTags


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """A kind that could not be searched, and why."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is left.

    Args:
        kept: on purpose.
        orphans: what nobody owns any more.
        unsearched: kinds of which nothing is known.
    """

    kept: tuple[Left, ...]
    orphans: tuple[Left, ...]
    unsearched: tuple[Unsearched, ...]


def leftovers(account: Account, declared: Sequence[str] = ()) -> Leftovers:
    """Search every kind.

    Args:
        account: of the environment.
        declared: names of other environments, whose resources are not taken for this one's.

    Raises:
        OpsError: CloudFormation does not list the stacks, by which neighbours are told apart.
    """
    owned = Owned.of(account, declared)
    found: dict[tuple[str, str], Left] = {}
    unsearched = []
    for kind, search in SEARCHES.items():
        try:
            for one in search(account, owned):
                found.setdefault((one.kind, one.name), one)
        except OpsError as error:
            unsearched.append(Unsearched(kind=kind, why=str(error)))
    listed = sorted(found.values(), key=lambda one: (*_turn(one.kind), one.name))
    return Leftovers(
        kept=tuple(one for one in listed if one.kept), orphans=tuple(one for one in listed if not one.kept),
        unsearched=tuple(unsearched),
    )  # fmt: skip


def _turn(kind: str) -> tuple[int, str]:
    """Return when a kind's turn is, so that the commands work as they are listed."""
    return (FIRST.index(kind) if kind in FIRST else len(FIRST), kind)


def _stacks(account: Account, _owned: Owned) -> Iterator[Left]:
    for kind, one in stacks(account).items():
        remove, look = (
            quote_command("aws", "cloudformation", verb, "--stack-name", one.name)
            for verb in ("delete-stack", "describe-stacks")
        )
        untagged = f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({look})"
        if kind == STAYS and (one.ours or one.adoptable):
            note = "the record of the buckets; costs nothing" if one.ours else untagged
            yield Left(kind="stack", name=one.name, note=note, kept=True)
        elif one.ours:
            yield Left(kind="stack", name=one.name, note=one.status, remove=remove)
        elif one.adoptable:
            adopt = build_tandem_command("destroy", account.name, "--adopt-untagged", one.name)
            remove = f"{untagged}, and only if it is yours {adopt}"
            yield Left(kind="stack", name=one.name, note=one.status, remove=remove)


def _buckets(account: Account, _owned: Owned) -> Iterator[Left]:
    environment = account.environment
    notes = {names.bucket(environment): "models, artifacts and results"}
    if environment.artifacts.existing_bucket is None:
        notes[names.log_bucket(environment)] = "access logs of the bucket"
    for bucket, note in notes.items():
        try:
            account.ask("s3", "HeadBucket", f"s3://{bucket}", Bucket=bucket)
        except OpsError as error:
            if code_of(error.__cause__) not in {"404", "NoSuchBucket"}:
                raise
        else:
            yield Left(kind="bucket", name=bucket, note=note, kept=True)


def _log_groups(account: Account, owned: Owned) -> Iterator[Left]:
    for group in log_groups(account, owned):
        remove = quote_command("aws", "logs", "delete-log-group", "--log-group-name", group.name)
        yield Left(
            kind="log group", name=group.name, note=KEPT_LOGS if group.kept else f"{group.size} bytes",
            remove=remove, kept=group.kept,
        )  # fmt: skip


def _clusters(account: Account, _owned: Owned) -> Iterator[Left]:
    """Yield the cluster of our name and what stands in it; EKS says whose each is, and a name says it of none."""
    cluster, named = account.cluster, ("--cluster-name", account.cluster)
    found = _of_eks(account, "DescribeCluster", cluster, name=cluster)
    if found is None:
        return
    tags, where = found["cluster"].get("tags", {}), f"Pod Identity associations of {cluster}"
    look = quote_command("aws", "eks", "describe-cluster", "--name", cluster)
    for row in account.pages("eks", "ListPodIdentityAssociations", "associations", where, clusterName=cluster):
        identity = row["associationId"]
        command = quote_command("aws", "eks", "delete-pod-identity-association", *named, "--association-id", identity)
        yield Left(
            kind="Pod Identity association", name=identity, note=f"{row['namespace']}/{row['serviceAccount']}",
            remove=_careful(account, tags, look, command),
        )  # fmt: skip
    for group in account.pages("eks", "ListNodegroups", "nodegroups", cluster, clusterName=cluster):
        said = _of_eks(account, "DescribeNodegroup", group, clusterName=cluster, nodegroupName=group)
        if said is not None:
            which = (*named, "--nodegroup-name", group)
            remove = _careful(
                account, said["nodegroup"].get("tags", {}), quote_command("aws", "eks", "describe-nodegroup", *which),
                quote_command("aws", "eks", "delete-nodegroup", *which),
            )  # fmt: skip
            yield Left(kind="node group", name=group, remove=remove)
    remove = quote_command("aws", "eks", "delete-cluster", "--name", cluster)
    yield Left(kind="cluster", name=cluster, remove=_careful(account, tags, look, remove))


def _of_eks(account: Account, operation: str, where: str, **named: str) -> dict[str, Any] | None:
    try:
        return account.ask("eks", operation, where, **named)
    except OpsError as error:
        if code_of(error.__cause__) in NOT_THERE:
            return None
        raise


def _careful(account: Account, tags: Mapping[str, str], look: str, command: str) -> str:
    """Return the command; where the tags do not say that it is ours, behind the question whose it is."""
    if tags.get(names.OWNER_TAG) == account.name:
        return command
    return f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({look}), and only if it is yours {command}"


def _load_balancers(account: Account, owned: Owned) -> Iterator[Left]:
    for what, operation, key, kind, verb, flag in (
        ("LoadBalancers", "DescribeLoadBalancers", "LoadBalancerArn", "load balancer",
         "delete-load-balancer", "--load-balancer-arn"),
        ("TargetGroups", "DescribeTargetGroups", "TargetGroupArn", "target group",
         "delete-target-group", "--target-group-arn"),
    ):  # fmt: skip
        arns = [row[key] for row in account.pages("elbv2", operation, what, "load balancers")]
        for chunk in _chunks(arns):
            said = account.ask("elbv2", "DescribeTags", "load balancers", ResourceArns=chunk)
            for row in said["TagDescriptions"]:
                if owned.tagged(tags_of(row["Tags"])):
                    remove = quote_command("aws", "elbv2", verb, flag, row["ResourceArn"])
                    yield Left(kind=kind, name=row["ResourceArn"], remove=remove)


def _classic_load_balancers(account: Account, owned: Owned) -> Iterator[Left]:
    rows = account.pages("elb", "DescribeLoadBalancers", "LoadBalancerDescriptions", "load balancers")
    for chunk in _chunks([row["LoadBalancerName"] for row in rows]):
        said = account.ask("elb", "DescribeTags", "load balancers", LoadBalancerNames=chunk)
        for row in said["TagDescriptions"]:
            if owned.tagged(tags_of(row["Tags"])):
                name = row["LoadBalancerName"]
                remove = quote_command("aws", "elb", "delete-load-balancer", "--load-balancer-name", name)
                yield Left(kind="load balancer", name=name, remove=remove)


def _chunks(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), MOST_AT_ONCE):
        yield items[start : start + MOST_AT_ONCE]


def _schedules(account: Account, owned: Owned) -> Iterator[Left]:
    for group in account.pages("scheduler", "ListScheduleGroups", "ScheduleGroups", "schedule groups"):
        name = group["Name"]
        if not owned.named(name):
            continue
        for row in account.pages("scheduler", "ListSchedules", "Schedules", name, GroupName=name):
            remove = quote_command("aws", "scheduler", "delete-schedule", "--group-name", name, "--name", row["Name"])
            yield Left(kind="schedule", name=f"{name}/{row['Name']}", remove=remove)
        remove = quote_command("aws", "scheduler", "delete-schedule-group", "--name", name)
        yield Left(kind="schedule group", name=name, remove=remove)
    for row in account.pages("scheduler", "ListSchedules", "Schedules", "schedules", GroupName="default"):
        if owned.named(row["Name"]) or owned.generated(row["Name"]):
            remove = quote_command("aws", "scheduler", "delete-schedule", "--name", row["Name"])
            yield Left(kind="schedule", name=row["Name"], remove=remove)


def _rules(account: Account, owned: Owned) -> Iterator[Left]:
    for row in account.pages("events", "ListRules", "Rules", "EventBridge rules"):
        if owned.named(row["Name"]) or owned.generated(row["Name"]):
            look = quote_command("aws", "events", "list-targets-by-rule", "--rule", row["Name"])
            command = quote_command("aws", "events", "delete-rule", "--name", row["Name"])
            remove = f"remove its targets ({look}), then {command}"
            yield Left(kind="EventBridge rule", name=row["Name"], remove=remove)


def _roles(account: Account, owned: Owned) -> Iterator[Left]:
    """Yield roles whose name begins like ours and whose tags do not say otherwise: IAM lists roles without tags."""
    for row in account.pages("iam", "ListRoles", "Roles", "IAM roles"):
        name = str(row["RoleName"])
        if not name.startswith((f"{owned.name}-", f"tandem-{owned.name}")):
            continue
        try:
            tags = tags_of(list(account.pages("iam", "ListRoleTags", "Tags", name, RoleName=name)))
        except OpsError as error:
            if code_of(error.__cause__) == "NoSuchEntity":  # gone since it was listed
                continue
            raise
        if owned.tagged(tags) or (not owned.strange(tags) and (owned.named(name) or owned.generated(name))):
            attached, own, command = (
                quote_command("aws", "iam", verb, "--role-name", name)
                for verb in ("list-attached-role-policies", "list-role-policies", "delete-role")
            )
            yield Left(kind="role", name=name, remove=f"take its policies away ({attached}; {own}), then {command}")


def _policies(account: Account, owned: Owned) -> Iterator[Left]:
    """Yield policies; those of people stay, for whoever takes the environment down has his rights from them."""
    people = {names.people_policy(account.environment, kind) for kind in names.PEOPLE}
    for row in account.pages("iam", "ListPolicies", "Policies", "IAM policies", Scope="Local"):
        name, remove = row["PolicyName"], quote_command("aws", "iam", "delete-policy", "--policy-arn", row["Arn"])
        if name in people:
            note = f"rights of people, attached to {row.get('AttachmentCount', 0)}; when none has it: {remove}"
            yield Left(kind="policy", name=row["Arn"], note=note, remove=remove, kept=True)
        elif owned.named(name) or owned.generated(name):
            yield Left(kind="policy", name=row["Arn"], remove=remove)


def _repositories(account: Account, owned: Owned) -> Iterator[Left]:
    for row in account.pages("ecr", "DescribeRepositories", "repositories", "ECR repositories"):
        name = row["repositoryName"]
        if owned.named(name):
            remove = quote_command("aws", "ecr", "delete-repository", "--force", "--repository-name", name)
            yield Left(kind="ECR repository", name=name, remove=remove)


def _keys(account: Account, owned: Owned) -> Iterator[Left]:
    """Yield keys of ours. One whose policy shuts this identity out is another's; shut out of all, none is known."""
    denied: DeniedError | None = None
    read = 0
    for row in account.pages("kms", "ListKeys", "Keys", "KMS keys"):
        identity = str(row["KeyId"])
        try:
            about = account.ask("kms", "DescribeKey", identity, KeyId=identity)["KeyMetadata"]
            if about.get("KeyManager") == "AWS":
                continue
            tags = tags_of(list(account.pages("kms", "ListResourceTags", "Tags", identity, KeyId=identity)))
        except DeniedError as error:
            denied = error
            continue
        read += 1
        described = any(owned.named(word) for word in str(about.get("Description", "")).split())
        if not (owned.tagged(tags) or (described and not owned.strange(tags))):
            continue
        if about["KeyState"] == "PendingDeletion":
            note = (
                f"{about.get('Description', '')}: KMS deletes it on {about['DeletionDate']:%Y-%m-%d}, until then free"
            )
            yield Left(kind="KMS key", name=identity, note=note, kept=True)
        else:
            remove = quote_command("aws", "kms", "schedule-key-deletion", "--key-id", identity)
            yield Left(kind="KMS key", name=identity, note=str(about.get("Description", "")), remove=remove)
    if denied and not read:
        raise denied


def _dashboards(account: Account, owned: Owned) -> Iterator[Left]:
    prefix = f"tandem-{owned.name}"
    for row in account.pages(
        "cloudwatch", "ListDashboards", "DashboardEntries", "dashboards", DashboardNamePrefix=prefix
    ):
        name = row["DashboardName"]
        if owned.named(name):
            remove = quote_command("aws", "cloudwatch", "delete-dashboards", "--dashboard-names", name)
            yield Left(kind="dashboard", name=name, remove=remove)


def _alarms(account: Account, owned: Owned) -> Iterator[Left]:
    """Yield alarms that begin with the environment's name and speak of it; the name alone may be anybody's."""
    for kind, key in (("MetricAlarm", "MetricAlarms"), ("CompositeAlarm", "CompositeAlarms")):
        rows = account.pages(
            "cloudwatch", "DescribeAlarms", key, "alarms", AlarmNamePrefix=f"{owned.name}-", AlarmTypes=[kind]
        )
        for row in rows:
            name = row["AlarmName"]
            if any(name.startswith(f"{other}-") for other in owned.others) or not owned.speaks(_texts(row)):
                continue
            remove = quote_command("aws", "cloudwatch", "delete-alarms", "--alarm-names", name)
            yield Left(kind="alarm", name=name, remove=remove)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _topics(account: Account, owned: Owned) -> Iterator[Left]:
    for row in account.pages("sns", "ListTopics", "Topics", "SNS topics"):
        name = str(row["TopicArn"]).rpartition(":")[2]
        if owned.named(name) or owned.generated(name):
            remove = quote_command("aws", "sns", "delete-topic", "--topic-arn", row["TopicArn"])
            yield Left(kind="SNS topic", name=name, remove=remove)


def _queues(account: Account, owned: Owned) -> Iterator[Left]:
    for prefix in (f"tandem-{owned.name}", f"{owned.name}-"):
        for url in account.pages("sqs", "ListQueues", "QueueUrls", "SQS queues", QueueNamePrefix=prefix):
            name = str(url).rpartition("/")[2]
            if owned.named(name) or owned.generated(name):
                remove = quote_command("aws", "sqs", "delete-queue", "--queue-url", url)
                yield Left(kind="SQS queue", name=name, remove=remove)


def _functions(account: Account, owned: Owned) -> Iterator[Left]:
    for row in account.pages("lambda", "ListFunctions", "Functions", "Lambda functions"):
        name = row["FunctionName"]
        if owned.named(name) or owned.generated(name):
            remove = quote_command("aws", "lambda", "delete-function", "--function-name", name)
            yield Left(kind="Lambda function", name=name, remove=remove)


def _projects(account: Account, owned: Owned) -> Iterator[Left]:
    for name in account.pages("codebuild", "ListProjects", "projects", "CodeBuild projects"):
        if owned.named(name):
            remove = quote_command("aws", "codebuild", "delete-project", "--name", name)
            yield Left(kind="CodeBuild project", name=name, remove=remove)


def _budgets(account: Account, owned: Owned) -> Iterator[Left]:
    number = account.environment.account
    for row in account.pages("budgets", "DescribeBudgets", "Budgets", "budgets", AccountId=number):
        name = row["BudgetName"]
        if owned.named(name):
            remove = quote_command("aws", "budgets", "delete-budget", "--account-id", number, "--budget-name", name)
            yield Left(kind="budget", name=name, remove=remove)


SEARCHES: dict[str, Search] = {
    "stacks": _stacks, "buckets": _buckets, "log groups": _log_groups, "clusters": _clusters,
    **leftovers_ec2.SEARCHES,
    "load balancers": _load_balancers, "classic load balancers": _classic_load_balancers, "schedules": _schedules,
    "EventBridge rules": _rules, "roles": _roles, "policies": _policies, "ECR repositories": _repositories,
    "KMS keys": _keys, "dashboards": _dashboards, "alarms": _alarms, "SNS topics": _topics, "SQS queues": _queues,
    "Lambda functions": _functions, "CodeBuild projects": _projects, "budgets": _budgets,
}  # fmt: skip
"""Every kind that is searched, by its name in a report."""
