"""How `tandem start` says what it will do, what it did, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.commands.fleet import row, when
from tandem.commands.outcome import counted
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.ops.labels import Admitted
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
        trouble: what is wrong with a path that would stop it, by its name.
    """

    environment: Environment
    experiment: Experiment | None
    admitted: Admitted
    hours: float
    nodes: int
    run: str
    compiles: bool
    now: datetime
    trouble: Mapping[str, str] = field(default_factory=dict)

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
    for index, (path, does) in enumerate(_stops(plan, limits)):
        yield from row("stops" if index == 0 else "", f"{path:<9} {plan.trouble.get(path, does)}")


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
    does = "only tells people: a block is paid" if limits.capacity_kind == "capacity-block" else "stops the fleet"
    yield "budget", f"{guard.budget_usd:,.2f} USD a month (guard.budget_usd): {does}; its figures are hours late"


def raised_lines(plan: Plan, raised: Raised) -> Iterator[str]:
    """Yield what was done and what comes next."""
    name, lease = plan.environment.name, raised.lease
    again = "was raised before; " if raised.present else ""
    yield from row("raised", f"{again}EKS wants {counted(raised.nodes, 'instance')}; a node joins some minutes later")
    yield from row("run", f"{lease.run}, deadline {when(lease.deadline, plan.now)}; it cannot be moved")
    yield from row("watch", f"tandem status --env {name}")
    yield from row("stop", f"tandem stop --env {name} --wait")
    for index, line in enumerate(next_lines(plan)):
        yield f"  {'next' if index == 0 else '':<10}{line}"


def next_lines(plan: Plan) -> list[str]:
    """Return the commands that use the fleet, each on a line of its own, and where they work."""
    name, experiment = plan.environment.name, plan.experiment
    if experiment is None:
        return []
    space = names.namespace(experiment)
    if plan.compiles:
        return [f"tandem artifacts list --env {name}  # prints the command of each artifact to compile; {INSIDE[:-1]}",
                f"kubectl -n {space} get jobs"]  # fmt: skip
    scale = [f"kubectl -n {space} scale deploy {variant.name} --replicas=1" for variant in plan.admitted.variants]
    bench = f"tandem bench run --env {name} --experiment {experiment.name} --publish --out runs/{plan.run}"
    only = ",".join(variant.name for variant in plan.admitted.variants)
    return [INSIDE, *scale, f"kubectl -n {space} get pods -o wide",
            f"{bench} --only {only}" if plan.admitted.waiting else bench]  # fmt: skip


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
            {"name": path, "does": does, "trouble": plan.trouble.get(path)} for path, does in _stops(plan, limits)
        ],
        "reservation": list(notes),
        "next": [line for line in next_lines(plan) if line != INSIDE],
        "exit_code": 0,
    }
