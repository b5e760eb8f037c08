"""How `tandem start` says what it will do, what it did, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.cli.console import VerbatimText, format_count
from tandem.cli.fleet import TextRow, format_moment
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.guard.config import GuardConfig
    from tandem.guard.fleet_start import RaiseReport
    from tandem.ops.node_admission import NodeAdmission
    from tandem.ops.stop_paths import StopPath

VPC_NOTE = "inside the VPC, where the Kubernetes API answers:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
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
    admission: NodeAdmission
    hours: float
    nodes: int
    run: str
    compiles: bool
    now: datetime
    paths: Sequence[StopPath] = ()
    kind: str = ""

    @property
    def exempt_path_names(self) -> tuple[str, ...]:
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


def list_plan_rows(plan: StartPlan, limits: GuardConfig, notes: Sequence[str]) -> Iterator[TextRow]:
    """Yield what will be done, for how much, and what will end it."""
    capacity = plan.environment.capacity
    yield "fleet", f"0 -> {plan.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})"
    yield from (("reserved", note) for note in notes)
    yield "until", format_moment(plan.deadline, plan.now)
    yield "admits", _format_admission(plan)
    yield "cost", _format_cost(plan)
    stop_paths = list(_list_stop_paths(plan, limits))
    for index, (name, effect) in enumerate(stop_paths):
        yield "stops" if index == 0 else "", f"{name:<9} {_describe_trouble(plan, name) or effect}"
    absent_names = [path.name for path in plan.paths if path.state == "absent"]
    if absent_names:
        present_names = " and ".join(name for name, _ in stop_paths if name not in absent_names)
        yield "", f"without the {' and '.join(absent_names)} this start needs {present_names}"


def _describe_trouble(plan: StartPlan, name: str) -> str:
    """Return what is wrong with a path; empty for one that is armed."""
    path = next((path for path in plan.paths if path.name == name), None)
    if path is None or path.state == "armed":
        return ""
    return f"NOT ARMED, accepted: {path.sentence}" if path.state == "unarmed" else f"{path.state}: {path.sentence}"


def _format_admission(plan: StartPlan) -> str:
    if plan.experiment is None:
        return "nobody: no label is set; name an --experiment, or label the nodes yourself"
    if plan.compiles:
        return f"compile jobs of {plan.experiment.name}"
    variant_names = ", ".join(variant.name for variant in plan.admission.variants)
    if plan.admission.waiting_variants:
        waiting_names = ", ".join(variant.name for variant in plan.admission.waiting_variants)
        return f"{variant_names}; no room for {waiting_names} (--variants chooses, --nodes makes room)"
    return variant_names


def _format_cost(plan: StartPlan) -> str:
    capacity = plan.environment.capacity
    figure = f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"
    text = f"{plan.usd:,.2f} USD at most: {plan.hours:g} h x {format_count(plan.nodes, 'node')} x {figure}"
    if capacity.kind == "capacity-block":
        return f"{text}; the block is paid already, this much of it is used"
    return f"{text}; the reservation is paid already" if capacity.kind == "reservation" else text


def _list_stop_paths(plan: StartPlan, limits: GuardConfig) -> Iterator[tuple[str, str]]:
    guard = plan.environment.guard
    yield "schedule", f"{format_moment(plan.deadline, plan.now)}: calls EKS itself, once; armed before the raise"
    block_end = f", the block's end {format_moment(limits.block_ends, plan.now)}" if limits.block_ends else ""
    yield "reaper", f"every 5 min: the deadline, an age of {guard.max_hours} h (guard.max_hours){block_end}"
    kind = plan.kind or limits.capacity_kind
    effect = "only tells people: a block is paid" if kind == "capacity-block" else "stops the fleet"
    yield "budget", f"{guard.budget_usd:,.2f} USD a month (guard.budget_usd): {effect}; its figures are hours late"


def list_result_rows(plan: StartPlan, raise_result: RaiseReport) -> Iterator[TextRow]:
    """Yield what was done and what comes next."""
    name, lease = plan.environment.name, raise_result.lease
    prefix, count = (
        "was raised before; " if raise_result.was_present else "",
        format_count(raise_result.nodes, "instance"),
    )
    yield "raised", f"{prefix}EKS wants {count}; a node joins some minutes later"
    yield "run", f"{lease.run}, deadline {format_moment(lease.deadline, plan.now)}; it cannot be moved"
    if plan.exempt_path_names:
        yield "unarmed", f"accepted, and written into the lease: {', '.join(plan.exempt_path_names)}"
    yield "watch", VerbatimText(build_tandem_command("status", name))
    yield "end", VerbatimText(f"{build_tandem_command('stop --end', name)}  # when the run is done")
    yield "stop", VerbatimText(f"{build_tandem_command('stop', name)}  # in an emergency: a fence stays behind it")
    for index, line in enumerate(list_next_commands(plan)):
        yield "next" if index == 0 else "", VerbatimText(line)


def list_next_commands(plan: StartPlan) -> list[str]:
    """Return the commands that use the fleet, each on a line of its own, and where they work."""
    name, experiment = plan.environment.name, plan.experiment
    if experiment is None:
        return []
    kubectl = ("kubectl", "-n", names.experiment_namespace(experiment))
    if plan.compiles:
        listing = build_tandem_command("artifacts list", name)
        note = f"prints the command of each artifact to compile; {VPC_NOTE[:-1]}"
        return [f"{listing}  # {note}", quote_command(*kubectl, "get", "jobs")]
    variant_names = [variant.name for variant in plan.admission.variants]
    scale = [quote_command(*kubectl, "scale", "deploy", variant, "--replicas=1") for variant in variant_names]
    chosen = ["--variants", ",".join(variant_names)] if plan.admission.waiting_variants else []
    flags = ["--experiment", experiment.name, "--publish", "--out", f"runs/{plan.run}", *chosen]
    pods = quote_command(*kubectl, "get", "pods", "-o", "wide")
    return [VPC_NOTE, *scale, pods, build_tandem_command("bench run", name, *flags)]


def result_as_dict(
    plan: StartPlan, limits: GuardConfig, raise_result: RaiseReport, notes: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON document."""
    capacity, lease = plan.environment.capacity, raise_result.lease
    return {
        "environment": plan.environment.name,
        "run": lease.run,
        "deadline": lease.deadline.isoformat(),
        "raised_before": raise_result.was_present,
        "nodes": raise_result.nodes,
        "labels": dict(lease.node_label),
        "waiting": [variant.name for variant in plan.admission.waiting_variants],
        "usd_at_most": round(plan.usd, 2),
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date.isoformat(),
        "prepaid": capacity.needs_reservation,
        "schedule": raise_result.schedule_arn,
        "stops": [
            {"name": name, "does": effect, "trouble": _describe_trouble(plan, name) or None}
            for name, effect in _list_stop_paths(plan, limits)
        ],
        "unarmed": list(plan.exempt_path_names),
        "reservation": list(notes),
        "next": [line for line in list_next_commands(plan) if line != VPC_NOTE],
        "exit_code": 0,
    }
