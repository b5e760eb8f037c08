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

from tandem.cli import fleet
from tandem.cli.outcome import format_count, print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.spec.environment import Environment

if TYPE_CHECKING:
    from tandem.guard.apply import PassReport
    from tandem.guard.config import AwsClients, GuardConfig
    from tandem.guard.observe import FleetState

RUNBOOK = "docs/runbook.md#fleet-will-not-go-to-zero"
DEFAULT_REASON = "an operator asked for it"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem stop` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose fleet it is")
    parser.add_argument(
        "--why", default=DEFAULT_REASON, metavar="TEXT", help="written into the fence, for whoever meets it"
    )
    action_group = parser.add_mutually_exclusive_group()
    action_group.add_argument("--wait", action="store_true", help="follow until EC2 lists no instance")
    action_group.add_argument(
        "--clear", action="store_true", help="lift the fence, so that the fleet may be raised again"
    )
    action_group.add_argument(
        "--end", action="store_true", help="the normal end of a run: no fence, the next start needs none"
    )
    parser.add_argument("--run", metavar="ID", help="with --end: refuse where another run has the fleet")


def stop(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Stop an environment's fleet through the AWS API, end its run, or lift the fence.

    Args:
        selection: the folders of declared files.
        options: as of `add_flags`.

    Raises:
        SpecError: the environment's file has not the form of one.
    """
    environment = fleet.read_environment(selection, options.env)
    from tandem.guard.config import AwsClients  # noqa: PLC0415
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415 - boto3
    from tandem.ops.guard_config import build_guard_config  # noqa: PLC0415

    try:
        if options.run and not options.end:
            raise InputError("--run is of --end alone", where=environment.name, change="add --end, or leave it out")
        aws_session = create_session()
        limits = build_guard_config(environment)
        clients = AwsClients.create(environment.region, aws_session)
        if options.clear:
            return _release_fence(selection, environment, clients, limits, require_account(environment, aws_session))
        if options.end:
            return _end_run(selection, clients, limits, require_account(environment, aws_session), options.run)
        caller = _identify_caller(environment, aws_session, clients, limits)
        return _stop_fleet(selection, environment, (clients, limits), caller, options)
    except TandemError as fault:
        return fleet.report_failure(fleet.explain_fault(fault, environment), selection)


def _identify_caller(environment: Environment, aws_session: Any, clients: AwsClients, limits: GuardConfig) -> str:
    """Return who stops; where STS does not say, say so and go on.

    Raises:
        ExternalError: the credentials are of another account, or there are none.
    """
    from tandem.ops.caller import identify_caller  # noqa: PLC0415 - boto3

    caller = identify_caller(environment, aws_session, clients, limits)
    if caller.doubt:
        print(f"warning: who asks for this stop is unknown: {caller.doubt}; the stop goes on", file=sys.stderr)
    return caller.who


def _end_run(selection: Selection, clients: AwsClients, limits: GuardConfig, caller: str, run: str | None) -> ExitCode:
    """End a run without a fence, and wait until EC2 lists no instance."""
    from tandem.guard.normal_end import end_lease  # noqa: PLC0415 - boto3
    from tandem.ops.status import current_time  # noqa: PLC0415

    def print_step(sentence: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # an end goes on where nobody reads it, as under `| head`
            print(
                f"    {current_time():%H:%M:%S}  {sentence}",
                flush=True,
                file=sys.stderr if selection.as_json else sys.stdout,
            )

    print_step(f"{limits.environment}: {caller} ends {f'run {run}' if run else 'the run'}; no fence stays behind it")
    try:
        report = end_lease(
            clients,
            limits,
            run=run,
            clock=current_time,
            wait=lambda pause: time.sleep(pause.total_seconds()),
            log=print_step,
        )
    except KeyboardInterrupt:
        words = ["stop", "--end", "--env", limits.environment, *(["--run", run] if run else [])]
        print(f"interrupted: the lease says that it ends, and the reaper stops what is left after 30 min. Go on: "
              f"{fleet.tandem_command(*words)}", file=sys.stderr)  # fmt: skip
        raise
    if selection.as_json:
        print_json({"environment": limits.environment, "run": report.run, "done": list(report.actions), "exit_code": 0})
    else:
        start = fleet.tandem_command("start", "--env", limits.environment)
        print(f"{limits.environment}: run {report.run} has ended; next: {start} --hours H --experiment NAME")
    return ExitCode.DONE


def _release_fence(
    selection: Selection, environment: Environment, clients: AwsClients, limits: GuardConfig, caller: str
) -> ExitCode:
    from tandem.guard.release import release_fence  # noqa: PLC0415
    from tandem.ops.status import current_time  # noqa: PLC0415 - boto3

    fence = release_fence(clients, limits, who=caller, now=current_time())
    if selection.as_json:
        print_json({"environment": limits.environment, "fence": fence.state, "by": fence.who, "exit_code": 0})
    else:
        start = fleet.tandem_command("start", "--env", environment.name)
        print(f"{limits.environment}: the fence is lifted; next: {start} --hours H --experiment NAME")
    return ExitCode.DONE


def _stop_fleet(
    selection: Selection,
    environment: Environment,
    clients_and_limits: tuple[AwsClients, GuardConfig],
    caller: str,
    options: argparse.Namespace,
) -> ExitCode:
    from tandem.guard.apply import stop_fleet  # noqa: PLC0415 - boto3
    from tandem.ops.status import current_time  # noqa: PLC0415

    clients, limits = clients_and_limits
    report = stop_fleet(clients, limits, who=caller, why=options.why, run=None, now=current_time())
    report = _delegate_stop(environment, report, caller=caller, reason=options.why)
    fleet_state = report.fleet
    if fleet_state.has_node_group is False and not fleet_state.instances and "instances" not in fleet_state.unknown:
        _require_cluster(environment, clients, limits, has_fence="fence" not in fleet_state.unknown)
    code = ExitCode.EXTERNAL_FAILURE if report.failures else ExitCode.DONE
    if not selection.as_json:
        reaper_silence = _explain_reaper_silence(environment, clients, limits, fleet_state)
        rows = _format_report(environment, report, wait=options.wait, reaper_silence=reaper_silence)
        for line in (*rows, *_format_schedules(clients, limits, report)):
            print(line, flush=True)
    for sentence in report.failures:
        print(f"error: {sentence}", file=sys.stderr)
    if report.failures:
        print(f"  change   {RUNBOOK}; the reaper tries again every 5 min", file=sys.stderr)
    try:
        changes = _follow_stop(selection, clients, limits, report) if options.wait else []
    except TandemError as fault:
        return fleet.report_failure(fault, selection, report.as_json())
    if selection.as_json:
        print_json(report.as_json() | {"followed": changes, "exit_code": int(code)})
    return code


def _delegate_stop(environment: Environment, report: PassReport, *, caller: str, reason: str) -> PassReport:
    """Return the report; where these credentials may not do all of it, with what the stop function did for them."""
    from tandem.ops.stop_function import has_denial, invoke_stop_function  # noqa: PLC0415

    if not has_denial(report.failures):
        return report
    try:
        actions = invoke_stop_function(environment, who=caller, why=reason)
    except TandemError as fault:
        return replace(report, failures=(*report.failures, f"the stop function was asked for it: {fault}"))
    return replace(
        report, actions=(*report.actions, *(f"by the stop function: {action}" for action in actions)), failures=()
    )


def _require_cluster(environment: Environment, clients: AwsClients, limits: GuardConfig, *, has_fence: bool) -> None:
    """Make sure that there is something that a stop is of, where neither node group nor instance was found.

    Raises:
        InputError: the environment was never deployed, or is destroyed.
        ExternalError: EKS could not be asked.
    """
    from tandem.ops.status import cluster_exists  # noqa: PLC0415

    if cluster_exists(clients, limits):
        return
    release_command = fleet.tandem_command("stop", "--env", environment.name, "--clear")
    release_note = f"; the fence that now stands in {limits.bucket}: {release_command}"
    raise InputError(
        f"it is not deployed: there is neither cluster {limits.cluster} nor an instance of it: nothing to stop",
        where=f"{environment.name} in account {environment.account}, {environment.region}",
        change=f"see that the name is meant{release_note if has_fence else ''}",
    )  # fmt: skip


def _explain_reaper_silence(
    environment: Environment, clients: AwsClients, limits: GuardConfig, fleet_state: FleetState
) -> str:
    """Return why nobody does the rest; "" where the reaper looks, or where that cannot be seen."""
    from tandem.ops.account import create_client, create_session  # noqa: PLC0415 - boto3
    from tandem.ops.caller import ShortTimeoutSession  # noqa: PLC0415
    from tandem.ops.stop_paths import read_reaper_path  # noqa: PLC0415

    try:
        functions = create_client(environment, "lambda", ShortTimeoutSession(create_session()))
        path = read_reaper_path(clients.cloudwatch, functions, environment, limits, fleet_state)
    except TandemError:
        return ""
    return path.sentence if path.state == "unarmed" else ""


def _format_schedules(clients: AwsClients, limits: GuardConfig, report: PassReport) -> Iterator[str]:
    """Yield what of the guard's group may raise the fleet behind this fence, and how it is deleted."""
    from tandem.guard.schedules import list_foreign_schedules  # noqa: PLC0415 - boto3
    from tandem.guard.values import CALL_ERRORS, describe_error  # noqa: PLC0415
    from tandem.ops.status_warnings import build_schedule_warning  # noqa: PLC0415

    if "lease" in report.fleet.unknown:
        return  # its own schedule could not be told from a foreign one
    try:
        schedules = list_foreign_schedules(clients, limits, report.fleet.lease)
    except CALL_ERRORS as error:
        yield from fleet.format_row("unknown", f"schedules: {describe_error(error)}")
        return
    for schedule in schedules:
        yield from fleet.format_concern(build_schedule_warning(limits, schedule))


def _format_report(environment: Environment, report: PassReport, *, wait: bool, reaper_silence: str) -> list[str]:
    """Return what was done, and who does the rest."""
    name, instances = environment.name, report.fleet.instances
    stop_command, status_command = (
        fleet.tandem_command("stop", "--env", name),
        fleet.tandem_command("status", "--env", name),
    )
    rows = [f"{name}: stop", *(line for sentence in report.actions for line in fleet.format_row("done", sentence))]
    for source, reason in report.fleet.unknown.items():
        rows += fleet.format_row("unknown", f"{source}: {reason}")
    if "instances" in report.fleet.unknown:
        rows += fleet.format_row("alive", "unknown: EC2 could not be asked")
    elif instances:
        ids = ", ".join(instance.id for instance in instances)
        rows += fleet.format_row("alive", f"{format_count(len(instances), 'instance')}: {ids}")
    else:
        rows += fleet.format_row("alive", "EC2 lists no instance")
    if reaper_silence:
        rows += fleet.format_row(
            "attention", f"the reaper is {reaper_silence}: nobody ends by id what EKS leaves; {RUNBOOK}"
        )
    if wait:
        return [*rows, *fleet.format_row("following", "until EC2 lists none; Ctrl-C ends this command, not the stop")]
    if not reaper_silence:
        reaper_action = "sees that EC2 lists none, and after a grace of 10 min terminates by id what is left"
        rows += fleet.format_row(
            "then", f"the reaper, a Lambda function in the account that looks every 5 min, {reaper_action}"
        )
    rows += fleet.format_row("follow", f"{stop_command} --wait, or {status_command}")
    return [
        *rows,
        *fleet.format_row("again", f"{stop_command} --clear lifts the fence, once no instance lives; no start before"),
    ]


def _follow_stop(
    selection: Selection, clients: AwsClients, limits: GuardConfig, report: PassReport
) -> list[dict[str, str]]:
    from tandem.ops import stop_progress  # noqa: PLC0415 - boto3
    from tandem.ops.status import current_time  # noqa: PLC0415

    changes = []
    try:
        for change_time, line in stop_progress.follow_stop(clients, limits, current_time, report.fleet):
            changes.append({"at": change_time.isoformat(), "change": line})
            if not selection.as_json:
                print(f"    {change_time:%H:%M:%S}  {line}", flush=True)
    except KeyboardInterrupt:
        status_command = fleet.tandem_command("status", "--env", limits.environment)
        print(f"the stop goes on without this command: {status_command}", file=sys.stderr)
        raise
    if not selection.as_json:
        print("  EC2 lists no instance of this environment")
    return changes
