"""`tandem stop`: fence a fleet and set it to 0, follow it to its end, or lift the fence.

Exit codes: 0 done; 2 bad input; 3 something of the stop could not be done, or could not be seen.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tandem.commands import fleet
from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection
from tandem.spec.environment import Environment

if TYPE_CHECKING:
    from tandem.stop import Clients, Guarded, Report, Seen

RUNBOOK = "docs/runbook.md#fleet-will-not-go-to-zero"
WHY = "an operator asked for it"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem stop` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose fleet it is")
    parser.add_argument("--why", default=WHY, metavar="TEXT", help="written into the fence, for whoever meets it")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wait", action="store_true", help="follow until EC2 lists no instance")
    what.add_argument("--clear", action="store_true", help="lift the fence, so that the fleet may be raised again")


def stop(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Stop an environment's fleet through the AWS API, or lift the fence.

    Args:
        chosen: the folders of declared files.
        options: `env`, `why`, `wait` and `clear`.

    Raises:
        SpecError: the environment's file has not the form of one.
    """
    environment = fleet.environment_of(chosen, options.env)
    from tandem.ops.account import require_account, session  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.guarded import guarded  # noqa: PLC0415
    from tandem.stop import Clients, StopError  # noqa: PLC0415

    try:
        shared = session()
        who = require_account(environment, shared)
        clients, limits = Clients.of(environment.region, shared), guarded(environment)
        if options.clear:
            return _clear(chosen, clients, limits, who)
        return _stop(chosen, environment, (clients, limits), who, options)
    except StopError as fault:
        return fleet.failed(fleet.explain_fault(fault, environment), chosen)
    except OpsError as fault:
        return fleet.failed(fault, chosen)


def _clear(chosen: Selection, clients: Clients, limits: Guarded, who: str) -> Exit:
    from tandem.ops.status import moment  # noqa: PLC0415 - boto3
    from tandem.stop import release  # noqa: PLC0415

    fence = release(clients, limits, who=who, now=moment())
    if chosen.as_json:
        print_json({"environment": limits.environment, "fence": fence.state, "by": fence.who, "exit_code": 0})
    else:
        print(f"{limits.environment}: the fence is lifted; the fleet may be raised again with `tandem start`")
    return Exit.DONE


def _stop(
    chosen: Selection, environment: Environment, ours: tuple[Clients, Guarded], who: str, options: argparse.Namespace
) -> Exit:
    from tandem import stop as stopping  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.status import moment  # noqa: PLC0415

    clients, limits = ours
    report = stopping.stop(clients, limits, who=who, why=options.why, run=None, now=moment())
    report = _handed_over(environment, report, who=who, why=options.why)
    seen = report.seen
    if seen.present is False and not seen.instances and "instances" not in seen.unknown:
        _require_cluster(environment, clients, limits, fenced="fence" not in seen.unknown)
    code = Exit.WORLD_FAILED if report.failed else Exit.DONE
    if not chosen.as_json:
        for line in _lines(environment, report, wait=options.wait, silent=_silent(environment, clients, limits, seen)):
            print(line, flush=True)
    for sentence in report.failed:
        print(f"error: {sentence}", file=sys.stderr)
    if report.failed:
        print(f"  change   {RUNBOOK}; the reaper tries again every 5 min", file=sys.stderr)
    try:
        followed = _follow(chosen, clients, limits, report) if options.wait else []
    except OpsError as fault:
        return fleet.failed(fault, chosen, report.as_json())
    if chosen.as_json:
        print_json(report.as_json() | {"followed": followed, "exit_code": int(code)})
    return code


def _handed_over(environment: Environment, report: Report, *, who: str, why: str) -> Report:
    """Return the report; where these credentials may not do all of it, with what the stop function did for them."""
    from tandem.ops.fault import OpsError  # noqa: PLC0415 - boto3
    from tandem.ops.stop_function import denied, stop_by_function  # noqa: PLC0415

    if not denied(report.failed):
        return report
    try:
        done = stop_by_function(environment, who=who, why=why)
    except OpsError as fault:
        return replace(report, failed=(*report.failed, f"the stop function was asked for it: {fault}"))
    return replace(report, done=(*report.done, *(f"by the stop function: {one}" for one in done)), failed=())


def _require_cluster(environment: Environment, clients: Clients, limits: Guarded, *, fenced: bool) -> None:
    """Make sure that there is something that a stop is of, where neither node group nor instance was found.

    Raises:
        RefusedError: the environment was never deployed, or is destroyed.
        OpsError: EKS could not be asked.
    """
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3
    from tandem.ops.status import cluster_exists  # noqa: PLC0415

    if cluster_exists(clients, limits):
        return
    lift = f"; the fence that now stands in {limits.bucket}: tandem stop --env {environment.name} --clear"
    raise RefusedError(
        f"there is neither cluster {limits.cluster} nor an instance of it: nothing to stop",
        where=f"{environment.name} in account {environment.account}, {environment.region}",
        change=f"see that the name is meant{lift if fenced else ''}",
    )  # fmt: skip


def _silent(environment: Environment, clients: Clients, limits: Guarded, seen: Seen) -> str:
    """Return why nobody does the rest; "" where the reaper looks, or where that cannot be seen."""
    from tandem.ops.account import client  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.paths import read_reaper_path  # noqa: PLC0415

    try:
        path = read_reaper_path(clients.cloudwatch, client(environment, "lambda"), environment, limits, seen)
    except OpsError:
        return ""
    return path.sentence if path.state == "unarmed" else ""


def _lines(environment: Environment, report: Report, *, wait: bool, silent: str) -> list[str]:
    """Return what was done, and who does the rest."""
    name, alive = environment.name, report.seen.instances
    told = [f"{name}: stop", *(line for sentence in report.done for line in fleet.row("done", sentence))]
    for source, said in report.seen.unknown.items():
        told += fleet.row("unknown", f"{source}: {said}")
    if "instances" in report.seen.unknown:
        told += fleet.row("alive", "unknown: EC2 could not be asked")
    elif alive:
        told += fleet.row("alive", f"{counted(len(alive), 'instance')}: {', '.join(one.id for one in alive)}")
    else:
        told += fleet.row("alive", "EC2 lists no instance")
    if silent:
        told += fleet.row("attention", f"the reaper is {silent}: nobody ends by id what EKS leaves; {RUNBOOK}")
    if wait:
        return [*told, *fleet.row("following", "until EC2 lists none; Ctrl-C ends this command, not the stop")]
    if silent:
        return [*told, *fleet.row("follow", f"tandem stop --env {name} --wait, or tandem status --env {name}")]
    rest = "sees that EC2 lists none, and after a grace of 10 min terminates by id what is left"
    told += fleet.row("then", f"the reaper, a Lambda function in the account that looks every 5 min, {rest}")
    told += fleet.row("follow", f"tandem stop --env {name} --wait, or tandem status --env {name}")
    return [*told, *fleet.row("again", f"tandem stop --env {name} --clear lifts the fence, once no instance lives")]


def _follow(chosen: Selection, clients: Clients, limits: Guarded, report: Report) -> list[dict[str, str]]:
    from tandem.ops import follow  # noqa: PLC0415 - boto3
    from tandem.ops.status import moment  # noqa: PLC0415

    said = []
    try:
        for at, line in follow.follow(clients, limits, moment, report.seen):
            said.append({"at": at.isoformat(), "change": line})
            if not chosen.as_json:
                print(f"    {at:%H:%M:%S}  {line}", flush=True)
    except KeyboardInterrupt:
        print(f"the stop goes on without this command: tandem status --env {limits.environment}", file=sys.stderr)
        raise
    if not chosen.as_json:
        print("  EC2 lists no instance of this environment")
    return said
