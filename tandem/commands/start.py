"""`tandem start`: raise a fleet for so many hours, behind a lease and an armed stop.

Invariant: what it will cost and what will end it is shown before it is asked for; `tandem.start` alone raises.

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

from tandem.commands import fleet
from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.commands.start_report import Plan
    from tandem.ops.labels import Admitted
    from tandem.ops.paths import StopPath
    from tandem.stop import Clients, Guarded, Seen

RUN_CHARACTERS = 40  # of its first part, so that all of a run's name is one that tandem.start takes


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem start` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose fleet it is")
    parser.add_argument("--hours", required=True, type=_hours, metavar="H", help="then it is stopped, whoever uses it")
    parser.add_argument("--experiment", metavar="NAME", help="whose servers may take the nodes; none: nobody's")
    parser.add_argument("--only", metavar="NAME,...", help="variants of it; as many as fit, in its file's order")
    parser.add_argument("--compile", action="store_true", help="for the experiment's compile jobs, and no server")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="instances to raise (default 1)")
    parser.add_argument("--run", metavar="ID", help="name of the run; made of the experiment and the time by default")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--accept-unarmed", action="store_true",
                        help="start although a path would not stop the fleet; the lease says so")  # fmt: skip


def start(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Raise an environment's fleet through the AWS API.

    Args:
        chosen: the folders of declared files.
        options: as of `add_flags`.

    Raises:
        SpecError: a declared file is refused.
    """
    inputs = legal(replace(chosen, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    from tandem.ops.account import require_account, session  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.guarded import guarded  # noqa: PLC0415
    from tandem.stop import Clients, StopError  # noqa: PLC0415

    try:
        experiment = _experiment(environment, inputs.hosted(environment), options)
        admitted = _admitted(environment, experiment, inputs.catalogue, options)
        shared = session()
        who = require_account(environment, shared)
        clients, limits = Clients.of(environment.region, shared), guarded(environment)
        plan = _plan(environment, experiment, admitted, options)
        plan = _check_paths(plan, clients, shared, limits, accepts=options.accept_unarmed)
        return _start(chosen, options, plan, (clients, limits), who)
    except StopError as fault:
        return fleet.failed(fleet.explain_fault(fault, environment), chosen)
    except OpsError as fault:
        return fleet.failed(fault, chosen)


def _check_paths(plan: Plan, clients: Clients, shared: Any, limits: Guarded, *, accepts: bool) -> Plan:
    """Look at the fleet, and return the plan with the paths that would stop it, before anything of it is shown.

    Raises:
        RefusedError, StopError: nothing can be raised now.
    """
    from tandem.ops.paths import GuardClients, capacity_kind_of, read_standing_paths  # noqa: PLC0415 - boto3
    from tandem.start import require_sense  # noqa: PLC0415
    from tandem.stop import look  # noqa: PLC0415

    require_sense(limits, run=plan.run, hours=plan.hours, nodes=plan.nodes)
    seen = look(clients, limits, plan.now)
    _require_deployed(plan.environment, clients, limits, seen)
    _require_free(plan, limits, seen)
    more = GuardClients.of(plan.environment, shared)
    paths = read_standing_paths(clients, more, plan.environment, limits, seen)
    if not accepts:
        _require_armed(plan, paths)
    return replace(plan, paths=paths, kind=capacity_kind_of(seen, limits))


def _require_deployed(environment: Environment, clients: Clients, limits: Guarded, seen: Seen) -> None:
    """Make sure that there is a node group to raise, as far as that can be seen.

    Raises:
        RefusedError: nothing, or a cluster without its node group, is deployed.
        OpsError: EKS could not be asked.
    """
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3
    from tandem.ops.status import cluster_exists  # noqa: PLC0415

    if "NoSuchBucket" in seen.unknown.get("fence", ""):
        raise fleet.not_deployed(environment, "its bucket does not exist")
    if seen.present is not False:
        return
    if not cluster_exists(clients, limits):
        raise fleet.not_deployed(environment, f"EKS knows no cluster {limits.cluster}")
    raise RefusedError("it is half deployed: a cluster and no node group", where=limits.group,
                       change=fleet.deploy_command(environment, "Fleet"))  # fmt: skip


def _require_free(plan: Plan, limits: Guarded, seen: Seen) -> None:
    """Make sure that neither a fence nor another run's lease stands in the way; `raise_fleet` looks at both again.

    Raises:
        RefusedError: one of them does.
    """
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3

    name, lease = plan.environment.name, seen.lease
    if seen.fence and seen.fence.closed:
        alive = any(instance.ours for instance in seen.instances)
        wait = f"{fleet.tandem_command('stop', '--wait', '--env', name)}, then " if alive else ""
        raise RefusedError(
            f"a fence blocks this start: {seen.fence.who} stopped the fleet at "
            f"{fleet.when(seen.fence.at, plan.now)}: {seen.fence.why}",
            where=limits.at_prefix(seen.fence.prefix).url("stop.json"),
            change=f"when the reason is gone: {wait}{fleet.tandem_command('stop', '--clear', '--env', name)}",
        )  # fmt: skip
    if lease and plan.now >= lease.deadline:
        raise RefusedError(
            f"the lease of run {lease.run} ended at {fleet.when(lease.deadline, plan.now)}",
            where=limits.at_prefix(lease.prefix).url("lease.json"), change="the reaper fences it within minutes; then "
            f"{fleet.tandem_command('stop', '--clear', '--env', name)}",
        )  # fmt: skip
    if lease and lease.run != plan.run:
        raise RefusedError(
            f"run {lease.run} of {lease.who} has the fleet until {fleet.when(lease.deadline, plan.now)}",
            where=limits.at_prefix(lease.prefix).url("lease.json"),
            change=f"wait, or end it: {fleet.tandem_command('stop', '--end', '--env', name, '--run', lease.run)}",
        )  # fmt: skip


def _require_armed(plan: Plan, paths: Sequence[StopPath]) -> None:
    """Make sure that every path that can exist would stop the fleet; unknown refuses nothing.

    Raises:
        RefusedError: one of them is not armed.
    """
    from tandem.ops.concerns import mend_path  # noqa: PLC0415 - boto3
    from tandem.ops.fault import RefusedError  # noqa: PLC0415

    unarmed = [path for path in paths if path.state == "unarmed"]
    if not unarmed:
        return
    reasons = "; ".join(f"{path.name}: {path.sentence}" for path in unarmed)
    mend = " and ".join(dict.fromkeys(mend_path(path, plan.environment) for path in unarmed))
    raise RefusedError(
        f"{counted(len(unarmed), 'path')} that should stop the fleet would not: {reasons}",
        where=f"environment {plan.environment.name}",
        change=f"mend it: {mend}; or add --accept-unarmed, which stands in the lease",
    )  # fmt: skip


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0")
    return hours


def _experiment(environment: Environment, hosted: list[Experiment], options: argparse.Namespace) -> Experiment | None:
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3

    where = f"environment {environment.name}"
    if environment.capacity.awaits_reservation:
        raise RefusedError("it has no Fleet stack yet", where=where,
                           change="write capacity.reservation_id and deploy Fleet")  # fmt: skip
    if not 0 < options.nodes <= environment.capacity.nodes:
        raise RefusedError(f"--nodes {options.nodes} is not within 1 to {environment.capacity.nodes}", where=where,
                           change="name fewer, or raise capacity.nodes and deploy Fleet")  # fmt: skip
    if options.experiment is None:
        if options.compile or options.only:
            raise RefusedError("--compile and --only are of an experiment", where=where, change="add --experiment NAME")
        return None
    known = {experiment.name: experiment for experiment in hosted}
    if options.experiment not in known:
        raise RefusedError(f"it hosts no experiment {options.experiment!r}", where=where,
                           change=f"name one of: {', '.join(known)}")  # fmt: skip
    return known[options.experiment]


def _admitted(
    environment: Environment, experiment: Experiment | None, catalogue: Catalogue, options: argparse.Namespace
) -> Admitted:
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3
    from tandem.ops.labels import Admitted, for_compiling, for_serving  # noqa: PLC0415

    if experiment is None:
        return Admitted(labels={})
    if options.compile:
        return for_compiling(experiment)
    only = [name for name in (options.only or "").split(",") if name]
    known = [variant.name for variant in experiment.all_variants()]
    strangers = sorted(set(only) - set(known))
    if strangers:
        raise RefusedError(f"it has no variant {', '.join(strangers)}", where=f"experiment {experiment.name}",
                           change=f"name some of: {', '.join(known)}")  # fmt: skip
    return for_serving(environment, experiment, catalogue, nodes=options.nodes, only=only)


def _plan(
    environment: Environment, experiment: Experiment | None, admitted: Admitted, options: argparse.Namespace
) -> Plan:
    from tandem.commands.start_report import Plan  # noqa: PLC0415 - boto3
    from tandem.ops.status import moment  # noqa: PLC0415

    now = moment()
    first = (experiment.name if experiment else "by-hand")[:RUN_CHARACTERS].rstrip("-")
    return Plan(
        environment=environment, experiment=experiment, admitted=admitted, hours=options.hours, nodes=options.nodes,
        run=options.run or f"{first}-{now:%Y%m%d-%H%M%S}", compiles=options.compile, now=now,
    )  # fmt: skip


def _start(chosen: Selection, options: argparse.Namespace, plan: Plan, ours: tuple[Clients, Guarded], who: str) -> Exit:
    from tandem.commands import start_report as report  # noqa: PLC0415 - boto3
    from tandem.ops.status import moment  # noqa: PLC0415
    from tandem.start import raise_fleet  # noqa: PLC0415

    clients, limits = ours
    limits, notes = _window(clients, limits, plan)
    for line in report.plan_lines(plan, limits, notes):
        print(line, flush=True, file=sys.stderr if chosen.as_json else sys.stdout)
    if not options.yes and not _wanted(plan):
        if chosen.as_json:
            print_json({"environment": plan.environment.name, "raised": False, "exit_code": int(Exit.STALE)})
        print("nothing was done", file=sys.stderr)
        return Exit.STALE
    try:
        raised = raise_fleet(
            clients, limits, run=plan.run, hours=plan.hours, nodes=plan.nodes, label=plan.admitted.labels,
            experiment=plan.experiment.name if plan.experiment else None, who=who, beats=False, now=moment(),
            unarmed=plan.unarmed,
        )  # fmt: skip
    except KeyboardInterrupt:
        name = plan.environment.name
        look = fleet.tandem_command("status", "--env", name)
        print(f"interrupted: the fleet may be raised all the same. See: {look}; "
              f"end it: {fleet.tandem_command('stop', '--env', name)}; go on: the same command with "
              f"{shlex.join(['--run', plan.run])}", file=sys.stderr)  # fmt: skip
        raise
    if chosen.as_json:
        print_json(report.plain(plan, limits, raised, notes))
    else:
        for line in report.raised_lines(plan, raised):
            print(line)
    return Exit.DONE


def _window(clients: Clients, limits: Guarded, plan: Plan) -> tuple[Guarded, list[str]]:
    """Return the limits with the block's hours as EC2 says them, and what is to be known of the reservation."""
    from tandem.ops.fault import DeniedError  # noqa: PLC0415 - boto3
    from tandem.ops.reservation import reservation  # noqa: PLC0415

    if not plan.environment.capacity.needs_reservation:
        return limits, []
    try:
        found = reservation(clients.ec2, plan.environment)
    except DeniedError as fault:
        return limits, [f"unknown: {fault.problem}; {fault.change}"]
    if found is None:
        return limits, [f"EC2 knows no {limits.reservation_id} in this account and region: nothing could be launched"]
    notes = [f"{found.id} is {found.state}"]
    if limits.capacity_kind != "capacity-block":
        return limits, notes
    if limits.block_ends and found.ends and found.ends != limits.block_ends:
        notes.append(f"EC2 says that it ends {found.ends:%Y-%m-%d %H:%M} UTC, capacity.block {limits.block_ends:%H:%M}")
    return replace(
        limits, block_starts=found.starts or limits.block_starts, block_ends=found.ends or limits.block_ends
    ), notes  # fmt: skip


def _wanted(plan: Plan) -> bool:
    """Ask.

    Raises:
        RefusedError: there is nobody to be asked.
    """
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3

    if not sys.stdin.isatty():
        raise RefusedError("nobody is there to be asked", where=f"environment {plan.environment.name}",
                           change="read the plan, then add --yes")  # fmt: skip
    print("  raise it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
