"""Deletes one stack: looks whose it is, lifts what protects it, waits, and helps once where it is stuck.

Invariant: a stack that is not ours is never asked to go; a protection is lifted right before the deletion, so that a
run that is cut off leaves the others as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.errors import ExternalError, InputError, TandemError
from tandem.ops.destroy.account import AccountClients, tags_of
from tandem.ops.destroy.stacks import (
    DELETE_FAILED_STATUS,
    DELETE_IN_PROGRESS,
    DELETION_ORDER,
    CloudFormationStack,
    StackResource,
    list_resources,
    list_stuck_resources,
    read_stack,
)
from tandem.ops.faults import error_code
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

LogFunction = Callable[[str], None]
MAX_ATTEMPTS = 2
PROGRESS_INTERVAL_S = 60.0  # between two lines about the same deletion
# CNI interfaces carry the first (amazon-vpc-cni-k8s), groups and volumes that Kubernetes made the second
CNI_TAG, IN_TREE_TAG, EKS_TAG = "cluster.k8s.amazonaws.com/name", "kubernetes.io/cluster/", "aws:eks:cluster-name"
VPC_RESOURCE_PREFIXES = ("AWS::EC2::", "AWS::EKS::")  # what network interfaces of a cluster hold back


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
    account: AccountClients, target_stack: CloudFormationStack, settings: TeardownSettings, log: LogFunction
) -> None:
    """Delete a stack and wait until it is gone.

    Raises:
        InputError: it is not ours.
        ExternalError: it is stuck, somebody else changes it, or AWS failed.
    """
    require_own_stack(account, target_stack)
    require_idle_stack(target_stack)
    for attempt in range(MAX_ATTEMPTS):
        current_stack = read_stack(account, target_stack.kind, target_stack.id)
        if current_stack is None:
            return
        if current_stack.status == DELETE_FAILED_STATUS:
            _remove_blockers(account, current_stack, log)
        if current_stack.status != DELETE_IN_PROGRESS:
            _request_deletion(account, current_stack, log)
        last_stack = _wait_for_deletion(account, current_stack, settings, log)
        if last_stack is None:
            return
        if attempt + 1 < MAX_ATTEMPTS:
            log(f"{last_stack.name}: stuck ({last_stack.status}); trying once more with what helps")
    raise build_stuck_error(account, target_stack)


def require_own_stack(account: AccountClients, target_stack: CloudFormationStack) -> None:
    """Make sure that a stack is this environment's.

    Raises:
        InputError: it is another's.
    """
    if target_stack.is_ours:
        return
    owner_tag, lookup_command = (
        f"{names.OWNER_TAG}={account.name}",
        _build_stack_command("describe-stacks", target_stack),
    )
    if target_stack.is_adoptable:
        adopt_command = build_tandem_command("destroy", account.name, "--adopt-untagged", target_stack.name)
        raise InputError(
            f"this stack has no tag {owner_tag}: its name and its description are like ours, and anybody may have "
            "written them, so it is left alone", where=target_stack.name,
            change=f"see whose it is ({lookup_command}); if it is yours, from before that tag: {adopt_command}",
        )  # fmt: skip
    raise InputError(
        f"this stack has no tag {owner_tag}: another tool or environment made it, and it is left alone",
        where=target_stack.name,
        change=f"see whose it is ({lookup_command}); if it is yours, deploy it once more or delete it by hand, "
        "then run this "
        "again",
    )


def require_own_stacks(account: AccountClients, target_stacks: Sequence[CloudFormationStack]) -> None:
    """Make sure that all stacks are this environment's; untagged ones that look like ours are named together.

    Raises:
        InputError: one is another's, or was not adopted.
    """
    foreign_stacks = sorted(
        (target_stack for target_stack in target_stacks if not target_stack.is_ours),
        key=lambda target_stack: target_stack.is_adoptable,
    )
    if len(foreign_stacks) == 1 or (foreign_stacks and not foreign_stacks[0].is_adoptable):
        require_own_stack(account, foreign_stacks[0])
    if foreign_stacks:
        stack_names = [target_stack.name for target_stack in foreign_stacks]
        adopt_command = build_tandem_command("destroy", account.name, "--adopt-untagged", *stack_names)
        raise InputError(
            f"these stacks have no tag {names.OWNER_TAG}={account.name}: {', '.join(stack_names)}. Their names and "
            "descriptions are like ours, and anybody may have written them, so they are left alone",
            where=account.name,
            change="see whose each is (aws cloudformation describe-stacks); name those that are yours: "
            f"{adopt_command}",
        )


def require_known_adoptions(account: AccountClients) -> None:
    """Make sure that only stacks which a teardown deletes are adopted.

    Raises:
        InputError: another name is.
    """
    known_names = {names.stack_name(account.environment, kind) for kind in DELETION_ORDER}
    unknown_names = sorted(account.adopted_stacks - known_names)
    if unknown_names:
        raise InputError(
            f"--adopt-untagged names what is no stack of this environment: {', '.join(unknown_names)}",
            where=account.name,
            change=f"name of these: {', '.join(sorted(known_names))}",
        )


def require_idle_stack(target_stack: CloudFormationStack) -> None:
    """Make sure that nobody changes a stack at this moment.

    Raises:
        ExternalError: somebody does.
    """
    if target_stack.is_busy:
        raise ExternalError(
            f"it is in {target_stack.status}: somebody deploys it at this moment", where=target_stack.name,
            change="wait until that ends, then run this again",
        )  # fmt: skip


def _request_deletion(account: AccountClients, current_stack: CloudFormationStack, log: LogFunction) -> None:
    if current_stack.has_termination_protection:
        log(f"{current_stack.name}: lifting termination protection")
        account.ask(
            "cloudformation", "UpdateTerminationProtection", current_stack.name, StackName=current_stack.name,
            EnableTerminationProtection=False,
        )  # fmt: skip
    log(f"{current_stack.name}: deleting {sum(1 for _ in list_resources(account, current_stack))} resources")
    try:
        account.ask("cloudformation", "DeleteStack", current_stack.name, StackName=current_stack.id)
    except TandemError as error:
        message = str(error.__cause__)
        if error_code(error.__cause__) == "ValidationError" and "imported by" in message:
            raise ExternalError(
                f"another stack uses what it exports ({message})", where=current_stack.name,
                change="that stack is not of this order; its owner deletes it first, then run this again",
            ) from error  # fmt: skip
        raise


def _wait_for_deletion(
    account: AccountClients, target_stack: CloudFormationStack, settings: TeardownSettings, log: LogFunction
) -> CloudFormationStack | None:
    """Return None when the stack is gone, else as it is now that its deletion ended."""
    start_s = last_log_s = time.monotonic()
    while True:
        current_stack = read_stack(account, target_stack.kind, target_stack.id)
        if current_stack is None:
            log(f"{target_stack.name}: gone")
            return None
        if current_stack.status != DELETE_IN_PROGRESS:
            return current_stack
        elapsed_s = time.monotonic() - start_s
        if elapsed_s > settings.timeout_s:
            raise ExternalError(
                f"it is still being deleted after {elapsed_s / 60:.0f} minutes", where=target_stack.name,
                change="CloudFormation goes on by itself: run this again later",
            )  # fmt: skip
        if time.monotonic() - last_log_s > PROGRESS_INTERVAL_S:
            last_log_s = time.monotonic()
            log(f"{target_stack.name}: {_describe_remaining(account, current_stack)}")
        time.sleep(settings.poll_s)


def _describe_remaining(account: AccountClients, current_stack: CloudFormationStack) -> str:
    remaining = list(list_resources(account, current_stack))
    deleting = [resource for resource in remaining if resource.status == DELETE_IN_PROGRESS][:3]
    return f"{len(remaining)} resources left; going: {', '.join(map(str, deleting)) or 'none yet'}"


def _remove_blockers(account: AccountClients, current_stack: CloudFormationStack, log: LogFunction) -> None:
    """Remove what is known to hold back the resources that failed, where it is this cluster's by its tags."""
    failed_resources = list_stuck_resources(account, current_stack)
    for resource in failed_resources:
        log(f"{current_stack.name}: {resource} was not deleted: {resource.reason or 'CloudFormation gives no reason'}")
    if any(resource.type.startswith(VPC_RESOURCE_PREFIXES) for resource in failed_resources):
        _remove_interfaces(account, log)
        _remove_security_groups(account, [resource.physical_id for resource in failed_resources], log)


def _remove_interfaces(account: AccountClients, log: LogFunction) -> None:
    """Remove the CNI's interfaces that nothing uses: nodes that ended quickly leave them."""
    where = f"network interfaces of {account.cluster}"
    filters = [{"Name": f"tag:{CNI_TAG}", "Values": [account.cluster]}, {"Name": "status", "Values": ["available"]}]
    for interface in list(
        account.list_rows("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", where, Filters=filters)
    ):
        if tags_of(interface.get("TagSet")).get(CNI_TAG) != account.cluster or interface["Status"] != "available":
            continue  # a filter is a wish; what is deleted is looked at
        interface_id = interface["NetworkInterfaceId"]
        _remove_resource(
            account,
            "DeleteNetworkInterface",
            f"network interface {interface_id}, which the CNI left",
            log,
            NetworkInterfaceId=interface_id,
        )


def _remove_security_groups(account: AccountClients, physical_ids: Sequence[str], log: LogFunction) -> None:
    """Remove security groups that Kubernetes or EKS made for this cluster, once the cluster is gone."""
    owner_tags = {f"{IN_TREE_TAG}{account.cluster}": "owned", EKS_TAG: account.cluster}
    if any(item.startswith(account.cluster) for item in physical_ids):
        return  # the cluster itself is left, and needs its group
    for key, value in owner_tags.items():
        where = f"security groups of {account.cluster}"
        filters = [{"Name": f"tag:{key}", "Values": [value]}]
        for item in list(account.list_rows("ec2", "DescribeSecurityGroups", "SecurityGroups", where, Filters=filters)):
            tags = tags_of(item.get("Tags"))
            if tags.get(key) == value and tags.get(names.OWNER_TAG, account.name) == account.name:
                description = f"security group {item['GroupId']} ({item['GroupName']}), which the cluster left"
                _remove_resource(account, "DeleteSecurityGroup", description, log, GroupId=item["GroupId"])


def _remove_resource(
    account: AccountClients, operation: str, description: str, log: LogFunction, **parameters: str
) -> None:
    """Remove one thing; where that fails, say so and go on: what it holds back is told in the end."""
    try:
        account.ask("ec2", operation, description, **parameters)
    except TandemError as error:
        log(f"could not remove {error}")
    else:
        log(f"removed {description}")


def build_stuck_error(account: AccountClients, target_stack: CloudFormationStack) -> TandemError:
    """Return the fault of a stack that did not go, with each resource, its reason and what to do."""
    current_stack = read_stack(account, target_stack.kind, target_stack.id) or target_stack
    failed_resources = list_stuck_resources(account, current_stack)
    resource_text = (
        "; ".join(f"{resource}: {resource.reason or 'no reason given'}" for resource in failed_resources)
        or current_stack.reason
        or current_stack.status
    )
    return ExternalError(
        f"it was not deleted: {resource_text}",
        where=target_stack.name,
        change=build_advice(account, current_stack, failed_resources),
    )


def build_advice(
    account: AccountClients, target_stack: CloudFormationStack, failed_resources: Sequence[StackResource]
) -> str:
    """Return what to do about resources that were not deleted, the surest first."""
    lookup_command = quote_command("aws", "eks", "list-nodegroups", "--cluster-name", account.cluster)
    advice_parts = [
        _TYPE_ADVICE[kind].format(cluster=account.cluster, look=lookup_command)
        for kind in _TYPE_ADVICE
        if _has_resource_type(failed_resources, kind)
    ]
    if "cannot be assumed" in f"{target_stack.reason}{''.join(failure.reason for failure in failed_resources)}":
        advice_parts.insert(0, "bootstrap the CDK again: the role with which it deployed is gone")
    logical_ids = [resource.logical_id for resource in failed_resources]
    last_resort = (
        "if they may stay, and you remove them by hand: "
        + _build_stack_command("delete-stack", target_stack, "--retain-resources", *logical_ids)
        if logical_ids
        else _build_stack_command("describe-stack-events", target_stack)
    )
    return ", or ".join([*advice_parts, "remove what each of them waits for and run this again", last_resort])


def _build_stack_command(verb: str, target_stack: CloudFormationStack, *flags: str) -> str:
    return quote_command("aws", "cloudformation", verb, "--stack-name", target_stack.name, *flags)


def _has_resource_type(failed_resources: Sequence[StackResource], type_prefix: str) -> bool:
    return any(resource.type.startswith(type_prefix) for resource in failed_resources)


_TYPE_ADVICE = {
    "Custom::AWSCDK-EKS": "see that {cluster} and its nodes still run: these are deleted through its Kubernetes API",
    "AWS::EC2::": "see what is left in the VPC (load balancers, interfaces, instances of others)",
    "AWS::EKS::Nodegroup": "see why its nodes do not drain: a pod with a finalizer, a PodDisruptionBudget",
    "AWS::EKS::Cluster": "see what is left in {cluster}: {look}",
    "AWS::Lambda::Function": "wait half an hour, until Lambda has given back its network interfaces",
}
