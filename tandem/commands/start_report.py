"""How `tandem start` says what it will do, what it did, and what comes next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.commands.fleet import row, tandem_command, when
from tandem.commands.outcome import counted
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.ops.labels import Admitted
    from tandem.ops.paths import StopPath
    from tandem.start import Raised
    from tandem.stop import Guarded

INSIDE = "inside the VPC, where the Kubernetes API answers:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be raised.

    Args:
        experiment: whose servers or compile jobs may take the nodes; None: nobody's.
        hours: from `now` to the deadline.
        compiles: whether for compile jobs.
        paths: reaper and budget, as they stand before the start.
        kind: of the capacity that the node group is deployed with; empty: as declared.
    """

    environment: Environment
    experiment: Experiment | None
    admitted: Admitted
    hours: float
    nodes: int
    run: str
    compiles: bool
    now: datetime
    paths: Sequence[StopPath] = ()
    kind: str = ""

    @property
    def unarmed(self) -> tuple[str, ...]:
        """Return the names of the paths that are not armed and that whoever starts accepts."""
        return tuple(path.name for path in self.paths if path.state == "unarmed")

    @property
    def deadline(self) -> datetime:
        """Return when it is stopped."""
        return self.now + timedelta(hours=self.hours)

    @property
    def usd(self) -> float:
        """Return what it costs at most, at the declared price; of a block it is paid already."""
        return self.hours * self.nodes * self.environment.capacity.usd_per_hour


def plan_lines(plan: Plan, limits: Guarded, notes: Sequence[str]) -> Iterator[str]:
    """Yield what will be done, for how much, and what will end it."""
    capacity = plan.environment.capacity
    yield f"{plan.environment.name}: start run {plan.run}"
    yield from row("fleet", f"0 -> {plan.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})")
    for note in notes:
        yield from row("reserved", note)
    yield from row("until", when(plan.deadline, plan.now))
    yield from row("admits", _admits(plan))
    yield from row("cost", _cost(plan))
    for index, (name, does) in enumerate(_stops(plan, limits)):
        yield from row("stops" if index == 0 else "", f"{name:<9} {_describe_trouble(plan, name) or does}")
    absent = [path.name for path in plan.paths if path.state == "absent"]
    if absent:
        rest = " and ".join(name for name, _ in _stops(plan, limits) if name not in absent)
        yield from row("", f"without the {' and '.join(absent)} this start needs {rest}")


def _describe_trouble(plan: Plan, name: str) -> str:
    """Return what is wrong with a path; empty for one that is armed."""
    path = next((path for path in plan.paths if path.name == name), None)
    if path is None or path.state == "armed":
        return ""
    return f"NOT ARMED, accepted: {path.sentence}" if path.state == "unarmed" else f"{path.state}: {path.sentence}"


def _admits(plan: Plan) -> str:
    if plan.experiment is None:
        return "nobody: no label is set; name an --experiment, or label the nodes yourself"
    if plan.compiles:
        return f"compile jobs of {plan.experiment.name}"
    said = ", ".join(variant.name for variant in plan.admitted.variants)
    if plan.admitted.waiting:
        left = ", ".join(variant.name for variant in plan.admitted.waiting)
        return f"{said}; no room for {left} (--only chooses, --nodes makes room)"
    return said


def _cost(plan: Plan) -> str:
    capacity = plan.environment.capacity
    figure = f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"
    said = f"{plan.usd:,.2f} USD at most: {plan.hours:g} h x {counted(plan.nodes, 'node')} x {figure}"
    if capacity.kind == "capacity-block":
        return f"{said}; the block is paid already, this much of it is used"
    return f"{said}; the reservation is paid already" if capacity.kind == "reservation" else said


def _stops(plan: Plan, limits: Guarded) -> Iterator[tuple[str, str]]:
    guard = plan.environment.guard
    yield "schedule", f"{when(plan.deadline, plan.now)}: calls EKS itself, once; armed before the raise"
    ends = f", the block's end {when(limits.block_ends, plan.now)}" if limits.block_ends else ""
    yield "reaper", f"every 5 min: the deadline, an age of {guard.max_hours} h (guard.max_hours){ends}"
    kind = plan.kind or limits.capacity_kind
    does = "only tells people: a block is paid" if kind == "capacity-block" else "stops the fleet"
    yield "budget", f"{guard.budget_usd:,.2f} USD a month (guard.budget_usd): {does}; its figures are hours late"


def raised_lines(plan: Plan, raised: Raised) -> Iterator[str]:
    """Yield what was done and what comes next."""
    name, lease = plan.environment.name, raised.lease
    again = "was raised before; " if raised.present else ""
    yield from row("raised", f"{again}EKS wants {counted(raised.nodes, 'instance')}; a node joins some minutes later")
    yield from row("run", f"{lease.run}, deadline {when(lease.deadline, plan.now)}; it cannot be moved")
    if plan.unarmed:
        yield from row("unarmed", f"accepted, and written into the lease: {', '.join(plan.unarmed)}")
    yield from row("watch", tandem_command("status", "--env", name))
    yield from row("end", f"{tandem_command('stop', '--end', '--env', name)} when the run is done")
    yield from row("stop", f"{tandem_command('stop', '--env', name)} in an emergency: a fence stays behind it")
    for index, line in enumerate(next_lines(plan)):
        yield f"  {'next' if index == 0 else '':<10}{line}"


def next_lines(plan: Plan) -> list[str]:
    """Return the commands that use the fleet, each on a line of its own, and where they work."""
    name, experiment = plan.environment.name, plan.experiment
    if experiment is None:
        return []
    space = names.namespace(experiment)
    if plan.compiles:
        listing = tandem_command("artifacts", "list", "--env", name)
        return [f"{listing}  # prints the command of each artifact to compile; {INSIDE[:-1]}",
                shlex.join(["kubectl", "-n", space, "get", "jobs"])]  # fmt: skip
    scale = [shlex.join(["kubectl", "-n", space, "scale", "deploy", variant.name, "--replicas=1"])
             for variant in plan.admitted.variants]  # fmt: skip
    only = ["--only", ",".join(variant.name for variant in plan.admitted.variants)] if plan.admitted.waiting else []
    bench = tandem_command(
        "bench", "run", "--env", name, "--experiment", experiment.name, "--publish", "--out", f"runs/{plan.run}", *only
    )
    return [INSIDE, *scale, shlex.join(["kubectl", "-n", space, "get", "pods", "-o", "wide"]), bench]


def plain(plan: Plan, limits: Guarded, raised: Raised, notes: Sequence[str]) -> dict[str, Any]:
    """Return the JSON document."""
    capacity, lease = plan.environment.capacity, raised.lease
    return {
        "environment": plan.environment.name,
        "run": lease.run,
        "deadline": lease.deadline.isoformat(),
        "raised_before": raised.present,
        "nodes": raised.nodes,
        "labels": dict(lease.node_label),
        "waiting": [variant.name for variant in plan.admitted.waiting],
        "usd_at_most": round(plan.usd, 2),
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date.isoformat(),
        "prepaid": capacity.needs_reservation,
        "schedule": raised.schedule_arn,
        "stops": [
            {"name": name, "does": does, "trouble": _describe_trouble(plan, name) or None}
            for name, does in _stops(plan, limits)
        ],
        "unarmed": list(plan.unarmed),
        "reservation": list(notes),
        "next": [line for line in next_lines(plan) if line != INSIDE],
        "exit_code": 0,
    }
