"""Group capacity: whether the accelerators that are declared can be had, when, and at a price that is no rumour."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tandem.guard.observe import BLOCK_MARGIN
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.check_result import (
    CheckFinding,
    fail_finding,
    ok_finding,
    unknown_finding,
    warn_finding,
)
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.doctor.offering import list_offer_zones
from tandem.shell_command import quote_command

MAX_PRICE_AGE_DAYS = {"spot": 7, "on-demand": 30, "reservation": 30, "capacity-block": 30}
"""Days after which a price is told to be old; ours to choose: spot moves within hours, lists within months."""
# as the EC2 user guide spells them ("Spot Instance quotas", "On-Demand Instance quotas"); codes differ between sources
QUOTA_NAMES = {
    "spot": "All Trn Spot Instance Requests",
    "on-demand": "Running On-Demand Trn instances",
    "reservation": "Running On-Demand Trn instances",
}
PENDING_STATES = {"scheduled", "pending", "assessing", "delayed", "payment-pending"}
NOT_FOUND_CODES = {"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"}
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def check_offering(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the zone offers the accelerators' type to this account."""
    environment = context.environment
    instance_type, zone = environment.capacity.instance_type, environment.capacity.zone
    zone_ids = list_offer_zones(account, instance_type)
    if zone in zone_ids:
        yield ok_finding(f"{instance_type} is offered in {zone}")
        return
    place_text = f"only in {', '.join(sorted(zone_ids))}" if zone_ids else f"nowhere in {environment.region}"
    command = quote_command(
        "aws", "ec2", "describe-instance-type-offerings", "--region", environment.region,
        "--location-type", "availability-zone-id", "--filters", f"Name=instance-type,Values={instance_type}",
    )  # fmt: skip
    message = f"{instance_type} is not offered to this account in {zone}, {place_text}"
    if environment.capacity.needs_reservation and not environment.capacity.awaits_reservation:
        yield warn_finding(
            message, "a type may be hidden from an account: what was reserved decides, see the next line", command
        )
    else:
        yield fail_finding(message, "write another capacity.zone or region, or ask AWS for access to the type", command)


def check_quota(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Hold the vCPUs of all declared nodes against the account's quota, which is looked up by its name."""
    environment = context.environment
    capacity = environment.capacity
    if capacity.kind == "capacity-block":
        yield ok_finding("not asked: a Capacity Block is not launched from a vCPU quota (unproven)")
        return
    name = QUOTA_NAMES[capacity.kind]
    row = _find_quota(account, "ListServiceQuotas", name) or _find_quota(account, "ListAWSDefaultServiceQuotas", name)
    command = quote_command(
        "aws", "service-quotas", "list-service-quotas", "--service-code", "ec2", "--region", environment.region,
        "--query", 'Quotas[?contains(QuotaName,`"Trn"`)].[QuotaName,QuotaCode,Value]',
    )  # fmt: skip
    if row is None:
        yield unknown_finding(f"Service Quotas lists no {name!r}", "see in the console what it is called now", command)
        return
    node_vcpus = context.catalogue.instances.instances[capacity.instance_type].vcpu.value
    required_vcpus, quota_vcpus = node_vcpus * capacity.nodes, float(row["Value"])
    message = f"{name}: {quota_vcpus:g} vCPU, {capacity.nodes} x {capacity.instance_type} need {required_vcpus}"
    if quota_vcpus < required_vcpus:
        yield fail_finding(
            message,
            "ask for more, which may take days, or declare fewer capacity.nodes",
            quote_command(
                "aws",
                "service-quotas",
                "request-service-quota-increase",
                "--service-code",
                "ec2",
                "--quota-code",
                str(row["QuotaCode"]),
                "--desired-value",
                str(required_vcpus),
                "--region",
                environment.region,
            ),
        )
    else:
        yield ok_finding(message)


def _find_quota(account: AllowlistedAccount, operation: str, name: str) -> dict[str, Any] | None:
    rows = account.list_rows("service-quotas", operation, "Quotas", "ec2", ServiceCode="ec2")
    return next((row for row in rows if row["QuotaName"].casefold() == name.casefold()), None)


def check_reservation(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Hold the Capacity Block or reservation against the file, and against now."""
    capacity = context.environment.capacity
    if not capacity.needs_reservation:
        yield ok_finding(f"{capacity.kind} needs none")
        return
    if capacity.awaits_reservation:
        if capacity.block is not None and capacity.block.ends <= context.now:
            yield fail_finding(f"capacity.block ended at {capacity.block.ends:{TIME_FORMAT}}",
                       "write the block you have now, or null", "capacity.block: null")  # fmt: skip
        yield warn_finding(
            "none is declared: there is no Fleet stack, and nothing can be raised",
            "buy or make one, write its id, deploy Fleet", _build_lookup_command(context, offers=True),
        )  # fmt: skip
        return
    row = _read_reservation(context, account)
    if row is None:
        yield fail_finding(
            f"{capacity.reservation_id} is not in this account and region",
            "correct capacity.reservation_id",
            _build_lookup_command(context),
        )
        return
    findings = [*_compare_purchase(context, row), *_judge_state(context, row), *_judge_window(context, row)]
    yield from findings
    if not any(finding.level == "fail" for finding in findings):
        end = row.get("EndDate")
        message = f"{capacity.reservation_id} is {row['State']}: {row['TotalInstanceCount']} x {row['InstanceType']}"
        yield ok_finding(f"{message}{f' until {end:{TIME_FORMAT}}' if end else ''}")


def _read_reservation(context: DoctorContext, account: AllowlistedAccount) -> dict[str, Any] | None:
    reservation_id = context.environment.capacity.reservation_id
    response = account.ask(
        "ec2",
        "DescribeCapacityReservations",
        str(reservation_id),
        absent=NOT_FOUND_CODES,
        CapacityReservationIds=[reservation_id],
    )
    rows = response["CapacityReservations"] if response else []
    return rows[0] if rows else None


def _build_lookup_command(context: DoctorContext, *, offers: bool = False) -> str:
    capacity, region = context.environment.capacity, context.environment.region
    if offers and capacity.kind == "capacity-block":
        return quote_command(
            "aws", "ec2", "describe-capacity-block-offerings", "--region", region,
            "--instance-type", capacity.instance_type, "--instance-count", str(capacity.nodes),
            "--capacity-duration-hours", "24",
        )  # fmt: skip
    return quote_command("aws", "ec2", "describe-capacity-reservations", "--region", region)


def _compare_purchase(context: DoctorContext, row: dict[str, Any]) -> Iterator[CheckFinding]:
    """Compare what was reserved with what is declared."""
    capacity = context.environment.capacity
    kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
    for path, declared_value, actual_value in (
        ("capacity.kind", capacity.kind, kind),
        ("capacity.instance_type", capacity.instance_type, row["InstanceType"]),
        ("capacity.zone", capacity.zone, row.get("AvailabilityZoneId", capacity.zone)),
    ):
        if declared_value != actual_value:
            yield fail_finding(
                f"{path} is {declared_value}, that of the reservation {actual_value}",
                "write what was reserved",
                f"{path}: {actual_value}",
            )
    total = int(row["TotalInstanceCount"])
    if total < capacity.nodes:
        yield fail_finding(
            f"{total} instances are reserved, {capacity.nodes} declared",
            "declare no more than are reserved",
            f"capacity.nodes: {total}",
        )
    elif total > capacity.nodes:
        yield warn_finding(
            f"{total} instances are reserved and {capacity.nodes} declared: the others are paid for idle",
            "declare them all, or share them",
            f"capacity.nodes: {total}",
        )


def _judge_state(context: DoctorContext, row: dict[str, Any]) -> Iterator[CheckFinding]:
    capacity, state = context.environment.capacity, row["State"]
    if state in PENDING_STATES:
        starts = row.get("StartDate")
        when = f", it starts at {starts:{TIME_FORMAT}}" if starts else ""
        yield warn_finding(f"it is {state}{when}", "nothing can be raised before", _build_lookup_command(context))
    elif state != "active":
        yield fail_finding(f"it is {state}: nothing can be launched from it", "buy another, write its id, deploy Fleet",
                   _build_lookup_command(context, offers=True))  # fmt: skip
    elif int(row.get("AvailableInstanceCount", capacity.nodes)) < capacity.nodes:
        yield warn_finding(
            f"{row['AvailableInstanceCount']} of its {row['TotalInstanceCount']} instances are free now",
            "a raised fleet of this environment holds them, or somebody else does", _build_lookup_command(context),
        )  # fmt: skip


def _judge_window(context: DoctorContext, row: dict[str, Any]) -> Iterator[CheckFinding]:
    """Compare a Capacity Block's window with the declared one and with now; EC2 ends what runs in it."""
    capacity, now = context.environment.capacity, context.now
    starts, ends = row.get("StartDate"), row.get("EndDate")
    if ends is not None and row["State"] in {"active", *PENDING_STATES}:
        remaining = ends - now
        if remaining <= BLOCK_MARGIN:
            yield fail_finding(
                f"it ends at {ends:{TIME_FORMAT}}: no raise is admitted in its last "
                f"{_count_minutes(BLOCK_MARGIN)} minutes",
                "buy another, write its id and dates, deploy Fleet",
                _build_lookup_command(context, offers=True),
            )
        elif remaining < timedelta(hours=context.environment.guard.max_hours):
            yield warn_finding(
                f"it ends in {remaining / timedelta(hours=1):.1f} hours, before guard.max_hours is over",
                "ask for fewer hours when starting",
            )
    if capacity.kind != "capacity-block" or starts is None or ends is None:
        return
    block_text = f"capacity.block: {{starts: {starts:{TIME_FORMAT}}, ends: {ends:{TIME_FORMAT}}}}"
    if capacity.block is None:
        yield warn_finding(
            "capacity.block is null: nobody knows when the block ends before EC2 does",
            "write it, deploy Fleet",
            block_text,
        )
    elif (capacity.block.starts, capacity.block.ends) != (starts, ends):
        yield fail_finding(
            f"capacity.block says {capacity.block.starts:{TIME_FORMAT}} to {capacity.block.ends:{TIME_FORMAT}}, "
            f"EC2 {starts:{TIME_FORMAT}} to {ends:{TIME_FORMAT}}",
            "write what EC2 says",
            block_text,
        )


def _count_minutes(span: timedelta) -> int:
    return int(span / timedelta(minutes=1))


def check_price(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the price of a node-hour is of this purchase, or not old."""
    capacity = context.environment.capacity
    message = f"{capacity.usd_per_hour:g} USD per node-hour, read on {capacity.usd_per_hour_date}"
    purchase_time = _read_purchase_time(context, account)
    days = (context.now.date() - capacity.usd_per_hour_date).days
    field_names = "capacity.usd_per_hour and usd_per_hour_date"
    if days < 0:
        yield fail_finding(f"{message}, which is to come", "write the day on which it was read", field_names)
    elif purchase_time is not None and capacity.usd_per_hour_date < purchase_time.date():
        yield warn_finding(f"{message}, before this was bought on {purchase_time.date()}",
                   "divide what was paid by hours and instances, and write it with its day", field_names)  # fmt: skip
    elif purchase_time is None and days > MAX_PRICE_AGE_DAYS[capacity.kind]:
        yield warn_finding(
            f"{message}, {days} days ago", "read it again: every USD that is shown follows from it", field_names
        )
    else:
        yield ok_finding(message)


def _read_purchase_time(context: DoctorContext, account: AllowlistedAccount) -> datetime | None:
    """Return when the block was bought; None for what is paid by the hour."""
    capacity = context.environment.capacity
    if capacity.kind != "capacity-block" or capacity.awaits_reservation:
        return None
    row = _read_reservation(context, account)
    return row.get("CreateDate") if row else None
