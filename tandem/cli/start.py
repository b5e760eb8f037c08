"""`tandem start`: raise a fleet for so many hours, behind a lease and an armed stop.

Invariant: what it will cost and what will end it is shown before it is asked for; `tandem.guard.fleet_start` alone
raises.

Exit codes: 0 raised; 1 not wanted after all; 2 bad input, not allowed now, or a path that should stop it is not armed;
3 AWS failed.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tandem.cli import fleet
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import format_count, print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.cli.start_report import StartPlan
    from tandem.guard.config import AwsClients, GuardConfig
    from tandem.guard.observe import FleetState
    from tandem.ops.node_admission import NodeAdmission
    from tandem.ops.stop_paths import StopPath

MAX_RUN_PREFIX_CHARACTERS = (
    40  # of its first part, so that all of a run's name is one that tandem.guard.fleet_start takes
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem start` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose fleet it is")
    parser.add_argument(
        "--hours", required=True, type=_parse_hours, metavar="H", help="then it is stopped, whoever uses it"
    )
    parser.add_argument("--experiment", metavar="NAME", help="whose servers may take the nodes; none: nobody's")
    parser.add_argument("--only", metavar="NAME,...", help="variants of it; as many as fit, in its file's order")
    parser.add_argument("--compile", action="store_true", help="for the experiment's compile jobs, and no server")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="instances to raise (default 1)")
    parser.add_argument("--run", metavar="ID", help="name of the run; made of the experiment and the time by default")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--accept-unarmed", action="store_true",
                        help="start although a path would not stop the fleet; the lease says so")  # fmt: skip


def start(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Raise an environment's fleet through the AWS API.

    Args:
        selection: the folders of declared files.
        options: as of `add_flags`.

    Raises:
        SpecError: a declared file is refused.
    """
    inputs = read_legal_inputs(replace(selection, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    from tandem.guard.config import AwsClients  # noqa: PLC0415
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415 - boto3
    from tandem.ops.guard_config import build_guard_config  # noqa: PLC0415

    try:
        experiment = _select_experiment(environment, inputs.list_experiments(environment), options)
        admission = _compute_admission(environment, experiment, inputs.catalogue, options)
        aws_session = create_session()
        caller = require_account(environment, aws_session)
        clients, limits = AwsClients.create(environment.region, aws_session), build_guard_config(environment)
        plan = _build_plan(environment, experiment, admission, options)
        plan = _check_paths(plan, clients, aws_session, limits, skips_arm_check=options.accept_unarmed)
        return _start_fleet(selection, options, plan, (clients, limits), caller)
    except TandemError as fault:
        return fleet.report_failure(fleet.explain_fault(fault, environment), selection)


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
    raise InputError("it is half deployed: a cluster and no node group", where=limits.node_group_description,
                       change=fleet.deploy_command(environment, "Fleet"))  # fmt: skip


def _require_free(plan: StartPlan, limits: GuardConfig, fleet_state: FleetState) -> None:
    """Make sure that neither a fence nor another run's lease stands in the way; `raise_fleet` looks at both again.

    Raises:
        InputError: one of them does.
    """
    name, lease = plan.environment.name, fleet_state.lease
    if fleet_state.fence and fleet_state.fence.is_closed:
        has_instances = any(instance.is_ours for instance in fleet_state.instances)
        wait_command = f"{fleet.tandem_command('stop', '--wait', '--env', name)}, then " if has_instances else ""
        raise InputError(
            f"a fence blocks this start: {fleet_state.fence.who} stopped the fleet at "
            f"{fleet.format_moment(fleet_state.fence.at, plan.now)}: {fleet_state.fence.why}",
            where=limits.replace_prefix(fleet_state.fence.prefix).url("stop.json"),
            change=f"when the reason is gone: {wait_command}{fleet.tandem_command('stop', '--clear', '--env', name)}",
        )  # fmt: skip
    if lease and plan.now >= lease.deadline:
        raise InputError(
            f"the lease of run {lease.run} ended at {fleet.format_moment(lease.deadline, plan.now)}",
            where=limits.replace_prefix(lease.prefix).url("lease.json"),
            change="the reaper fences it within minutes; then "
            f"{fleet.tandem_command('stop', '--clear', '--env', name)}",
        )
    if lease and lease.run != plan.run:
        raise InputError(
            f"run {lease.run} of {lease.who} has the fleet until {fleet.format_moment(lease.deadline, plan.now)}",
            where=limits.replace_prefix(lease.prefix).url("lease.json"),
            change=f"wait, or end it: {fleet.tandem_command('stop', '--end', '--env', name, '--run', lease.run)}",
        )


def _require_armed(plan: StartPlan, paths: Sequence[StopPath]) -> None:
    """Make sure that every path that can exist would stop the fleet; unknown refuses nothing.

    Raises:
        InputError: one of them is not armed.
    """
    from tandem.ops.status_warnings import describe_path_fix  # noqa: PLC0415 - boto3

    unarmed_paths = [path for path in paths if path.state == "unarmed"]
    if not unarmed_paths:
        return
    reasons = "; ".join(f"{path.name}: {path.sentence}" for path in unarmed_paths)
    mend_commands = " and ".join(dict.fromkeys(describe_path_fix(path, plan.environment) for path in unarmed_paths))
    raise InputError(
        f"{format_count(len(unarmed_paths), 'path')} that should stop the fleet would not: {reasons}",
        where=f"environment {plan.environment.name}",
        change=f"mend it: {mend_commands}; or add --accept-unarmed, which stands in the lease",
    )  # fmt: skip


def _parse_hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0")
    return hours


def _select_experiment(
    environment: Environment, experiments: list[Experiment], options: argparse.Namespace
) -> Experiment | None:

    location = f"environment {environment.name}"
    if environment.capacity.awaits_reservation:
        raise InputError("it has no Fleet stack yet", where=location,
                           change="write capacity.reservation_id and deploy Fleet")  # fmt: skip
    if not 0 < options.nodes <= environment.capacity.nodes:
        raise InputError(
            f"--nodes {options.nodes} is not within 1 to {environment.capacity.nodes}",
            where=location,
            change="name fewer, or raise capacity.nodes and deploy Fleet",
        )
    if options.experiment is None:
        if options.compile or options.only:
            raise InputError(
                "--compile and --only are of an experiment", where=location, change="add --experiment NAME"
            )
        return None
    experiments_by_name = {experiment.name: experiment for experiment in experiments}
    if options.experiment not in experiments_by_name:
        raise InputError(f"it hosts no experiment {options.experiment!r}", where=location,
                           change=f"name one of: {', '.join(experiments_by_name)}")  # fmt: skip
    return experiments_by_name[options.experiment]


def _compute_admission(
    environment: Environment, experiment: Experiment | None, catalogue: Catalogue, options: argparse.Namespace
) -> NodeAdmission:
    from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers  # noqa: PLC0415

    if experiment is None:
        return NodeAdmission(labels={})
    if options.compile:
        return admit_compile_jobs(experiment)
    requested_names = [name for name in (options.only or "").split(",") if name]
    variant_names = [variant.name for variant in experiment.all_variants()]
    unknown_names = sorted(set(requested_names) - set(variant_names))
    if unknown_names:
        raise InputError(
            f"it has no variant {', '.join(unknown_names)}",
            where=f"experiment {experiment.name}",
            change=f"name some of: {', '.join(variant_names)}",
        )
    return admit_servers(environment, experiment, catalogue, nodes=options.nodes, variant_names=requested_names)


def _build_plan(
    environment: Environment, experiment: Experiment | None, admission: NodeAdmission, options: argparse.Namespace
) -> StartPlan:
    from tandem.cli.start_report import StartPlan  # noqa: PLC0415 - boto3
    from tandem.ops.status import current_time  # noqa: PLC0415

    now = current_time()
    run_prefix = (experiment.name if experiment else "by-hand")[:MAX_RUN_PREFIX_CHARACTERS].rstrip("-")
    return StartPlan(
        environment=environment, experiment=experiment, admission=admission, hours=options.hours, nodes=options.nodes,
        run=options.run or f"{run_prefix}-{now:%Y%m%d-%H%M%S}", compiles=options.compile, now=now,
    )  # fmt: skip


def _start_fleet(
    selection: Selection,
    options: argparse.Namespace,
    plan: StartPlan,
    clients_and_limits: tuple[AwsClients, GuardConfig],
    caller: str,
) -> ExitCode:
    from tandem.cli import start_report as report  # noqa: PLC0415 - boto3
    from tandem.guard.fleet_start import raise_fleet  # noqa: PLC0415
    from tandem.ops.status import current_time  # noqa: PLC0415

    clients, limits = clients_and_limits
    limits, notes = _read_reservation(clients, limits, plan)
    for line in report.format_plan(plan, limits, notes):
        print(line, flush=True, file=sys.stderr if selection.as_json else sys.stdout)
    if not options.yes and not _confirm_start(plan):
        if selection.as_json:
            print_json({"environment": plan.environment.name, "raised": False, "exit_code": int(ExitCode.STALE)})
        print("nothing was done", file=sys.stderr)
        return ExitCode.STALE
    try:
        raise_result = raise_fleet(
            clients, limits, run=plan.run, hours=plan.hours, nodes=plan.nodes, node_labels=plan.admission.labels,
            experiment=plan.experiment.name if plan.experiment else None, who=caller, beats=False, now=current_time(),
            unarmed_paths=plan.exempt_path_names,
        )  # fmt: skip
    except KeyboardInterrupt:
        name = plan.environment.name
        status_command = fleet.tandem_command("status", "--env", name)
        print(f"interrupted: the fleet may be raised all the same. See: {status_command}; "
              f"end it: {fleet.tandem_command('stop', '--env', name)}; go on: the same command with "
              f"{shlex.join(['--run', plan.run])}", file=sys.stderr)  # fmt: skip
        raise
    if selection.as_json:
        print_json(report.result_as_dict(plan, limits, raise_result, notes))
    else:
        for line in report.format_result(plan, raise_result):
            print(line)
    return ExitCode.DONE


def _read_reservation(clients: AwsClients, limits: GuardConfig, plan: StartPlan) -> tuple[GuardConfig, list[str]]:
    """Return the limits with the block's hours as EC2 says them, and what is to be known of the reservation."""
    from tandem.ops.faults import AccessDeniedError  # noqa: PLC0415 - boto3
    from tandem.ops.reservation import read_reservation  # noqa: PLC0415

    if not plan.environment.capacity.needs_reservation:
        return limits, []
    try:
        capacity_reservation = read_reservation(clients.ec2, plan.environment)
    except AccessDeniedError as fault:
        return limits, [f"unknown: {fault.problem}; {fault.change}"]
    if capacity_reservation is None:
        return limits, [f"EC2 knows no {limits.reservation_id} in this account and region: nothing could be launched"]
    notes = [f"{capacity_reservation.id} is {capacity_reservation.state}"]
    if limits.capacity_kind != "capacity-block":
        return limits, notes
    if limits.block_ends and capacity_reservation.ends and capacity_reservation.ends != limits.block_ends:
        notes.append(
            f"EC2 says that it ends {capacity_reservation.ends:%Y-%m-%d %H:%M} UTC, capacity.block "
            f"{limits.block_ends:%H:%M}"
        )
    return replace(
        limits,
        block_starts=capacity_reservation.starts or limits.block_starts,
        block_ends=capacity_reservation.ends or limits.block_ends,
    ), notes


def _confirm_start(plan: StartPlan) -> bool:
    """Ask.

    Raises:
        InputError: there is nobody to be asked.
    """
    if not sys.stdin.isatty():
        raise InputError("nobody is there to be asked", where=f"environment {plan.environment.name}",
                           change="read the plan, then add --yes")  # fmt: skip
    print("  raise it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
