"""`tandem start`: raise a fleet for so many hours, behind a lease and an armed stop.

Invariant: what it will cost and what will end it is shown before it is asked for; `tandem.guard.fleet_start` alone
raises.

Exit codes: 0 raised; 1 not wanted after all; 2 bad input, not allowed now, or a path that should stop it is not armed;
3 AWS failed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tandem.cli import fleet
from tandem.cli.console import format_count, print_json, print_line, print_rows
from tandem.cli.flags import EnvironmentName, Name, Names, require_range
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.shell_command import build_cdk_command, build_tandem_command
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.cli.start_report import StartPlan
    from tandem.guard.config import AwsClients, GuardConfig
    from tandem.guard.observe import FleetState
    from tandem.ops.node_admission import NodeAdmission
    from tandem.ops.stop_paths import StopPath

MAX_RUN_PREFIX_CHARACTERS = 40  # so that all of a run's name is one that tandem.guard.fleet_start takes


def start(
    *,
    env: EnvironmentName,
    hours: Annotated[float, Parameter(metavar="H", validator=require_range(1e-9, 1e9, "hours above 0"))],
    experiment: Name | None = None,
    variants: Names = (),
    for_compile: Annotated[bool, Parameter(name="--compile")] = False,
    nodes: Annotated[int, Parameter(metavar="N")] = 1,
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
    from tandem.cli.start_report import StartPlan  # noqa: PLC0415 - boto3
    from tandem.guard.config import AwsClients  # noqa: PLC0415
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415 - boto3
    from tandem.ops.guard_config import build_guard_config  # noqa: PLC0415
    from tandem.ops.status import current_time  # noqa: PLC0415

    try:
        chosen = _select_experiment(inputs, experiment, nodes=nodes, needs_experiment=bool(variants) or for_compile)
        admission = _compute_admission(inputs, chosen, variants, nodes=nodes, for_compile=for_compile)
        aws_session = create_session()
        caller = require_account(environment, aws_session)
        clients, limits = AwsClients.create(environment.region, aws_session), build_guard_config(environment)
        now = current_time()
        run_prefix = (chosen.name if chosen else "by-hand")[:MAX_RUN_PREFIX_CHARACTERS].rstrip("-")
        plan = StartPlan(
            environment=environment,
            experiment=chosen,
            admission=admission,
            hours=hours,
            nodes=nodes,
            run=run or f"{run_prefix}-{now:%Y%m%d-%H%M%S}",
            compiles=for_compile,
            now=now,
        )
        plan = _check_paths(plan, clients, aws_session, limits, skips_arm_check=accept_unarmed)
        return _start_fleet(selection, plan, clients, limits, caller, asks=not yes)
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
    experiments = {experiment.name: experiment for experiment in inputs.list_experiments(environment)}
    if name is not None and name not in experiments:
        change = f"name one of: {', '.join(experiments)}"
        raise InputError(f"it hosts no experiment {name!r}", where=where, change=change)
    return experiments[name] if name is not None else None


def _compute_admission(
    inputs: CommandInputs, experiment: Experiment | None, names: Sequence[str], *, nodes: int, for_compile: bool
) -> NodeAdmission:
    from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers  # noqa: PLC0415

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


def _check_paths(
    plan: StartPlan, clients: AwsClients, aws_session: Any, limits: GuardConfig, *, skips_arm_check: bool
) -> StartPlan:
    """Look at the fleet, and return the plan with the paths that would stop it, before anything of it is shown.

    Raises:
        TandemError: nothing can be raised now.
    """
    from tandem.guard.fleet_start import require_valid_request  # noqa: PLC0415
    from tandem.guard.observe import observe_fleet  # noqa: PLC0415
    from tandem.ops.stop_paths import PathClients, fleet_capacity_kind, read_standing_paths  # noqa: PLC0415 - boto3

    require_valid_request(limits, run=plan.run, hours=plan.hours, nodes=plan.nodes)
    fleet_state = observe_fleet(clients, limits, plan.now)
    _require_deployed(plan.environment, clients, limits, fleet_state)
    _require_free(plan, limits, fleet_state)
    guard_clients = PathClients.create(plan.environment, aws_session)
    paths = read_standing_paths(clients, guard_clients, plan.environment, limits, fleet_state)
    if not skips_arm_check:
        _require_armed(plan, paths)
    return replace(plan, paths=paths, kind=fleet_capacity_kind(fleet_state, limits))


def _require_deployed(
    environment: Environment, clients: AwsClients, limits: GuardConfig, fleet_state: FleetState
) -> None:
    """Make sure that there is a node group to raise, as far as that can be seen.

    Raises:
        InputError: nothing, or a cluster without its node group, is deployed.
        ExternalError: EKS could not be asked.
    """
    from tandem.ops.status import cluster_exists  # noqa: PLC0415

    if "NoSuchBucket" in fleet_state.unknown.get("fence", ""):
        raise fleet.build_not_deployed_error(environment, "its bucket does not exist")
    if fleet_state.has_node_group is not False:
        return
    if not cluster_exists(clients, limits):
        raise fleet.build_not_deployed_error(environment, f"EKS knows no cluster {limits.cluster}")
    change = build_cdk_command("deploy", environment.name, "Fleet")
    where = limits.node_group_description
    raise InputError("it is half deployed: a cluster and no node group", where=where, change=change)


def _require_free(plan: StartPlan, limits: GuardConfig, fleet_state: FleetState) -> None:
    """Make sure that neither a fence nor another run's lease stands in the way; `raise_fleet` looks at both again.

    Raises:
        InputError: one of them does.
    """
    name, fence, lease = plan.environment.name, fleet_state.fence, fleet_state.lease
    release_command = build_tandem_command("stop --release", name)
    if fence and fence.is_closed:
        has_instances = any(instance.is_ours for instance in fleet_state.instances)
        wait_command = f"{build_tandem_command('stop --wait', name)}, then " if has_instances else ""
        stopped = f"{fence.who} stopped the fleet at {fleet.format_moment(fence.at, plan.now)}: {fence.why}"
        raise InputError(
            f"a fence blocks this start: {stopped}",
            where=limits.replace_prefix(fence.prefix).url("stop.json"),
            change=f"when the reason is gone: {wait_command}{release_command}",
        )
    if lease is None:
        return
    where, deadline = (
        limits.replace_prefix(lease.prefix).url("lease.json"),
        fleet.format_moment(lease.deadline, plan.now),
    )
    if plan.now >= lease.deadline:
        change = f"the reaper fences it within minutes; then {release_command}"
        raise InputError(f"the lease of run {lease.run} ended at {deadline}", where=where, change=change)
    if lease.run != plan.run:
        change = f"wait, or end it: {build_tandem_command('stop --end', name, '--run', lease.run)}"
        raise InputError(f"run {lease.run} of {lease.who} has the fleet until {deadline}", where=where, change=change)


def _require_armed(plan: StartPlan, paths: Sequence[StopPath]) -> None:
    """Make sure that every path that can exist would stop the fleet; unknown refuses nothing.

    Raises:
        InputError: one of them is not armed.
    """
    from tandem.ops.status_warnings import describe_path_fix  # noqa: PLC0415 - boto3

    unarmed_paths = [path for path in paths if path.state == "unarmed"]
    if not unarmed_paths:
        return
    count = format_count(len(unarmed_paths), "path")
    reasons = "; ".join(f"{path.name}: {path.sentence}" for path in unarmed_paths)
    mend_commands = " and ".join(dict.fromkeys(describe_path_fix(path, plan.environment) for path in unarmed_paths))
    raise InputError(
        f"{count} that should stop the fleet would not: {reasons}",
        where=f"environment {plan.environment.name}",
        change=f"mend it: {mend_commands}; or add --accept-unarmed, which stands in the lease",
    )


def _start_fleet(
    selection: Selection, plan: StartPlan, clients: AwsClients, limits: GuardConfig, caller: str, *, asks: bool
) -> ExitCode:
    """Show the plan, ask, raise and say what comes next."""
    from tandem.cli import start_report as report  # noqa: PLC0415 - boto3
    from tandem.guard.fleet_start import raise_fleet  # noqa: PLC0415
    from tandem.ops.status import current_time  # noqa: PLC0415

    name = plan.environment.name
    limits, notes = _read_reservation(clients, limits, plan)
    print_line(f"{name}: start run {plan.run}", stderr=selection.as_json)
    print_rows(report.list_plan_rows(plan, limits, notes), stderr=selection.as_json)
    if asks and not _confirm_start(plan):
        if selection.as_json:
            print_json({"environment": name, "raised": False, "exit_code": int(ExitCode.STALE)})
        print("nothing was done", file=sys.stderr)
        return ExitCode.STALE
    try:
        raise_result = raise_fleet(
            clients,
            limits,
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
        print_json(report.result_as_dict(plan, limits, raise_result, notes))
    else:
        print_rows(report.list_result_rows(plan, raise_result))
    return ExitCode.DONE


def _read_reservation(clients: AwsClients, limits: GuardConfig, plan: StartPlan) -> tuple[GuardConfig, list[str]]:
    """Return the limits with the block's hours as EC2 says them, and what is to be known of the reservation."""
    from tandem.ops.faults import AccessDeniedError  # noqa: PLC0415 - boto3
    from tandem.ops.reservation import read_reservation  # noqa: PLC0415

    if not plan.environment.capacity.needs_reservation:
        return limits, []
    try:
        reservation = read_reservation(clients.ec2, plan.environment)
    except AccessDeniedError as fault:
        return limits, [f"unknown: {fault.problem}; {fault.change}"]
    if reservation is None:
        return limits, [f"EC2 knows no {limits.reservation_id} in this account and region: nothing could be launched"]
    notes = [f"{reservation.id} is {reservation.state}"]
    if limits.capacity_kind != "capacity-block":
        return limits, notes
    if limits.block_ends and reservation.ends and reservation.ends != limits.block_ends:
        end = f"{reservation.ends:%Y-%m-%d %H:%M} UTC"
        notes.append(f"EC2 says that it ends {end}, capacity.block {limits.block_ends:%H:%M}")
    starts, ends = reservation.starts or limits.block_starts, reservation.ends or limits.block_ends
    return replace(limits, block_starts=starts, block_ends=ends), notes


def _confirm_start(plan: StartPlan) -> bool:
    """Ask.

    Raises:
        InputError: there is nobody to be asked.
    """
    if not sys.stdin.isatty():
        where, change = f"environment {plan.environment.name}", "read the plan, then add --yes"
        raise InputError("nobody is there to be asked", where=where, change=change)
    print("  raise it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
