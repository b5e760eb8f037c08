"""What is left of an environment in an account: found by tag and by name, kind by kind.

Invariant: it only reads. What stays on purpose is told apart from an orphan, each orphan has the command that removes
it, and a kind that could not be searched is named: silence is never taken for nothing. What is going by itself (a
terminated instance, a deleted gateway) is told nobody of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from tandem.aws.faults import error_code
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, build_aws_command, tags_of
from tandem.ops.destroy.fleet import ALIVE_STATES, has_bucket
from tandem.ops.destroy.stacks import PERMANENT_KIND, list_stacks
from tandem.ops.destroy.survey import RETENTION_NOTE, list_log_groups
from tandem.ops.faults import AccessDeniedError
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

# an instance whose node group stands is replaced, and a cluster with a node group does not go
REMOVAL_ORDER = ("node group", "instance", "Pod Identity association", "cluster")
MAX_TAG_BATCH = 20  # load balancers of one DescribeTags


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverResource:
    """One thing that is left.

    Args:
        kind: in words, singular.
        name: the id, name or ARN that its service knows it by.
        note: what it is, or why it stays.
        remove: the command that removes it, or what leads there; empty for what goes by itself.
        kept: whether it stays on purpose.
    """

    kind: str
    name: str
    note: str = ""
    remove: str = ""
    kept: bool = False


Search = Callable[[AccountClients, ResourceOwnership], Iterator[LeftoverResource]]


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
    ranks = {kind: rank for rank, kind in enumerate(REMOVAL_ORDER)}  # the commands work as they are listed
    ordered = [resources[key] for key in sorted(resources, key=lambda key: (ranks.get(key[0], len(ranks)), key))]
    return LeftoverReport(
        permanent_resources=tuple(resource for resource in ordered if resource.kept),
        orphans=tuple(resource for resource in ordered if not resource.kept),
        search_failures=tuple(search_failures),
    )


def _search_stacks(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for kind, stack in list_stacks(account).items():
        lookup = build_aws_command("cloudformation describe-stacks", stack_name=stack.name)
        tag_note = f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({lookup})"
        if kind == PERMANENT_KIND and (stack.is_ours or stack.is_adoptable):
            note = "the record of the buckets; costs nothing" if stack.is_ours else tag_note
            yield LeftoverResource(kind="stack", name=stack.name, note=note, kept=True)
        elif stack.is_ours:
            remove = build_aws_command("cloudformation delete-stack", stack_name=stack.name)
            yield LeftoverResource(kind="stack", name=stack.name, note=stack.status, remove=remove)
        elif stack.is_adoptable:
            adopt = build_tandem_command("destroy", account.name, "--adopt-untagged", stack.name)
            remove = f"{tag_note}, and only if it is yours {adopt}"
            yield LeftoverResource(kind="stack", name=stack.name, note=stack.status, remove=remove)


def _search_buckets(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    environment = account.environment
    notes = {names.bucket_name(environment): "models, artifacts and results"}
    if environment.artifacts.existing_bucket is None:
        notes[names.log_bucket_name(environment)] = "access logs of the bucket"
    for bucket, note in notes.items():
        if has_bucket(account, bucket):
            yield LeftoverResource(kind="bucket", name=bucket, note=note, kept=True)


def _search_log_groups(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for name, size_bytes, is_kept in list_log_groups(account, ownership):
        remove = build_aws_command("logs delete-log-group", log_group_name=name)
        note = RETENTION_NOTE if is_kept else f"{size_bytes} bytes"
        yield LeftoverResource(kind="log group", name=name, note=note, remove=remove, kept=is_kept)


def _search_clusters(account: AccountClients, _ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield the cluster of our name and what stands in it; EKS says whose each is, and a name says it of none."""
    cluster = account.cluster
    response = account.find("eks", "DescribeCluster", cluster, name=cluster)
    if response is None:
        return

    def build_removal(resource: Mapping[str, Any], kind: str, delete: str, **flags: str) -> str:
        """Return the command; where a resource's tags do not say that it is ours, behind the question whose it is."""
        remove = build_aws_command(f"eks {delete}", **flags)
        lookup = build_aws_command(f"eks describe-{kind}", **({"name": cluster} if kind == "cluster" else flags))
        question = f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({lookup}), and only if it is yours "
        return remove if resource.get("tags", {}).get(names.OWNER_TAG) == account.name else f"{question}{remove}"

    where, delete = f"Pod Identity associations of {cluster}", "delete-pod-identity-association"
    for row in account.list_rows("eks", "ListPodIdentityAssociations", "associations", where, clusterName=cluster):
        flags = {"cluster_name": cluster, "association_id": row["associationId"]}
        remove = build_removal(response["cluster"], "cluster", delete, **flags)
        kind, note = "Pod Identity association", f"{row['namespace']}/{row['serviceAccount']}"
        yield LeftoverResource(kind=kind, name=row["associationId"], note=note, remove=remove)
    for group in account.list_rows("eks", "ListNodegroups", "nodegroups", cluster, clusterName=cluster):
        answer = account.find("eks", "DescribeNodegroup", group, clusterName=cluster, nodegroupName=group)
        if answer is not None:
            flags = {"cluster_name": cluster, "nodegroup_name": group}
            remove = build_removal(answer["nodegroup"], "nodegroup", "delete-nodegroup", **flags)
            yield LeftoverResource(kind="node group", name=group, remove=remove)
    remove = build_removal(response["cluster"], "cluster", "delete-cluster", name=cluster)
    yield LeftoverResource(kind="cluster", name=cluster, remove=remove)


BALANCER_KINDS = (
    ("load balancer", "elbv2 DescribeLoadBalancers LoadBalancers LoadBalancerArn", "load_balancer_arn"),
    ("target group", "elbv2 DescribeTargetGroups TargetGroups TargetGroupArn", "target_group_arn"),
    ("load balancer", "elb DescribeLoadBalancers LoadBalancerDescriptions LoadBalancerName", "load_balancer_name"),
)
"""Kind; service, operation, key of the rows, of the id; flag of the command."""


def _search_balancers(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for kind, call, flag in BALANCER_KINDS:
        service, operation, rows_key, id_key = call.split()
        tags_key = id_key if service == "elb" else "ResourceArn"
        ids = (row[id_key] for row in account.list_rows(service, operation, rows_key, "load balancers"))
        while batch := list(islice(ids, MAX_TAG_BATCH)):
            request: dict[str, Any] = {f"{tags_key}s": batch}
            answer = account.ask(service, "DescribeTags", "load balancers", **request)
            for row in answer["TagDescriptions"]:
                if ownership.has_own_tag(tags_of(row["Tags"])):
                    words = f"{service} delete-{kind.replace(' ', '-')}"
                    remove = build_aws_command(words, **{flag: row[tags_key]})
                    yield LeftoverResource(kind=kind, name=row[tags_key], remove=remove)


def _search_schedules(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for row in account.list_rows("scheduler", "ListScheduleGroups", "ScheduleGroups", "schedule groups"):
        group = row["Name"]
        if not ownership.has_own_name(group):
            continue
        for schedule in account.list_rows("scheduler", "ListSchedules", "Schedules", group, GroupName=group):
            remove = build_aws_command("scheduler delete-schedule", group_name=group, name=schedule["Name"])
            yield LeftoverResource(kind="schedule", name=f"{group}/{schedule['Name']}", remove=remove)
        remove = build_aws_command("scheduler delete-schedule-group", name=group)
        yield LeftoverResource(kind="schedule group", name=group, remove=remove)
    for schedule in account.list_rows("scheduler", "ListSchedules", "Schedules", "schedules", GroupName="default"):
        if ownership.owns({}, schedule["Name"]):
            remove = build_aws_command("scheduler delete-schedule", name=schedule["Name"])
            yield LeftoverResource(kind="schedule", name=schedule["Name"], remove=remove)


def _search_rules(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    for row in account.list_rows("events", "ListRules", "Rules", "EventBridge rules"):
        if ownership.owns({}, row["Name"]):
            lookup = build_aws_command("events list-targets-by-rule", rule=row["Name"])
            remove = f"remove its targets ({lookup}), then {build_aws_command('events delete-rule', name=row['Name'])}"
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
        if ownership.owns(tags, name):
            attached, inline, remove = (
                build_aws_command(f"iam {verb}", role_name=name)
                for verb in ("list-attached-role-policies", "list-role-policies", "delete-role")
            )
            remove = f"take its policies away ({attached}; {inline}), then {remove}"
            yield LeftoverResource(kind="role", name=name, remove=remove)


def _search_policies(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield policies; those of people stay, for whoever takes the environment down has his rights from them."""
    people_policies = {names.people_policy_name(account.environment, kind) for kind in names.PEOPLE}
    for row in account.list_rows("iam", "ListPolicies", "Policies", "IAM policies", Scope="Local"):
        name, arn = row["PolicyName"], row["Arn"]
        remove, is_kept = build_aws_command("iam delete-policy", policy_arn=arn), name in people_policies
        note = f"rights of people, attached to {row.get('AttachmentCount', 0)}; when none has it: {remove}"
        if is_kept or ownership.owns({}, name):
            yield LeftoverResource(kind="policy", name=arn, note=note if is_kept else "", remove=remove, kept=is_kept)


def _search_keys(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield keys of ours. One whose policy shuts this identity out is another's; shut out of all, none is known."""
    denial: AccessDeniedError | None = None
    read_count = 0
    for row in account.list_rows("kms", "ListKeys", "Keys", "KMS keys"):
        key = str(row["KeyId"])
        try:
            metadata = account.ask("kms", "DescribeKey", key, KeyId=key)["KeyMetadata"]
            if metadata.get("KeyManager") == "AWS":
                continue
            tags = tags_of(list(account.list_rows("kms", "ListResourceTags", "Tags", key, KeyId=key)))
        except AccessDeniedError as error:
            denial = error
            continue
        read_count += 1
        note = str(metadata.get("Description", ""))
        if not ownership.owns(tags, *note.split()):
            continue
        is_going = metadata["KeyState"] == "PendingDeletion"
        if is_going:
            note = f"{note}: KMS deletes it on {metadata['DeletionDate']:%Y-%m-%d}, until then free"
        remove = "" if is_going else build_aws_command("kms schedule-key-deletion", key_id=key)
        yield LeftoverResource(kind="KMS key", name=key, note=note, remove=remove, kept=is_going)
    if denial and not read_count:
        raise denial


def _search_alarms(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    """Yield alarms that begin with the environment's name and speak of it; the name alone may be anybody's."""
    prefixes = tuple(f"{neighbour}-" for neighbour in ownership.neighbours)
    for kind in ("MetricAlarm", "CompositeAlarm"):
        parameters = {"AlarmNamePrefix": f"{ownership.name}-", "AlarmTypes": [kind]}
        for row in account.list_rows("cloudwatch", "DescribeAlarms", f"{kind}s", "alarms", **parameters):
            name = row["AlarmName"]
            if not name.startswith(prefixes) and ownership.mentions_environment(_iterate_texts(row)):
                remove = build_aws_command("cloudwatch delete-alarms", alarm_names=name)
                yield LeftoverResource(kind="alarm", name=name, remove=remove)


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_texts(item)


_LISTED_ROWS = (
    "instance | ec2 DescribeInstances Reservations InstanceId | terminate-instances --instance-ids",
    "network interface | ec2 DescribeNetworkInterfaces NetworkInterfaces NetworkInterfaceId | delete-network-interface",
    "volume | ec2 DescribeVolumes Volumes VolumeId | delete-volume --volume-id",
    "snapshot | ec2 DescribeSnapshots Snapshots SnapshotId | delete-snapshot --snapshot-id",
    "NAT gateway | ec2 DescribeNatGateways NatGateways NatGatewayId | delete-nat-gateway --nat-gateway-id",
    "elastic IP | ec2 DescribeAddresses Addresses AllocationId | release-address --allocation-id",
    "VPC endpoint | ec2 DescribeVpcEndpoints VpcEndpoints VpcEndpointId | delete-vpc-endpoints --vpc-endpoint-ids",
    "security group | ec2 DescribeSecurityGroups SecurityGroups GroupId | delete-security-group --group-id",
    "launch template | ec2 DescribeLaunchTemplates LaunchTemplates LaunchTemplateId | delete-launch-template",
    "subnet | ec2 DescribeSubnets Subnets SubnetId | delete-subnet --subnet-id",
    "VPC | ec2 DescribeVpcs Vpcs VpcId | delete-vpc --vpc-id",
    (
        "ECR repository | ecr DescribeRepositories repositories repositoryName"
        " | delete-repository --force --repository-name"
    ),
    "dashboard | cloudwatch ListDashboards DashboardEntries DashboardName | delete-dashboards --dashboard-names",
    "SNS topic | sns ListTopics Topics TopicArn | delete-topic --topic-arn",
    "SQS queue | sqs ListQueues QueueUrls | delete-queue --queue-url",
    "Lambda function | lambda ListFunctions Functions FunctionName | delete-function --function-name",
    "CodeBuild project | codebuild ListProjects projects | delete-project --name",
    "budget | budgets DescribeBudgets Budgets BudgetName | delete-budget --account-id {account} --budget-name",
)
LISTED_KINDS = {kind: (call, remove) for kind, call, remove in (row.split(" | ") for row in _LISTED_ROWS)}
"""Kind to service, operation, key of the rows and of a row's id (without it the row is one); the command that removes.

A command without a flag takes the id of what it names. Only EC2's have tags in their list; of all others the id is a
name, or ends with one.
"""
PRESENT_STATES = {
    "instance": ALIVE_STATES,
    "volume": ("creating", "available", "in-use", "error"),
    "NAT gateway": ("pending", "available", "failed"),
}  # of the others nothing is listed that is gone
NAME_KEYS = {  # of EC2's, where a name or a description may tell whose it is without tags
    "network interface": "Description",
    "security group": "GroupName",
    "launch template": "LaunchTemplateName",
}
NAME_SEPARATORS = {"SNS topic": ":", "SQS queue": "/"}  # before the name that ends an id


def _search_listed(title: str, account: AccountClients, ownership: ResourceOwnership) -> Iterator[LeftoverResource]:
    (service, operation, rows_key, *id_key), command = LISTED_KINDS[title][0].split(), LISTED_KINDS[title][1]
    flag = "" if "--" in command else f" --{command.partition('-')[2]}-id"
    words = f"{service} {command.format(account=account.environment.account)}{flag}"
    parameter_sets: dict[str, tuple[dict[str, Any], ...]] = {
        "snapshot": ({"OwnerIds": ["self"]},),
        "dashboard": ({"DashboardNamePrefix": f"tandem-{account.name}"},),
        "SQS queue": ({"QueueNamePrefix": f"tandem-{account.name}"}, {"QueueNamePrefix": f"{account.name}-"}),
        "budget": ({"AccountId": account.environment.account},),
    }
    for parameters in parameter_sets.get(title, ({},)):
        rows = account.list_rows(service, operation, rows_key, f"{title}s", **parameters)
        if title == "instance":
            rows = (instance for reservation in rows for instance in reservation["Instances"])
        for row in rows:
            resource_id = str(row.get(id_key[0], "") if id_key else row)  # an address of EC2-Classic has none
            name, tags, note = resource_id, {}, ""
            if title in NAME_SEPARATORS:
                name = resource_id.rpartition(NAME_SEPARATORS[title])[2]
            text = name
            if service == "ec2":
                tags, state = tags_of(row.get("Tags") or row.get("TagSet")), row.get("State", "")
                state_name = str(state["Name"] if isinstance(state, dict) else state)
                note = ", ".join(filter(None, (tags.get("Name"), state_name)))
                text = str(row.get(NAME_KEYS.get(title), ""))
                if state_name not in PRESENT_STATES.get(title, (state_name,)):
                    continue
            if resource_id and ownership.owns(tags, text):
                remove = quote_command("aws", *words.split(), resource_id)
                yield LeftoverResource(kind=title, name=name, note=note, remove=remove)


SEARCHES: dict[str, Search] = {
    "stacks": _search_stacks,
    "buckets": _search_buckets,
    "log groups": _search_log_groups,
    "clusters": _search_clusters,
    "load balancers": _search_balancers,
    "schedules": _search_schedules,
    "EventBridge rules": _search_rules,
    "roles": _search_roles,
    "policies": _search_policies,
    "KMS keys": _search_keys,
    "alarms": _search_alarms,
    **{f"{title}s": partial(_search_listed, title) for title in LISTED_KINDS},
}
"""Every kind that is searched, by its name in a report."""
