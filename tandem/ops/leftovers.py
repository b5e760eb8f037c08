"""What is left of an environment in an account: found by tag and by name, kind by kind.

Invariant: it only reads. What stays on purpose is told apart from an orphan, each orphan has the command that removes
it, and a kind that could not be searched is named: silence is never taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from tandem.errors import TandemError
from tandem.ops import leftovers_ec2
from tandem.ops.destroy.account import AccountClients, tags_of
from tandem.ops.destroy.fleet import MISSING_BUCKET_CODES, NOT_FOUND_CODES
from tandem.ops.destroy.stacks import PERMANENT_KIND, list_stacks
from tandem.ops.faults import AccessDeniedError, error_code
from tandem.ops.leftover import LeftoverResource
from tandem.ops.log_groups import RETENTION_NOTE, list_log_groups
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

Search = Callable[[AccountClients, ResourceOwnership], Iterator[LeftoverResource]]
# an instance whose node group stands is replaced, and a cluster with a node group does not go
REMOVAL_ORDER = ("node group", "instance", "Pod Identity association", "cluster")
MAX_TAG_BATCH = 20  # load balancers of one DescribeTags


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFailure:
    """A kind that could not be searched, and why."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverReport:
    """What is left.

    Args:
        permanent_resources: on purpose.
        orphans: what nobody owns any more.
        search_failures: kinds of which nothing is known.
    """

    permanent_resources: tuple[LeftoverResource, ...]
    orphans: tuple[LeftoverResource, ...]
    search_failures: tuple[SearchFailure, ...]


def search_leftovers(account: AccountClients, other_environments: Sequence[str] = ()) -> LeftoverReport:
    """Search every kind.

    Args:
        account: of the environment.
        other_environments: names of other environments, whose resources are not taken for this one's.

    Raises:
        ExternalError: CloudFormation does not list the stacks, by which neighbours are told apart.
    """
    ownership = ResourceOwnership.discover(account, other_environments)
    resources: dict[tuple[str, str], LeftoverResource] = {}
    search_failures = []
    for kind, search in SEARCHES.items():
        try:
            for resource in search(account, ownership):
                resources.setdefault((resource.kind, resource.name), resource)
        except TandemError as error:
            search_failures.append(SearchFailure(kind=kind, why=str(error)))
    resource_list = sorted(resources.values(), key=lambda resource: (*_removal_rank(resource.kind), resource.name))
    return LeftoverReport(
        permanent_resources=tuple(resource for resource in resource_list if resource.kept),
        orphans=tuple(resource for resource in resource_list if not resource.kept),
        search_failures=tuple(search_failures),
    )


def _removal_rank(kind: str) -> tuple[int, str]:
    """Return when a kind's turn is, so that the commands work as they are listed."""
    return (REMOVAL_ORDER.index(kind) if kind in REMOVAL_ORDER else len(REMOVAL_ORDER), kind)


def _search_stacks(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for kind, existing_stack in list_stacks(account).items():
        remove, lookup_command = (
            quote_command("aws", "cloudformation", verb, "--stack-name", existing_stack.name)
            for verb in ("delete-stack", "describe-stacks")
        )
        tag_note = f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({lookup_command})"
        if kind == PERMANENT_KIND and (existing_stack.is_ours or existing_stack.is_adoptable):
            note = "the record of the buckets; costs nothing" if existing_stack.is_ours else tag_note
            yield LeftoverResource(kind="stack", name=existing_stack.name, note=note, kept=True)
        elif existing_stack.is_ours:
            yield LeftoverResource(kind="stack", name=existing_stack.name, note=existing_stack.status, remove=remove)
        elif existing_stack.is_adoptable:
            adopt_command = build_tandem_command("destroy", account.name, "--adopt-untagged", existing_stack.name)
            remove = f"{tag_note}, and only if it is yours {adopt_command}"
            yield LeftoverResource(kind="stack", name=existing_stack.name, note=existing_stack.status, remove=remove)


def _search_buckets(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    environment = account.environment
    notes = {names.bucket_name(environment): "models, artifacts and results"}
    if environment.artifacts.existing_bucket is None:
        notes[names.log_bucket_name(environment)] = "access logs of the bucket"
    for bucket, note in notes.items():
        where = f"s3://{bucket}"
        if account.find("s3", "HeadBucket", where, absent=MISSING_BUCKET_CODES, Bucket=bucket) is not None:
            yield LeftoverResource(kind="bucket", name=bucket, note=note, kept=True)


def _search_log_groups(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for group in list_log_groups(account, ownership):
        remove = quote_command("aws", "logs", "delete-log-group", "--log-group-name", group.name)
        yield LeftoverResource(
            kind="log group", name=group.name, note=RETENTION_NOTE if group.retain else f"{group.size_bytes} bytes",
            remove=remove, kept=group.retain,
        )  # fmt: skip


def _search_clusters(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield the cluster of our name and what stands in it; EKS says whose each is, and a name says it of none."""
    cluster, cluster_flags = account.cluster, ("--cluster-name", account.cluster)
    response = account.find("eks", "DescribeCluster", cluster, absent=NOT_FOUND_CODES, name=cluster)
    if response is None:
        return
    tags, where = response["cluster"].get("tags", {}), f"Pod Identity associations of {cluster}"
    lookup_command = quote_command("aws", "eks", "describe-cluster", "--name", cluster)
    for row in account.list_rows("eks", "ListPodIdentityAssociations", "associations", where, clusterName=cluster):
        identity = row["associationId"]
        command = quote_command(
            "aws", "eks", "delete-pod-identity-association", *cluster_flags, "--association-id", identity
        )
        yield LeftoverResource(
            kind="Pod Identity association", name=identity, note=f"{row['namespace']}/{row['serviceAccount']}",
            remove=_qualify_command(account, tags, lookup_command, command),
        )  # fmt: skip
    for group in account.list_rows("eks", "ListNodegroups", "nodegroups", cluster, clusterName=cluster):
        group_response = account.find(
            "eks", "DescribeNodegroup", group, absent=NOT_FOUND_CODES, clusterName=cluster, nodegroupName=group
        )
        if group_response is not None:
            group_flags = (*cluster_flags, "--nodegroup-name", group)
            remove = _qualify_command(
                account,
                group_response["nodegroup"].get("tags", {}),
                quote_command("aws", "eks", "describe-nodegroup", *group_flags),
                quote_command("aws", "eks", "delete-nodegroup", *group_flags),
            )
            yield LeftoverResource(kind="node group", name=group, remove=remove)
    remove = quote_command("aws", "eks", "delete-cluster", "--name", cluster)
    yield LeftoverResource(kind="cluster", name=cluster, remove=_qualify_command(account, tags, lookup_command, remove))


def _qualify_command(account: AccountClients, tags: Mapping[str, str], lookup_command: str, command: str) -> str:
    """Return the command; where the tags do not say that it is ours, behind the question whose it is."""
    if tags.get(names.OWNER_TAG) == account.name:
        return command
    return (
        f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({lookup_command}), and only if it is "
        f"yours {command}"
    )


def _search_load_balancers(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for rows_key, operation, arn_key, kind, verb, flag in (
        ("LoadBalancers", "DescribeLoadBalancers", "LoadBalancerArn", "load balancer",
         "delete-load-balancer", "--load-balancer-arn"),
        ("TargetGroups", "DescribeTargetGroups", "TargetGroupArn", "target group",
         "delete-target-group", "--target-group-arn"),
    ):  # fmt: skip
        arns = [row[arn_key] for row in account.list_rows("elbv2", operation, rows_key, "load balancers")]
        for batch in _split_batches(arns):
            response = account.ask("elbv2", "DescribeTags", "load balancers", ResourceArns=batch)
            for row in response["TagDescriptions"]:
                if ownership.has_own_tag(tags_of(row["Tags"])):
                    remove = quote_command("aws", "elbv2", verb, flag, row["ResourceArn"])
                    yield LeftoverResource(kind=kind, name=row["ResourceArn"], remove=remove)


def _search_classic_load_balancers(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    rows = account.list_rows("elb", "DescribeLoadBalancers", "LoadBalancerDescriptions", "load balancers")
    for batch in _split_batches([row["LoadBalancerName"] for row in rows]):
        response = account.ask("elb", "DescribeTags", "load balancers", LoadBalancerNames=batch)
        for row in response["TagDescriptions"]:
            if ownership.has_own_tag(tags_of(row["Tags"])):
                name = row["LoadBalancerName"]
                remove = quote_command("aws", "elb", "delete-load-balancer", "--load-balancer-name", name)
                yield LeftoverResource(kind="load balancer", name=name, remove=remove)


def _split_batches(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), MAX_TAG_BATCH):
        yield items[start : start + MAX_TAG_BATCH]


def _search_schedules(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for group in account.list_rows("scheduler", "ListScheduleGroups", "ScheduleGroups", "schedule groups"):
        name = group["Name"]
        if not ownership.has_own_name(name):
            continue
        for row in account.list_rows("scheduler", "ListSchedules", "Schedules", name, GroupName=name):
            remove = quote_command("aws", "scheduler", "delete-schedule", "--group-name", name, "--name", row["Name"])
            yield LeftoverResource(kind="schedule", name=f"{name}/{row['Name']}", remove=remove)
        remove = quote_command("aws", "scheduler", "delete-schedule-group", "--name", name)
        yield LeftoverResource(kind="schedule group", name=name, remove=remove)
    for row in account.list_rows("scheduler", "ListSchedules", "Schedules", "schedules", GroupName="default"):
        if ownership.has_own_name(row["Name"]) or ownership.find_stack_kind(row["Name"]):
            remove = quote_command("aws", "scheduler", "delete-schedule", "--name", row["Name"])
            yield LeftoverResource(kind="schedule", name=row["Name"], remove=remove)


def _search_rules(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for row in account.list_rows("events", "ListRules", "Rules", "EventBridge rules"):
        if ownership.has_own_name(row["Name"]) or ownership.find_stack_kind(row["Name"]):
            lookup_command = quote_command("aws", "events", "list-targets-by-rule", "--rule", row["Name"])
            command = quote_command("aws", "events", "delete-rule", "--name", row["Name"])
            remove = f"remove its targets ({lookup_command}), then {command}"
            yield LeftoverResource(kind="EventBridge rule", name=row["Name"], remove=remove)


def _search_roles(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield roles whose name begins like ours and whose tags do not say otherwise: IAM lists roles without tags."""
    for row in account.list_rows("iam", "ListRoles", "Roles", "IAM roles"):
        name = str(row["RoleName"])
        if not name.startswith((f"{ownership.name}-", f"tandem-{ownership.name}")):
            continue
        try:
            tags = tags_of(list(account.list_rows("iam", "ListRoleTags", "Tags", name, RoleName=name)))
        except TandemError as error:
            if error_code(error.__cause__) == "NoSuchEntity":  # gone since it was listed
                continue
            raise
        if ownership.has_own_tag(tags) or (
            not ownership.has_foreign_tag(tags) and (ownership.has_own_name(name) or ownership.find_stack_kind(name))
        ):
            list_attached_command, list_inline_command, command = (
                quote_command("aws", "iam", verb, "--role-name", name)
                for verb in ("list-attached-role-policies", "list-role-policies", "delete-role")
            )
            yield LeftoverResource(
                kind="role",
                name=name,
                remove=f"take its policies away ({list_attached_command}; {list_inline_command}), then {command}",
            )


def _search_policies(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield policies; those of people stay, for whoever takes the environment down has his rights from them."""
    people_policies = {names.people_policy_name(account.environment, kind) for kind in names.PEOPLE}
    for row in account.list_rows("iam", "ListPolicies", "Policies", "IAM policies", Scope="Local"):
        name, remove = row["PolicyName"], quote_command("aws", "iam", "delete-policy", "--policy-arn", row["Arn"])
        if name in people_policies:
            note = f"rights of people, attached to {row.get('AttachmentCount', 0)}; when none has it: {remove}"
            yield LeftoverResource(kind="policy", name=row["Arn"], note=note, remove=remove, kept=True)
        elif ownership.has_own_name(name) or ownership.find_stack_kind(name):
            yield LeftoverResource(kind="policy", name=row["Arn"], remove=remove)


def _search_keys(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield keys of ours. One whose policy shuts this identity out is another's; shut out of all, none is known."""
    denial: AccessDeniedError | None = None
    read_count = 0
    for row in account.list_rows("kms", "ListKeys", "Keys", "KMS keys"):
        identity = str(row["KeyId"])
        try:
            metadata = account.ask("kms", "DescribeKey", identity, KeyId=identity)["KeyMetadata"]
            if metadata.get("KeyManager") == "AWS":
                continue
            tags = tags_of(list(account.list_rows("kms", "ListResourceTags", "Tags", identity, KeyId=identity)))
        except AccessDeniedError as error:
            denial = error
            continue
        read_count += 1
        has_own_description = any(ownership.has_own_name(word) for word in str(metadata.get("Description", "")).split())
        if not (ownership.has_own_tag(tags) or (has_own_description and not ownership.has_foreign_tag(tags))):
            continue
        if metadata["KeyState"] == "PendingDeletion":
            note = (
                f"{metadata.get('Description', '')}: KMS deletes it on {metadata['DeletionDate']:%Y-%m-%d}, "
                "until then free"
            )
            yield LeftoverResource(kind="KMS key", name=identity, note=note, kept=True)
        else:
            remove = quote_command("aws", "kms", "schedule-key-deletion", "--key-id", identity)
            yield LeftoverResource(
                kind="KMS key", name=identity, note=str(metadata.get("Description", "")), remove=remove
            )
    if denial and not read_count:
        raise denial


def _search_alarms(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield alarms that begin with the environment's name and speak of it; the name alone may be anybody's."""
    for kind, key in (("MetricAlarm", "MetricAlarms"), ("CompositeAlarm", "CompositeAlarms")):
        rows = account.list_rows(
            "cloudwatch", "DescribeAlarms", key, "alarms", AlarmNamePrefix=f"{ownership.name}-", AlarmTypes=[kind]
        )
        for row in rows:
            name = row["AlarmName"]
            if any(
                name.startswith(f"{neighbour}-") for neighbour in ownership.neighbours
            ) or not ownership.mentions_environment(_iterate_texts(row)):
                continue
            remove = quote_command("aws", "cloudwatch", "delete-alarms", "--alarm-names", name)
            yield LeftoverResource(kind="alarm", name=name, remove=remove)


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _iterate_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_texts(item)


class NamedResourceKind(NamedTuple):
    """A kind whose names alone tell whose it is. Parameters and command may hold `{name}` and `{account}`.

    Args:
        title: in words, singular.
        service, operation, rows_key: that lists them, and where they stand in the answer.
        id_key: where the id stands in a row; empty where the row is the id.
        command: that removes one; the id follows.
        separator: before the name in an id; empty where the id is the name.
        parameters: of each call that lists some.
    """

    title: str
    service: str
    operation: str
    rows_key: str
    id_key: str
    command: str
    separator: str = ""
    parameters: tuple[Mapping[str, str], ...] = (MappingProxyType({}),)


NAMED_KINDS = tuple(NamedResourceKind(*row) for row in (
    ("ECR repository", "ecr", "DescribeRepositories", "repositories", "repositoryName",
     "delete-repository --force --repository-name"),
    ("dashboard", "cloudwatch", "ListDashboards", "DashboardEntries", "DashboardName",
     "delete-dashboards --dashboard-names", "", ({"DashboardNamePrefix": "tandem-{name}"},)),
    ("SNS topic", "sns", "ListTopics", "Topics", "TopicArn", "delete-topic --topic-arn", ":"),
    ("SQS queue", "sqs", "ListQueues", "QueueUrls", "", "delete-queue --queue-url", "/",
     ({"QueueNamePrefix": "tandem-{name}"}, {"QueueNamePrefix": "{name}-"})),
    ("Lambda function", "lambda", "ListFunctions", "Functions", "FunctionName", "delete-function --function-name"),
    ("CodeBuild project", "codebuild", "ListProjects", "projects", "", "delete-project --name"),
    ("budget", "budgets", "DescribeBudgets", "Budgets", "BudgetName",
     "delete-budget --account-id {account} --budget-name", "", ({"AccountId": "{account}"},)),
))  # fmt: skip


def _search_named(
    kind: NamedResourceKind, account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    values = {"name": ownership.name, "account": account.environment.account}
    for parameters in kind.parameters:
        request = {key: text.format(**values) for key, text in parameters.items()}
        for row in account.list_rows(kind.service, kind.operation, kind.rows_key, f"{kind.title}s", **request):
            resource_id = str(row[kind.id_key] if kind.id_key else row)
            name = resource_id.rpartition(kind.separator)[2] if kind.separator else resource_id
            if ownership.has_own_name(name) or ownership.find_stack_kind(name):
                words = kind.command.format(**values).split()
                remove = quote_command("aws", kind.service, *words, resource_id)
                yield LeftoverResource(kind=kind.title, name=name, remove=remove)


SEARCHES: dict[str, Search] = {
    "stacks": _search_stacks,
    "buckets": _search_buckets,
    "log groups": _search_log_groups,
    "clusters": _search_clusters,
    **leftovers_ec2.SEARCHES,
    "load balancers": _search_load_balancers,
    "classic load balancers": _search_classic_load_balancers,
    "schedules": _search_schedules,
    "EventBridge rules": _search_rules,
    "roles": _search_roles,
    "policies": _search_policies,
    "KMS keys": _search_keys,
    "alarms": _search_alarms,
    **{f"{kind.title}s": partial(_search_named, kind) for kind in NAMED_KINDS},
}
"""Every kind that is searched, by its name in a report."""
