"""How `tandem status` says what it saw: lines within a screen's width, or one JSON document."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tandem.commands.fleet import LABEL, WIDTH, clock, concern_rows, row, span, until, when
from tandem.commands.outcome import counted
from tandem.commands.status_summary import conclude_status, next_step
from tandem.stop import FLEET_USD

if TYPE_CHECKING:
    from tandem.ops.concerns import Concern
    from tandem.ops.paths import StopPath
    from tandem.ops.status import Status

UNKNOWN = "unknown, see above"


def lines(status: Status, concerns: Sequence[Concern]) -> Iterator[str]:
    """Yield what is printed: the conclusion, what needs attention with its next command, then every detail."""
    environment = status.environment
    yield from textwrap.wrap(
        conclude_status(status, concerns), WIDTH, subsequent_indent="    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    for concern in concerns:
        yield from concern_rows(concern)
    for source, why in status.unknown.items():
        yield from row("unknown", f"{source}: {why}")
    yield f"  {'next':<{LABEL - 2}}{next_step(status)}"
    yield from row("account", f"{environment.account}, {environment.region}; {status.now:%Y-%m-%d %H:%M} UTC")
    yield from row("fleet", _fleet(status))
    for machine in status.machines:
        age = f"{span(status.now - machine.launched)} old"
        stranger = "" if machine.ours else "  NOT OURS"
        yield f"    {machine.id:<20}{machine.type:<16}{machine.zone:<12}{machine.state:<15}{age}{stranger}"
    yield from row("cost", _cost(status))
    if status.deployed != "nothing":
        yield from row("fence", _fence(status))
        yield from row("lease", _lease(status))
        yield from row("heartbeat", _heartbeat(status))
        for index, path in enumerate(status.paths):
            yield from row("stops" if index == 0 else "", f"{path.name:<9} {describe_path(path, status.now)}")
    yield from _capacity(status)
    yield from row("alarms", _alarms(status))


def describe_path(path: StopPath, now: datetime) -> str:
    """Return a path's state, when it acts next, and its sentence."""
    mark = {"unarmed": "NOT ARMED: ", "unknown": "unknown: "}.get(path.state, "")
    at = f"{when(path.at, now)}: " if path.at else ""
    return f"{mark}{at}{path.sentence}"


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
    if status.deployed == "nothing" and not status.machines:
        return "nothing is deployed"
    capacity = status.environment.capacity
    paid = {"capacity-block": "; the block was paid when bought, so much of it is used by these",
            "reservation": "; a reservation is paid whether it is used or not"}.get(capacity.kind, "")  # fmt: skip
    price = f"{capacity.usd_per_hour:.2f} USD (your figure of {capacity.usd_per_hour_date})"
    if "instances" in status.unknown:
        alive = ["unknown, as the instances are"]
    elif status.machines:
        alive = [f"{status.usd:,.2f} USD so far: {status.node_hours:.2f} node-hours since launch x {price}"]
    else:
        alive = []
    return "; ".join([*alive, _bill(status)]) + paid


def _bill(status: Status) -> str:
    """Return what the guard counted, also of instances that are gone; never a figure where none could be read."""
    bill = status.bill
    if bill is None:
        return "what the fleet cost before is unknown" + (", see above" if "bill" in status.unknown else "")
    since = f"since the lease of run {bill.run} began" if bill.run else "in the last 24 h"
    source = f"({FLEET_USD} in {status.guarded.namespace}, the reaper's count)"
    if bill.usd is None:
        return f"unknown what it cost {since}: the reaper counted nothing {source}"
    return f"about {bill.usd:,.2f} USD {since} {source}" if bill.usd else f"nothing ran {since} {source}"


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
    clear = f"tandem stop --clear --env {shlex.quote(status.environment.name)}"
    return (
        f"{fence.state} since {when(fence.at, status.now)}, by {fence.who}: {fence.why} "
        f"({passes}{looked}{by_id}); it blocks the next start until {clear}"
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
    words = [f"run {lease.run}{of} by {lease.who}", f"{ended}deadline {when(lease.deadline, status.now)}",
             f"for {counted(lease.nodes, 'node')}"]  # fmt: skip
    if (status.seen.desired or 0) > lease.nodes:
        words.append(f"the node group wants {status.seen.desired}")
    if lease.ending:
        words.append(f"ending since {when(lease.ending, status.now)}")
    if lease.unarmed:
        words.append(f"unarmed accepted: {', '.join(lease.unarmed)}")
    if lease.prefix and lease.prefix != status.guarded.prefix:
        words.append(f"it lies in the old place s3://{status.guarded.bucket}/{lease.prefix}")
    return "; ".join(words)


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
        "conclusion": conclude_status(status, concerns),
        "next": next_step(status).command,
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
        "bill": _plain(asdict(status.bill)) if status.bill else None,
        "stops": [describe_path_as_json(path) for path in status.paths],
        "schedules": [asdict(schedule) for schedule in status.schedules],
        "reservation": _plain(asdict(status.reservation)) if status.reservation else None,
        "idle_block": None if "reservation" in status.unknown else status.block_idle,
        "alarms": None if "alarms" in status.unknown else list(status.alarms),
        "unknown": dict(status.unknown),
        "attention": [{"problem": concern.problem, "change": concern.change} for concern in concerns],
    }


def describe_path_as_json(path: StopPath) -> dict[str, Any]:
    """Return a path's row: `state` is armed, unarmed, absent or unknown; `armed` is null for the last two."""
    armed = {"armed": True, "unarmed": False}.get(path.state)
    at = path.at.isoformat() if path.at else None
    return {"name": path.name, "state": path.state, "armed": armed, "at": at, "said": path.sentence}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    def value(one: Any) -> Any:
        return one.isoformat() if isinstance(one, datetime) else list(one) if isinstance(one, tuple) else one

    return {name: value(one) for name, one in fields.items()}
