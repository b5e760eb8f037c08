"""The first words of `tandem status`: one sentence that concludes, and the command that comes next.

Invariant: what is unknown is said to be unknown and is never taken for nothing, for parked or for fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tandem.cli.console import format_count
from tandem.cli.fleet import format_moment, format_span
from tandem.shell_command import build_cdk_command, build_tandem_command

if TYPE_CHECKING:
    from tandem.guard.lease import Lease
    from tandem.guard.observe import FleetInstance
    from tandem.ops.status import StatusReport
    from tandem.ops.status_warnings import StatusWarning


def conclude_status(status: StatusReport, warnings: Sequence[StatusWarning]) -> str:
    """Return the first line: what the fleet does now, and whether somebody has to look after it."""
    parts = [next(_list_fleet_sentences(status))]
    if "fence" in status.unknown and status.deployment != "nothing":
        parts.append("unknown whether a fence stands")
    elif status.fleet.is_fenced and status.deployment != "nothing" and not _list_own_instances(status):
        parts.append("a fence blocks the next start")
    if warnings:
        parts.append(f"{format_count(len(warnings), 'thing')} {'needs' if len(warnings) == 1 else 'need'} attention")
    if status.unknown:
        parts.append(f"{format_count(len(status.unknown), 'thing')} could not be read")
    elif not warnings and status.deployment != "nothing":
        parts.append("nothing needs attention")
    return f"{status.environment.name}: {', '.join(parts)}"


def _list_fleet_sentences(status: StatusReport) -> Iterator[str]:
    """Yield every sentence that holds, the most urgent first."""
    fleet_state, instances = status.fleet, _list_own_instances(status)
    if "instances" in status.unknown:
        yield "unknown whether anything runs: EC2 could not be asked"
    if instances:
        yield f"{_describe_running(status, instances)}, {status.cost_usd:,.2f} USD so far"
    if status.deployment == "nothing":
        yield "not deployed"
    if status.deployment == "cluster":
        yield "half deployed: a cluster and no node group, nothing runs"
    if "node group" in status.unknown:
        yield "nothing runs, unknown what the node group wants"
    lease = fleet_state.live_lease
    lease_text = f"under {_describe_lease(status, lease)}" if lease else "without a live lease"
    if fleet_state.desired_size and fleet_state.has_owner_tag:
        yield f"nothing runs yet, {format_count(fleet_state.desired_size, 'node')} wanted {lease_text}"
    if lease:
        yield f"nothing runs, {_describe_lease(status, lease)} stands"
    # what a fleet that is gone has cost; nothing where nothing was counted, which the cost row explains
    bill = status.bill
    cost = (
        f", about {bill.usd:,.2f} USD in the last {format_span(status.now - bill.since)}" if bill and bill.usd else ""
    )
    yield f"{'stopped' if fleet_state.is_fenced else 'parked'}, nothing runs{cost}"


def _describe_running(status: StatusReport, instances: Sequence[FleetInstance]) -> str:
    fleet_state, lease = status.fleet, status.fleet.live_lease
    if fleet_state.is_fenced:
        return f"a stop is under way: {format_count(len(instances), 'instance')} alive"
    if lease and lease.ending:
        return f"run {lease.run} is ending: {format_count(len(instances), 'instance')} alive"
    nodes_text = f"{format_count(len(instances), 'node')} {'runs' if len(instances) == 1 else 'run'}"
    if {"lease", "fence"} & set(status.unknown):
        return f"{nodes_text}, unknown under which lease"
    return f"{nodes_text} {f'under {_describe_lease(status, lease)}' if lease else 'without a live lease'}"


def _describe_lease(status: StatusReport, lease: Lease) -> str:
    return f"lease {lease.run} until {format_moment(lease.deadline, status.now)}"


def _list_own_instances(status: StatusReport) -> list[FleetInstance]:
    return [instance for instance in status.fleet.instances if instance.is_ours]


def choose_next_step(status: StatusReport) -> str:
    """Return the command that comes next and its purpose as a comment, which a shell passes over."""
    command, purpose = next(_list_next_steps(status))
    return f"{command}  # {purpose}"


def _list_next_steps(status: StatusReport) -> Iterator[tuple[str, str]]:
    """Yield every command that would do, with its purpose, the most urgent first."""
    environment, fleet_state, instances = status.environment, status.fleet, _list_own_instances(status)
    name = environment.name
    end_step = build_tandem_command("stop --end", name), "ends the run; in an emergency: without --end"
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
        awaits_reservation = environment.capacity.awaits_reservation
        purpose = "once capacity.reservation_id is written" if awaits_reservation else "makes the node group"
        yield build_cdk_command("deploy", name, "Fleet"), purpose
    if fleet_state.is_fenced:
        yield build_tandem_command("stop --release", name), "lifts the fence; no start before"
    if fleet_state.live_lease:
        yield end_step
    if {"fence", "lease", "node group"} & set(status.unknown):
        yield build_tandem_command("status", name), "once AWS answers"
    yield f"{build_tandem_command('start', name)} --hours H --experiment NAME", "raises nodes"
