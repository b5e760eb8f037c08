"""What a teardown would do, and what forbids it, before anything is changed: it only reads.

Prices are the environment's own; what it does not name a price for is shown without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tandem.errors import TandemError
from tandem.ops.destroy.account import AccountClients
from tandem.ops.destroy.fleet import (
    ClusterDescription,
    read_cluster,
    require_no_foreign_nodes,
    require_parked_fleet,
)
from tandem.ops.destroy.gitops import require_objects_removed
from tandem.ops.destroy.stack_deletion import (
    require_idle_stack,
    require_known_adoptions,
    require_own_stacks,
)
from tandem.ops.destroy.stacks import (
    DELETE_FAILED_STATUS,
    DELETE_IN_PROGRESS,
    PERMANENT_KIND,
    CloudFormationStack,
    list_resources,
    list_stacks,
)
from tandem.ops.destroy.steps import list_stacks_to_delete
from tandem.ops.faults import AccessDeniedError, error_code
from tandem.ops.log_groups import RETENTION_NOTE, list_log_groups
from tandem.ops.ownership import ResourceOwnership
from tandem.spec import names

BYTES_PER_GB = 2**30  # as artifacts.usd_per_gb_month counts


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
    size: int | None
    usd_month: float | None
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
        InputError: a lease or a node lives, a stack or a node group is another's, a GitOps tool still holds objects.
        ExternalError: AWS does not say, or somebody deploys.
    """
    require_known_adoptions(account)
    stacks_by_kind = list_stacks(account)
    stacks_to_delete = list_stacks_to_delete(stacks_by_kind)
    require_own_stacks(account, stacks_to_delete)
    for existing_stack in stacks_to_delete:
        require_idle_stack(existing_stack)
    if stacks_to_delete:
        fleet_stack = stacks_by_kind.get("Fleet")
        require_parked_fleet(
            account, datetime.now(UTC), is_leaving=fleet_stack is None or fleet_stack.status == DELETE_IN_PROGRESS
        )
        cluster_description: ClusterDescription | None = read_cluster(account) if "Cluster" in stacks_by_kind else None
        if cluster_description:
            require_no_foreign_nodes(account, cluster_description)
            require_objects_removed(account, gitops_gone=gitops_gone)
    return TeardownSurvey(
        deletions=tuple(
            StackDeletion(stack=existing_stack, resource_count=sum(1 for _ in list_resources(account, existing_stack)))
            for existing_stack in stacks_to_delete
        ),
        permanent_resources=tuple(_list_permanent_resources(account, stacks_by_kind)),
        stuck_stacks=tuple(
            existing_stack.name for existing_stack in stacks_to_delete if existing_stack.status == DELETE_FAILED_STATUS
        ),
    )


def _list_permanent_resources(
    account: AccountClients, stacks_by_kind: dict[str, CloudFormationStack]
) -> Iterator[PermanentResource]:
    environment = account.environment
    if PERMANENT_KIND in stacks_by_kind:
        note = "CloudFormation's record of the buckets; costs nothing"
        yield PermanentResource(
            name=f"stack {stacks_by_kind[PERMANENT_KIND].name}", size=None, usd_month=None, note=note
        )
    yield from _measure_bucket(
        account, names.bucket_name(environment), "models, artifacts and results, old versions counted"
    )
    if environment.artifacts.existing_bucket is None:
        yield from _measure_bucket(account, names.log_bucket_name(environment), "access logs of the bucket")
    ownership = ResourceOwnership.discover(account)
    for group in list_log_groups(account, ownership):
        if group.retain:
            yield PermanentResource(
                name=f"log group {group.name}", size=group.size_bytes, usd_month=None, note=RETENTION_NOTE
            )


def _measure_bucket(account: AccountClients, bucket: str, note: str) -> Iterator[PermanentResource]:
    usd_per_gb_month = account.environment.artifacts.usd_per_gb_month
    name = f"s3://{bucket}"
    try:
        size = sum(
            row["Size"] for row in account.list_rows("s3", "ListObjectVersions", "Versions", name, Bucket=bucket)
        )
    except AccessDeniedError as error:
        yield PermanentResource(
            name=name, size=None, usd_month=None, note=f"{note}; its size is not known: {error.change}"
        )
    except TandemError as error:
        if error_code(error.__cause__) != "NoSuchBucket":
            raise
    else:
        yield PermanentResource(
            name=name,
            size=size,
            usd_month=None if usd_per_gb_month is None else size / BYTES_PER_GB * usd_per_gb_month,
            note=note,
        )
