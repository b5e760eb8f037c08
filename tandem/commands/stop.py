"""`tandem stop`: fence a fleet and set it to 0, follow it to its end, end a run without a fence, or lift the fence.

Exit codes: 0 done; 2 bad input, or not allowed now; 3 something of the stop could not be done, or could not be seen.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    what.add_argument("--end", action="store_true", help="the normal end of a run: no fence, the next start needs none")
    parser.add_argument("--run", metavar="ID", help="with --end: refuse where another run has the fleet")


def stop(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Stop an environment's fleet through the AWS API, end its run, or lift the fence.

    Args:
        chosen: the folders of declared files.
        options: as of `add_flags`.

    Raises:
        SpecError: the environment's file has not the form of one.
    """
    environment = fleet.environment_of(chosen, options.env)
    from tandem.ops.account import require_account, session  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError, RefusedError  # noqa: PLC0415
    from tandem.ops.guarded import guarded  # noqa: PLC0415
    from tandem.stop import Clients, StopError  # noqa: PLC0415

    try:
        if options.run and not options.end:
            raise RefusedError("--run is of --end alone", where=environment.name, change="add --end, or leave it out")
        shared = session()
        limits = guarded(environment)
        clients = Clients.of(environment.region, shared)
        if options.clear:
            return _clear(chosen, environment, clients, limits, require_account(environment, shared))
        if options.end:
            return _end(chosen, clients, limits, require_account(environment, shared), options.run)
        who = _identify_caller(environment, shared, clients, limits)
        return _stop(chosen, environment, (clients, limits), who, options)
    except StopError as fault:
        return fleet.failed(fleet.explain_fault(fault, environment), chosen)
    except OpsError as fault:
        return fleet.failed(fault, chosen)


def _identify_caller(environment: Environment, shared: Any, clients: Clients, limits: Guarded) -> str:
    """Return who stops; where STS does not say, say so and go on.

    Raises:
        OpsError: the credentials are of another account, or there are none.
    """
    from tandem.ops.caller import identify_caller  # noqa: PLC0415 - boto3

    caller = identify_caller(environment, shared, clients, limits)
    if caller.doubt:
        print(f"warning: who asks for this stop is unknown: {caller.doubt}; the stop goes on", file=sys.stderr)
    return caller.who


def _end(chosen: Selection, clients: Clients, limits: Guarded, who: str, run: str | None) -> Exit:
    """End a run without a fence, and wait until EC2 lists no instance."""
    from tandem.guard.normal_end import end_lease  # noqa: PLC0415 - boto3
    from tandem.ops.status import moment  # noqa: PLC0415

    def show(sentence: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # an end goes on where nobody reads it, as under `| head`
            print(f"    {moment():%H:%M:%S}  {sentence}", flush=True, file=sys.stderr if chosen.as_json else sys.stdout)

    show(f"{limits.environment}: {who} ends {f'run {run}' if run else 'the run'}; no fence stays behind it")
    try:
        report = end_lease(
            clients, limits, run=run, clock=moment, rest=lambda pause: time.sleep(pause.total_seconds()), say=show
        )  # fmt: skip
    except KeyboardInterrupt:
        words = ["stop", "--end", "--env", limits.environment, *(["--run", run] if run else [])]
        print(f"interrupted: the lease says that it ends, and the reaper stops what is left after 30 min. Go on: "
              f"{fleet.tandem_command(*words)}", file=sys.stderr)  # fmt: skip
        raise
    if chosen.as_json:
        print_json({"environment": limits.environment, "run": report.run, "done": list(report.done), "exit_code": 0})
    else:
        start = fleet.tandem_command("start", "--env", limits.environment)
        print(f"{limits.environment}: run {report.run} has ended; next: {start} --hours H --experiment NAME")
    return Exit.DONE


def _clear(chosen: Selection, environment: Environment, clients: Clients, limits: Guarded, who: str) -> Exit:
    from tandem.ops.status import moment  # noqa: PLC0415 - boto3
    from tandem.stop import release  # noqa: PLC0415

    fence = release(clients, limits, who=who, now=moment())
    if chosen.as_json:
        print_json({"environment": limits.environment, "fence": fence.state, "by": fence.who, "exit_code": 0})
    else:
        start = fleet.tandem_command("start", "--env", environment.name)
        print(f"{limits.environment}: the fence is lifted; next: {start} --hours H --experiment NAME")
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
        silence = _silence_of_reaper(environment, clients, limits, seen)
        rows = _lines(environment, report, wait=options.wait, silence=silence)
        for line in (*rows, *_schedule_rows(clients, limits, report)):
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
    clear = fleet.tandem_command("stop", "--env", environment.name, "--clear")
    lift = f"; the fence that now stands in {limits.bucket}: {clear}"
    raise RefusedError(
        f"it is not deployed: there is neither cluster {limits.cluster} nor an instance of it: nothing to stop",
        where=f"{environment.name} in account {environment.account}, {environment.region}",
        change=f"see that the name is meant{lift if fenced else ''}",
    )  # fmt: skip


def _silence_of_reaper(environment: Environment, clients: Clients, limits: Guarded, seen: Seen) -> str:
    """Return why nobody does the rest; "" where the reaper looks, or where that cannot be seen."""
    from tandem.ops.account import client, session  # noqa: PLC0415 - boto3
    from tandem.ops.caller import BriefSession  # noqa: PLC0415
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.paths import read_reaper_path  # noqa: PLC0415

    try:
        functions = client(environment, "lambda", BriefSession(session()))
        path = read_reaper_path(clients.cloudwatch, functions, environment, limits, seen)
    except OpsError:
        return ""
    return path.sentence if path.state == "unarmed" else ""


def _schedule_rows(clients: Clients, limits: Guarded, report: Report) -> Iterator[str]:
    """Yield what of the guard's group may raise the fleet behind this fence, and how it is deleted."""
    from tandem.guard.schedules import list_foreign_schedules  # noqa: PLC0415 - boto3
    from tandem.ops.concerns import describe_foreign_schedule  # noqa: PLC0415
    from tandem.stop import RAISED, words  # noqa: PLC0415

    if "lease" in report.seen.unknown:
        return  # its own schedule could not be told from a foreign one
    try:
        schedules = list_foreign_schedules(clients, limits, report.seen.lease)
    except RAISED as error:
        yield from fleet.row("unknown", f"schedules: {words(error)}")
        return
    for schedule in schedules:
        yield from fleet.concern_rows(describe_foreign_schedule(limits, schedule))


def _lines(environment: Environment, report: Report, *, wait: bool, silence: str) -> list[str]:
    """Return what was done, and who does the rest."""
    name, alive = environment.name, report.seen.instances
    stop, status = fleet.tandem_command("stop", "--env", name), fleet.tandem_command("status", "--env", name)
    told = [f"{name}: stop", *(line for sentence in report.done for line in fleet.row("done", sentence))]
    for source, why in report.seen.unknown.items():
        told += fleet.row("unknown", f"{source}: {why}")
    if "instances" in report.seen.unknown:
        told += fleet.row("alive", "unknown: EC2 could not be asked")
    elif alive:
        ids = ", ".join(instance.id for instance in alive)
        told += fleet.row("alive", f"{counted(len(alive), 'instance')}: {ids}")
    else:
        told += fleet.row("alive", "EC2 lists no instance")
    if silence:
        told += fleet.row("attention", f"the reaper is {silence}: nobody ends by id what EKS leaves; {RUNBOOK}")
    if wait:
        return [*told, *fleet.row("following", "until EC2 lists none; Ctrl-C ends this command, not the stop")]
    if not silence:
        rest = "sees that EC2 lists none, and after a grace of 10 min terminates by id what is left"
        told += fleet.row("then", f"the reaper, a Lambda function in the account that looks every 5 min, {rest}")
    told += fleet.row("follow", f"{stop} --wait, or {status}")
    return [*told, *fleet.row("again", f"{stop} --clear lifts the fence, once no instance lives; no start before")]


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
        status = fleet.tandem_command("status", "--env", limits.environment)
        print(f"the stop goes on without this command: {status}", file=sys.stderr)
        raise
    if not chosen.as_json:
        print("  EC2 lists no instance of this environment")
    return said
