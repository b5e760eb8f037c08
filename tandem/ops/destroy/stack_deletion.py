"""Deletion of a stack: check the owner, lift protections, wait, help once if it is stuck.

Invariant: a stack that is not ours is never deleted. A protection is lifted only just before the
deletion, so that a run that is cut off leaves the other protections as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.aws.faults import error_code
from tandem.declarations import names
from tandem.errors import ExternalError, InputError, TandemError
from tandem.ops.account import AccountClients, build_aws_command, tags_of
from tandem.ops.destroy.stacks import (
    CNI_TAG,
    DELETE_FAILED,
    DELETE_IN_PROGRESS,
    EKS_TAG,
    IN_TREE_TAG,
    REVIEW_IN_PROGRESS,
    CloudFormationStack,
    describe_resource,
    list_resources,
    list_stuck_resources,
    read_stack,
)

LogFunction = Callable[[str], None]
MAX_ATTEMPTS = 2
PROGRESS_INTERVAL_S = 60.0  # between two lines about the same deletion
# kinds that network interfaces of a cluster hold back
VPC_RESOURCE_PREFIXES = ("AWS::EC2::", "AWS::EKS::")
BLOCKER_KINDS = (
    (
        "network interface",
        "DescribeNetworkInterfaces NetworkInterfaces NetworkInterfaceId",
        "DeleteNetworkInterface",
    ),
    ("security group", "DescribeSecurityGroups SecurityGroups GroupId", "DeleteSecurityGroup"),
)
"""Name; operation, key of the rows, of the id; the operation that removes."""


@dataclass(frozen=True, kw_only=True)
class TeardownSettings:
    """Patience of a teardown.

    Args:
        poll_s: seconds between two looks at a stack.
        timeout_s: seconds until a stack is left to a later run. Workloads may take 40 minutes,
            until Lambda has returned its network interfaces.
    """

    poll_s: float = 10.0
    timeout_s: float = 5400.0


def delete_stack(
    account: AccountClients,
    stack: CloudFormationStack,
    settings: TeardownSettings,
    log: LogFunction,
) -> None:
    """Delete a stack and wait until it is gone.

    Raises:
        InputError: the stack is not ours.
        ExternalError: the stack is stuck, somebody else changes it, or AWS failed.
    """
    require_own_stacks(account, [stack])
    require_idle_stack(stack)
    for attempt in range(MAX_ATTEMPTS):
        current = read_stack(account, stack.kind, stack.id)
        if current is None:
            return
        if current.status == DELETE_FAILED:
            _remove_blockers(account, current, log)
        if current.status != DELETE_IN_PROGRESS:
            _request_deletion(account, current, log)
        last = _wait_for_deletion(account, current, settings, log)
        if last is None:
            return
        if attempt + 1 < MAX_ATTEMPTS:
            log(f"{last.name}: stuck ({last.status}); trying once more with what helps")
    raise _build_stuck_error(account, stack)


def require_own_stacks(account: AccountClients, stacks: Sequence[CloudFormationStack]) -> None:
    """Check that all stacks are this environment's.

    Raises:
        InputError: a stack has not its tag.
    """
    foreign_names = [stack.name for stack in stacks if not stack.is_ours]
    if not foreign_names:
        return
    lookups = [
        build_aws_command("cloudformation describe-stacks", stack_name=name)
        for name in foreign_names
    ]
    raise InputError(
        f"this stack has no tag {names.OWNER_TAG}={account.name}: another tool or environment made"
        " it, or its tag was removed, so it is left alone",
        where=", ".join(foreign_names),
        change=(
            f"see whose it is ({'; '.join(lookups)}); if it is yours, deploy it once more, which"
            " writes its tag, then run this again"
        ),
    )


def require_idle_stack(stack: CloudFormationStack) -> None:
    """Check that nobody changes a stack at this moment.

    Raises:
        ExternalError: somebody does.
    """
    if stack.status.endswith("_IN_PROGRESS") and stack.status not in {
        DELETE_IN_PROGRESS,
        REVIEW_IN_PROGRESS,
    }:
        problem = f"it is in {stack.status}: somebody deploys it at this moment"
        raise ExternalError(
            problem, where=stack.name, change="wait until that ends, then run this again"
        )


def _request_deletion(
    account: AccountClients, stack: CloudFormationStack, log: LogFunction
) -> None:
    if stack.has_termination_protection:
        log(f"{stack.name}: lifting termination protection")
        account.ask(
            "cloudformation",
            "UpdateTerminationProtection",
            stack.name,
            StackName=stack.name,
            EnableTerminationProtection=False,
        )
    log(f"{stack.name}: deleting {sum(1 for _ in list_resources(account, stack))} resources")
    try:
        account.ask("cloudformation", "DeleteStack", stack.name, StackName=stack.id)
    except TandemError as error:
        message = str(error.__cause__)
        if error_code(error.__cause__) != "ValidationError" or "imported by" not in message:
            raise
        problem = f"another stack uses what it exports ({message})"
        raise ExternalError(
            problem,
            where=stack.name,
            change=(
                "that stack is not deleted here: its owner deletes it first, then run this again"
            ),
        ) from error


def _wait_for_deletion(
    account: AccountClients,
    stack: CloudFormationStack,
    settings: TeardownSettings,
    log: LogFunction,
) -> CloudFormationStack | None:
    """Return None when the stack is gone, else its state at the end of its deletion."""
    start_s = last_log_s = time.monotonic()
    while True:
        current = read_stack(account, stack.kind, stack.id)
        if current is None:
            log(f"{stack.name}: gone")
            return None
        if current.status != DELETE_IN_PROGRESS:
            return current
        elapsed_s = time.monotonic() - start_s
        if elapsed_s > settings.timeout_s:
            problem = f"it is still being deleted after {elapsed_s / 60:.0f} minutes"
            raise ExternalError(
                problem,
                where=stack.name,
                change="CloudFormation goes on by itself: run this again later",
            )
        if time.monotonic() - last_log_s > PROGRESS_INTERVAL_S:
            last_log_s = time.monotonic()
            remaining = list(list_resources(account, current))
            going = [
                describe_resource(row)
                for row in remaining
                if row["ResourceStatus"] == DELETE_IN_PROGRESS
            ][:3]
            log(
                f"{stack.name}: {len(remaining)} resources left; going:"
                f" {', '.join(going) or 'none yet'}"
            )
        time.sleep(settings.poll_s)


def _remove_blockers(account: AccountClients, stack: CloudFormationStack, log: LogFunction) -> None:
    """Remove known blockers of failed resources, if tags say that they are this cluster's."""
    stuck_resources = list_stuck_resources(account, stack)
    for row in stuck_resources:
        log(
            f"{stack.name}: {describe_resource(row)} was not deleted: {row['ResourceStatusReason']}"
        )
    if not any(row["ResourceType"].startswith(VPC_RESOURCE_PREFIXES) for row in stuck_resources):
        return
    interfaces, groups = BLOCKER_KINDS
    # nodes that ended quickly leave them
    _remove_tagged(account, interfaces, CNI_TAG, account.cluster, log)
    # as long as the cluster itself exists, it needs its group
    if not any(
        row.get("PhysicalResourceId", "").startswith(account.cluster) for row in stuck_resources
    ):
        _remove_tagged(account, groups, f"{IN_TREE_TAG}{account.cluster}", "owned", log)
        _remove_tagged(account, groups, EKS_TAG, account.cluster, log)


def _remove_tagged(
    account: AccountClients, kind: tuple[str, str, str], tag: str, value: str, log: LogFunction
) -> None:
    """Remove unused resources with a tag; log a failure, as the final error names what stays."""
    name, call, removal = kind
    operation, rows_key, id_key = call.split()
    where = f"{name}s of {account.cluster}"
    filters = [{"Name": f"tag:{tag}", "Values": [value]}]
    for row in list(account.list_rows("ec2", operation, rows_key, where, Filters=filters)):
        # do not rely on the filter: check each resource before its deletion
        if not _is_own_and_unused(account, row, tag, value):
            continue
        resource = f"{name} {row[id_key]}, which the cluster left"
        try:
            account.ask("ec2", removal, resource, **{id_key: row[id_key]})
            log(f"removed {resource}")
        except TandemError as error:
            log(f"could not remove {error}")


def _is_own_and_unused(
    account: AccountClients, row: Mapping[str, Any], tag: str, value: str
) -> bool:
    tags = tags_of(row.get("Tags") or row.get("TagSet"))
    is_own = tags.get(tag) == value and tags.get(names.OWNER_TAG, account.name) == account.name
    return is_own and row.get("Status", "available") == "available"


def _build_stuck_error(account: AccountClients, stack: CloudFormationStack) -> TandemError:
    """Return a stuck stack's fault: each resource, its reason and what to do, the surest first."""
    current = read_stack(account, stack.kind, stack.id) or stack
    stuck_resources = list_stuck_resources(account, current)
    resource_text = "; ".join(
        f"{describe_resource(row)}: {row['ResourceStatusReason']}" for row in stuck_resources
    )
    change = "remove what each of them waits for (docs/teardown.md) and run this again, or "
    if stuck_resources:
        logical_ids = [row["LogicalResourceId"] for row in stuck_resources]
        retain = build_aws_command(
            "cloudformation delete-stack", stack_name=stack.name, retain_resources=logical_ids
        )
        change += f"if they may stay, and you remove them by hand: {retain}"
    else:
        change += build_aws_command("cloudformation describe-stack-events", stack_name=stack.name)
    problem = f"it was not deleted: {resource_text or current.reason or current.status}"
    return ExternalError(problem, where=stack.name, change=change)
