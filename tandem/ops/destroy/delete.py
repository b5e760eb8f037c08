"""Deletes one stack: looks whose it is, lifts what protects it, waits, and helps once where it is stuck.

Invariant: a stack that is not ours is never asked to go; a protection is lifted right before the deletion, so that a
run that is cut off leaves the others as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.destroy.stacks import GOING, ORDER, STUCK, Resource, Stack, resources, stack, stuck_resources
from tandem.ops.fault import OpsError, RefusedError, code_of
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

Say = Callable[[str], None]
TRIES = 2
TOLD_S = 60.0  # between two lines about the same deletion
# CNI interfaces carry the first (amazon-vpc-cni-k8s), groups and volumes that Kubernetes made the second
CNI_TAG, IN_TREE_TAG, EKS_TAG = "cluster.k8s.amazonaws.com/name", "kubernetes.io/cluster/", "aws:eks:cluster-name"
IN_THE_VPC = ("AWS::EC2::", "AWS::EKS::")  # what network interfaces of a cluster hold back


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How patient a teardown is.

    Args:
        poll_s: seconds between two looks at a stack.
        patience_s: seconds until it is left to a later run. Workloads may take 40 minutes, until Lambda has given back
            its network interfaces.
    """

    poll_s: float = 10.0
    patience_s: float = 5400.0


def delete(account: Account, found: Stack, settings: Settings, say: Say) -> None:
    """Delete a stack and wait until it is gone.

    Raises:
        RefusedError: it is not ours.
        OpsError: it is stuck, somebody else changes it, or AWS failed.
    """
    require_ours(account, found)
    require_still(found)
    for attempt in range(TRIES):
        now = stack(account, found.kind, found.id)
        if now is None:
            return
        if now.status == STUCK:
            _help(account, now, say)
        if now.status != GOING:
            _ask(account, now, say)
        last = _wait(account, now, settings, say)
        if last is None:
            return
        if attempt + 1 < TRIES:
            say(f"{last.name}: stuck ({last.status}); trying once more with what helps")
    raise stuck(account, found)


def require_ours(account: Account, found: Stack) -> None:
    """Make sure that a stack is this environment's.

    Raises:
        RefusedError: it is another's.
    """
    if found.ours:
        return
    missing, look = f"{names.OWNER_TAG}={account.name}", _build_stack_command("describe-stacks", found)
    if found.adoptable:
        adopt = build_tandem_command("destroy", account.name, "--adopt-untagged", found.name)
        raise RefusedError(
            f"this stack has no tag {missing}: its name and its description are like ours, and anybody may have "
            "written them, so it is left alone", where=found.name,
            change=f"see whose it is ({look}); if it is yours, from before that tag: {adopt}",
        )  # fmt: skip
    raise RefusedError(
        f"this stack has no tag {missing}: another tool or environment made it, and it is left alone", where=found.name,
        change=f"see whose it is ({look}); if it is yours, deploy it once more or delete it by hand, then run this "
        "again",
    )  # fmt: skip


def require_all_ours(account: Account, found: Sequence[Stack]) -> None:
    """Make sure that all stacks are this environment's; untagged ones that look like ours are named together.

    Raises:
        RefusedError: one is another's, or was not adopted.
    """
    strangers = sorted((row for row in found if not row.ours), key=lambda row: row.adoptable)
    if len(strangers) == 1 or (strangers and not strangers[0].adoptable):
        require_ours(account, strangers[0])
    if strangers:
        untagged = [row.name for row in strangers]
        adopt = build_tandem_command("destroy", account.name, "--adopt-untagged", *untagged)
        raise RefusedError(
            f"these stacks have no tag {names.OWNER_TAG}={account.name}: {', '.join(untagged)}. Their names and "
            "descriptions are like ours, and anybody may have written them, so they are left alone", where=account.name,
            change=f"see whose each is (aws cloudformation describe-stacks); name those that are yours: {adopt}",
        )  # fmt: skip


def require_known_names(account: Account) -> None:
    """Make sure that only stacks which a teardown deletes are adopted.

    Raises:
        RefusedError: another name is.
    """
    known = {names.stack(account.environment, kind) for kind in ORDER}
    unknown = sorted(account.adopted - known)
    if unknown:
        raise RefusedError(
            f"--adopt-untagged names what is no stack of this environment: {', '.join(unknown)}", where=account.name,
            change=f"name of these: {', '.join(sorted(known))}",
        )  # fmt: skip


def require_still(found: Stack) -> None:
    """Make sure that nobody changes a stack at this moment.

    Raises:
        OpsError: somebody does.
    """
    if found.busy:
        raise OpsError(
            f"it is in {found.status}: somebody deploys it at this moment", where=found.name,
            change="wait until that ends, then run this again",
        )  # fmt: skip


def _ask(account: Account, now: Stack, say: Say) -> None:
    if now.protected:
        say(f"{now.name}: lifting termination protection")
        account.ask(
            "cloudformation", "UpdateTerminationProtection", now.name, StackName=now.name,
            EnableTerminationProtection=False,
        )  # fmt: skip
    say(f"{now.name}: deleting {sum(1 for _ in resources(account, now))} resources")
    try:
        account.ask("cloudformation", "DeleteStack", now.name, StackName=now.id)
    except OpsError as error:
        said = str(error.__cause__)
        if code_of(error.__cause__) == "ValidationError" and "imported by" in said:
            raise OpsError(
                f"another stack uses what it exports ({said})", where=now.name,
                change="that stack is not of this order; its owner deletes it first, then run this again",
            ) from error  # fmt: skip
        raise


def _wait(account: Account, asked: Stack, settings: Settings, say: Say) -> Stack | None:
    """Return None when the stack is gone, else as it is now that its deletion ended."""
    begun = told = time.monotonic()
    while True:
        now = stack(account, asked.kind, asked.id)
        if now is None:
            say(f"{asked.name}: gone")
            return None
        if now.status != GOING:
            return now
        passed = time.monotonic() - begun
        if passed > settings.patience_s:
            raise OpsError(
                f"it is still being deleted after {passed / 60:.0f} minutes", where=asked.name,
                change="CloudFormation goes on by itself: run this again later",
            )  # fmt: skip
        if time.monotonic() - told > TOLD_S:
            told = time.monotonic()
            say(f"{asked.name}: {_left(account, now)}")
        time.sleep(settings.poll_s)


def _left(account: Account, now: Stack) -> str:
    left = list(resources(account, now))
    going = [one for one in left if one.status == GOING][:3]
    return f"{len(left)} resources left; going: {', '.join(map(str, going)) or 'none yet'}"


def _help(account: Account, now: Stack, say: Say) -> None:
    """Remove what is known to hold back the resources that failed, where it is this cluster's by its tags."""
    failed = stuck_resources(account, now)
    for one in failed:
        say(f"{now.name}: {one} was not deleted: {one.reason or 'CloudFormation gives no reason'}")
    if any(one.type.startswith(IN_THE_VPC) for one in failed):
        _remove_interfaces(account, say)
        _remove_groups(account, [one.physical_id for one in failed], say)


def _remove_interfaces(account: Account, say: Say) -> None:
    """Remove the CNI's interfaces that nothing uses: nodes that ended quickly leave them."""
    where = f"network interfaces of {account.cluster}"
    filters = [{"Name": f"tag:{CNI_TAG}", "Values": [account.cluster]}, {"Name": "status", "Values": ["available"]}]
    for one in list(account.pages("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", where, Filters=filters)):
        if tags_of(one.get("TagSet")).get(CNI_TAG) != account.cluster or one["Status"] != "available":
            continue  # a filter is a wish; what is deleted is looked at
        identity = one["NetworkInterfaceId"]
        _remove(account, "DeleteNetworkInterface", f"network interface {identity}, which the CNI left", say,
                NetworkInterfaceId=identity)  # fmt: skip


def _remove_groups(account: Account, of_the_stack: Sequence[str], say: Say) -> None:
    """Remove security groups that Kubernetes or EKS made for this cluster, once the cluster is gone."""
    marks = {f"{IN_TREE_TAG}{account.cluster}": "owned", EKS_TAG: account.cluster}
    if any(one.startswith(account.cluster) for one in of_the_stack):
        return  # the cluster itself is left, and needs its group
    for key, value in marks.items():
        where = f"security groups of {account.cluster}"
        filters = [{"Name": f"tag:{key}", "Values": [value]}]
        for one in list(account.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", where, Filters=filters)):
            tags = tags_of(one.get("Tags"))
            if tags.get(key) == value and tags.get(names.OWNER_TAG, account.name) == account.name:
                what = f"security group {one['GroupId']} ({one['GroupName']}), which the cluster left"
                _remove(account, "DeleteSecurityGroup", what, say, GroupId=one["GroupId"])


def _remove(account: Account, operation: str, what: str, say: Say, **which: str) -> None:
    """Remove one thing; where that fails, say so and go on: what it holds back is told in the end."""
    try:
        account.ask("ec2", operation, what, **which)
    except OpsError as error:
        say(f"could not remove {error}")
    else:
        say(f"removed {what}")


def stuck(account: Account, found: Stack) -> OpsError:
    """Return the fault of a stack that did not go, with each resource, its reason and what to do."""
    now = stack(account, found.kind, found.id) or found
    failed = stuck_resources(account, now)
    listed = "; ".join(f"{one}: {one.reason or 'no reason given'}" for one in failed) or now.reason or now.status
    return OpsError(f"it was not deleted: {listed}", where=found.name, change=advice(account, now, failed))


def advice(account: Account, found: Stack, failed: Sequence[Resource]) -> str:
    """Return what to do about resources that were not deleted, the surest first."""
    look = quote_command("aws", "eks", "list-nodegroups", "--cluster-name", account.cluster)
    said = [_ADVICE[kind].format(cluster=account.cluster, look=look) for kind in _ADVICE if _any(failed, kind)]
    if "cannot be assumed" in f"{found.reason}{''.join(one.reason for one in failed)}":
        said.insert(0, "bootstrap the CDK again: the role with which it deployed is gone")
    retain = [resource.logical_id for resource in failed]
    last = (
        "if they may stay, and you remove them by hand: "
        + _build_stack_command("delete-stack", found, "--retain-resources", *retain)
        if retain
        else _build_stack_command("describe-stack-events", found)
    )
    return ", or ".join([*said, "remove what each of them waits for and run this again", last])


def _build_stack_command(verb: str, found: Stack, *flags: str) -> str:
    return quote_command("aws", "cloudformation", verb, "--stack-name", found.name, *flags)


def _any(failed: Sequence[Resource], kind: str) -> bool:
    return any(one.type.startswith(kind) for one in failed)


_ADVICE = {
    "Custom::AWSCDK-EKS": "see that {cluster} and its nodes still run: these are deleted through its Kubernetes API",
    "AWS::EC2::": "see what is left in the VPC (load balancers, interfaces, instances of others)",
    "AWS::EKS::Nodegroup": "see why its nodes do not drain: a pod with a finalizer, a PodDisruptionBudget",
    "AWS::EKS::Cluster": "see what is left in {cluster}: {look}",
    "AWS::Lambda::Function": "wait half an hour, until Lambda has given back its network interfaces",
}
