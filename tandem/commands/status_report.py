"""How `tandem status` says what it saw: lines within a screen's width, or one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tandem.commands.fleet import clock, row, span, until, when
from tandem.commands.outcome import counted

if TYPE_CHECKING:
    from tandem.ops.concerns import Concern
    from tandem.ops.status import Status

UNKNOWN = "unknown, see below"


def lines(status: Status, concerns: Sequence[Concern]) -> Iterator[str]:
    """Yield what is printed."""
    environment = status.environment
    yield f"{environment.name}: account {environment.account}, {environment.region}, {status.now:%Y-%m-%d %H:%M} UTC"
    yield from row("fleet", _fleet(status))
    for one in status.machines:
        age = f"{span(status.now - one.launched)} old"
        stranger = "" if one.ours else "  NOT OURS"
        yield f"    {one.id:<20}{one.type:<16}{one.zone:<12}{one.state:<15}{age}{stranger}"
    yield from row("cost", _cost(status))
    if status.deployed != "nothing":
        yield from row("fence", _fence(status))
        yield from row("lease", _lease(status))
        yield from row("heartbeat", _heartbeat(status))
        for index, path in enumerate(status.paths):
            mark = {True: "", False: "NOT ARMED: ", None: ""}[path.armed]
            at = f"{when(path.at, status.now)}: " if path.at else ""
            yield from row("stops" if index == 0 else "", f"{path.name:<9} {mark}{at}{path.said}")
    yield from _capacity(status)
    yield from row("alarms", _alarms(status))
    for source, why in status.unknown.items():
        yield from row("unknown", f"{source}: {why}")
    for concern in concerns:
        yield from row("attention", concern.problem)
        yield from row("", f"-> {concern.change}")
    if not concerns and not status.unknown:
        yield "  nothing needs attention"


def _fleet(status: Status) -> str:
    capacity, group = status.environment.capacity, status.group
    if status.deployed == "nothing":
        said = "not deployed, or destroyed: no cluster of this name"
    elif status.deployed == "cluster":
        why = ": it waits for capacity.reservation_id" if capacity.awaits_reservation else ""
        said = f"half deployed: a cluster and no node group{why}"
    elif group is None:
        said = f"node group {UNKNOWN}"
    else:
        said = f"node group {group.status}: desired {group.desired}, min {group.minimum}, max {group.maximum}"
    alive = "instances unknown" if "instances" in status.unknown else f"{counted(len(status.machines), 'instance')}"
    return f"{alive} of {capacity.kind} {capacity.instance_type}; {said}"


def _cost(status: Status) -> str:
    if "instances" in status.unknown:
        return "unknown, as the instances are"
    capacity = status.environment.capacity
    price = f"{capacity.usd_per_hour:.2f} USD (your figure of {capacity.usd_per_hour_date})"
    so_far = f"{status.usd:,.2f} USD so far: {status.node_hours:.2f} node-hours since launch x {price}"
    if capacity.kind == "capacity-block":
        return f"{so_far}; the block was paid when bought, so much of it is used by these"
    if capacity.kind == "reservation":
        return f"{so_far}; a reservation is paid whether it is used or not"
    return so_far


def _fence(status: Status) -> str:
    fence = status.seen.fence
    if "fence" in status.unknown:
        return UNKNOWN
    if fence is None or not fence.closed:
        lifted = f" (lifted {when(fence.at, status.now)} by {fence.who})" if fence else ""
        return f"none{lifted}"
    passes = f"{fence.passes} pass{'' if fence.passes == 1 else 'es'}"
    looked = f", looked at {until(fence.last_look, status.now)}" if fence.last_look else ""
    by_id = f", {counted(len(fence.terminated), 'instance')} terminated by id" if fence.terminated else ""
    return (
        f"{fence.state} since {when(fence.at, status.now)}, by {fence.who}: {fence.why} "
        f"({passes}{looked}{by_id}); nobody can raise"
    )


def _lease(status: Status) -> str:
    lease = status.seen.lease
    if "lease" in status.unknown:
        return UNKNOWN
    if lease is None:
        return "none"
    of = f" of experiment {lease.experiment}" if lease.experiment else ""
    live = status.seen.live is not None
    ended = "" if live else "ENDED: fenced, " if status.seen.fenced else "ENDED, "
    return f"run {lease.run}{of} by {lease.who}; {ended}deadline {when(lease.deadline, status.now)}"


def _heartbeat(status: Status) -> str:
    lease, beat = status.seen.live, status.seen.heartbeat
    if "heartbeat" in status.unknown or "lease" in status.unknown:
        return UNKNOWN
    if lease is None:
        return "none: no live lease"
    if not lease.beats:
        return "none expected: raised by hand, the deadline alone ends it"
    if beat is None:
        return f"none yet; the lease began {until(lease.created, status.now)}"
    return f"{clock(beat, status.now)} ({until(beat, status.now)}); a stop after {status.guarded.idle_minutes:g} min"


def _capacity(status: Status) -> Iterator[str]:
    capacity, reservation = status.environment.capacity, status.reservation
    if not capacity.needs_reservation:
        return
    label = "block" if capacity.kind == "capacity-block" else "reserved"
    if reservation is None:
        said = UNKNOWN if "reservation" in status.unknown else "EC2 knows none of this id"
        waits = "none yet: capacity.reservation_id is not written"
        yield from row(label, waits if capacity.awaits_reservation else f"{capacity.reservation_id}: {said}")
        return
    times = [f"{word} {when(at, status.now)}"
             for word, at in (("starts", reservation.starts), ("ends", reservation.ends)) if at]  # fmt: skip
    used = f"{reservation.total - reservation.available} of {counted(reservation.total, 'instance')} in use"
    yield from row(label, ", ".join([f"{reservation.id} {reservation.state}", used, *times]))
    idle = "unknown, as the instances are" if "instances" in status.unknown else "yes" if status.block_idle else "no"
    yield from row("idle", idle if status.block_active else "no: it is not active")


def _alarms(status: Status) -> str:
    if "alarms" in status.unknown:
        return UNKNOWN
    return f"in ALARM: {', '.join(status.alarms)}" if status.alarms else "none in ALARM"


def plain(status: Status, concerns: Sequence[Concern]) -> dict[str, Any]:
    """Return the JSON document: times in ISO 8601 and UTC, null for what is not there or not known."""
    seen, capacity = status.seen, status.environment.capacity
    machines = [
        {**_plain(asdict(one)), "age_s": int((status.now - one.launched).total_seconds())} for one in status.machines
    ]
    return {
        "environment": status.environment.name,
        "account": status.environment.account,
        "region": status.environment.region,
        "now": status.now.isoformat(),
        "deployed": status.deployed,
        "instances": None if "instances" in status.unknown else machines,
        "node_hours": None if "instances" in status.unknown else round(status.node_hours, 4),
        "usd": None if "instances" in status.unknown else round(status.usd, 2),
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date.isoformat(),
        "prepaid": capacity.kind == "capacity-block",
        "node_group": _plain(asdict(status.group)) if status.group else None,
        "fence": _plain(asdict(seen.fence)) if seen.fence else None,
        "fenced": None if "fence" in status.unknown else seen.fenced,
        "lease": _plain(asdict(seen.lease)) if seen.lease else None,
        "lease_live": None if {"lease", "fence"} & set(status.unknown) else seen.live is not None,
        "heartbeat": seen.heartbeat.isoformat() if seen.heartbeat else None,
        "stops": [_plain(asdict(path)) for path in status.paths],
        "reservation": _plain(asdict(status.reservation)) if status.reservation else None,
        "idle_block": None if "reservation" in status.unknown else status.block_idle,
        "alarms": None if "alarms" in status.unknown else list(status.alarms),
        "unknown": dict(status.unknown),
        "attention": [asdict(concern) for concern in concerns],
    }


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    def value(one: Any) -> Any:
        return one.isoformat() if isinstance(one, datetime) else list(one) if isinstance(one, tuple) else one

    return {name: value(one) for name, one in fields.items()}
