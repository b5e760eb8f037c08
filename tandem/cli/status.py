"""`tandem status`: what a fleet is, what it has cost since its launch, and what will end it.

One sentence concludes and the command that comes next follows it; then every detail, in rows or as
one JSON document. Invariant: what is unknown is said to be unknown and is never taken for nothing,
for parked or for fine.

Exit codes: 0 nothing needs attention; 1 something does; 2 bad input; 3 something could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from tandem.cli import fleet
from tandem.cli.console import VerbatimText, format_count, print_json, print_rows
from tandem.cli.flags import EnvironmentName
from tandem.cli.fleet import TextRow, format_distance, format_moment, format_span, list_warning_rows
from tandem.cli.money import format_prepayment, format_price
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode
from tandem.guard.pass_metrics import FLEET_USD
from tandem.ops import status as status_reader
from tandem.ops.account import create_session, require_account
from tandem.ops.guard_config import build_guard_config
from tandem.ops.status import StatusReport
from tandem.ops.status_warnings import StatusWarning, list_warnings
from tandem.shell_command import build_cdk_command, build_tandem_command

UNKNOWN_TEXT = "unknown, see above"
NODE_GROUP_KEYS = ("status", "scalingConfig", "labels", "tags", "health")


def status(*, env: EnvironmentName, selection: Selection = DEFAULTS) -> ExitCode:
    """Show the fleet, what it has cost since its launch, and what will stop it.

    Args:
        env: the environment

    Raises:
        TandemError: the environment's file has not the form of one, or the account is another.
    """
    environment = fleet.read_environment(selection, env)
    aws_session = create_session()
    require_account(environment, aws_session)
    other_names = sorted(
        path.stem for path in selection.environments.glob("*.yaml") if path.stem != environment.name
    )
    fleet_status = status_reader.read_status(
        environment,
        build_guard_config(environment),
        status_reader.current_time(),
        other_names,
        aws_session,
    )
    warnings = list_warnings(fleet_status)
    code = ExitCode.STALE if warnings else ExitCode.DONE
    if fleet_status.unknown:
        code = ExitCode.EXTERNAL_FAILURE
    if selection.as_json:
        print_json(status_as_dict(fleet_status, warnings), code)
    else:
        print_status(fleet_status, warnings)
    return code


def print_status(status: StatusReport, warnings: Sequence[StatusWarning]) -> None:
    """Print the conclusion, what needs attention with its next command, then every detail."""
    print_rows([(conclude_status(status, warnings),)], indent=0)
    print_rows(_list_status_rows(status, warnings))


def _list_status_rows(status: StatusReport, warnings: Sequence[StatusWarning]) -> Iterator[TextRow]:
    environment = status.environment
    for warning in warnings:
        yield from list_warning_rows(warning)
    for source, reason in status.unknown.items():
        yield "unknown", f"{source}: {reason}"
    yield "next", VerbatimText(choose_next_step(status))
    moment = f"{status.now:%Y-%m-%d %H:%M} UTC"
    yield "account", f"{environment.account}, {environment.region}; {moment}"
    yield "fleet", _format_fleet(status)
    yield from _list_instance_rows(status)
    yield "cost", _format_cost(status)
    if status.deployment != "nothing":
        yield from _list_guard_rows(status)
    if environment.capacity.needs_reservation:
        yield from _list_capacity_rows(status)
    alarms = "none in ALARM"
    if status.alarms:
        alarms = f"in ALARM: {', '.join(status.alarms)}"
    yield "alarms", UNKNOWN_TEXT if "alarms" in status.unknown else alarms


def _list_instance_rows(status: StatusReport) -> Iterator[TextRow]:
    for instance in status.fleet.instances:
        age = f"{format_span(status.now - instance.launched_at)} old"
        owner = "" if instance.is_ours else "  NOT OURS"
        yield (VerbatimText(f"  {instance.id:<20}{instance.state:<15}{age}{owner}"),)


def _list_guard_rows(status: StatusReport) -> Iterator[TextRow]:
    """Yield fence, lease and heartbeat, and what will stop the fleet."""
    for source, format_row in ROW_FORMATS.items():
        yield source, UNKNOWN_TEXT if source in status.unknown else format_row(status)
    for index, path in enumerate(status.paths):
        text = f"{path.name:<9} {fleet.describe_path(path, status.now)}"
        yield "" if index else "stops", text


def _format_fleet(status: StatusReport) -> str:
    capacity = status.environment.capacity
    group = status.node_group
    if status.deployment == "nothing":
        group_text = "not deployed, or destroyed: no cluster of this name"
    elif status.deployment == "cluster":
        group_text = "half deployed: a cluster and no node group"
    elif group is None:
        group_text = f"node group {UNKNOWN_TEXT}"
    else:
        sizes = [group["scalingConfig"][f"{word}Size"] for word in ("desired", "min", "max")]
        group_text = "node group {}: desired {}, min {}, max {}".format(group["status"], *sizes)
    count = format_count(len(status.fleet.instances), "instance")
    if "instances" in status.unknown:
        count = "instances unknown"
    return f"{count} of {capacity.kind} {capacity.instance_type}; {group_text}"


def _format_cost(status: StatusReport) -> str:
    """Return what runs and what the guard counted, also of instances gone; nothing unread."""
    if status.deployment == "nothing" and not status.fleet.instances:
        return "nothing is deployed"
    capacity = status.environment.capacity
    parts = [_format_bill(status)]
    if "instances" in status.unknown:
        parts.insert(0, "unknown, as the instances are")
    elif status.fleet.instances:
        hours = f"{status.node_hours:.2f} node-hours since launch x {format_price(capacity)}"
        parts.insert(0, f"{status.cost_usd:,.2f} USD so far: {hours}")
    return f"{'; '.join(parts)}{format_prepayment(capacity)}"


def _format_bill(status: StatusReport) -> str:
    bill = status.bill
    if bill is None:
        reason = ", see above" if "bill" in status.unknown else ""
        return f"what the fleet cost before is unknown{reason}"
    period = "in the last 24 h"
    if bill.run:
        period = f"since the lease of run {bill.run} began"
    cost = f"nothing ran {period}"
    if bill.usd is None:
        cost = f"unknown what it cost {period}: the reaper counted nothing"
    elif bill.usd:
        cost = f"about {bill.usd:,.2f} USD {period}"
    return f"{cost} ({FLEET_USD} in {status.guard_config.namespace}, the reaper's count)"


def _format_fence(status: StatusReport) -> str:
    fence = status.fleet.fence
    now = status.now
    if fence is None or not fence.is_closed:
        if not fence:
            return "none"
        return f"none (lifted {format_moment(fence.at, now)} by {fence.who})"
    details = ["1 pass" if fence.passes == 1 else f"{fence.passes} passes"]
    if fence.last_look:
        details.append(f"looked at {format_distance(fence.last_look, now)}")
    if fence.terminated:
        details.append(f"{format_count(len(fence.terminated), 'instance')} terminated by id")
    release_command = build_tandem_command("stop --release", status.environment.name)
    since = f"{fence.state} since {format_moment(fence.at, now)}, by {fence.who}: {fence.why}"
    return f"{since} ({', '.join(details)}); it blocks the next start until {release_command}"


def _format_lease(status: StatusReport) -> str:
    lease = status.fleet.lease
    now = status.now
    state = status.fleet
    if lease is None:
        return "none"
    run = f"run {lease.run}"
    if lease.experiment:
        run += f" of experiment {lease.experiment}"
    deadline = f"deadline {format_moment(lease.deadline, now)}"
    if state.live_lease is None:
        end_note = "ENDED: fenced" if state.is_fenced else "ENDED"
        deadline = f"{end_note}, {deadline}"
    words = [f"{run} by {lease.who}", deadline, f"for {format_count(lease.nodes, 'node')}"]
    if (state.desired_size or 0) > lease.nodes:
        words.append(f"the node group wants {state.desired_size}")
    if lease.ending:
        words.append(f"ending since {format_moment(lease.ending, now)}")
    if lease.unarmed:
        words.append(f"unarmed accepted: {', '.join(lease.unarmed)}")
    return "; ".join(words)


def _format_heartbeat(status: StatusReport) -> str:
    lease = status.fleet.live_lease
    beat = status.fleet.heartbeat
    if "lease" in status.unknown:
        return UNKNOWN_TEXT
    if lease is None:
        return "none: no live lease"
    if not lease.beats:
        return "none expected: raised by hand, the deadline alone ends it"
    if beat is None:
        return f"none yet; the lease began {format_distance(lease.created, status.now)}"
    return (
        f"{format_moment(beat, status.now)}; a stop after {status.guard_config.idle_minutes:g} min"
    )


ROW_FORMATS = {"fence": _format_fence, "lease": _format_lease, "heartbeat": _format_heartbeat}


def _list_capacity_rows(status: StatusReport) -> Iterator[TextRow]:
    capacity = status.environment.capacity
    reservation = status.reservation
    reservation_id = status.reservation_id
    label = "block" if capacity.kind == "capacity-block" else "reserved"
    if not reservation_id:
        yield label, "none yet: capacity.reservation_id is not written"
        return
    if reservation is None:
        state = UNKNOWN_TEXT if "reservation" in status.unknown else "EC2 knows none of this id"
        yield label, f"{reservation_id}: {state}"
        return
    moments = {"starts": reservation.get("StartDate"), "ends": reservation.get("EndDate")}
    times = [
        f"{word} {format_moment(moment, status.now)}" for word, moment in moments.items() if moment
    ]
    total = reservation.get("TotalInstanceCount", 0)
    available = reservation.get("AvailableInstanceCount", 0)
    usage = f"{total - available} of {format_count(total, 'instance')} in use"
    yield label, ", ".join([f"{reservation_id} {reservation['State']}", usage, *times])


def status_as_dict(status: StatusReport, warnings: Sequence[StatusWarning]) -> dict[str, Any]:
    """Return the JSON document: ISO 8601 times in UTC, null for what is absent or unknown."""
    look = status.fleet
    capacity = status.environment.capacity
    unknown = status.unknown
    group = status.node_group
    are_known = "instances" not in unknown
    document = {
        "environment": status.environment.name,
        "conclusion": conclude_status(status, warnings),
        "next": choose_next_step(status).partition("  # ")[0],
        "account": status.environment.account,
        "region": status.environment.region,
        "now": status.now,
        "deployed": status.deployment,
        "instances": look.instances if are_known else None,
        "node_hours": round(status.node_hours, 4) if are_known else None,
        "usd": round(status.cost_usd, 2) if are_known else None,
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date,
        "prepaid": capacity.kind == "capacity-block",
        "node_group": {key: group.get(key) for key in NODE_GROUP_KEYS} if group else None,
        "owned": look.has_owner_tag,
        "fence": look.fence,
        "fenced": None if "fence" in unknown else look.is_fenced,
        "lease": look.lease,
        "lease_live": None if {"lease", "fence"} & set(unknown) else look.live_lease is not None,
        "heartbeat": look.heartbeat,
        "bill": status.bill,
        "stops": [fleet.path_as_dict(path) for path in status.paths],
        "schedules": status.schedules,
        "reservation": status.reservation,
        "idle_block": None if "reservation" in unknown else status.is_block_idle,
        "alarms": None if "alarms" in unknown else status.alarms,
        "unknown": unknown,
        "attention": [
            {"problem": warning.problem, "change": warning.change} for warning in warnings
        ],
    }
    return cast("dict[str, Any]", msgspec.to_builtins(document))


def conclude_status(status: StatusReport, warnings: Sequence[StatusWarning]) -> str:
    """Return the first line: what the fleet does now, and whether somebody has to look after it."""
    exists = status.deployment != "nothing"
    count = len(warnings)
    parts = [next(_list_fleet_sentences(status))]
    if exists and "fence" in status.unknown:
        parts.append("unknown whether a fence exists")
    elif exists and status.fleet.is_fenced and not status.fleet.own_instances:
        parts.append("a fence blocks the next start")
    if warnings:
        verb = "needs" if count == 1 else "need"
        parts.append(f"{format_count(count, 'thing')} {verb} attention")
    if status.unknown:
        parts.append(f"{format_count(len(status.unknown), 'thing')} could not be read")
    elif exists and not warnings:
        parts.append("nothing needs attention")
    return f"{status.environment.name}: {', '.join(parts)}"


def _list_fleet_sentences(status: StatusReport) -> Iterator[str]:
    """Yield every sentence that holds, the most urgent first."""
    fleet_state = status.fleet
    count = len(status.fleet.own_instances)
    lease = fleet_state.live_lease
    is_wanted = fleet_state.desired_size and fleet_state.has_owner_tag
    lease_text = (
        f"lease {lease.run} until {format_moment(lease.deadline, status.now)}" if lease else ""
    )
    under_lease = f" under {lease_text}" if lease else " without a live lease"
    if {"lease", "fence"} & set(status.unknown):
        under_lease = ", unknown under which lease"
    if "instances" in status.unknown:
        yield "unknown whether anything runs: EC2 could not be reached"
    ending = _describe_ending(status)
    if count and ending:
        yield f"{ending}: {format_count(count, 'instance')} alive"
    if count:
        verb = "runs" if count == 1 else "run"
        nodes = format_count(count, "node")
        yield f"{nodes} {verb}{under_lease}, {status.cost_usd:,.2f} USD so far"
    if status.deployment == "nothing":
        yield "not deployed"
    if status.deployment == "cluster":
        yield "half deployed: a cluster and no node group, nothing runs"
    if "node group" in status.unknown:
        yield "nothing runs, unknown what the node group wants"
    if is_wanted:
        yield (
            f"nothing runs yet, {format_count(fleet_state.desired_size or 0, 'node')}"
            f" wanted{under_lease}"
        )
    if lease:
        yield f"nothing runs, {lease_text} stands"
    state = "stopped" if fleet_state.is_fenced else "parked"
    yield f"{state}, nothing runs"


def _describe_ending(status: StatusReport) -> str:
    """Return what is under way to end the fleet; empty where nothing is."""
    if status.fleet.is_fenced:
        return "a stop is under way"
    lease = status.fleet.live_lease
    if lease and lease.ending:
        return f"run {lease.run} is ending"
    return ""


def choose_next_step(status: StatusReport) -> str:
    """Return the next command and its purpose as a comment, which a shell ignores."""
    command, purpose = next(_list_next_steps(status))
    return f"{command}  # {purpose}"


def _list_next_steps(status: StatusReport) -> Iterator[tuple[str, str]]:
    """Yield every command that would do, with its purpose, the most urgent first."""
    environment = status.environment
    fleet_state = status.fleet
    instances = status.fleet.own_instances
    name = environment.name
    end_step = (
        build_tandem_command("stop --end", name),
        "ends the run; in an emergency: without --end",
    )
    if "instances" in status.unknown:
        yield build_tandem_command("stop", name), "stops the fleet unseen"
    if instances and fleet_state.is_fenced:
        yield build_tandem_command("stop", name, "--wait"), "follows the stop to its end"
    if fleet_state.live_lease and (instances or fleet_state.desired_size):
        yield end_step
    if instances or (fleet_state.desired_size and fleet_state.has_owner_tag):
        yield build_tandem_command("stop", name), "stops it"
    if status.deployment == "nothing":
        yield build_cdk_command("deploy", name), "deploys it"
    if status.deployment == "cluster":
        yield build_cdk_command("deploy", name, "Fleet"), "makes the node group"
    if fleet_state.is_fenced:
        yield build_tandem_command("stop --release", name), "lifts the fence; no start before"
    if fleet_state.live_lease:
        yield end_step
    if {"fence", "lease", "node group"} & set(status.unknown):
        yield build_tandem_command("status", name), "once AWS answers"
    yield (
        f"{build_tandem_command('run EXPERIMENT', name)} --hours H",
        "measures, judges, and ends at zero",
    )
