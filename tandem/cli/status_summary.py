"""The first words of `tandem status`: one sentence that concludes, and the command that comes next.

Invariant: what is unknown is said to be unknown and is never taken for nothing, for parked or for fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tandem.cli.fleet import deploy_command, format_moment, format_span, tandem_command
from tandem.cli.outcome import format_count

if TYPE_CHECKING:
    from tandem.guard.lease import Lease
    from tandem.guard.observe import FleetInstance
    from tandem.ops.status import StatusReport
    from tandem.ops.status_warnings import StatusWarning


def conclude_status(status: StatusReport, concerns: Sequence[StatusWarning]) -> str:
    """Return the first line: what the fleet does now, and whether somebody has to look after it."""
    parts = [_describe_fleet(status), *_describe_fence(status), *_describe_open_points(status, concerns)]
    return f"{status.environment.name}: {', '.join(parts)}"


def _describe_fleet(status: StatusReport) -> str:
    return next(_list_fleet_sentences(status))


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
    if fleet_state.desired_size and fleet_state.has_owner_tag:
        lease_text = (
            f"under {_describe_lease(status, fleet_state.live_lease)}"
            if fleet_state.live_lease
            else "without a live lease"
        )
        yield f"nothing runs yet, {format_count(fleet_state.desired_size, 'node')} wanted {lease_text}"
    if fleet_state.live_lease:
        yield f"nothing runs, {_describe_lease(status, fleet_state.live_lease)} stands"
    yield f"{'stopped' if fleet_state.is_fenced else 'parked'}, nothing runs{_describe_bill(status)}"


def _describe_running(status: StatusReport, instances: Sequence[FleetInstance]) -> str:
    fleet_state, instances_text = status.fleet, format_count(len(instances), "instance")
    if fleet_state.is_fenced:
        return f"a stop is under way: {instances_text} alive"
    if fleet_state.live_lease and fleet_state.live_lease.ending:
        return f"run {fleet_state.live_lease.run} is ending: {instances_text} alive"
    nodes_text = f"{format_count(len(instances), 'node')} {'runs' if len(instances) == 1 else 'run'}"
    if {"lease", "fence"} & set(status.unknown):
        return f"{nodes_text}, unknown under which lease"
    return (
        f"{nodes_text} under {_describe_lease(status, fleet_state.live_lease)}"
        if fleet_state.live_lease
        else f"{nodes_text} without a live lease"
    )


def _describe_lease(status: StatusReport, lease: Lease) -> str:
    return f"lease {lease.run} until {format_moment(lease.deadline, status.now)}"


def _describe_bill(status: StatusReport) -> str:
    """Return what a fleet that is gone has cost; nothing where nothing was counted, which the cost row explains."""
    bill = status.bill
    if bill is None or not bill.usd:
        return ""
    return f", about {bill.usd:,.2f} USD in the last {format_span(status.now - bill.since)}"


def _describe_fence(status: StatusReport) -> Iterator[str]:
    if "fence" in status.unknown and status.deployment != "nothing":
        yield "unknown whether a fence stands"
    elif status.fleet.is_fenced and status.deployment != "nothing" and not _list_own_instances(status):
        yield "a fence blocks the next start"


def _describe_open_points(status: StatusReport, concerns: Sequence[StatusWarning]) -> Iterator[str]:
    if concerns:
        yield f"{format_count(len(concerns), 'thing')} {'needs' if len(concerns) == 1 else 'need'} attention"
    if status.unknown:
        yield f"{format_count(len(status.unknown), 'thing')} could not be read"
    elif not concerns and status.deployment != "nothing":
        yield "nothing needs attention"


def _list_own_instances(status: StatusReport) -> list[FleetInstance]:
    return [instance for instance in status.fleet.instances if instance.is_ours]


class NextStep(NamedTuple):
    """What an operator types next.

    Args:
        command: quoted as a shell takes it.
        purpose: what it does, in a few words.
    """

    command: str
    purpose: str

    def __str__(self) -> str:
        """Return it as one line that may be pasted: a shell passes over the purpose."""
        return f"{self.command}  # {self.purpose}"


def choose_next_step(status: StatusReport) -> NextStep:
    """Return the command that comes next."""
    return next(_list_next_steps(status))


def _list_next_steps(status: StatusReport) -> Iterator[NextStep]:
    """Yield every command that would do, the most urgent first."""
    environment, fleet_state, instances = status.environment, status.fleet, _list_own_instances(status)
    name = environment.name
    stop_command, status_command = tandem_command("stop", "--env", name), tandem_command("status", "--env", name)
    end_step = NextStep(tandem_command("stop", "--end", "--env", name), "ends the run; in an emergency: without --end")
    if "instances" in status.unknown:
        yield NextStep(stop_command, "stops the fleet unseen")
    if instances and fleet_state.is_fenced:
        yield NextStep(f"{stop_command} --wait", "follows the stop to its end")
    if fleet_state.live_lease and (instances or fleet_state.desired_size):
        yield end_step
    if instances or (fleet_state.desired_size and fleet_state.has_owner_tag):
        yield NextStep(stop_command, "stops it")
    if status.deployment == "nothing":
        yield NextStep(deploy_command(environment), "deploys it")
    if status.deployment == "cluster":
        awaits_reservation = environment.capacity.awaits_reservation
        yield NextStep(
            deploy_command(environment, "Fleet"),
            "once capacity.reservation_id is written" if awaits_reservation else "makes the node group",
        )
    if fleet_state.is_fenced:
        yield NextStep(tandem_command("stop", "--clear", "--env", name), "lifts the fence; no start before")
    if fleet_state.live_lease:
        yield end_step
    if {"fence", "lease", "node group"} & set(status.unknown):
        yield NextStep(status_command, "once AWS answers")
    yield NextStep(f"{tandem_command('start', '--env', name)} --hours H --experiment NAME", "raises nodes")
