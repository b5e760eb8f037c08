"""`tandem start`: raise a fleet for so many hours, behind a lease and an armed stop.

Invariant: what it will cost and what will end it is shown before it is asked for; `tandem.guard.fleet_start` alone
raises.

Exit codes: 0 raised; 1 not wanted after all; 2 bad input, not allowed now, or a path that should stop it is not armed;
3 AWS failed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from cyclopts import Parameter

from tandem.cli import fleet
from tandem.cli.console import VerbatimText, format_count, print_json, print_line, print_rows
from tandem.cli.flags import EnvironmentName, Name, Names, Whole, require_range
from tandem.cli.fleet import TextRow, format_moment
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_start import RaiseReport, raise_fleet, require_valid_request
from tandem.guard.observe import FleetState, observe_fleet
from tandem.ops.account import create_session, require_account
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import build_guard_config
from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers
from tandem.ops.reservation import read_reservation
from tandem.ops.status import cluster_exists, current_time
from tandem.ops.status_warnings import describe_path_fix
from tandem.ops.stop_paths import PathClients, StopPath, fleet_capacity_kind, read_standing_paths
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

VPC_NOTE = "inside the VPC, where the Kubernetes API answers:"
PREPAID_NOTES = {
    "capacity-block": "; the block is paid already, this much of it is used",
    "reservation": "; the reservation is paid already",
}
MAX_RUN_PREFIX_CHARACTERS = 40  # so that all of a run's name is one that tandem.guard.fleet_start takes


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What is to be raised.

    Args:
        limits: of the guard; with the block's hours as EC2 says them, once it was asked.
        experiment: whose servers or compile jobs may take the nodes; None: nobody's.
        hours: from `now` to the deadline.
        compiles: whether for compile jobs.
        paths: reaper and budget, as they stand before the start.
        kind: of the capacity that the node group is deployed with; empty: as declared.
        notes: what is to be known of the reservation.
    """

    environment: Environment
    limits: GuardConfig
    experiment: Experiment | None
    admission: NodeAdmission
    hours: float
    nodes: int
    run: str
    compiles: bool
    now: datetime
    paths: Sequence[StopPath] = ()
    kind: str = ""
    notes: Sequence[str] = ()

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


def start(
    *,
    env: EnvironmentName,
    hours: Annotated[float, Parameter(metavar="H", validator=require_range(1e-9, 1e9, "hours above 0"))],
    experiment: Name | None = None,
    variants: Names = (),
    for_compile: Annotated[bool, Parameter(name="--compile")] = False,
    nodes: Whole = 1,
    run: Annotated[str | None, Parameter(metavar="ID")] = None,
    yes: bool = False,
    accept_unarmed: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Raise the fleet for so many hours, behind a lease and an armed stop.

    Args:
        env: the environment whose fleet it is
        hours: then it is stopped, whoever uses it
        experiment: whose servers may take the nodes; none: nobody's
        variants: variants of it; as many as fit, in its file's order
        for_compile: for the experiment's compile jobs, and no server
        nodes: instances to raise
        run: name of the run; made of the experiment and the time by default
        yes: ask nothing
        accept_unarmed: start although a path would not stop the fleet; the lease says so

    Raises:
        TandemError: a declared file is refused, nothing can be raised now, or AWS failed.
    """
    inputs = read_legal_inputs(selection.narrow((env,)))
    environment = inputs.environments()[0]
    try:
        chosen = _select_experiment(inputs, experiment, nodes=nodes, needs_experiment=bool(variants) or for_compile)
        admission = _compute_admission(inputs, chosen, variants, nodes=nodes, for_compile=for_compile)
        aws_session = create_session()
        caller = require_account(environment, aws_session)
        clients, now = AwsClients.create(environment.region, aws_session), current_time()
        run_prefix = (chosen.name if chosen else "by-hand")[:MAX_RUN_PREFIX_CHARACTERS].rstrip("-")
        plan = StartPlan(
            environment=environment,
            limits=build_guard_config(environment),
            experiment=chosen,
            admission=admission,
            hours=hours,
            nodes=nodes,
            run=run or f"{run_prefix}-{now:%Y%m%d-%H%M%S}",
            compiles=for_compile,
            now=now,
        )
        require_valid_request(plan.limits, run=plan.run, hours=hours, nodes=nodes)
        fleet_state = observe_fleet(clients, plan.limits, now)
        _require_deployed(plan, clients, fleet_state)
        _require_free(plan, fleet_state)
        path_clients = PathClients.create(environment, aws_session)
        paths = read_standing_paths(clients, path_clients, environment, plan.limits, fleet_state)
        plan = replace(plan, paths=paths, kind=fleet_capacity_kind(fleet_state, plan.limits))
        if not accept_unarmed:
            _require_armed(plan)
        return _start_fleet(selection, _read_reservation(clients, plan), clients, caller, asks=not yes)
    except TandemError as fault:
        raise fleet.explain_fault(fault, environment) from fault


def _select_experiment(
    inputs: CommandInputs, name: str | None, *, nodes: int, needs_experiment: bool
) -> Experiment | None:
    environment = inputs.environments()[0]
    where, capacity = f"environment {environment.name}", environment.capacity
    if capacity.awaits_reservation:
        change = "write capacity.reservation_id and deploy Fleet"
        raise InputError("it has no Fleet stack yet", where=where, change=change)
    if not 0 < nodes <= capacity.nodes:
        change = "name fewer, or raise capacity.nodes and deploy Fleet"
        raise InputError(f"--nodes {nodes} is not within 1 to {capacity.nodes}", where=where, change=change)
    if name is None and needs_experiment:
        change = "add --experiment NAME"
        raise InputError("--compile and --variants are of an experiment", where=where, change=change)
    return None if name is None else inputs.find_experiment(environment, name)


def _compute_admission(
    inputs: CommandInputs, experiment: Experiment | None, names: Sequence[str], *, nodes: int, for_compile: bool
) -> NodeAdmission:
    if experiment is None:
        return NodeAdmission(labels={})
    if for_compile:
        return admit_compile_jobs(experiment)
    variant_names = [variant.name for variant in experiment.all_variants()]
    unknown_names = sorted(set(names) - set(variant_names))
    if unknown_names:
        problem, where = f"it has no variant {', '.join(unknown_names)}", f"experiment {experiment.name}"
        raise InputError(problem, where=where, change=f"name some of: {', '.join(variant_names)}")
    environment = inputs.environments()[0]
    return admit_servers(environment, experiment, inputs.catalogue, nodes=nodes, variant_names=list(names))


def _require_deployed(plan: StartPlan, clients: AwsClients, fleet_state: FleetState) -> None:
    """Make sure that there is a node group to raise, as far as that can be seen.

    Raises:
        InputError: nothing, or a cluster without its node group, is deployed.
        ExternalError: EKS could not be asked.
    """
    environment, limits = plan.environment, plan.limits
    if "NoSuchBucket" in fleet_state.unknown.get("fence", ""):
        raise fleet.build_not_deployed_error(environment, "its bucket does not exist")
    if fleet_state.has_node_group is not False:
        return
    if not cluster_exists(clients, limits):
        raise fleet.build_not_deployed_error(environment, f"EKS knows no cluster {limits.cluster}")
    change, where = build_cdk_command("deploy", environment.name, "Fleet"), limits.node_group_description
    raise InputError("it is half deployed: a cluster and no node group", where=where, change=change)


def _require_free(plan: StartPlan, fleet_state: FleetState) -> None:
    """Make sure that neither a fence nor another run's lease stands in the way; `raise_fleet` looks at both again.

    Raises:
        InputError: one of them does.
    """
    name, fence, lease = plan.environment.name, fleet_state.fence, fleet_state.lease
    release_command = build_tandem_command("stop --release", name)
    if fence and fence.is_closed:
        has_instances = any(instance.is_ours for instance in fleet_state.instances)
        wait_command = f"{build_tandem_command('stop --wait', name)}, then " if has_instances else ""
        stopped = f"{fence.who} stopped the fleet at {format_moment(fence.at, plan.now)}: {fence.why}"
        raise InputError(
            f"a fence blocks this start: {stopped}",
            where=plan.limits.url("stop.json"),
            change=f"when the reason is gone: {wait_command}{release_command}",
        )
    if lease is None:
        return
    where, deadline = plan.limits.url("lease.json"), format_moment(lease.deadline, plan.now)
    if plan.now >= lease.deadline:
        change = f"the reaper fences it within minutes; then {release_command}"
        raise InputError(f"the lease of run {lease.run} ended at {deadline}", where=where, change=change)
    if lease.run != plan.run:
        change = f"wait, or end it: {build_tandem_command('stop --end', name, '--run', lease.run)}"
        raise InputError(f"run {lease.run} of {lease.who} has the fleet until {deadline}", where=where, change=change)


def _require_armed(plan: StartPlan) -> None:
    """Make sure that every path that can exist would stop the fleet; unknown refuses nothing.

    Raises:
        InputError: one of them is not armed.
    """
    unarmed_paths = [path for path in plan.paths if path.state == "unarmed"]
    if unarmed_paths:
        count = format_count(len(unarmed_paths), "path")
        reasons = "; ".join(f"{path.name}: {path.sentence}" for path in unarmed_paths)
        mend_commands = dict.fromkeys(describe_path_fix(path, plan.environment) for path in unarmed_paths)
        raise InputError(
            f"{count} that should stop the fleet would not: {reasons}",
            where=f"environment {plan.environment.name}",
            change=f"mend it: {' and '.join(mend_commands)}; or add --accept-unarmed, which stands in the lease",
        )


def _read_reservation(clients: AwsClients, plan: StartPlan) -> StartPlan:
    """Return the plan with the block's hours as EC2 says them, and what is to be known of the reservation."""
    if not plan.environment.capacity.needs_reservation:
        return plan
    limits = plan.limits
    try:
        reservation = read_reservation(clients.ec2, plan.environment)
    except AccessDeniedError as fault:
        return replace(plan, notes=[f"unknown: {fault.problem}; {fault.change}"])
    if reservation is None:
        note = f"EC2 knows no {limits.reservation_id} in this account and region: nothing could be launched"
        return replace(plan, notes=[note])
    notes = [f"{reservation.id} is {reservation.state}"]
    if limits.capacity_kind == "capacity-block":
        if limits.block_ends and reservation.ends and reservation.ends != limits.block_ends:
            end = f"{reservation.ends:%Y-%m-%d %H:%M} UTC"
            notes.append(f"EC2 says that it ends {end}, capacity.block {limits.block_ends:%H:%M}")
        starts, ends = reservation.starts or limits.block_starts, reservation.ends or limits.block_ends
        limits = replace(limits, block_starts=starts, block_ends=ends)
    return replace(plan, limits=limits, notes=notes)


def _start_fleet(selection: Selection, plan: StartPlan, clients: AwsClients, caller: str, *, asks: bool) -> ExitCode:
    """Show the plan, ask, raise and say what comes next.

    Raises:
        InputError: there is nobody to be asked.
    """
    name = plan.environment.name
    print_line(f"{name}: start run {plan.run}", stderr=selection.as_json)
    print_rows(_list_plan_rows(plan), stderr=selection.as_json)
    if asks:
        if not sys.stdin.isatty():
            where, change = f"environment {name}", "read the plan, then add --yes"
            raise InputError("nobody is there to be asked", where=where, change=change)
        print("  raise it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            if selection.as_json:
                print_json({"environment": name, "raised": False, "exit_code": int(ExitCode.STALE)})
            print("nothing was done", file=sys.stderr)
            return ExitCode.STALE
    try:
        raise_report = raise_fleet(
            clients,
            plan.limits,
            run=plan.run,
            hours=plan.hours,
            nodes=plan.nodes,
            node_labels=plan.admission.labels,
            experiment=plan.experiment.name if plan.experiment else None,
            who=caller,
            beats=False,
            now=current_time(),
            unarmed_paths=plan.exempt_path_names,
        )
    except KeyboardInterrupt:
        status, stop = (build_tandem_command(verb, name) for verb in ("status", "stop"))
        again = f"the same command with {shlex.join(['--run', plan.run])}"
        state = "interrupted: the fleet may be raised all the same"
        print(f"{state}. See: {status}; end it: {stop}; go on: {again}", file=sys.stderr)
        raise
    if selection.as_json:
        print_json(_result_as_dict(plan, raise_report))
    else:
        print_rows(_list_result_rows(plan, raise_report))
    return ExitCode.DONE


def _list_plan_rows(plan: StartPlan) -> Iterator[TextRow]:
    """Yield what will be done, for how much, and what will end it."""
    capacity = plan.environment.capacity
    yield "fleet", f"0 -> {plan.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})"
    yield from (("reserved", note) for note in plan.notes)
    yield "until", format_moment(plan.deadline, plan.now)
    yield "admits", _format_admission(plan)
    price = f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"
    cost = f"{plan.usd:,.2f} USD at most: {plan.hours:g} h x {format_count(plan.nodes, 'node')} x {price}"
    yield "cost", cost + PREPAID_NOTES.get(capacity.kind, "")
    stop_paths = list(_list_stop_paths(plan))
    for index, (name, effect) in enumerate(stop_paths):
        yield "stops" if index == 0 else "", f"{name:<9} {_describe_trouble(plan, name) or effect}"
    absent_names = [path.name for path in plan.paths if path.state == "absent"]
    if absent_names:
        present_names = " and ".join(name for name, _ in stop_paths if name not in absent_names)
        yield "", f"without the {' and '.join(absent_names)} this start needs {present_names}"


def _format_admission(plan: StartPlan) -> str:
    if plan.experiment is None:
        return "nobody: no label is set; name an --experiment, or label the nodes yourself"
    if plan.compiles:
        return f"compile jobs of {plan.experiment.name}"
    text = ", ".join(variant.name for variant in plan.admission.variants)
    waiting_names = ", ".join(variant.name for variant in plan.admission.waiting_variants)
    return text + (waiting_names and f"; no room for {waiting_names} (--variants chooses, --nodes makes room)")


def _list_stop_paths(plan: StartPlan) -> Iterator[tuple[str, str]]:
    guard, limits = plan.environment.guard, plan.limits
    yield "schedule", f"{format_moment(plan.deadline, plan.now)}: calls EKS itself, once; armed before the raise"
    block_end = f", the block's end {format_moment(limits.block_ends, plan.now)}" if limits.block_ends else ""
    yield "reaper", f"every 5 min: the deadline, an age of {guard.max_hours} h (guard.max_hours){block_end}"
    kind = plan.kind or limits.capacity_kind
    effect = "only tells people: a block is paid" if kind == "capacity-block" else "stops the fleet"
    yield "budget", f"{guard.budget_usd:,.2f} USD a month (guard.budget_usd): {effect}; its figures are hours late"


def _describe_trouble(plan: StartPlan, name: str) -> str:
    """Return what is wrong with a path; empty for one that is armed."""
    path = next((path for path in plan.paths if path.name == name and path.state != "armed"), None)
    return f"{'NOT ARMED, accepted' if path.state == 'unarmed' else path.state}: {path.sentence}" if path else ""


def _list_result_rows(plan: StartPlan, raise_report: RaiseReport) -> Iterator[TextRow]:
    """Yield what was done and what comes next."""
    name, lease = plan.environment.name, raise_report.lease
    prefix = "was raised before; " if raise_report.was_present else ""
    yield "raised", f"{prefix}EKS wants {format_count(raise_report.nodes, 'instance')}; a node joins some minutes later"
    yield "run", f"{lease.run}, deadline {format_moment(lease.deadline, plan.now)}; it cannot be moved"
    if plan.exempt_path_names:
        yield "unarmed", f"accepted, and written into the lease: {', '.join(plan.exempt_path_names)}"
    yield "watch", VerbatimText(build_tandem_command("status", name))
    yield "end", VerbatimText(f"{build_tandem_command('stop --end', name)}  # when the run is done")
    yield "stop", VerbatimText(f"{build_tandem_command('stop', name)}  # in an emergency: a fence stays behind it")
    for index, line in enumerate(_list_next_commands(plan)):
        yield "next" if index == 0 else "", VerbatimText(line)


def _list_next_commands(plan: StartPlan) -> list[str]:
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


def _result_as_dict(plan: StartPlan, raise_report: RaiseReport) -> dict[str, Any]:
    capacity, lease = plan.environment.capacity, raise_report.lease
    return {
        "environment": plan.environment.name,
        "run": lease.run,
        "deadline": lease.deadline.isoformat(),
        "raised_before": raise_report.was_present,
        "nodes": raise_report.nodes,
        "labels": dict(lease.node_label),
        "waiting": [variant.name for variant in plan.admission.waiting_variants],
        "usd_at_most": round(plan.usd, 2),
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date.isoformat(),
        "prepaid": capacity.needs_reservation,
        "schedule": raise_report.schedule_arn,
        "stops": [
            {"name": name, "does": effect, "trouble": _describe_trouble(plan, name) or None}
            for name, effect in _list_stop_paths(plan)
        ],
        "unarmed": list(plan.exempt_path_names),
        "reservation": list(plan.notes),
        "next": [line for line in _list_next_commands(plan) if line != VPC_NOTE],
        "exit_code": 0,
    }
