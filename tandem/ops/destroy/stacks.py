"""The stacks of an environment as CloudFormation describes them, and their owners.

Invariant: a stack is ours only by the owner's tag. A name and a description prove no owner: anybody
may write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.aws.faults import error_code
from tandem.declarations import names
from tandem.declarations.project_image import PROJECT_IMAGES
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, tags_of

# each template orders its own resources: in Cluster the add-ons that need nodes go before the
# system nodes
DELETION_ORDER = (
    *("Workloads", "Fleet", "Observability", "Cluster", "Guard"),
    *(names.image_stack_kind(image.name) for image in reversed(PROJECT_IMAGES)),
    *("Registry", "Network"),
)
"""The order in which stacks are deleted; missing ones are skipped."""

PERMANENT_KIND = "Artifacts"
# CNI interfaces carry the first (amazon-vpc-cni-k8s), groups and volumes that Kubernetes made the
# second
CNI_TAG = "cluster.k8s.amazonaws.com/name"
IN_TREE_TAG = "kubernetes.io/cluster/"
EKS_TAG = "aws:eks:cluster-name"
DELETE_COMPLETE = "DELETE_COMPLETE"
DELETE_IN_PROGRESS = "DELETE_IN_PROGRESS"
DELETE_FAILED = "DELETE_FAILED"
# a change set was made and never executed: the stack is empty
REVIEW_IN_PROGRESS = "REVIEW_IN_PROGRESS"


@dataclass(frozen=True, kw_only=True)
class CloudFormationStack:
    """One stack that exists.

    Args:
        kind: Network and so on.
        has_termination_protection: whether CloudFormation refuses to delete it.
        is_ours: whether this environment's deploy made it, by its tag.
    """

    kind: str
    name: str
    id: str
    status: str
    reason: str
    has_termination_protection: bool
    is_ours: bool


def read_stack(
    account: AccountClients, kind: str, stack_id: str = ""
) -> CloudFormationStack | None:
    """Return the present state of a stack; None if there is none.

    Args:
        account: of the environment.
        kind: of the stack.
        stack_id: its id, which still works when the stack is gone; without it the name is used.

    Raises:
        ExternalError: CloudFormation does not answer.
    """
    name = names.stack_name(account.environment, kind)
    try:
        rows = account.ask("cloudformation", "DescribeStacks", name, StackName=stack_id or name)[
            "Stacks"
        ]
    except TandemError as error:
        if error_code(error.__cause__) == "ValidationError" and "does not exist" in str(
            error.__cause__
        ):
            return None
        raise
    if not rows or rows[0]["StackStatus"] == DELETE_COMPLETE:
        return None
    row = rows[0]
    return CloudFormationStack(
        kind=kind,
        name=row["StackName"],
        id=row["StackId"],
        status=row["StackStatus"],
        reason=row.get("StackStatusReason", ""),
        has_termination_protection=bool(row.get("EnableTerminationProtection")),
        is_ours=tags_of(row.get("Tags")).get(names.OWNER_TAG) == account.name,
    )


def list_stacks(account: AccountClients) -> dict[str, CloudFormationStack]:
    """Return the existing stacks by kind in order of deletion, the permanent one last.

    Raises:
        ExternalError: CloudFormation does not answer.
    """
    stacks = {kind: read_stack(account, kind) for kind in (*DELETION_ORDER, PERMANENT_KIND)}
    return {kind: stack for kind, stack in stacks.items() if stack}


def list_resources(account: AccountClients, stack: CloudFormationStack) -> Iterator[dict[str, Any]]:
    """Yield the resources of a stack, as ListStackResources gives them.

    Raises:
        ExternalError: CloudFormation does not answer.
    """
    rows = account.list_rows(
        "cloudformation",
        "ListStackResources",
        "StackResourceSummaries",
        stack.name,
        StackName=stack.id,
    )
    for row in rows:
        if row["ResourceStatus"] != DELETE_COMPLETE:
            yield row


def describe_resource(row: Mapping[str, Any]) -> str:
    """Return a resource of a stack in words for an operator."""
    return f"{row['LogicalResourceId']} ({row['ResourceType']} {row.get('PhysicalResourceId', '')})"


def list_stuck_resources(
    account: AccountClients, stack: CloudFormationStack
) -> list[dict[str, Any]]:
    """Return the resources whose deletion failed, each with the reason in the stack's events.

    Raises:
        ExternalError: CloudFormation does not answer.
    """
    failed = [
        row for row in list_resources(account, stack) if row["ResourceStatus"] == DELETE_FAILED
    ]
    if all(row.get("ResourceStatusReason") for row in failed):
        return failed
    reasons: dict[str, str] = {}
    rows = account.list_rows(
        "cloudformation", "DescribeStackEvents", "StackEvents", stack.name, StackName=stack.id
    )
    for row in rows:  # the latest first
        if row.get("ResourceStatus") == DELETE_FAILED and "ResourceStatusReason" in row:
            reasons.setdefault(row["LogicalResourceId"], row["ResourceStatusReason"])
    default_reason = "CloudFormation gives no reason"
    return [
        {"ResourceStatusReason": reasons.get(row["LogicalResourceId"], default_reason), **row}
        for row in failed
    ]
