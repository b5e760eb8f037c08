"""Group capacity: whether the accelerators are available, when, the price, and whether the budget sees the cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tandem.guard.observe import BLOCK_MARGIN
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.context import TIME_FORMAT, DoctorContext, Finding
from tandem.ops.doctor.network import list_offer_zones
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import stop_topic_arn, topic_arn
from tandem.ops.reservation import read_reservation
from tandem.spec import budgets, names

MAX_PRICE_AGE_DAYS = {"spot": 7, "on-demand": 30, "reservation": 30, "capacity-block": 30}
"""Days after which a price is reported as old; ours to choose: spot moves within hours, lists within months."""
# as the EC2 user guide spells them ("Spot Instance quotas", "On-Demand Instance quotas"); codes differ between sources
ON_DEMAND_QUOTA, SPOT_QUOTA = "Running On-Demand Trn instances", "All Trn Spot Instance Requests"
PENDING_STATES = {"scheduled", "pending", "assessing", "delayed", "payment-pending"}
# the answer to a member of an organization, whatever its rights (hashicorp/terraform-provider-aws#37636)
MEMBER_ACCOUNT_TEXT = "Linked account doesn't have access to cost allocation tags"


def check_offering(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the zone offers the accelerators' type to this account."""
    capacity, region = context.environment.capacity, context.environment.region
    zone_ids = list_offer_zones(account, capacity.instance_type)
    if capacity.zone in zone_ids:
        return Finding("ok", f"{capacity.instance_type} is offered in {capacity.zone}")
    places = f"only in {', '.join(sorted(zone_ids))}" if zone_ids else f"nowhere in {region}"
    message = f"{capacity.instance_type} is not offered to this account in {capacity.zone}, {places}"
    if capacity.needs_reservation and not capacity.awaits_reservation:
        return Finding("warn", message, "see reservation: a type may be hidden from an account")
    return Finding("fail", message, "write another capacity.zone or region, or ask AWS for the type")


def find_quota(account: AccountClients, service: str, name: str) -> dict[str, Any] | None:
    """Return a quota as Service Quotas has it for the account, or else AWS's default; None where it lists neither.

    Args:
        account: of the environment.
        service: its code in Service Quotas.
        name: of the quota; upper and lower case do not count.

    Raises:
        ExternalError: Service Quotas does not answer.
    """
    for call in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
        for row in account.list_rows("service-quotas", call, "Quotas", service, ServiceCode=service):
            if row["QuotaName"].casefold() == name.casefold():
                return dict(row)
    return None


def check_quota(context: DoctorContext, account: AccountClients) -> Finding:
    """Compare the vCPUs of all declared nodes with the account's quota, which is found by its name."""
    capacity, region = context.environment.capacity, context.environment.region
    if capacity.kind == "capacity-block":
        return Finding("ok", "skipped: a Capacity Block is not launched from a vCPU quota (unproven)")
    name = SPOT_QUOTA if capacity.kind == "spot" else ON_DEMAND_QUOTA
    quota = find_quota(account, "ec2", name)
    if quota is None:
        return Finding("unknown", f"Service Quotas lists no {name!r}", "see in the console what it is called now")
    required = context.catalogue.instances.instances[capacity.instance_type].vcpu.value * capacity.nodes
    message = f"{name}: {quota['Value']:g} vCPU, {capacity.nodes} x {capacity.instance_type} need {required}"
    if quota["Value"] >= required:
        return Finding("ok", message)
    flags = {"quota_code": str(quota["QuotaCode"]), "desired_value": str(required), "region": region}
    command = build_aws_command("service-quotas request-service-quota-increase --service-code ec2", **flags)
    return Finding("fail", message, "ask for more, which may take days, or declare fewer capacity.nodes", command)


def check_reservation(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare the Capacity Block or reservation with the file, and with the present time."""
    capacity = context.environment.capacity
    if not capacity.needs_reservation:
        yield Finding("ok", f"{capacity.kind} needs none")
        return
    if capacity.awaits_reservation:
        if capacity.block is not None and capacity.block.ends <= context.now:
            message = f"capacity.block ended at {capacity.block.ends:{TIME_FORMAT}}"
            yield Finding("fail", message, "write the block you have now, or null", "capacity.block: null")
        action = "buy or make one, write its id, deploy Fleet"
        yield Finding("warn", "none is declared: nothing can be raised", action, _build_offer_command(context))
        return
    row = read_reservation(account.client("ec2"), context.environment)
    if row is None:
        message = f"{capacity.reservation_id} is not in this account and region"
        yield Finding("fail", message, "correct capacity.reservation_id")
        return
    findings = [*_compare_purchase(context, row), *_judge_state(context, row), *_judge_window(context, row)]
    yield from findings
    if not any(finding.level == "fail" for finding in findings):
        end = f" until {row['EndDate']:{TIME_FORMAT}}" if row.get("EndDate") else ""
        instances = f"{row['TotalInstanceCount']} x {row['InstanceType']}"
        yield Finding("ok", f"{capacity.reservation_id} is {row['State']}: {instances}{end}")


def _build_offer_command(context: DoctorContext) -> str:
    """Return the command that lists the offers; empty for a reservation, which is made, not bought."""
    capacity = context.environment.capacity
    if capacity.kind != "capacity-block":
        return ""
    words = f"ec2 describe-capacity-block-offerings --region {context.environment.region} --capacity-duration-hours 24"
    return build_aws_command(words, instance_type=capacity.instance_type, instance_count=str(capacity.nodes))


def _compare_purchase(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare the reserved capacity with the declared one."""
    capacity, total = context.environment.capacity, int(row["TotalInstanceCount"])
    kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
    for path, declared_value, actual_value in (
        ("capacity.kind", capacity.kind, kind),
        ("capacity.instance_type", capacity.instance_type, row["InstanceType"]),
        ("capacity.zone", capacity.zone, row.get("AvailabilityZoneId", capacity.zone)),
    ):
        if declared_value != actual_value:
            message = f"{path} is {declared_value}, that of the reservation {actual_value}"
            yield Finding("fail", message, "write what was reserved", f"{path}: {actual_value}")
    message, lines = f"{total} instances are reserved and {capacity.nodes} declared", f"capacity.nodes: {total}"
    if total < capacity.nodes:
        yield Finding("fail", message, "declare no more than are reserved", lines)
    elif total > capacity.nodes:
        yield Finding("warn", f"{message}: the others are paid for idle", "declare them all, or share them", lines)


def _judge_state(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    nodes, state = context.environment.capacity.nodes, row["State"]
    available = int(row.get("AvailableInstanceCount", nodes))
    if state in PENDING_STATES:
        start = f", it starts at {row['StartDate']:{TIME_FORMAT}}" if row.get("StartDate") else ""
        yield Finding("warn", f"it is {state}{start}", "nothing can be raised before")
    elif state != "active":
        message = f"it is {state}: nothing can be launched from it"
        yield Finding("fail", message, "buy another, write its id, deploy Fleet", _build_offer_command(context))
    elif available < nodes:
        message = f"{available} of its {row['TotalInstanceCount']} instances are free now"
        yield Finding("warn", message, "see who uses the others")


def _judge_window(context: DoctorContext, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare a Capacity Block's window with the declared one and with now; EC2 ends instances at the block's end."""
    capacity, starts, ends = context.environment.capacity, row.get("StartDate"), row.get("EndDate")
    if ends is not None and row["State"] in {"active", *PENDING_STATES}:
        remaining, minutes = ends - context.now, int(BLOCK_MARGIN / timedelta(minutes=1))
        if remaining <= BLOCK_MARGIN:
            message = f"it ends at {ends:{TIME_FORMAT}}: no raise is admitted in its last {minutes} minutes"
            yield Finding("fail", message, "buy another, write it, deploy Fleet", _build_offer_command(context))
        elif remaining < timedelta(hours=context.environment.guard.max_hours):
            message = f"it ends in {remaining / timedelta(hours=1):.1f} hours, before guard.max_hours is over"
            yield Finding("warn", message, "ask for fewer hours when starting")
    if capacity.kind != "capacity-block" or starts is None or ends is None:
        return
    lines = f"capacity.block: {{starts: {starts:{TIME_FORMAT}}, ends: {ends:{TIME_FORMAT}}}}"
    if capacity.block is None:
        yield Finding("warn", "capacity.block is null: no stop comes before its end", "write it, deploy Fleet", lines)
    elif (capacity.block.starts, capacity.block.ends) != (starts, ends):
        declared_text = f"{capacity.block.starts:{TIME_FORMAT}} to {capacity.block.ends:{TIME_FORMAT}}"
        message = f"capacity.block says {declared_text}, EC2 {starts:{TIME_FORMAT}} to {ends:{TIME_FORMAT}}"
        yield Finding("fail", message, "write what EC2 says", lines)


def check_price(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the price of a node-hour is of this purchase, or not old."""
    capacity = context.environment.capacity
    is_block = capacity.kind == "capacity-block"  # any other kind is paid by the hour
    row = read_reservation(account.client("ec2"), context.environment) if is_block else None
    purchase_time = row.get("CreateDate") if row else None
    message = f"{capacity.usd_per_hour:g} USD per node-hour, read on {capacity.usd_per_hour_date}"
    days = (context.now.date() - capacity.usd_per_hour_date).days
    fields = "capacity.usd_per_hour and usd_per_hour_date"
    if days < 0:
        return Finding("fail", f"{message}, which is to come", "write the day on which it was read", fields)
    if purchase_time is not None and capacity.usd_per_hour_date < purchase_time.date():
        message = f"{message}, before this was bought on {purchase_time.date()}"
        return Finding("warn", message, "write what was paid by hours and instances, and its day", fields)
    if purchase_time is None and days > MAX_PRICE_AGE_DAYS[capacity.kind]:
        return Finding("warn", f"{message}, {days} days ago", "read it again: each cost follows from it", fields)
    return Finding("ok", message)


def check_cost_tag(_: DoctorContext, account: AccountClients) -> Finding:
    """Check that the tag by which the budget counts is activated: AWS Billing ignores any other."""
    tag = names.OWNER_TAG
    effect, flag = "the budget counts nothing and stops nothing", f"TagKey={tag},Status=Active"
    command = build_aws_command("ce update-cost-allocation-tags-status", cost_allocation_tags_status=flag)
    try:
        rows = account.ask("ce", "ListCostAllocationTags", tag, TagKeys=[tag])["CostAllocationTags"]
    except AccessDeniedError as error:
        if MEMBER_ACCOUNT_TEXT not in error.problem:
            raise
        message = f"only the organization's management account sees whether {tag} is activated: else {effect}"
        return Finding("unknown", message, "let whoever has that account see to it", command)
    status = next((row["Status"] for row in rows if row["TagKey"] == tag), None)
    if status == "Active":
        return Finding("ok", f"the cost allocation tag {tag} is activated")
    problem, action = f"AWS Billing does not know the tag {tag} yet", "deploy, and within a day activate it"
    if status:
        problem, action = f"the cost allocation tag {tag} is not activated", "activate it; it takes up to a day"
    return Finding("warn", f"{problem}: {effect}", action, command)


def check_budget(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that a budget that must be made by hand exists, and that it counts the fleet's instances."""
    environment, name = context.environment, names.budget_name(context.environment)
    is_manual = budgets.needs_manual_budget(environment)
    command = _build_create_budget_command(context) if is_manual else ""
    answer = account.find("budgets", "DescribeBudget", name, AccountId=environment.account, BudgetName=name)
    if answer is None and is_manual:
        message = f"CloudFormation makes no budget in {environment.region}, and nobody made {name} by hand"
        return Finding("warn", message, "make it once, after Guard is deployed", command)
    if answer is None:
        return Finding("ok", f"there is no {name} yet; the stack Guard makes it")
    filters = (answer["Budget"].get("CostFilters", {}), budgets.budget_cost_filters(environment, context.catalogue))
    actual, expected = ({key: sorted(values) for key, values in row.items()} for row in filters)
    if actual == expected:
        return Finding("ok", f"{name} counts the fleet's instances and nothing else")
    message = f"{name} counts {json.dumps(actual)}, not the fleet's instances alone ({json.dumps(expected)})"
    action = "delete it and make it again" if is_manual else "deploy the stack Guard"
    return Finding("warn", message, action, command)


def _build_create_budget_command(context: DoctorContext) -> str:
    """Return the command that makes the budget where Guard cannot make it."""
    environment = context.environment
    topics = {"stop_topic_arn": stop_topic_arn(environment), "people_topic_arn": topic_arn(environment)}
    budget, notifications = budgets.build_budget_request(environment, context.catalogue, **topics).values()
    budget["BudgetLimit"]["Amount"] = f"{budgets.compute_budget_usd(environment):.2f}"  # text for the AWS CLI
    flags = {"budget": json.dumps(budget), "notifications_with_subscribers": json.dumps(notifications)}
    return build_aws_command("budgets create-budget", account_id=environment.account, **flags)
