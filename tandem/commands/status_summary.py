"""The first words of `tandem status`: one sentence that concludes, and the command that comes next.

Invariant: what is unknown is said to be unknown and is never taken for nothing, for parked or for fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tandem.commands.fleet import deploy_command, span, tandem_command, when
from tandem.commands.outcome import counted

if TYPE_CHECKING:
    from tandem.ops.concerns import Concern
    from tandem.ops.status import Status
    from tandem.stop import Instance, Lease


def conclude_status(status: Status, concerns: Sequence[Concern]) -> str:
    """Return the first line: what the fleet does now, and whether somebody has to look after it."""
    parts = [_describe_fleet(status), *_describe_fence(status), *_count_open_points(status, concerns)]
    return f"{status.environment.name}: {', '.join(parts)}"


def _describe_fleet(status: Status) -> str:
    return next(_fleet_sentences(status))


def _fleet_sentences(status: Status) -> Iterator[str]:
    """Yield every sentence that holds, the most urgent first."""
    seen, ours = status.seen, _instances_of(status)
    if "instances" in status.unknown:
        yield "unknown whether anything runs: EC2 could not be asked"
    if ours:
        yield f"{_describe_running(status, ours)}, {status.usd:,.2f} USD so far"
    if status.deployed == "nothing":
        yield "not deployed"
    if status.deployed == "cluster":
        yield "half deployed: a cluster and no node group, nothing runs"
    if "node group" in status.unknown:
        yield "nothing runs, unknown what the node group wants"
    if seen.desired and seen.owned:
        under = f"under {_describe_lease(status, seen.live)}" if seen.live else "without a live lease"
        yield f"nothing runs yet, {counted(seen.desired, 'node')} wanted {under}"
    if seen.live:
        yield f"nothing runs, {_describe_lease(status, seen.live)} stands"
    yield f"{'stopped' if seen.fenced else 'parked'}, nothing runs{_describe_bill(status)}"


def _describe_running(status: Status, ours: Sequence[Instance]) -> str:
    seen, alive = status.seen, counted(len(ours), "instance")
    if seen.fenced:
        return f"a stop is under way: {alive} alive"
    if seen.live and seen.live.ending:
        return f"run {seen.live.run} is ending: {alive} alive"
    runs = f"{counted(len(ours), 'node')} {'runs' if len(ours) == 1 else 'run'}"
    if {"lease", "fence"} & set(status.unknown):
        return f"{runs}, unknown under which lease"
    return f"{runs} under {_describe_lease(status, seen.live)}" if seen.live else f"{runs} without a live lease"


def _describe_lease(status: Status, lease: Lease) -> str:
    return f"lease {lease.run} until {when(lease.deadline, status.now)}"


def _describe_bill(status: Status) -> str:
    """Return what a fleet that is gone has cost; nothing where nothing was counted, which the cost row explains."""
    bill = status.bill
    if bill is None or not bill.usd:
        return ""
    return f", about {bill.usd:,.2f} USD in the last {span(status.now - bill.since)}"


def _describe_fence(status: Status) -> Iterator[str]:
    if "fence" in status.unknown and status.deployed != "nothing":
        yield "unknown whether a fence stands"
    elif status.seen.fenced and status.deployed != "nothing" and not _instances_of(status):
        yield "a fence blocks the next start"


def _count_open_points(status: Status, concerns: Sequence[Concern]) -> Iterator[str]:
    if concerns:
        yield f"{counted(len(concerns), 'thing')} {'needs' if len(concerns) == 1 else 'need'} attention"
    if status.unknown:
        yield f"{counted(len(status.unknown), 'thing')} could not be read"
    elif not concerns and status.deployed != "nothing":
        yield "nothing needs attention"


def _instances_of(status: Status) -> list[Instance]:
    return [instance for instance in status.seen.instances if instance.ours]


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


def next_step(status: Status) -> NextStep:
    """Return the command that comes next."""
    return next(_next_steps(status))


def _next_steps(status: Status) -> Iterator[NextStep]:
    """Yield every command that would do, the most urgent first."""
    environment, seen, ours = status.environment, status.seen, _instances_of(status)
    name = environment.name
    stop, look = tandem_command("stop", "--env", name), tandem_command("status", "--env", name)
    end = NextStep(tandem_command("stop", "--end", "--env", name), "ends the run; in an emergency: without --end")
    if "instances" in status.unknown:
        yield NextStep(stop, "stops the fleet unseen")
    if ours and seen.fenced:
        yield NextStep(f"{stop} --wait", "follows the stop to its end")
    if seen.live and (ours or seen.desired):
        yield end
    if ours or (seen.desired and seen.owned):
        yield NextStep(stop, "stops it")
    if status.deployed == "nothing":
        yield NextStep(deploy_command(environment), "deploys it")
    if status.deployed == "cluster":
        waits = environment.capacity.awaits_reservation
        yield NextStep(deploy_command(environment, "Fleet"),
                       "once capacity.reservation_id is written" if waits else "makes the node group")  # fmt: skip
    if seen.fenced:
        yield NextStep(tandem_command("stop", "--clear", "--env", name), "lifts the fence; no start before")
    if seen.live:
        yield end
    if {"fence", "lease", "node group"} & set(status.unknown):
        yield NextStep(look, "once AWS answers")
    yield NextStep(f"{tandem_command('start', '--env', name)} --hours H --experiment NAME", "raises nodes")
