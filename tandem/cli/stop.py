"""`tandem stop`: fence a fleet and set it to 0, end a run without a fence, or lift the fence.

Exit codes: 0 done; 2 bad input, or not allowed now; 3 something of the stop could not be done, or
could not be seen.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from cyclopts import Group, Parameter

from tandem.aws.client_config import GUARD_CLIENT_CONFIG
from tandem.cli import fleet
from tandem.cli.console import (
    VerbatimText,
    print_fault,
    print_json,
    print_line,
    print_result,
    print_rows,
)
from tandem.cli.flags import EXCLUSIVE, EnvironmentName
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.environment import Environment
from tandem.errors import ExitCode, InputError, TandemError
from tandem.guard.apply import PassReport, stop_fleet
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_changes import follow_fleet
from tandem.guard.fleet_state import FleetState
from tandem.guard.normal_end import end_lease
from tandem.guard.release import release_fence
from tandem.guard.schedules import list_foreign_schedules
from tandem.guard.values import CALL_ERRORS, describe_error
from tandem.ops.account import create_client, create_guard_clients, create_session, require_account
from tandem.ops.caller import identify_caller
from tandem.ops.guard_config import build_guard_config
from tandem.ops.status import cluster_exists, current_time
from tandem.ops.status_warnings import build_schedule_warning
from tandem.ops.stop_function import has_denial, invoke_stop_function
from tandem.ops.stop_paths import read_reaper_path
from tandem.shell_command import build_tandem_command

RUNBOOK = "docs/runbook.md#fleet-will-not-go-to-zero"
DEFAULT_REASON = "requested by an operator"
START_FLAGS = "--hours H --experiment NAME"
ACTIONS = Group("Instead of fencing alone", validator=EXCLUSIVE, sort_key=1)


def stop(
    *,
    env: EnvironmentName,
    why: Annotated[str, Parameter(metavar="TEXT")] = DEFAULT_REASON,
    run: Annotated[str | None, Parameter(metavar="ID")] = None,
    wait: Annotated[bool, Parameter(group=ACTIONS)] = False,
    release: Annotated[bool, Parameter(group=ACTIONS)] = False,
    end: Annotated[bool, Parameter(group=ACTIONS)] = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Stop the fleet: fence it and set it to 0; or lift the fence.

    Args:
        env: the environment whose fleet it is
        why: reason, written into the fence
        run: with --end: end this run only; refuse if another run has the fleet
        wait: wait until EC2 lists no instance
        release: lift the fence, so that the fleet may start again
        end: end a run normally, without a fence

    Raises:
        TandemError: the environment's file has not the form of one, it is not allowed now, or AWS
            failed.
    """
    environment = fleet.read_environment(selection, env)
    try:
        if run and not end:
            raise InputError(
                "--run works only with --end",
                where=environment.name,
                change="add --end, or leave out --run",
            )
        aws_session = create_session()
        limits = build_guard_config(environment)
        clients = create_guard_clients(environment, aws_session)
        if release or end:
            caller = require_account(environment, aws_session)
            arguments = (selection, clients, limits, caller)
            if end:
                return _end_run(*arguments, run)
            return _release_fence(*arguments)
        caller_guess = identify_caller(environment, aws_session, clients, limits)
        if caller_guess.doubt:
            doubt = f"the caller of this stop is unknown: {caller_guess.doubt}; the stop continues"
            with contextlib.suppress(OSError):  # nor does a stop need a reader
                print(f"warning: {doubt}", file=sys.stderr)
        return _stop_fleet(
            selection, environment, clients, limits, who=caller_guess.who, why=why, follows=wait
        )
    except TandemError as fault:
        raise fleet.explain_fault(fault, environment) from fault


def _end_run(
    selection: Selection, clients: AwsClients, limits: GuardConfig, caller: str, run: str | None
) -> ExitCode:
    """End a run without a fence, and wait until EC2 lists no instance."""
    name = limits.environment
    stream = sys.stderr if selection.as_json else sys.stdout
    steps = []

    def print_step(sentence: str) -> None:
        steps.append(sentence)
        # an end goes on where nobody reads it: under `| head`, or on a full disk
        with contextlib.suppress(OSError):
            print(f"    {current_time():%H:%M:%S}  {sentence}", flush=True, file=stream)

    run_text = f"run {run}" if run else "the run"
    print_step(f"{name}: {caller} ends {run_text}; no fence stays behind it")
    try:
        ended_run = end_lease(
            clients, limits, run=run, clock=current_time, wait=_pause, log=print_step
        )
    except KeyboardInterrupt:
        options = ["--run", run] if run else []
        again = build_tandem_command("stop --end", name, *options)
        state = (
            "interrupted: the lease says that it ends, and the reaper stops what is left after"
            " 30 min"
        )
        print(f"{state}. Go on: {again}", file=sys.stderr)
        raise
    text = (
        f"{name}: run {ended_run} has ended; next: {build_tandem_command('start', name)}"
        f" {START_FLAGS}"
    )
    document = {"environment": name, "run": ended_run, "done": steps}
    return print_result(document, [text], as_json=selection.as_json)


def _release_fence(
    selection: Selection, clients: AwsClients, limits: GuardConfig, caller: str
) -> ExitCode:
    fence = release_fence(clients, limits, who=caller, now=current_time())
    name = limits.environment
    text = f"{name}: the fence is lifted; next: {build_tandem_command('start', name)} {START_FLAGS}"
    document = {"environment": name, "fence": fence.state, "by": fence.who}
    return print_result(document, [text], as_json=selection.as_json)


def _stop_fleet(
    selection: Selection,
    environment: Environment,
    clients: AwsClients,
    limits: GuardConfig,
    *,
    who: str,
    why: str,
    follows: bool,
) -> ExitCode:
    report = stop_fleet(clients, limits, who=who, why=why, run=None, now=current_time())
    if has_denial(report.failures):
        report = _delegate_stop(environment, report, caller=who, reason=why)
    _refuse_absent(environment, clients, limits, report.fleet)
    if not selection.as_json:
        print_line(f"{environment.name}: stop")
        print_rows(_list_report_rows(environment, clients, limits, report, follows=follows))
        sys.stdout.flush()
    for sentence in report.failures:
        print_line(f"error: {sentence}", stderr=True)
    if report.failures:
        print(f"  change   {RUNBOOK}; the reaper tries again every 5 min", file=sys.stderr)
    try:
        changes = _follow_stop(selection, clients, limits, report) if follows else []
    except TandemError as fault:
        return print_fault(fault, as_json=selection.as_json, done=report.as_json())
    code = ExitCode.EXTERNAL_FAILURE if report.failures else ExitCode.DONE
    if selection.as_json:
        print_json(report.as_json() | {"followed": changes}, code)
    return code


def _refuse_absent(
    environment: Environment, clients: AwsClients, limits: GuardConfig, fleet_state: FleetState
) -> None:
    """Refuse to stop what is not deployed.

    Raises:
        InputError: neither its cluster nor an instance exists.
    """
    is_gone = not fleet_state.instances and "instances" not in fleet_state.unknown
    if fleet_state.has_node_group is False and is_gone and not cluster_exists(clients, limits):
        release = build_tandem_command("stop", environment.name, "--release")
        raise InputError(
            f"nothing to stop: neither cluster {limits.cluster} nor an instance of it exists",
            where=f"{environment.name} in account {environment.account}, {environment.region}",
            change=f"check the name; a fence may exist now: {release}",
        )


def _delegate_stop(
    environment: Environment, report: PassReport, *, caller: str, reason: str
) -> PassReport:
    """Return the report with what the stop function did: these credentials may not do all of it."""
    try:
        actions = invoke_stop_function(environment, who=caller, why=reason)
    except TandemError as fault:
        return replace(
            report, failures=(*report.failures, f"the stop function was called: {fault}")
        )
    own_actions = tuple(f"by the stop function: {action}" for action in actions)
    return replace(report, actions=(*report.actions, *own_actions), failures=())


def _explain_reaper_silence(
    environment: Environment, clients: AwsClients, limits: GuardConfig, fleet_state: FleetState
) -> str:
    """Return why nobody does the rest; "" where the reaper looks, or where that cannot be seen."""
    try:
        functions = create_client(environment, "lambda", config=GUARD_CLIENT_CONFIG)
        path = read_reaper_path(clients.cloudwatch, functions, environment, limits, fleet_state)
    except TandemError:
        return ""
    return path.sentence if path.state == "unarmed" else ""


def _list_report_rows(
    environment: Environment,
    clients: AwsClients,
    limits: GuardConfig,
    report: PassReport,
    *,
    follows: bool,
) -> Iterator[fleet.TextRow]:
    """Yield what was done, who does the rest, and what may raise the fleet behind this fence."""
    stop_command = build_tandem_command("stop", environment.name)
    fleet_state = report.fleet
    for sentence in report.actions:
        yield "done", sentence
    for source, reason in fleet_state.unknown.items():
        yield "unknown", f"{source}: {reason}"
    if "instances" not in fleet_state.unknown:
        yield (
            "alive",
            ", ".join(instance.id for instance in fleet_state.instances) or "EC2 lists no instance",
        )
    silence = _explain_reaper_silence(environment, clients, limits, fleet_state)
    if silence:
        yield "attention", f"the reaper is {silence}: nothing terminates what EKS leaves; {RUNBOOK}"
    else:
        yield (
            "then",
            (
                "the reaper, a Lambda function in the account, terminates by id what is left after"
                " 10 min"
            ),
        )
    if follows:
        yield "following", "until EC2 lists none; Ctrl-C ends this command, not the stop"
    else:
        yield "follow", VerbatimText(f"{stop_command} --wait")
        yield (
            "again",
            VerbatimText(f"{stop_command} --release  # lifts the fence, once no instance lives"),
        )
    if "lease" in fleet_state.unknown:
        return  # its own schedule and a foreign one look alike
    try:
        for schedule in list_foreign_schedules(clients, limits, fleet_state.lease):
            yield from fleet.list_warning_rows(build_schedule_warning(limits, schedule))
    except CALL_ERRORS as error:
        yield "unknown", f"schedules: {describe_error(error)}"


def _follow_stop(
    selection: Selection, clients: AwsClients, limits: GuardConfig, report: PassReport
) -> list[dict[str, str]]:
    changes = []
    try:
        for change_time, line in follow_fleet(
            clients, limits, current_time, _pause, previous=report.fleet
        ):
            changes.append({"at": change_time.isoformat(), "change": line})
            if not selection.as_json:
                print(f"    {change_time:%H:%M:%S}  {line}", flush=True)
    except KeyboardInterrupt:
        status_command = build_tandem_command("status", limits.environment)
        print(f"the stop continues without this command: {status_command}", file=sys.stderr)
        raise
    if not selection.as_json:
        print("  EC2 lists no instance of this environment")
    return changes


def _pause(duration: timedelta) -> None:
    time.sleep(duration.total_seconds())
