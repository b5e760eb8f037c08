"""Survey of a teardown: its deletions and its obstacles, before anything is changed; it only reads.

Prices are the environment's own; a resource without a price there is shown without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tandem.aws.faults import error_code
from tandem.declarations.environment import GitopsDelivery
from tandem.errors import InputError, TandemError
from tandem.ops.account import AccountClients
from tandem.ops.destroy.fleet import read_cluster, require_parked_fleet
from tandem.ops.destroy.stack_deletion import require_idle_stack, require_own_stacks
from tandem.ops.destroy.stacks import (
    DELETE_IN_PROGRESS,
    PERMANENT_KIND,
    CloudFormationStack,
    list_resources,
    list_stacks,
)
from tandem.ops.faults import AccessDeniedError
from tandem.ops.leftovers import LeftoverResource, list_buckets, search_log_groups, search_stacks
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import quote_command

BYTES_PER_GB = 2**30  # as artifacts.usd_per_gb_month counts


@dataclass(frozen=True, kw_only=True)
class TeardownSurvey:
    """Result of the survey.

    Args:
        stacks: to be deleted, in their order, each with its number of resources.
        permanent_resources: resources that a teardown leaves on purpose, with their cost.
    """

    stacks: Mapping[CloudFormationStack, int]
    permanent_resources: tuple[LeftoverResource, ...]


def survey_teardown(account: AccountClients, *, gitops_gone: bool) -> TeardownSurvey:
    """Look at everything and refuse a teardown that is not allowed now.

    Raises:
        InputError: a lease or a node lives, a stack or a node group is another's, or a GitOps tool
            still holds objects.
        ExternalError: AWS does not answer, or somebody deploys.
    """
    stacks_by_kind = list_stacks(account)
    stacks = [stack for kind, stack in stacks_by_kind.items() if kind != PERMANENT_KIND]
    require_own_stacks(account, stacks)
    for stack in stacks:
        require_idle_stack(stack)
    if stacks:
        is_leaving = (
            "Fleet" not in stacks_by_kind or stacks_by_kind["Fleet"].status == DELETE_IN_PROGRESS
        )
        require_parked_fleet(account, datetime.now(UTC), is_leaving=is_leaving)
        if "Cluster" in stacks_by_kind and read_cluster(account):
            _require_objects_removed(account, gitops_gone=gitops_gone)
    return TeardownSurvey(
        stacks={stack: len(list(list_resources(account, stack))) for stack in stacks},
        permanent_resources=tuple(_list_permanent_resources(account)),
    )


def _require_objects_removed(account: AccountClients, *, gitops_gone: bool) -> None:
    """Check that the operator has confirmed that the tool's objects are gone.

    Raises:
        InputError: gitops is declared, and there is no confirmation.
    """
    delivery = account.environment.delivery
    if gitops_gone or not isinstance(delivery, GitopsDelivery):
        return
    tool = {"argocd": "Argo CD", "flux": "Flux"}[delivery.tool]
    remove_command = quote_command("kubectl", "delete", "-k", f"manifests/{account.name}/gitops")
    namespaces = ", ".join(f"tandem-{experiment}" for experiment in account.environment.experiments)
    raise InputError(
        f"{tool} would apply again what this command deletes, and its volumes must go before their"
        " driver",
        where=account.cluster,
        change=(
            f"as an admin: {remove_command}, wait until the namespaces {namespaces} are gone "
            "(kubectl get namespaces), then run this again with --gitops-removed"
        ),
    )


def _list_permanent_resources(account: AccountClients) -> Iterator[LeftoverResource]:
    """Yield the buckets with their cost, their stack, and the logs of builds."""
    ownership = ResourceOwnership.discover(account)
    for bucket, note in list_buckets(account).items():
        yield from _measure_bucket(account, bucket, note)
    for search in (search_stacks, search_log_groups):
        for resource in search(account, ownership):
            if resource.kept:
                yield resource


def _measure_bucket(account: AccountClients, bucket: str, note: str) -> Iterator[LeftoverResource]:
    name = f"s3://{bucket}"
    price = account.environment.artifacts.usd_per_gb_month
    try:
        rows = account.list_rows("s3", "ListObjectVersions", "Versions", name, Bucket=bucket)
        size = sum(row["Size"] for row in rows)
    except AccessDeniedError as error:
        note = f"{note}; its size is not known: {error.change}"
        yield LeftoverResource(kind="bucket", name=name, note=note, kept=True)
    except TandemError as error:
        if error_code(error.__cause__) != "NoSuchBucket":
            raise
    else:
        usd_month = None if price is None else size / BYTES_PER_GB * price
        yield LeftoverResource(
            kind="bucket", name=name, note=note, kept=True, size=size, usd_month=usd_month
        )
