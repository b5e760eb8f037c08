"""Group capacity: availability of accelerators, their price, and whether the budget sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tandem.declarations import budgets, names
from tandem.declarations.arns import build_stop_topic_arn, build_topic_arn
from tandem.guard.capacity_block import (
    NO_WINDOW,
    RESERVATION_TAG,
    BlockWindow,
    parse_planned_window,
)
from tandem.guard.fleet_state import CLOCK_TOLERANCE
from tandem.guard.observe import BLOCK_MARGIN
from tandem.guard.values import PARSE_ERRORS
from tandem.ops.account import AccountClients, build_aws_command, read_node_group
from tandem.ops.doctor.context import TIME_FORMAT, DoctorContext, Finding
from tandem.ops.doctor.network import list_offer_zones
from tandem.ops.faults import AccessDeniedError
from tandem.ops.reservation import (
    EXTENSION_PAGE,
    find_reservation_id,
    list_plan_differences,
    read_reservation,
)

MAX_PRICE_AGE_DAYS = {"spot": 7, "on-demand": 30, "reservation": 30, "capacity-block": 30}
"""Days after which a price is reported as old; ours to choose: spot moves within hours, lists
within months."""
# as the EC2 user guide spells them ("Spot Instance quotas", "On-Demand Instance quotas"); codes
# differ between sources
ON_DEMAND_QUOTA = "Running On-Demand Trn instances"
SPOT_QUOTA = "All Trn Spot Instance Requests"
# EKS's own action, and when it comes (EKS user guide, "Create a managed node group with Capacity
# Blocks for ML")
EKS_ACTION_NAME = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
EKS_MARGIN = timedelta(minutes=40)
PENDING_STATES = {"scheduled", "pending", "assessing", "delayed", "payment-pending"}
# the answer to a member of an organization, whatever its rights
# (hashicorp/terraform-provider-aws#37636)
MEMBER_ACCOUNT_TEXT = "Linked account doesn't have access to cost allocation tags"


def check_offering(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the zone offers the accelerators' type to this account."""
    capacity = context.environment.capacity
    region = context.environment.region
    zone_ids = list_offer_zones(account, capacity.instance_type)
    if capacity.zone in zone_ids:
        return Finding("ok", f"{capacity.instance_type} is offered in {capacity.zone}")
    places = f"only in {', '.join(sorted(zone_ids))}" if zone_ids else f"nowhere in {region}"
    message = (
        f"{capacity.instance_type} is not offered to this account in {capacity.zone}, {places}"
    )
    if capacity.needs_reservation and not capacity.awaits_reservation:
        return Finding("warn", message, "see reservation: a type may be hidden from an account")
    return Finding(
        "fail", message, "write another capacity.zone or region, or ask AWS for the type"
    )


def find_quota(account: AccountClients, service: str, name: str) -> dict[str, Any] | None:
    """Return the account's quota by Service Quotas, or else AWS's default; None if neither.

    Args:
        account: of the environment.
        service: its code in Service Quotas.
        name: of the quota; upper and lower case do not count.

    Raises:
        ExternalError: Service Quotas does not answer.
    """
    for call in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
        for row in account.list_rows(
            "service-quotas", call, "Quotas", service, ServiceCode=service
        ):
            if row["QuotaName"].casefold() == name.casefold():
                return dict(row)
    return None


def check_quota(context: DoctorContext, account: AccountClients) -> Finding:
    """Compare the vCPUs of all declared nodes with the account's quota, found by its name."""
    capacity = context.environment.capacity
    region = context.environment.region
    if capacity.kind == "capacity-block":
        return Finding(
            "ok", "skipped: a Capacity Block is not launched from a vCPU quota (unproven)"
        )
    name = SPOT_QUOTA if capacity.kind == "spot" else ON_DEMAND_QUOTA
    quota = find_quota(account, "ec2", name)
    if quota is None:
        return Finding(
            "unknown",
            f"Service Quotas lists no {name!r}",
            "look up its current name in the console",
        )
    required = (
        context.catalogue.instances.instances[capacity.instance_type].vcpu.value * capacity.nodes
    )
    message = (
        f"{name}: {quota['Value']:g} vCPU, {capacity.nodes} x {capacity.instance_type} need"
        f" {required}"
    )
    if quota["Value"] >= required:
        return Finding("ok", message)
    command = build_aws_command(
        "service-quotas request-service-quota-increase --service-code ec2",
        quota_code=quota["QuotaCode"],
        desired_value=str(required),
        region=region,
    )
    return Finding(
        "fail",
        message,
        "ask for more, which may take days, or declare fewer capacity.nodes",
        command,
    )


def check_reservation(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare the Capacity Block or reservation with the file, and with the present time."""
    capacity = context.environment.capacity
    if not capacity.needs_reservation:
        yield Finding("ok", f"{capacity.kind} needs none")
        return
    node_group = read_node_group(account.client("eks"), context.environment) or {}
    reservation_id = find_reservation_id(context.environment, node_group)
    if not reservation_id:
        if capacity.block is not None and capacity.block.ends <= context.now:
            message = f"capacity.block ended at {capacity.block.ends:{TIME_FORMAT}}"
            yield Finding(
                "fail", message, "write the block you have now, or null", "capacity.block: null"
            )
        action = "buy or make one, write its id and deploy Fleet"
        yield Finding(
            "warn", "none is declared: nothing can be raised", action, _build_offer_command(context)
        )
        return
    row = read_reservation(account.client("ec2"), reservation_id)
    if row is None:
        message = f"{reservation_id} is not in this account and region"
        yield Finding("fail", message, "correct capacity.reservation_id")
        return
    findings = [
        *_compare_purchase(context, row),
        *_judge_state(context, row),
        *_judge_window(context, row),
        *_compare_plans(context, node_group, row),
    ]
    yield from findings
    if not any(finding.level == "fail" for finding in findings):
        end = ""
        if row.get("EndDate"):
            end = f" until {row['EndDate']:{TIME_FORMAT}}"
        instances = f"{row['TotalInstanceCount']} x {row['InstanceType']}"
        yield Finding("ok", f"{reservation_id} is {row['State']}: {instances}{end}")


def _build_offer_command(context: DoctorContext) -> str:
    """Return the command that lists the offers; empty for a reservation, which is made."""
    capacity = context.environment.capacity
    if capacity.kind != "capacity-block":
        return ""
    words = (
        f"ec2 describe-capacity-block-offerings --region {context.environment.region}"
        " --capacity-duration-hours 24"
    )
    return build_aws_command(
        words, instance_type=capacity.instance_type, instance_count=str(capacity.nodes)
    )


def _compare_purchase(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare the reserved capacity with the declared one."""
    capacity = context.environment.capacity
    total = int(row["TotalInstanceCount"])
    kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
    for path, declared_value, actual_value in (
        ("capacity.kind", capacity.kind, kind),
        ("capacity.instance_type", capacity.instance_type, row["InstanceType"]),
        ("capacity.zone", capacity.zone, row.get("AvailabilityZoneId", capacity.zone)),
    ):
        if declared_value != actual_value:
            message = f"{path} is {declared_value}, that of the reservation {actual_value}"
            yield Finding("fail", message, "write what was reserved", f"{path}: {actual_value}")
    message = f"{total} instances are reserved and {capacity.nodes} declared"
    lines = f"capacity.nodes: {total}"
    if total < capacity.nodes:
        yield Finding("fail", message, "declare no more than are reserved", lines)
    elif total > capacity.nodes:
        yield Finding(
            "warn",
            f"{message}: the others are paid for idle",
            "declare them all, or share them",
            lines,
        )


def _judge_state(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    nodes = context.environment.capacity.nodes
    state = row["State"]
    available = int(row.get("AvailableInstanceCount", nodes))
    if state in PENDING_STATES:
        start = ""
        if row.get("StartDate"):
            start = f", it starts at {row['StartDate']:{TIME_FORMAT}}"
        yield Finding("warn", f"it is {state}{start}", "no fleet can be raised before then")
    elif state != "active":
        message = f"it is {state}: nothing can be launched from it"
        yield Finding(
            "fail",
            message,
            "buy another, write its id and deploy Fleet",
            _build_offer_command(context),
        )
    elif available < nodes:
        message = f"{available} of its {row['TotalInstanceCount']} instances are free now"
        yield Finding("warn", message, "see who uses the others")


def _judge_window(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare the end with now; EC2 ends instances before it."""
    ends = row.get("EndDate")
    if ends is not None and row["State"] in {"active", *PENDING_STATES}:
        remaining = ends - context.now
        minutes = int(BLOCK_MARGIN / timedelta(minutes=1))
        if remaining <= BLOCK_MARGIN:
            message = (
                f"it ends at {ends:{TIME_FORMAT}}:"
                f" no raise is admitted in its last {minutes} minutes"
            )
            action = (
                f"extend it an hour before its end at the latest, or buy another: {EXTENSION_PAGE}"
            )
            yield Finding("fail", message, action, _build_offer_command(context))
        elif remaining < timedelta(hours=context.environment.guard.max_hours):
            message = (
                f"it ends in {remaining / timedelta(hours=1):.1f} hours,"
                " before guard.max_hours is over"
            )
            yield Finding("warn", message, "ask for fewer hours when starting")


def _compare_plans(
    context: DoctorContext, node_group: Mapping[str, Any], row: dict[str, Any]
) -> Iterator[Finding]:
    """Compare EC2's word with deployed tags and declared file; report only, stop nothing."""
    tags = node_group.get("tags", {})
    try:
        planned = parse_planned_window(tags, NO_WINDOW)
    except PARSE_ERRORS:
        planned = NO_WINDOW
        yield Finding(
            "warn", "the node group's tags of its Capacity Block cannot be read", "deploy Fleet"
        )
    differences = list_plan_differences(
        context.environment.capacity,
        deployed_id=tags.get(RESERVATION_TAG, ""),
        planned=planned,
        actual=BlockWindow(starts=row.get("StartDate"), ends=row.get("EndDate")),
    )
    for difference in differences:
        yield Finding("warn", difference.problem, difference.change, difference.lines)


def check_block_end(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Report what moves a Capacity Block's end, and if EKS empties the group for EC2's."""
    kind = context.environment.capacity.kind
    node_group = read_node_group(account.client("eks"), context.environment) or {}
    if kind != "capacity-block":
        yield Finding("ok", f"{kind} has no end")
        return
    row = (
        read_reservation(
            account.client("ec2"), find_reservation_id(context.environment, node_group)
        )
        or {}
    )
    ends = row.get("EndDate")
    if ends is None:
        yield Finding("ok", "EC2 gives no end of the block")
        return
    yield from _judge_extensions(account, row)
    group_names = [
        group["name"] for group in (node_group.get("resources") or {}).get("autoScalingGroups", [])
    ]
    for group_name in group_names:
        yield _judge_scale_down(account, group_name, ends)
    if not group_names:
        yield Finding("ok", f"the block ends at {ends:{TIME_FORMAT}}; there is no node group yet")


def _judge_extensions(account: AccountClients, row: dict[str, Any]) -> Iterator[Finding]:
    """Report the latest extension unless it is paid: only then does EC2 move the end."""
    reservation_id = row["CapacityReservationId"]
    ends = row["EndDate"]
    rows = account.list_rows(
        "ec2",
        "DescribeCapacityBlockExtensionHistory",
        "CapacityBlockExtensions",
        reservation_id,
        CapacityReservationIds=[reservation_id],
    )
    latest = max(
        rows, key=lambda extension: extension["CapacityBlockExtensionPurchaseDate"], default=None
    )
    if latest is None or latest["CapacityBlockExtensionStatus"] == "payment-succeeded":
        return
    target = (
        f"the extension of {reservation_id} until"
        f" {latest['CapacityBlockExtensionEndDate']:{TIME_FORMAT}}"
    )
    if latest["CapacityBlockExtensionStatus"] == "payment-pending":
        message = (
            f"{target} is not paid yet:"
            f" the block ends at {ends:{TIME_FORMAT}} until EC2 has the money"
        )
        action = (
            f"plan no run beyond {ends - BLOCK_MARGIN:{TIME_FORMAT}}, at which the reaper stops it:"
            f" {EXTENSION_PAGE}"
        )
    else:
        message = (
            f"the payment of {target.removeprefix('the ')} failed: the block ends at"
            f" {ends:{TIME_FORMAT}}"
        )
        action = f"extend it again, an hour before its end at the latest: {EXTENSION_PAGE}"
    yield Finding("warn", message, action)


def _judge_scale_down(account: AccountClients, group_name: str, ends: datetime) -> Finding:
    """Compare EKS's own scheduled action with the block's end; that EKS moves it is unproven."""
    where = f"Auto Scaling group {group_name}"
    answer = account.ask(
        "autoscaling",
        "DescribeScheduledActions",
        where,
        AutoScalingGroupName=group_name,
        ScheduledActionNames=[EKS_ACTION_NAME],
    )
    moments = [
        action["StartTime"]
        for action in answer["ScheduledUpdateGroupActions"]
        if action.get("StartTime")
    ]
    if not moments:
        stop_at = f"{ends - BLOCK_MARGIN:{TIME_FORMAT}}"
        return Finding(
            "ok", f"EKS has no action for the block's end; the reaper stops the fleet at {stop_at}"
        )
    scale_down_at = min(moments)
    message = (
        f"EKS sets the fleet to 0 at {scale_down_at:{TIME_FORMAT}}, and the block ends at"
        f" {ends:{TIME_FORMAT}}"
    )
    difference = scale_down_at - (ends - EKS_MARGIN)
    if abs(difference) <= CLOCK_TOLERANCE:
        return Finding("ok", message)
    if difference < timedelta():
        message = f"{message}: a run beyond the first moment loses its nodes"
        return Finding("warn", message, f"end runs before it: {EXTENSION_PAGE}")
    return Finding(
        "warn", f"{message}: EKS comes too late", f"the reaper comes before both: {EXTENSION_PAGE}"
    )


def check_price(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the price of a node-hour is of this purchase, or not old."""
    capacity = context.environment.capacity
    message = f"{capacity.usd_per_hour:g} USD per node-hour, read on {capacity.usd_per_hour_date}"
    days = (context.now.date() - capacity.usd_per_hour_date).days
    fields = "capacity.usd_per_hour and usd_per_hour_date"
    if days < 0:
        action = "write the day on which it was read"
        return Finding("fail", f"{message}, which is to come", action, fields)
    purchase_time = _read_purchase_time(context, account)
    if purchase_time is not None and capacity.usd_per_hour_date < purchase_time.date():
        message = f"{message}, before this was bought on {purchase_time.date()}"
        action = "write what was paid by hours and instances, and its day"
        return Finding("warn", message, action, fields)
    if purchase_time is None and days > MAX_PRICE_AGE_DAYS[capacity.kind]:
        action = "read it again: every cost is computed from it"
        return Finding("warn", f"{message}, {days} days ago", action, fields)
    return Finding("ok", message)


def _read_purchase_time(context: DoctorContext, account: AccountClients) -> datetime | None:
    """Return when a Capacity Block was bought; None for another kind, which is paid by the hour."""
    if context.environment.capacity.kind != "capacity-block":
        return None
    node_group = read_node_group(account.client("eks"), context.environment)
    reservation_id = find_reservation_id(context.environment, node_group)
    row = read_reservation(account.client("ec2"), reservation_id)
    return row.get("CreateDate") if row else None


def check_cost_tag(_: DoctorContext, account: AccountClients) -> Finding:
    """Check that the tag by which the budget counts is activated: AWS Billing ignores any other."""
    tag = names.OWNER_TAG
    effect = "the budget counts nothing and stops nothing"
    flag = f"TagKey={tag},Status=Active"
    command = build_aws_command(
        "ce update-cost-allocation-tags-status", cost_allocation_tags_status=flag
    )
    try:
        rows = account.ask("ce", "ListCostAllocationTags", tag, TagKeys=[tag])["CostAllocationTags"]
    except AccessDeniedError as error:
        if MEMBER_ACCOUNT_TEXT not in error.problem:
            raise
        message = (
            f"only the organization's management account sees whether {tag} is activated: else"
            f" {effect}"
        )
        return Finding("unknown", message, "ask whoever runs that account", command)
    status = next((row["Status"] for row in rows if row["TagKey"] == tag), None)
    if status == "Active":
        return Finding("ok", f"the cost allocation tag {tag} is activated")
    problem = f"AWS Billing does not know the tag {tag} yet"
    action = "deploy, and within a day activate it"
    if status:
        problem = f"the cost allocation tag {tag} is not activated"
        action = "activate it; it takes up to a day"
    return Finding("warn", f"{problem}: {effect}", action, command)


def check_budget(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that a hand-made budget exists and counts the fleet's instances."""
    environment = context.environment
    name = names.budget_name(environment)
    is_manual = budgets.needs_manual_budget(environment)
    command = _build_create_budget_command(context) if is_manual else ""
    answer = account.find(
        "budgets", "DescribeBudget", name, AccountId=environment.account, BudgetName=name
    )
    if answer is None and is_manual:
        message = f"CloudFormation creates no budget in {environment.region}: {name} is missing"
        return Finding("warn", message, "create it once, after Guard is deployed", command)
    if answer is None:
        return Finding("ok", f"there is no {name} yet; the stack Guard creates it")
    actual = _sort_filters(answer["Budget"].get("CostFilters", {}))
    expected = _sort_filters(budgets.budget_cost_filters(environment, context.catalogue))
    if actual == expected:
        return Finding("ok", f"{name} counts the fleet's instances and nothing else")
    message = f"{name} counts {actual}, not the fleet's instances alone ({expected})"
    action = "delete it and create it again" if is_manual else "deploy the stack Guard"
    return Finding("warn", message, action, command)


def _sort_filters(filters: Mapping[str, Sequence[str]]) -> str:
    return json.dumps({key: sorted(values) for key, values in filters.items()}, sort_keys=True)


def _build_create_budget_command(context: DoctorContext) -> str:
    """Return the command that makes the budget where Guard cannot make it."""
    environment = context.environment
    budget, notifications = budgets.build_budget_request(
        environment,
        context.catalogue,
        stop_topic_arn=build_stop_topic_arn(environment),
        people_topic_arn=build_topic_arn(environment),
    ).values()
    # text for the AWS CLI
    budget["BudgetLimit"]["Amount"] = f"{budgets.compute_budget_usd(environment):.2f}"
    return build_aws_command(
        "budgets create-budget",
        account_id=environment.account,
        budget=json.dumps(budget),
        notifications_with_subscribers=json.dumps(notifications),
    )
