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
from tandem.cli.flags import EnvironmentName, Hours, Name, Names, Whole
from tandem.cli.fleet import TextRow, format_moment
from tandem.cli.inputs import CommandInputs, read_legal_inputs, require_variants
from tandem.cli.money import format_prepayment, format_price
from tandem.cli.raise_check import (
    RaiseCheck,
    build_unarmed_error,
    check_raise,
    list_fleet_rows,
    list_stop_rows,
)
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.errors import ExitCode, InputError, TandemError
from tandem.guard.config import AwsClients
from tandem.guard.fleet_start import RaiseReport, RaiseRequest, raise_fleet
from tandem.ops.account import create_guard_clients, create_session, require_account
from tandem.ops.guard_config import build_guard_config
from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers
from tandem.ops.status import current_time
from tandem.shell_command import build_tandem_command, quote_command

ADMIN_NOTE = "as an admin, inside the VPC, where the Kubernetes API answers (docs/run-by-hand.md):"
# so that all of a run's name is one that tandem.guard.fleet_start takes
MAX_RUN_PREFIX_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """What is to be raised.

    Args:
        environment: whose fleet it is.
        admission: who may take the nodes.
        request: of the start.
        now: when it was looked at.
        check: what would stop the fleet, and what is to be known of the reservation.
    """

    environment: Environment
    admission: NodeAdmission
    request: RaiseRequest
    now: datetime
    check: RaiseCheck

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
    hours: Hours,
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
        hours: how long the lease lasts; the fleet stops at its end even if in use
        experiment: whose servers may use the nodes; without it, no server may be scheduled there
        variants: variants of it; as many as fit, in the order of its file (default: all)
        for_compile: admit the experiment's compile jobs, and no server
        nodes: how many instances
        run: name of the run (default: made of the experiment and the time)
        yes: do not ask for confirmation
        accept_unarmed: start even if one of the stops is not armed; the lease says so

    Raises:
        TandemError: a declared file is refused, nothing can be raised now, or AWS failed.
    """
    inputs = read_legal_inputs(selection.narrow((env,)))
    environment = inputs.environments()[0]
    try:
        if experiment is None and (for_compile or variants):
            raise InputError(
                "--compile and --variants need an experiment",
                where=f"environment {environment.name}",
                change="add --experiment NAME",
            )
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
        check = check_raise(clients, aws_session, environment, request, now)
        if check.unarmed_paths and not accept_unarmed:
            raise build_unarmed_error(environment, check.unarmed_paths)

        unarmed_names = tuple(path.name for path in check.unarmed_paths)
        plan = StartPlan(
            environment=environment,
            admission=admission,
            request=replace(request, unarmed_paths=unarmed_names),
            now=now,
            check=check,
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
    """Return who may use the nodes.

    Raises:
        InputError: there is no node group, or no such experiment or variant.
    """
    environment = inputs.environments()[0]
    if environment.capacity.awaits_reservation:
        raise InputError(
            "it has no Fleet stack yet",
            where=f"environment {environment.name}",
            change="write capacity.reservation_id and deploy Fleet",
        )
    if name is None:
        return NodeAdmission(labels={})
    experiment = inputs.find_experiment(environment, name)
    if for_compile:
        return admit_compile_jobs(experiment)
    require_variants(experiment, variants)
    return admit_servers(
        environment, experiment, inputs.catalogue, nodes=nodes, variant_names=variants
    )


def _start_fleet(
    selection: Selection, plan: StartPlan, clients: AwsClients, *, asks: bool
) -> ExitCode:
    """Show the plan, ask, raise and say what comes next.

    Raises:
        InputError: there is no terminal to confirm on.
    """
    name = plan.environment.name
    run = plan.request.run
    print_line(f"{name}: start run {run}", stderr=selection.as_json)
    print_rows(_list_plan_rows(plan), stderr=selection.as_json)
    if asks and not ask_consent("start it?", where=f"environment {name}"):
        if selection.as_json:
            print_json({"environment": name, "raised": False}, ExitCode.STALE)
        print("nothing was done", file=sys.stderr)
        return ExitCode.STALE
    try:
        limits = build_guard_config(plan.environment)
        raise_report = raise_fleet(clients, limits, plan.request, current_time())
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
    yield from list_fleet_rows(capacity, request.nodes, plan.check.notes)
    yield "until", format_moment(plan.deadline, plan.now)
    yield "admits", _format_admission(plan)
    size = f"{request.hours:g} h x {format_count(request.nodes, 'node')}"
    price = f"{format_price(capacity)}{format_prepayment(capacity)}"
    yield "cost", f"{plan.usd:,.2f} USD at most: {size} x {price}"
    yield from list_stop_rows(plan.deadline, plan.check.paths, plan.now)


def _format_admission(plan: StartPlan) -> str:
    experiment = plan.request.experiment
    admission = plan.admission
    if experiment is None:
        return "no server may be scheduled here: name an --experiment, or label the nodes yourself"
    if not admission.variants:
        return f"compile jobs of {experiment}"
    text = ", ".join(variant.name for variant in admission.variants)
    if not admission.waiting_variants:
        return text
    waiting_names = ", ".join(variant.name for variant in admission.waiting_variants)
    return f"{text}; no room for {waiting_names} (--variants chooses, --nodes makes room)"


def _list_result_rows(plan: StartPlan, raise_report: RaiseReport) -> Iterator[TextRow]:
    """Yield what was done and what comes next."""
    name = plan.environment.name
    lease = raise_report.lease
    instances = format_count(lease.nodes, "instance")
    raise_text = f"EKS wants {instances}; a node joins some minutes later"
    if raise_report.was_present:
        raise_text = f"was raised before; {raise_text}"
    yield "raised", raise_text
    yield "run", f"{lease.run}, deadline {format_moment(lease.deadline, plan.now)}; it is final"
    if lease.unarmed:
        yield "unarmed", f"accepted, and written into the lease: {', '.join(lease.unarmed)}"

    end = build_tandem_command("stop --end", name)
    stop = build_tandem_command("stop", name)
    yield "watch", VerbatimText(build_tandem_command("status", name))
    yield "end", VerbatimText(f"{end}  # when the run is done")
    yield "stop", VerbatimText(f"{stop}  # in an emergency: a fence stays behind it")
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
    flags = ["--experiment", experiment, "--publish", "--out", f"runs/{plan.request.run}"]
    if plan.admission.waiting_variants:
        flags += ["--variants", ",".join(variant.name for variant in variants)]
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
        "stops": [fleet.path_as_dict(path) for path in plan.check.paths],
        "unarmed": list(lease.unarmed),
        "reservation": list(plan.check.notes),
        "next": [line for line in _list_next_commands(plan) if line != ADMIN_NOTE],
    }
