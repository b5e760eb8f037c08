"""Group capacity: whether the accelerators that are declared can be had, when, and at a price that is no rumour."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.line import Finding, fail, ok, unknown, warn
from tandem.ops.doctor.offering import offered_zones
from tandem.ops.doctor.subject import Subject
from tandem.shell_command import quote_command
from tandem.stop import BLOCK_MARGIN

PRICE_DAYS = {"spot": 7, "on-demand": 30, "reservation": 30, "capacity-block": 30}
"""Days after which a price is told to be old; ours to choose: spot moves within hours, lists within months."""
# as the EC2 user guide spells them ("Spot Instance quotas", "On-Demand Instance quotas"); codes differ between sources
QUOTAS = {
    "spot": "All Trn Spot Instance Requests",
    "on-demand": "Running On-Demand Trn instances",
    "reservation": "Running On-Demand Trn instances",
}
TO_COME = {"scheduled", "pending", "assessing", "delayed", "payment-pending"}
NOT_THERE = {"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"}
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


def offering(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the zone offers the accelerators' type to this account."""
    environment = subject.environment
    kind, zone = environment.capacity.instance_type, environment.capacity.zone
    offered = offered_zones(account, kind)
    if zone in offered:
        yield ok(f"{kind} is offered in {zone}")
        return
    where = f"only in {', '.join(sorted(offered))}" if offered else f"nowhere in {environment.region}"
    look = quote_command(
        "aws", "ec2", "describe-instance-type-offerings", "--region", environment.region,
        "--location-type", "availability-zone-id", "--filters", f"Name=instance-type,Values={kind}",
    )  # fmt: skip
    said = f"{kind} is not offered to this account in {zone}, {where}"
    if environment.capacity.needs_reservation and not environment.capacity.awaits_reservation:
        yield warn(said, "a type may be hidden from an account: what was reserved decides, see the next line", look)
    else:
        yield fail(said, "write another capacity.zone or region, or ask AWS for access to the type", look)


def quota(subject: Subject, account: Account) -> Iterator[Finding]:
    """Hold the vCPUs of all declared nodes against the account's quota, which is looked up by its name."""
    environment = subject.environment
    capacity = environment.capacity
    if capacity.kind == "capacity-block":
        yield ok("not asked: a Capacity Block is not launched from a vCPU quota (unproven)")
        return
    name = QUOTAS[capacity.kind]
    row = _quota(account, "ListServiceQuotas", name) or _quota(account, "ListAWSDefaultServiceQuotas", name)
    look = quote_command(
        "aws", "service-quotas", "list-service-quotas", "--service-code", "ec2", "--region", environment.region,
        "--query", 'Quotas[?contains(QuotaName,`"Trn"`)].[QuotaName,QuotaCode,Value]',
    )  # fmt: skip
    if row is None:
        yield unknown(f"Service Quotas lists no {name!r}", "see in the console what it is called now", look)
        return
    each = subject.catalogue.instances.instances[capacity.instance_type].vcpu.value
    needed, allowed = each * capacity.nodes, float(row["Value"])
    said = f"{name}: {allowed:g} vCPU, {capacity.nodes} x {capacity.instance_type} need {needed}"
    if allowed < needed:
        yield fail(
            said, "ask for more, which may take days, or declare fewer capacity.nodes",
            quote_command(
                "aws", "service-quotas", "request-service-quota-increase", "--service-code", "ec2",
                "--quota-code", str(row["QuotaCode"]), "--desired-value", str(needed), "--region", environment.region,
            ),
        )  # fmt: skip
    else:
        yield ok(said)


def _quota(account: Account, operation: str, name: str) -> dict[str, Any] | None:
    rows = account.every("service-quotas", operation, "Quotas", "ec2", ServiceCode="ec2")
    return next((row for row in rows if row["QuotaName"].casefold() == name.casefold()), None)


def reservation(subject: Subject, account: Account) -> Iterator[Finding]:
    """Hold the Capacity Block or reservation against the file, and against now."""
    capacity = subject.environment.capacity
    if not capacity.needs_reservation:
        yield ok(f"{capacity.kind} needs none")
        return
    if capacity.awaits_reservation:
        if capacity.block is not None and capacity.block.ends <= subject.now:
            yield fail(f"capacity.block ended at {capacity.block.ends:{MOMENT}}",
                       "write the block you have now, or null", "capacity.block: null")  # fmt: skip
        yield warn(
            "none is declared: there is no Fleet stack, and nothing can be raised",
            "buy or make one, write its id, deploy Fleet", _look(subject, offers=True),
        )  # fmt: skip
        return
    row = _reservation(subject, account)
    if row is None:
        yield fail(f"{capacity.reservation_id} is not in this account and region", "correct capacity.reservation_id",
                   _look(subject))  # fmt: skip
        return
    found = [*_form(subject, row), *_state(subject, row), *_window(subject, row)]
    yield from found
    if not any(finding.level == "fail" for finding in found):
        until = row.get("EndDate")
        said = f"{capacity.reservation_id} is {row['State']}: {row['TotalInstanceCount']} x {row['InstanceType']}"
        yield ok(f"{said}{f' until {until:{MOMENT}}' if until else ''}")


def _reservation(subject: Subject, account: Account) -> dict[str, Any] | None:
    wanted = subject.environment.capacity.reservation_id
    found = account.ask(
        "ec2", "DescribeCapacityReservations", str(wanted), absent=NOT_THERE, CapacityReservationIds=[wanted]
    )
    rows = found["CapacityReservations"] if found else []
    return rows[0] if rows else None


def _look(subject: Subject, *, offers: bool = False) -> str:
    capacity, region = subject.environment.capacity, subject.environment.region
    if offers and capacity.kind == "capacity-block":
        return quote_command(
            "aws", "ec2", "describe-capacity-block-offerings", "--region", region,
            "--instance-type", capacity.instance_type, "--instance-count", str(capacity.nodes),
            "--capacity-duration-hours", "24",
        )  # fmt: skip
    return quote_command("aws", "ec2", "describe-capacity-reservations", "--region", region)


def _form(subject: Subject, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare what was reserved with what is declared."""
    capacity = subject.environment.capacity
    kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
    for path, declared, found in (
        ("capacity.kind", capacity.kind, kind),
        ("capacity.instance_type", capacity.instance_type, row["InstanceType"]),
        ("capacity.zone", capacity.zone, row.get("AvailabilityZoneId", capacity.zone)),
    ):
        if declared != found:
            yield fail(f"{path} is {declared}, that of the reservation {found}", "write what was reserved",
                       f"{path}: {found}")  # fmt: skip
    total = int(row["TotalInstanceCount"])
    if total < capacity.nodes:
        yield fail(f"{total} instances are reserved, {capacity.nodes} declared", "declare no more than are reserved",
                   f"capacity.nodes: {total}")  # fmt: skip
    elif total > capacity.nodes:
        yield warn(f"{total} instances are reserved and {capacity.nodes} declared: the others are paid for idle",
                   "declare them all, or share them", f"capacity.nodes: {total}")  # fmt: skip


def _state(subject: Subject, row: dict[str, Any]) -> Iterator[Finding]:
    capacity, state = subject.environment.capacity, row["State"]
    if state in TO_COME:
        starts = row.get("StartDate")
        when = f", it starts at {starts:{MOMENT}}" if starts else ""
        yield warn(f"it is {state}{when}", "nothing can be raised before", _look(subject))
    elif state != "active":
        yield fail(f"it is {state}: nothing can be launched from it", "buy another, write its id, deploy Fleet",
                   _look(subject, offers=True))  # fmt: skip
    elif int(row.get("AvailableInstanceCount", capacity.nodes)) < capacity.nodes:
        yield warn(
            f"{row['AvailableInstanceCount']} of its {row['TotalInstanceCount']} instances are free now",
            "a raised fleet of this environment holds them, or somebody else does", _look(subject),
        )  # fmt: skip


def _window(subject: Subject, row: dict[str, Any]) -> Iterator[Finding]:
    """Compare a Capacity Block's window with the declared one and with now; EC2 ends what runs in it."""
    capacity, now = subject.environment.capacity, subject.now
    starts, ends = row.get("StartDate"), row.get("EndDate")
    if ends is not None and row["State"] in {"active", *TO_COME}:
        left = ends - now
        if left <= BLOCK_MARGIN:
            yield fail(f"it ends at {ends:{MOMENT}}: no raise is admitted in its last {_minutes(BLOCK_MARGIN)} minutes",
                       "buy another, write its id and dates, deploy Fleet", _look(subject, offers=True))  # fmt: skip
        elif left < timedelta(hours=subject.environment.guard.max_hours):
            yield warn(f"it ends in {left / timedelta(hours=1):.1f} hours, before guard.max_hours is over",
                       "ask for fewer hours when starting")  # fmt: skip
    if capacity.kind != "capacity-block" or starts is None or ends is None:
        return
    written = f"capacity.block: {{starts: {starts:{MOMENT}}, ends: {ends:{MOMENT}}}}"
    if capacity.block is None:
        yield warn("capacity.block is null: nobody knows when the block ends before EC2 does", "write it, deploy Fleet",
                   written)  # fmt: skip
    elif (capacity.block.starts, capacity.block.ends) != (starts, ends):
        yield fail(
            f"capacity.block says {capacity.block.starts:{MOMENT}} to {capacity.block.ends:{MOMENT}}, "
            f"EC2 {starts:{MOMENT}} to {ends:{MOMENT}}", "write what EC2 says", written,
        )  # fmt: skip


def _minutes(span: timedelta) -> int:
    return int(span / timedelta(minutes=1))


def price(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the price of a node-hour is of this purchase, or not old."""
    capacity = subject.environment.capacity
    said = f"{capacity.usd_per_hour:g} USD per node-hour, read on {capacity.usd_per_hour_date}"
    bought = _bought(subject, account)
    days = (subject.now.date() - capacity.usd_per_hour_date).days
    write = "capacity.usd_per_hour and usd_per_hour_date"
    if days < 0:
        yield fail(f"{said}, which is to come", "write the day on which it was read", write)
    elif bought is not None and capacity.usd_per_hour_date < bought.date():
        yield warn(f"{said}, before this was bought on {bought.date()}",
                   "divide what was paid by hours and instances, and write it with its day", write)  # fmt: skip
    elif bought is None and days > PRICE_DAYS[capacity.kind]:
        yield warn(f"{said}, {days} days ago", "read it again: every USD that is shown follows from it", write)
    else:
        yield ok(said)


def _bought(subject: Subject, account: Account) -> datetime | None:
    """Return when the block was bought; None for what is paid by the hour."""
    capacity = subject.environment.capacity
    if capacity.kind != "capacity-block" or capacity.awaits_reservation:
        return None
    row = _reservation(subject, account)
    return row.get("CreateDate") if row else None
