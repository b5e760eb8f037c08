"""Leftovers of an environment in an account: found by tag and by name, kind by kind.

Invariant: it only reads. A resource that stays on purpose is distinguished from an orphan, and each
orphan has the command that removes it. A kind that could not be searched is named: no answer never
means no leftovers. A resource that goes by itself (a terminated instance, a deleted gateway) is not
reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from tandem.declarations import names
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, build_aws_command, tags_of
from tandem.ops.destroy.fleet import has_bucket, list_node_groups
from tandem.ops.destroy.stacks import PERMANENT_KIND, list_stacks
from tandem.ops.faults import AccessDeniedError
from tandem.ops.leftover_kinds import LISTED_KINDS
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import quote_command

# a node group replaces its instances, and a cluster with a node group does not go
REMOVAL_ORDER = ("node group", "instance", "cluster")
RETENTION_NOTE = (
    "builds of images; kept so that a deploy that was rolled back says why,"
    " until its retention ends"
)
MAX_TAG_BATCH = 20  # load balancers of one DescribeTags


@dataclass(frozen=True, kw_only=True)
class LeftoverResource:
    """One leftover.

    Args:
        kind: in words, singular.
        name: its id, name or ARN in its service.
        note: what the resource is, or why it stays.
        remove: the command that removes the resource, or leads to that; empty if it goes by itself.
        kept: whether the resource stays on purpose.
        size: bytes; None if unknown.
        usd_month: None if the environment names no price, or the size is unknown.
    """

    kind: str
    name: str
    note: str = ""
    remove: str = ""
    kept: bool = False
    size: int | None = None
    usd_month: float | None = None


Search = Callable[[AccountClients, ResourceOwnership], Iterator[LeftoverResource]]


def search_leftovers(
    account: AccountClients, other_environments: Sequence[str]
) -> tuple[tuple[LeftoverResource, ...], dict[str, str]]:
    """Search every kind; return leftovers in order of the commands, and why a kind was skipped.

    Args:
        account: of the environment.
        other_environments: names of other environments, whose resources are not this one's.

    Raises:
        ExternalError: CloudFormation does not list the stacks, which identify neighbours.
    """
    ownership = ResourceOwnership.discover(account, other_environments)
    resources: dict[tuple[str, str], LeftoverResource] = {}
    failures = {}
    for kind, search in SEARCHES.items():
        try:
            for resource in search(account, ownership):
                resources.setdefault((resource.kind, resource.name), resource)
        except TandemError as error:
            failures[kind] = str(error)
    ranks = {kind: rank for rank, kind in enumerate(REMOVAL_ORDER)}
    keys = sorted(resources, key=lambda key: (ranks.get(key[0], len(ranks)), key))
    return tuple(resources[key] for key in keys), failures


def search_stacks(
    account: AccountClients, _ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield the stacks of the environment.

    Raises:
        ExternalError: CloudFormation does not list them.
    """
    for kind, stack in list_stacks(account).items():
        if not stack.is_ours:
            continue
        if kind == PERMANENT_KIND:
            yield LeftoverResource(
                kind="stack",
                name=stack.name,
                note="the record of the buckets; costs nothing",
                kept=True,
            )
        else:
            remove = build_aws_command("cloudformation delete-stack", stack_name=stack.name)
            yield LeftoverResource(kind="stack", name=stack.name, note=stack.status, remove=remove)


def list_buckets(account: AccountClients) -> dict[str, str]:
    """Return the buckets of an environment, and their content in words."""
    environment = account.environment
    notes = {names.bucket_name(environment): "models, artifacts and results, old versions counted"}
    if environment.artifacts.existing_bucket is None:
        notes[names.log_bucket_name(environment)] = "access logs of the bucket"
    return notes


def _search_buckets(
    account: AccountClients, _ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    for bucket, note in list_buckets(account).items():
        if has_bucket(account, bucket):
            yield LeftoverResource(kind="bucket", name=bucket, note=note, kept=True)


def search_log_groups(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield the log groups, by name: in all regions CloudWatch Logs can search only names.

    Raises:
        ExternalError: CloudWatch Logs does not list them.
    """
    where = f"log groups of {account.name}"
    for row in account.list_rows(
        "logs", "DescribeLogGroups", "logGroups", where, logGroupNamePattern=account.name
    ):
        name = row["logGroupName"]
        size = int(row.get("storedBytes", 0))
        if ownership.owns({}, name):
            remove = build_aws_command("logs delete-log-group", log_group_name=name)
            is_kept = ownership.find_stack_kind(name) == "Registry" and "Logs" in name
            note = RETENTION_NOTE if is_kept else f"{size} bytes"
            yield LeftoverResource(
                kind="log group", name=name, note=note, remove=remove, kept=is_kept, size=size
            )


def _search_clusters(
    account: AccountClients, _ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield the cluster of our name and its contents; EKS names each one's owner."""
    cluster = account.cluster
    answer = account.find("eks", "DescribeCluster", cluster, name=cluster)
    if answer is None:
        return
    for group, group_tags in list_node_groups(account):
        remove = _build_removal(
            account, group_tags, "nodegroup", cluster_name=cluster, nodegroup_name=group
        )
        yield LeftoverResource(kind="node group", name=group, remove=remove)
    tags = answer["cluster"].get("tags", {})
    remove = _build_removal(account, tags, "cluster", name=cluster)
    yield LeftoverResource(kind="cluster", name=cluster, remove=remove)


def _build_removal(
    account: AccountClients, tags: Mapping[str, str], kind: str, **flags: str
) -> str:
    """Return the command that removes a thing of EKS's, after a question if it has not our tag."""
    remove = build_aws_command(f"eks delete-{kind}", **flags)
    if tags.get(names.OWNER_TAG) == account.name:
        return remove
    lookup = build_aws_command(f"eks describe-{kind}", **flags)
    question = f"no tag {names.OWNER_TAG}={account.name}: see whose it is ({lookup})"
    return f"{question}, and only if it is yours {remove}"


BALANCER_KINDS = (
    (
        "load balancer",
        "elbv2 DescribeLoadBalancers LoadBalancers LoadBalancerArn",
        "load_balancer_arn",
    ),
    ("target group", "elbv2 DescribeTargetGroups TargetGroups TargetGroupArn", "target_group_arn"),
    (
        "load balancer",
        "elb DescribeLoadBalancers LoadBalancerDescriptions LoadBalancerName",
        "load_balancer_name",
    ),
)
"""Kind; service, operation, key of the rows, of the id; flag of the command."""


def _search_balancers(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    for kind, call, flag in BALANCER_KINDS:
        service, operation, rows_key, id_key = call.split()
        tags_key = id_key if service == "elb" else "ResourceArn"
        ids = (
            row[id_key] for row in account.list_rows(service, operation, rows_key, "load balancers")
        )
        while batch := list(islice(ids, MAX_TAG_BATCH)):
            request: dict[str, Any] = {f"{tags_key}s": batch}
            answer = account.ask(service, "DescribeTags", "load balancers", **request)
            for row in answer["TagDescriptions"]:
                if ownership.has_own_tag(tags_of(row["Tags"])):
                    words = f"{service} delete-{kind.replace(' ', '-')}"
                    remove = build_aws_command(words, **{flag: row[tags_key]})
                    yield LeftoverResource(kind=kind, name=row[tags_key], remove=remove)


def _search_roles(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield roles named like ours, unless their tags name another: IAM lists none."""
    for row in account.list_rows("iam", "ListRoles", "Roles", "IAM roles"):
        name = row["RoleName"]
        if not name.startswith((f"{ownership.name}-", f"tandem-{ownership.name}")):
            continue
        tags = tags_of(list(account.list_rows("iam", "ListRoleTags", "Tags", name, RoleName=name)))
        if ownership.owns(tags, name):
            yield LeftoverResource(
                kind="role",
                name=name,
                remove=(
                    "take its policies away, then"
                    f" {build_aws_command('iam delete-role', role_name=name)}"
                ),
            )


def _search_policies(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield policies, except people's, who take the environment down by them."""
    people_policies = {names.people_policy_name(account.environment, kind) for kind in names.PEOPLE}
    for row in account.list_rows("iam", "ListPolicies", "Policies", "IAM policies", Scope="Local"):
        name = row["PolicyName"]
        arn = row["Arn"]
        remove = build_aws_command("iam delete-policy", policy_arn=arn)
        is_kept = name in people_policies
        note = (
            f"rights of people, attached to {row.get('AttachmentCount', 0)}; when none has it:"
            f" {remove}"
        )
        if is_kept or ownership.owns({}, name):
            yield LeftoverResource(
                kind="policy", name=arn, note=note if is_kept else "", remove=remove, kept=is_kept
            )


def _search_keys(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield our keys; one that denies us is another's, but if all deny, raise the denial."""
    denial = None
    read_count = 0
    for row in account.list_rows("kms", "ListKeys", "Keys", "KMS keys"):
        try:
            metadata, tags = _read_key(account, row["KeyId"])
        except AccessDeniedError as error:
            denial = error
            continue
        read_count += 1
        description = metadata.get("Description", "")
        if metadata.get("KeyManager") != "AWS" and ownership.owns(tags, *description.split()):
            yield _describe_key(metadata, description)
    if denial and not read_count:
        raise denial


def _read_key(account: AccountClients, key: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a key as KMS describes it, and its tags; AWS's own keys have none."""
    metadata = account.ask("kms", "DescribeKey", key, KeyId=key)["KeyMetadata"]
    if metadata.get("KeyManager") == "AWS":
        return metadata, {}
    return metadata, tags_of(
        list(account.list_rows("kms", "ListResourceTags", "Tags", key, KeyId=key))
    )


def _describe_key(metadata: dict[str, Any], description: str) -> LeftoverResource:
    key = metadata["KeyId"]
    if metadata["KeyState"] == "PendingDeletion":
        day = f"{metadata['DeletionDate']:%Y-%m-%d}"
        return LeftoverResource(
            kind="KMS key",
            name=key,
            note=f"{description}: KMS deletes it on {day}, until then free",
            kept=True,
        )
    remove = build_aws_command("kms schedule-key-deletion", key_id=key)
    return LeftoverResource(kind="KMS key", name=key, note=description, remove=remove)


def _search_alarms(
    account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    """Yield alarms that begin with the environment's name and mention it in a field as well."""
    prefixes = tuple(f"{neighbour}-" for neighbour in ownership.neighbours)
    for kind in ("MetricAlarm", "CompositeAlarm"):
        for row in account.list_rows(
            "cloudwatch",
            "DescribeAlarms",
            f"{kind}s",
            "alarms",
            AlarmNamePrefix=f"{ownership.name}-",
            AlarmTypes=[kind],
        ):
            name = row["AlarmName"]
            if not name.startswith(prefixes) and ownership.mentions_environment(_list_texts(row)):
                remove = build_aws_command("cloudwatch delete-alarms", alarm_names=name)
                yield LeftoverResource(kind="alarm", name=name, remove=remove)


def _list_texts(row: Mapping[str, Any]) -> list[str]:
    return re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(row, default=str))


def _search_listed(
    title: str, account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    kind = LISTED_KINDS[title]
    command = kind.remove.format(account=account.environment.account).split()
    for row in _list_rows(title, account):
        # an address of EC2-Classic has no id
        resource_id = str(row)
        if kind.id_key:
            resource_id = row.get(kind.id_key, "")
        tags = {}
        text = resource_id  # only EC2's lists have tags; elsewhere the id has the name in it
        note = f"{kind.note} {resource_id}" if kind.note else ""
        if kind.service == "ec2":
            tags = tags_of(row.get("Tags") or row.get("TagSet"))
            state = _read_state(row)
            text = row.get(kind.name_key, "")
            note = ", ".join(filter(None, (tags.get("Name"), state)))
            if kind.states and state not in kind.states:
                continue
        if resource_id and ownership.owns(tags, text):
            remove = quote_command("aws", kind.service, *command, resource_id)
            yield LeftoverResource(kind=title, name=resource_id, note=note, remove=remove)


def _list_rows(title: str, account: AccountClients) -> Iterator[Any]:
    kind = LISTED_KINDS[title]
    parameters = dict(kind.parameters)
    if kind.service == "budgets":
        parameters["AccountId"] = account.environment.account
    rows = account.list_rows(kind.service, kind.operation, kind.rows_key, f"{title}s", **parameters)
    for row in rows:
        yield from row["Instances"] if kind.rows_key == "Reservations" else [row]


def _read_state(row: Mapping[str, Any]) -> str:
    state = row.get("State", "")
    return str(state["Name"] if isinstance(state, dict) else state)


SEARCHES: dict[str, Search] = {
    "stacks": search_stacks,
    "buckets": _search_buckets,
    "log groups": search_log_groups,
    "clusters": _search_clusters,
    "load balancers": _search_balancers,
    "roles": _search_roles,
    "policies": _search_policies,
    "KMS keys": _search_keys,
    "alarms": _search_alarms,
    **{f"{title}s": partial(_search_listed, title) for title in LISTED_KINDS},
}
"""Every kind of the search, by its name in a report."""
