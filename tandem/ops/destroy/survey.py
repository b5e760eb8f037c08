"""What a teardown would do, and what forbids it, before anything is changed: it only reads.

Prices are the environment's own; what it does not name a price for is shown without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tandem.aws.faults import error_code
from tandem.errors import InputError, TandemError
from tandem.ops.account import AccountClients
from tandem.ops.destroy.fleet import read_cluster, require_parked_fleet
from tandem.ops.destroy.gitops import require_objects_removed
from tandem.ops.destroy.stack_deletion import require_idle_stack, require_own_stacks
from tandem.ops.destroy.stacks import (
    DELETE_FAILED,
    DELETE_IN_PROGRESS,
    DELETION_ORDER,
    PERMANENT_KIND,
    CloudFormationStack,
    list_resources,
    list_stacks,
)
from tandem.ops.faults import AccessDeniedError
from tandem.ops.ownership import ResourceOwnership
from tandem.spec import names

BYTES_PER_GB = 2**30  # as artifacts.usd_per_gb_month counts
RETENTION_NOTE = "builds of images; kept so that a deploy that was rolled back says why, until its retention ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDeletion:
    """One stack that will be deleted, and how many resources stand in it."""

    stack: CloudFormationStack
    resource_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PermanentResource:
    """What a teardown leaves on purpose.

    Args:
        size: bytes; None where that is not known.
        usd_month: None where the environment names no price, or the size is not known.
        note: why, or what is not known of it.
    """

    name: str
    size: int | None = None
    usd_month: float | None = None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownSurvey:
    """What was seen.

    Args:
        deletions: in the order of their deletion.
        stuck_stacks: those whose last deletion failed.
    """

    deletions: tuple[StackDeletion, ...]
    permanent_resources: tuple[PermanentResource, ...]
    stuck_stacks: tuple[str, ...]


def survey_teardown(account: AccountClients, *, gitops_gone: bool) -> TeardownSurvey:
    """Look at everything and refuse what may not be taken down now.

    Raises:
        InputError: a lease or a node lives, a stack or a node group is another's, a GitOps tool still holds objects, or
            what is adopted is no stack that a teardown deletes.
        ExternalError: AWS does not say, or somebody deploys.
    """
    known_names = {names.stack_name(account.environment, kind) for kind in DELETION_ORDER}
    unknown_names = ", ".join(sorted(account.adopted_stacks - known_names))
    if unknown_names:
        problem = f"--adopt-untagged names what is no stack of this environment: {unknown_names}"
        raise InputError(problem, where=account.name, change=f"name of these: {', '.join(sorted(known_names))}")
    stacks_by_kind = list_stacks(account)
    stacks = [stack for kind, stack in stacks_by_kind.items() if kind != PERMANENT_KIND]
    require_own_stacks(account, stacks)
    for stack in stacks:
        require_idle_stack(stack)
    if stacks:
        is_leaving = "Fleet" not in stacks_by_kind or stacks_by_kind["Fleet"].status == DELETE_IN_PROGRESS
        require_parked_fleet(account, datetime.now(UTC), is_leaving=is_leaving)
        if "Cluster" in stacks_by_kind and read_cluster(account):
            require_objects_removed(account, gitops_gone=gitops_gone)
    return TeardownSurvey(
        deletions=tuple(
            StackDeletion(stack=stack, resource_count=sum(1 for _ in list_resources(account, stack)))
            for stack in stacks
        ),
        permanent_resources=tuple(_list_permanent_resources(account, stacks_by_kind.get(PERMANENT_KIND))),
        stuck_stacks=tuple(stack.name for stack in stacks if stack.status == DELETE_FAILED),
    )


def _list_permanent_resources(
    account: AccountClients, permanent_stack: CloudFormationStack | None
) -> Iterator[PermanentResource]:
    environment = account.environment
    if permanent_stack:
        note = "CloudFormation's record of the buckets; costs nothing"
        yield PermanentResource(name=f"stack {permanent_stack.name}", note=note)
    note = "models, artifacts and results, old versions counted"
    yield from _measure_bucket(account, names.bucket_name(environment), note)
    if environment.artifacts.existing_bucket is None:
        yield from _measure_bucket(account, names.log_bucket_name(environment), "access logs of the bucket")
    for name, size_bytes, is_kept in list_log_groups(account, ResourceOwnership.discover(account)):
        if is_kept:
            yield PermanentResource(name=f"log group {name}", size=size_bytes, note=RETENTION_NOTE)


def _measure_bucket(account: AccountClients, bucket: str, note: str) -> Iterator[PermanentResource]:
    name, price = f"s3://{bucket}", account.environment.artifacts.usd_per_gb_month
    try:
        rows = account.list_rows("s3", "ListObjectVersions", "Versions", name, Bucket=bucket)
        size = sum(row["Size"] for row in rows)
    except AccessDeniedError as error:
        yield PermanentResource(name=name, note=f"{note}; its size is not known: {error.change}")
    except TandemError as error:
        if error_code(error.__cause__) != "NoSuchBucket":
            raise
    else:
        usd_month = None if price is None else size / BYTES_PER_GB * price
        yield PermanentResource(name=name, size=size, usd_month=usd_month, note=note)


def list_log_groups(account: AccountClients, ownership: ResourceOwnership) -> Iterator[tuple[str, int, bool]]:
    """Yield name, bytes and whether its stack retains it on purpose, of each log group of the environment.

    They are found by name: CloudWatch Logs searches names and nothing else in all regions.

    Raises:
        ExternalError: CloudWatch Logs does not list them.
    """
    where = f"log groups of {account.name}"
    for row in account.list_rows("logs", "DescribeLogGroups", "logGroups", where, logGroupNamePattern=account.name):
        name = str(row["logGroupName"])
        if ownership.owns({}, name):
            yield name, int(row.get("storedBytes", 0)), ownership.find_stack_kind(name) == "Image" and "Logs" in name
