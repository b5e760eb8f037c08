"""What a teardown would do, and what forbids it, before anything is changed: it only reads.

Prices are the environment's own; what it does not name a price for is shown without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tandem.ops.destroy.account import Account
from tandem.ops.destroy.delete import require_all_ours, require_known_names, require_still
from tandem.ops.destroy.fleet import ClusterSeen, cluster, require_no_strangers, require_parked
from tandem.ops.destroy.gitops import require_removed
from tandem.ops.destroy.stacks import GOING, STAYS, STUCK, Stack, resources, stacks
from tandem.ops.destroy.steps import going
from tandem.ops.fault import DeniedError, OpsError, code_of
from tandem.ops.log_groups import KEPT_LOGS, log_groups
from tandem.ops.owned import Owned
from tandem.spec import names

GB = 2**30  # as artifacts.usd_per_gb_month counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Goes:
    """One stack that will be deleted, and how many resources stand in it."""

    stack: Stack
    resources: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
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
class Survey:
    """What was seen.

    Args:
        goes: in the order of their deletion.
        stuck: those whose last deletion failed.
    """

    goes: tuple[Goes, ...]
    stays: tuple[Stays, ...]
    stuck: tuple[str, ...]


def survey(account: Account, *, gitops_removed: bool) -> Survey:
    """Look at everything and refuse what may not be taken down now.

    Raises:
        RefusedError: a lease or a node lives, a stack or a node group is another's, a GitOps tool still holds objects.
        OpsError: AWS does not say, or somebody deploys.
    """
    require_known_names(account)
    found = stacks(account)
    leaving = going(found)
    require_all_ours(account, leaving)
    for one in leaving:
        require_still(one)
    if leaving:
        fleet = found.get("Fleet")
        require_parked(account, datetime.now(UTC), leaving=fleet is None or fleet.status == GOING)
        standing: ClusterSeen | None = cluster(account) if "Cluster" in found else None
        if standing:
            require_no_strangers(account, standing)
            require_removed(account, said=gitops_removed)
    return Survey(
        goes=tuple(Goes(stack=one, resources=sum(1 for _ in resources(account, one))) for one in leaving),
        stays=tuple(_stays(account, found)),
        stuck=tuple(one.name for one in leaving if one.status == STUCK),
    )


def _stays(account: Account, found: dict[str, Stack]) -> Iterator[Stays]:
    environment = account.environment
    if STAYS in found:
        note = "CloudFormation's record of the buckets; costs nothing"
        yield Stays(name=f"stack {found[STAYS].name}", size=None, usd_month=None, note=note)
    yield from _bucket(account, names.bucket(environment), "models, artifacts and results, old versions counted")
    if environment.artifacts.existing_bucket is None:
        yield from _bucket(account, names.log_bucket(environment), "access logs of the bucket")
    owned = Owned.of(account)
    for group in log_groups(account, owned):
        if group.kept:
            yield Stays(name=f"log group {group.name}", size=group.size, usd_month=None, note=KEPT_LOGS)


def _bucket(account: Account, bucket: str, note: str) -> Iterator[Stays]:
    price = account.environment.artifacts.usd_per_gb_month
    name = f"s3://{bucket}"
    try:
        size = sum(row["Size"] for row in account.pages("s3", "ListObjectVersions", "Versions", name, Bucket=bucket))
    except DeniedError as error:
        yield Stays(name=name, size=None, usd_month=None, note=f"{note}; its size is not known: {error.change}")
    except OpsError as error:
        if code_of(error.__cause__) != "NoSuchBucket":
            raise
    else:
        yield Stays(name=name, size=size, usd_month=None if price is None else size / GB * price, note=note)
