"""`tandem start`: raise a fleet for so many hours, behind a lease and an armed stop.

Invariant: the screen shows the cost and the end of the fleet before it asks;
`tandem.guard.fleet_start` alone raises, and says what stands in the way.

Exit codes: 0 raised; 1 not wanted after all; 2 bad input, not allowed now, or a path that should
stop it is not armed; 3 AWS failed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from cyclopts import Parameter

from tandem.cli import fleet
from tandem.cli.console import (
    VerbatimText,
    ask_consent,
    format_count,
    print_json,
    print_line,
    print_rows,
)
from tandem.cli.flags import EnvironmentName, Name, Names, Whole, require_range
from tandem.cli.fleet import TextRow, format_moment
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.errors import ExitCode, InputError, TandemError
from tandem.guard.capacity_block import NO_WINDOW
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_start import RaiseReport, RaiseRequest, check_start, raise_fleet
from tandem.guard.fleet_state import FleetState
from tandem.ops.account import create_guard_clients, create_session, require_account
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import build_guard_config
from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers
from tandem.ops.reservation import list_plan_differences, read_reservation
from tandem.ops.status import current_time
from tandem.ops.status_warnings import describe_path_fix
from tandem.ops.stop_paths import StopPath, read_stop_paths
from tandem.shell_command import build_tandem_command, quote_command

ADMIN_NOTE = "as an admin, inside the VPC, where the Kubernetes API answers (docs/run-by-hand.md):"
# so that all of a run's name is one that tandem.guard.fleet_start takes
MAX_RUN_PREFIX_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What is to be raised.

    Args:
        limits: of the guard.
        admission: who may take the nodes.
        paths: reaper and budget, as they stand before the start.
        notes: what is to be known of the reservation.
    """

    environment: Environment
    limits: GuardConfig
    admission: NodeAdmission
    request: RaiseRequest
    now: datetime
    paths: Sequence[StopPath]
    notes: Sequence[str]

    @property
    def deadline(self) -> datetime:
        """Return when it is stopped."""
        return self.now + timedelta(hours=self.request.hours)

    @property
    def usd(self) -> float:
        """Return what it costs at most, at the declared price; of a block it is paid already."""
        return self.request.hours * self.request.nodes * self.environment.capacity.usd_per_hour


def start(
    *,
    env: EnvironmentName,
    hours: Annotated[
        float, Parameter(metavar="H", validator=require_range(1e-9, 1e9, "hours above 0"))
    ],
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
        hours: then the fleet stops, whoever uses it
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
        admission = _compute_admission(
            inputs, experiment, variants, nodes=nodes, for_compile=for_compile
        )
        aws_session = create_session()
        caller = require_account(environment, aws_session)
        clients = create_guard_clients(environment, aws_session)
        now = current_time()
        run_prefix = (experiment or "by-hand")[:MAX_RUN_PREFIX_CHARACTERS].rstrip("-")
        request = RaiseRequest(
            run=run or f"{run_prefix}-{now:%Y%m%d-%H%M%S}",
            hours=hours,
            nodes=nodes,
            experiment=experiment,
            node_labels=admission.labels,
            who=caller,
        )
        limits = build_guard_config(environment)
        fleet_state = check_start(clients, limits, request, now)
        all_paths, _ = read_stop_paths(clients, aws_session, environment, limits, fleet_state)
        paths = [path for path in all_paths if path.name != "schedule"]  # that one the start arms
        unarmed_paths = [path for path in paths if path.state == "unarmed"]
        if unarmed_paths and not accept_unarmed:
            raise build_unarmed_error(environment, unarmed_paths)
        request = replace(request, unarmed_paths=tuple(path.name for path in unarmed_paths))
        plan = StartPlan(
            environment=environment,
            limits=limits,
            admission=admission,
            request=request,
            now=now,
            paths=paths,
            notes=list_reservation_notes(clients, environment, fleet_state),
        )
        return _start_fleet(selection, plan, clients, asks=not yes)
    except TandemError as fault:
        raise fleet.explain_fault(fault, environment) from fault


def _compute_admission(
    inputs: CommandInputs,
    name: str | None,
    variants: Sequence[str],
    *,
    nodes: int,
    for_compile: bool,
) -> NodeAdmission:
    environment = inputs.environments()[0]
    where = f"environment {environment.name}"
    if environment.capacity.awaits_reservation:
        change = "write capacity.reservation_id and deploy Fleet"
        raise InputError("it has no Fleet stack yet", where=where, change=change)
    if name is None:
        if variants or for_compile:
            change = "add --experiment NAME"
            raise InputError(
                "--compile and --variants are of an experiment", where=where, change=change
            )
        return NodeAdmission(labels={})
    experiment = inputs.find_experiment(environment, name)
    if for_compile:
        return admit_compile_jobs(experiment)
    variant_names = [variant.name for variant in experiment.all_variants()]
    unknown_names = sorted(set(variants) - set(variant_names))
    if unknown_names:
        problem = f"it has no variant {', '.join(unknown_names)}"
        raise InputError(
            problem, where=f"experiment {name}", change=f"name some of: {', '.join(variant_names)}"
        )
    return admit_servers(
        environment, experiment, inputs.catalogue, nodes=nodes, variant_names=list(variants)
    )


def build_unarmed_error(environment: Environment, paths: Sequence[StopPath]) -> InputError:
    """Return the refusal of a fleet that paths would not stop."""
    reasons = "; ".join(f"{path.name}: {path.sentence}" for path in paths)
    mend_commands = dict.fromkeys(describe_path_fix(path, environment) for path in paths)
    return InputError(
        f"{format_count(len(paths), 'path')} that should stop the fleet would not: {reasons}",
        where=f"environment {environment.name}",
        change=(
            f"mend it: {' and '.join(mend_commands)};"
            " or add --accept-unarmed, which stands in the lease"
        ),
    )


def list_reservation_notes(
    clients: AwsClients, environment: Environment, fleet_state: FleetState
) -> list[str]:
    """Return what EC2 says of the deployed reservation, and how it differs from plans."""
    capacity = environment.capacity
    block = fleet_state.reservation
    notes = []
    if block is not None:
        hours = " to ".join(
            f"{moment:%Y-%m-%d %H:%M}"
            for moment in (block.window.starts, block.window.ends)
            if moment
        )
        notes.append(f"{block.id} is {block.state}, by EC2 from {hours} UTC")
    elif capacity.needs_reservation:
        notes.append(
            _describe_reservation(
                clients, fleet_state.reservation_id or str(capacity.reservation_id)
            )
        )
    differences = list_plan_differences(
        capacity,
        deployed_id=fleet_state.reservation_id,
        planned=fleet_state.planned_window,
        actual=block.window if block else NO_WINDOW,
    )
    return [*notes, *(f"{difference.problem}; {difference.change}" for difference in differences)]


def _describe_reservation(clients: AwsClients, reservation_id: str) -> str:
    try:
        reservation = read_reservation(clients.ec2, reservation_id)
    except AccessDeniedError as fault:
        return f"unknown: {fault.problem}; {fault.change}"
    if reservation is None:
        return (
            f"EC2 knows no {reservation_id} in this account and region: nothing could be launched"
        )
    return f"{reservation_id} is {reservation['State']}"


def _start_fleet(
    selection: Selection, plan: StartPlan, clients: AwsClients, *, asks: bool
) -> ExitCode:
    """Show the plan, ask, raise and say what comes next.

    Raises:
        InputError: there is nobody to be asked.
    """
    name = plan.environment.name
    run = plan.request.run
    print_line(f"{name}: start run {run}", stderr=selection.as_json)
    print_rows(_list_plan_rows(plan), stderr=selection.as_json)
    if asks and not ask_consent("raise it?", where=f"environment {name}"):
        if selection.as_json:
            print_json({"environment": name, "raised": False, "exit_code": int(ExitCode.STALE)})
        print("nothing was done", file=sys.stderr)
        return ExitCode.STALE
    try:
        raise_report = raise_fleet(clients, plan.limits, plan.request, current_time())
    except KeyboardInterrupt:
        stop = build_tandem_command("stop", name)
        again = f"the same command with {quote_command('--run', run)}"
        print(
            f"interrupted: the fleet may be raised all the same. End it: {stop}; go on: {again}",
            file=sys.stderr,
        )
        raise
    if selection.as_json:
        print_json(_result_as_dict(plan, raise_report))
    else:
        print_rows(_list_result_rows(plan, raise_report))
    return ExitCode.DONE


def _list_plan_rows(plan: StartPlan) -> Iterator[TextRow]:
    """Yield what will be done, for how much, and what will end it."""
    capacity = plan.environment.capacity
    request = plan.request
    deadline = format_moment(plan.deadline, plan.now)
    yield (
        "fleet",
        f"0 -> {request.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})",
    )
    yield from (("reserved", note) for note in plan.notes)
    yield "until", deadline
    yield "admits", _format_admission(plan)
    price = f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"
    cost = (
        f"{plan.usd:,.2f} USD at most: {request.hours:g} h x {format_count(request.nodes, 'node')}"
        f" x {price}"
    )
    yield "cost", cost + ("; the capacity is paid already" if capacity.needs_reservation else "")
    yield "stops", f"schedule  {deadline}: calls EKS itself, once; armed before the raise"
    yield from (
        ("", f"{path.name:<9} {fleet.describe_path(path, plan.now)}") for path in plan.paths
    )


def _format_admission(plan: StartPlan) -> str:
    experiment = plan.request.experiment
    admission = plan.admission
    if experiment is None:
        return "nobody: no label is set; name an --experiment, or label the nodes yourself"
    if not admission.variants:
        return f"compile jobs of {experiment}"
    text = ", ".join(variant.name for variant in admission.variants)
    waiting_names = ", ".join(variant.name for variant in admission.waiting_variants)
    return text + (
        waiting_names and f"; no room for {waiting_names} (--variants chooses, --nodes makes room)"
    )


def _list_result_rows(plan: StartPlan, raise_report: RaiseReport) -> Iterator[TextRow]:
    """Yield what was done and what comes next."""
    name = plan.environment.name
    lease = raise_report.lease
    prefix = "was raised before; " if raise_report.was_present else ""
    yield (
        "raised",
        (
            f"{prefix}EKS wants {format_count(lease.nodes, 'instance')};"
            " a node joins some minutes later"
        ),
    )
    yield (
        "run",
        f"{lease.run}, deadline {format_moment(lease.deadline, plan.now)}; it cannot be moved",
    )
    if lease.unarmed:
        yield "unarmed", f"accepted, and written into the lease: {', '.join(lease.unarmed)}"
    yield "watch", VerbatimText(build_tandem_command("status", name))
    yield "end", VerbatimText(f"{build_tandem_command('stop --end', name)}  # when the run is done")
    yield (
        "stop",
        VerbatimText(
            f"{build_tandem_command('stop', name)}  # in an emergency: a fence stays behind it"
        ),
    )
    for index, line in enumerate(_list_next_commands(plan)):
        yield "next" if index == 0 else "", VerbatimText(line)


def _list_next_commands(plan: StartPlan) -> list[str]:
    """Return the commands that use the fleet, each on a line of its own, and where they work."""
    name = plan.environment.name
    experiment = plan.request.experiment
    variants = plan.admission.variants
    if experiment is None:
        return []
    kubectl = ("kubectl", "-n", f"{names.NAMESPACE_PREFIX}{experiment}")
    if not variants:
        listing = quote_command(
            *kubectl, "get", "cronjobs", "-l", "app.kubernetes.io/component=compile"
        )
        job = quote_command(*kubectl, "create", "job", "--from=cronjob/NAME", "NAME-1")
        return [ADMIN_NOTE, listing, job]
    scale = [
        quote_command(*kubectl, "scale", "deploy", variant.name, "--replicas=1")
        for variant in variants
    ]
    chosen = (
        ["--variants", ",".join(variant.name for variant in variants)]
        if plan.admission.waiting_variants
        else []
    )
    flags = ["--experiment", experiment, "--publish", "--out", f"runs/{plan.request.run}", *chosen]
    pods = quote_command(*kubectl, "get", "pods", "-o", "wide")
    return [ADMIN_NOTE, *scale, pods, build_tandem_command("bench run", name, *flags)]


def _result_as_dict(plan: StartPlan, raise_report: RaiseReport) -> dict[str, Any]:
    capacity = plan.environment.capacity
    lease = raise_report.lease
    return {
        "environment": plan.environment.name,
        "run": lease.run,
        "deadline": lease.deadline.isoformat(),
        "raised_before": raise_report.was_present,
        "nodes": lease.nodes,
        "labels": dict(lease.node_label),
        "waiting": [variant.name for variant in plan.admission.waiting_variants],
        "usd_at_most": round(plan.usd, 2),
        "usd_per_hour": capacity.usd_per_hour,
        "usd_per_hour_date": capacity.usd_per_hour_date.isoformat(),
        "prepaid": capacity.needs_reservation,
        "schedule": raise_report.schedule_arn,
        "stops": [fleet.path_as_dict(path) for path in plan.paths],
        "unarmed": list(lease.unarmed),
        "reservation": list(plan.notes),
        "next": [line for line in _list_next_commands(plan) if line != ADMIN_NOTE],
        "exit_code": 0,
    }
