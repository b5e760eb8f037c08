"""Deletes one stack: looks whose it is, lifts what protects it, waits, and helps once where it is stuck.

Invariant: a stack that is not ours is never asked to go; a protection is lifted right before the deletion, so that a
run that is cut off leaves the others as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.aws.faults import error_code
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
    list_resources,
    list_stuck_resources,
    read_stack,
)
from tandem.shell_command import build_tandem_command
from tandem.spec import names

LogFunction = Callable[[str], None]
MAX_ATTEMPTS = 2
PROGRESS_INTERVAL_S = 60.0  # between two lines about the same deletion
VPC_RESOURCE_PREFIXES = ("AWS::EC2::", "AWS::EKS::")  # what network interfaces of a cluster hold back
TYPE_ADVICE = {
    "Custom::AWSCDK-EKS": "see that {cluster} and its nodes still run: these are deleted through its Kubernetes API",
    "AWS::EC2::": "see what is left in the VPC (load balancers, interfaces, instances of others)",
    "AWS::EKS::Nodegroup": "see why its nodes do not drain: a pod with a finalizer, a PodDisruptionBudget",
    "AWS::EKS::Cluster": "see what is left in {cluster}: {look}",
    "AWS::Lambda::Function": "wait half an hour, until Lambda has given back its network interfaces",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownSettings:
    """How patient a teardown is.

    Args:
        poll_s: seconds between two looks at a stack.
        timeout_s: seconds until it is left to a later run. Workloads may take 40 minutes, until Lambda has given back
            its network interfaces.
    """

    poll_s: float = 10.0
    timeout_s: float = 5400.0


def delete_stack(
    account: AccountClients, stack: CloudFormationStack, settings: TeardownSettings, log: LogFunction
) -> None:
    """Delete a stack and wait until it is gone.

    Raises:
        InputError: it is not ours.
        ExternalError: it is stuck, somebody else changes it, or AWS failed.
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
    """Make sure that all stacks are this environment's; untagged ones that look like ours are named together.

    Raises:
        InputError: one is another's, or was not adopted.
    """
    foreign = [stack for stack in stacks if not stack.is_ours]
    strangers = [stack for stack in foreign if not stack.is_adoptable]
    owner_tag = f"{names.OWNER_TAG}={account.name}"
    if strangers:
        name = strangers[0].name
        lookup = build_aws_command("cloudformation describe-stacks", stack_name=name)
        raise InputError(
            f"this stack has no tag {owner_tag}: another tool or environment made it, and it is left alone",
            where=name,
            change=f"see whose it is ({lookup}); if it is yours, deploy it once more or delete it by hand, then run "
            "this again",
        )
    if foreign:
        stack_names = [stack.name for stack in foreign]
        adopt = build_tandem_command("destroy", account.name, "--adopt-untagged", *stack_names)
        raise InputError(
            f"this stack has no tag {owner_tag}: names and descriptions are like ours, and anybody may have written "
            "them, so it is left alone",
            where=", ".join(stack_names),
            change=f"see whose it is (aws cloudformation describe-stacks); if it is yours, of before that tag: {adopt}",
        )


def require_idle_stack(stack: CloudFormationStack) -> None:
    """Make sure that nobody changes a stack at this moment.

    Raises:
        ExternalError: somebody does.
    """
    if stack.status.endswith("_IN_PROGRESS") and stack.status not in {DELETE_IN_PROGRESS, REVIEW_IN_PROGRESS}:
        problem = f"it is in {stack.status}: somebody deploys it at this moment"
        raise ExternalError(problem, where=stack.name, change="wait until that ends, then run this again")


def _request_deletion(account: AccountClients, stack: CloudFormationStack, log: LogFunction) -> None:
    if stack.has_termination_protection:
        log(f"{stack.name}: lifting termination protection")
        request: dict[str, Any] = {"StackName": stack.name, "EnableTerminationProtection": False}
        account.ask("cloudformation", "UpdateTerminationProtection", stack.name, **request)
    log(f"{stack.name}: deleting {sum(1 for _ in list_resources(account, stack))} resources")
    try:
        account.ask("cloudformation", "DeleteStack", stack.name, StackName=stack.id)
    except TandemError as error:
        message = str(error.__cause__)
        if error_code(error.__cause__) != "ValidationError" or "imported by" not in message:
            raise
        problem = f"another stack uses what it exports ({message})"
        change = "that stack is not of this order; its owner deletes it first, then run this again"
        raise ExternalError(problem, where=stack.name, change=change) from error


def _wait_for_deletion(
    account: AccountClients, stack: CloudFormationStack, settings: TeardownSettings, log: LogFunction
) -> CloudFormationStack | None:
    """Return None when the stack is gone, else as it is now that its deletion ended."""
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
            change = "CloudFormation goes on by itself: run this again later"
            raise ExternalError(problem, where=stack.name, change=change)
        if time.monotonic() - last_log_s > PROGRESS_INTERVAL_S:
            last_log_s = time.monotonic()
            remaining = list(list_resources(account, current))
            going = [str(resource) for resource in remaining if resource.status == DELETE_IN_PROGRESS][:3]
            log(f"{stack.name}: {len(remaining)} resources left; going: {', '.join(going) or 'none yet'}")
        time.sleep(settings.poll_s)


def _remove_blockers(account: AccountClients, stack: CloudFormationStack, log: LogFunction) -> None:
    """Remove what is known to hold back the resources that failed, where it is this cluster's by its tags."""
    failed = list_stuck_resources(account, stack)
    for resource in failed:
        log(f"{stack.name}: {resource} was not deleted: {resource.reason or 'CloudFormation gives no reason'}")
    if any(resource.type.startswith(VPC_RESOURCE_PREFIXES) for resource in failed):
        _remove_interfaces(account, log)
        # while the cluster itself is left, it needs its group
        if not any(resource.physical_id.startswith(account.cluster) for resource in failed):
            _remove_security_groups(account, log)


def _remove_interfaces(account: AccountClients, log: LogFunction) -> None:
    """Remove the CNI's interfaces that nothing uses: nodes that ended quickly leave them."""
    where = f"network interfaces of {account.cluster}"
    filters = [{"Name": f"tag:{CNI_TAG}", "Values": [account.cluster]}, {"Name": "status", "Values": ["available"]}]
    for row in list(account.list_rows("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", where, Filters=filters)):
        # a filter is a wish; what is deleted is looked at
        if tags_of(row.get("TagSet")).get(CNI_TAG) == account.cluster and row["Status"] == "available":
            flags = {"NetworkInterfaceId": row["NetworkInterfaceId"]}
            description = f"network interface {row['NetworkInterfaceId']}, which the CNI left"
            _remove_resource(account, "DeleteNetworkInterface", description, log, **flags)


def _remove_security_groups(account: AccountClients, log: LogFunction) -> None:
    """Remove security groups that Kubernetes or EKS made for this cluster."""
    where = f"security groups of {account.cluster}"
    for key, value in ((f"{IN_TREE_TAG}{account.cluster}", "owned"), (EKS_TAG, account.cluster)):
        filters = [{"Name": f"tag:{key}", "Values": [value]}]
        for row in list(account.list_rows("ec2", "DescribeSecurityGroups", "SecurityGroups", where, Filters=filters)):
            tags = tags_of(row.get("Tags"))
            if tags.get(key) == value and tags.get(names.OWNER_TAG, account.name) == account.name:
                description = f"security group {row['GroupId']} ({row['GroupName']}), which the cluster left"
                _remove_resource(account, "DeleteSecurityGroup", description, log, GroupId=row["GroupId"])


def _remove_resource(
    account: AccountClients, operation: str, description: str, log: LogFunction, **parameters: str
) -> None:
    """Remove one thing; where that fails, say so and go on: what it holds back is told in the end."""
    try:
        account.ask("ec2", operation, description, **parameters)
        log(f"removed {description}")
    except TandemError as error:
        log(f"could not remove {error}")


def _build_stuck_error(account: AccountClients, stack: CloudFormationStack) -> TandemError:
    """Return the fault of a stack that did not go, with each resource, its reason and what to do, the surest first."""
    current = read_stack(account, stack.kind, stack.id) or stack
    failed = list_stuck_resources(account, current)
    resource_text = "; ".join(f"{resource}: {resource.reason or 'no reason given'}" for resource in failed)
    lookup = build_aws_command("eks list-nodegroups", cluster_name=account.cluster)
    advice = [
        text.format(cluster=account.cluster, look=lookup)
        for kind, text in TYPE_ADVICE.items()
        if any(resource.type.startswith(kind) for resource in failed)
    ]
    if "cannot be assumed" in f"{current.reason}{''.join(resource.reason for resource in failed)}":
        advice.insert(0, "bootstrap the CDK again: the role with which it deployed is gone")
    advice.append("remove what each of them waits for and run this again")
    if failed:
        logical_ids = [resource.logical_id for resource in failed]
        retain = build_aws_command("cloudformation delete-stack", stack_name=stack.name, retain_resources=logical_ids)
        advice.append(f"if they may stay, and you remove them by hand: {retain}")
    else:
        advice.append(build_aws_command("cloudformation describe-stack-events", stack_name=stack.name))
    problem = f"it was not deleted: {resource_text or current.reason or current.status}"
    return ExternalError(problem, where=stack.name, change=", or ".join(advice))
