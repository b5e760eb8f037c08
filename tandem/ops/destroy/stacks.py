"""The stacks of an environment as CloudFormation tells them, and whose they are.

Invariant: the owner's tag alone makes a stack ours, or an operator who adopts an untagged one by its name. A name and a
description make nobody an owner: anybody may write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.fault import OpsError, code_of
from tandem.spec import names

# The template of each orders what stands in it: in Cluster the add-ons that need nodes go before the system nodes.
ORDER = ("Workloads", "Fleet", "Observability", "Cluster", "Guard", "Image", "Network")
"""The order in which stacks are deleted; one that does not exist is passed over."""

STAYS = "Artifacts"
DESCRIBED = "Tandem: "  # how the description of every stack of ours begins
GONE = "DELETE_COMPLETE"
GOING = "DELETE_IN_PROGRESS"
STUCK = "DELETE_FAILED"
NEVER_RUN = "REVIEW_IN_PROGRESS"  # a change set was made and never executed: nothing stands in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack that exists.

    Args:
        kind: Network and so on.
        protected: whether CloudFormation refuses to delete it.
        ours: whether this environment's deploy made it, by its tag, or its operator has adopted it.
        adoptable: whether it has no owner's tag and a name and a description like ours, as one of before the tag.
    """

    kind: str
    name: str
    id: str
    status: str
    reason: str
    protected: bool
    ours: bool
    adoptable: bool

    @property
    def busy(self) -> bool:
        """Whether somebody else changes it at this moment."""
        return self.status.endswith("_IN_PROGRESS") and self.status not in {GOING, NEVER_RUN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of a stack."""

    logical_id: str
    type: str
    physical_id: str
    status: str
    reason: str

    def __str__(self) -> str:
        """Return it as an operator reads it."""
        return f"{self.logical_id} ({self.type} {self.physical_id})"


def stack(account: Account, kind: str, identity: str = "") -> Stack | None:
    """Return a stack as it is now; None where there is none.

    Args:
        account: where.
        kind: of the stack.
        identity: its id, which still answers when it is gone; without it by its name.

    Raises:
        OpsError: CloudFormation does not say.
    """
    name = names.stack(account.environment, kind)
    try:
        found = account.ask("cloudformation", "DescribeStacks", name, StackName=identity or name)["Stacks"]
    except OpsError as error:
        if code_of(error.__cause__) == "ValidationError" and "does not exist" in str(error.__cause__):
            return None
        raise
    if not found or found[0]["StackStatus"] == GONE:
        return None
    return _stack(account, kind, found[0])


def stacks(account: Account) -> dict[str, Stack]:
    """Return the stacks that exist by kind, the one that stays too.

    Raises:
        OpsError: CloudFormation does not say.
    """
    found = {kind: stack(account, kind) for kind in (*ORDER, STAYS)}
    return {kind: one for kind, one in found.items() if one}


def resources(account: Account, found: Stack) -> Iterator[Resource]:
    """Yield what stands in a stack.

    Raises:
        OpsError: CloudFormation does not say.
    """
    rows = account.pages(
        "cloudformation", "ListStackResources", "StackResourceSummaries", found.name, StackName=found.id
    )
    for row in rows:
        if row["ResourceStatus"] != GONE:
            yield Resource(
                logical_id=row["LogicalResourceId"], type=row["ResourceType"], status=row["ResourceStatus"],
                physical_id=row.get("PhysicalResourceId", ""), reason=row.get("ResourceStatusReason", ""),
            )  # fmt: skip


def stuck_resources(account: Account, found: Stack) -> list[Resource]:
    """Return the resources whose deletion failed, each with the reason that the stack's events give.

    Raises:
        OpsError: CloudFormation does not say.
    """
    failed = [one for one in resources(account, found) if one.status == STUCK]
    if all(one.reason for one in failed):
        return failed
    rows = account.pages("cloudformation", "DescribeStackEvents", "StackEvents", found.name, StackName=found.id)
    said: dict[str, str] = {}
    for row in rows:  # the latest first
        if row.get("ResourceStatus") == STUCK:
            said.setdefault(row["LogicalResourceId"], row.get("ResourceStatusReason", ""))
    return [replace(one, reason=one.reason or said.get(one.logical_id, "")) for one in failed]


def _stack(account: Account, kind: str, row: dict[str, Any]) -> Stack:
    owner = tags_of(row.get("Tags")).get(names.OWNER_TAG)
    adoptable = owner is None and str(row.get("Description", "")).startswith(DESCRIBED)
    return Stack(
        kind=kind, name=row["StackName"], id=row["StackId"], status=row["StackStatus"],
        reason=row.get("StackStatusReason", ""), protected=bool(row.get("EnableTerminationProtection")),
        ours=owner == account.name or (adoptable and row["StackName"] in account.adopted), adoptable=adoptable,
    )  # fmt: skip
