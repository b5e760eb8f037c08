"""`tandem run`: from a parked environment to a verdict and an empty fleet.

Invariant: nothing is raised here. The plan with its minutes and USD, and what will end the run, is
shown before it is asked for; the request names the specs by their digest, so that the runner
refuses others than those that were read.

Exit codes: 0 judged, staged or compiled, requested with --detach, or planned with --dry-run; 1
declined at the prompt, ended early, cancelled or waiting; 2 refused, also by a plan; 3 an external
service failed; 4 void; 130 you stopped following: the run goes on.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from cyclopts import Group, Parameter

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.cli import fleet
from tandem.cli.console import ask_consent, print_fault, print_json, print_line, print_rows
from tandem.cli.flags import (
    EXCLUSIVE,
    EnvironmentName,
    Hours,
    Name,
    Whole,
    choose_size,
    require_range,
)
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.run_draft import RunDraft, draft_offline, draft_run
from tandem.cli.run_screen import list_plan_rows, plan_as_dict
from tandem.cli.run_timeline import RunTimeline, describe_return
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, ExternalError, InputError, TandemError
from tandem.ops.account import require_account
from tandem.ops.status import current_time
from tandem.run.run_client import RunClient
from tandem.run.run_values import RunRecord, RunRequest

ANSWER_POLL_S = 2.0
ANSWER_LIMIT = timedelta(minutes=3)  # the runner looks for requests every few seconds
MAX_ID_PREFIX_CHARACTERS = 24  # and a moment of 16 characters: a run's id has 40
SIZE = Group("Size", help="how much is sent", validator=EXCLUSIVE, sort_key=1)


def run(
    experiment: Name | None = None,
    /,
    *,
    env: EnvironmentName,
    hours: Hours | None = None,
    until: Annotated[Literal["stage", "compile"] | None, Parameter(metavar="STEP")] = None,
    quick: Annotated[bool, Parameter(group=SIZE)] = False,
    full: Annotated[bool, Parameter(group=SIZE)] = False,
    rounds: Annotated[Whole | None, Parameter(validator=require_range(1, 1000, "rounds"))] = None,
    starts: Annotated[Whole, Parameter(validator=require_range(1, 1000, "starts"))] = 1,
    llmperf: bool = False,
    budget_usd: Annotated[
        float, Parameter(metavar="USD", validator=require_range(0, 1e6, "USD"))
    ] = 0,
    run: Annotated[str | None, Parameter(metavar="ID")] = None,
    resume: Annotated[str | None, Parameter(metavar="RUN")] = None,
    accept_unarmed: bool = False,
    dry_run: bool = False,
    offline: bool = False,
    detach: bool = False,
    yes: bool = False,
    verbose: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Run an experiment: stage, compile, serve, measure, judge, and an empty fleet.

    Args:
        experiment: name of the experiment; not with --resume
        env: the environment
        hours: how long the lease lasts; the fleet stops at its end even if in use (not with --until
            stage; with --dry-run default: as many as one lease of the run needs, or the most that
            guard.max_hours allows)
        until: end after this step: stage (the models; raises no node) or compile (the artifacts)
        quick: three classes, short answers
        full: every prompt, with answers as long as its suite states
        rounds: rounds besides one control round (default: 4, or the number of starts if higher)
        starts: how often to restart each server; with 6 or more, the verdict covers differences
            between starts
        llmperf: also run the post's own load generator, after the rounds
        budget_usd: most to spend on a sweep's nodes; then it decides by the results so far (0: no
            limit)
        run: id of the run (default: made of the experiment and the time)
        resume: continue a run that waits for another lease
        accept_unarmed: go on even if one of the stops is not armed; the lease says so
        dry_run: print the plan, and request nothing
        offline: with --dry-run: plan from the declared files alone, before there is an account
        detach: request the run, and do not follow it
        yes: do not ask for confirmation
        verbose: also print every note of a step

    Raises:
        TandemError: it is refused, or an external service failed.
    """
    inputs = read_legal_inputs(selection.narrow((env,)))
    environment = inputs.environments()[0]
    new_run_flags = {
        "--until": until,
        "--quick": quick,
        "--full": full,
        "--rounds": rounds,
        "--starts": starts > 1,
        "--llmperf": llmperf,
        "--budget-usd": budget_usd,
        "--run": run,
    }
    if resume:
        _refuse_flags(new_run_flags)
    else:
        inputs.find_experiment(environment, experiment or "")
    if offline:
        _require_offline_plan(resume, dry_run=dry_run)
    if until != "stage" and hours is None and not dry_run:
        change = "add the lease's hours, for example --hours 8 (only --until stage needs none)"
        raise InputError("--hours is missing", where="tandem run", change=change)
    if until and rounds:
        change = "leave out --rounds"
        raise InputError(f"no effect with --until {until}", where="--rounds", change=change)

    asked_request = RunRequest(
        kind="run",
        run=run or "",
        environment=env,
        experiment=experiment or "",
        at="",
        until=until or "judge",
        hours=hours or 0,
        starts=starts,
        size=choose_size(quick=quick, full=full),
        rounds=rounds or max(FEWEST_ROUNDS, starts),
        llmperf=llmperf,
        accept_unarmed=accept_unarmed,
        budget_usd=budget_usd,
    )
    if offline:
        request = _name_request(asked_request, current_time())
        draft = draft_offline(inputs, environment, request, selection)
        return _print_dry_run(draft, as_json=selection.as_json)
    try:
        client = RunClient(environment)
        draft = _draft_request(client, inputs, asked_request, resume)
        if dry_run:
            return _print_dry_run(draft, as_json=selection.as_json)
        _refuse_draft(draft)
        _print_plan(draft, as_json=selection.as_json)
        if not yes and not ask_consent("begin?", where=f"environment {env}"):
            return _decline(draft, as_json=selection.as_json)
        return _request_and_follow(client, draft, selection, detach=detach, verbose=verbose)
    except TandemError as fault:
        raise fleet.explain_fault(fault, environment) from fault


def _draft_request(
    client: RunClient, inputs: CommandInputs, request: RunRequest, resume: str | None
) -> RunDraft:
    """Complete the request, and look at everything that it depends on.

    Args:
        client: of the environment.
        inputs: the declared files.
        request: as the flags say it.
        resume: id of the run to go on with.

    Raises:
        TandemError: it is refused, or an external service failed.
    """
    caller = require_account(client.environment, client.session)
    request = _name_request(request, current_time())
    earlier_run = client.read_run(resume) if resume else None
    if earlier_run is not None:
        request = _resume_request(earlier_run, request)
    return draft_run(client, inputs, request, caller, earlier_run)


def _name_request(request: RunRequest, now: datetime) -> RunRequest:
    """Return the request with its moment, and with a name where it has none."""
    prefix = request.experiment[:MAX_ID_PREFIX_CHARACTERS].rstrip("-")
    run = request.run or f"{prefix}-{now:%Y%m%d-%H%M%S}"
    return msgspec.structs.replace(request, run=run, at=now.isoformat())


def _require_offline_plan(resume: str | None, *, dry_run: bool) -> None:
    """Refuse what nobody can do without the account.

    Raises:
        InputError: a run is to be requested or resumed.
    """
    if resume:
        problem = "--resume cannot be used with --offline: the run's steps lie in the bucket"
        raise InputError(problem, where="tandem run", change="leave out --offline")
    if not dry_run:
        problem = "--offline without --dry-run: a run is requested in the account"
        raise InputError(problem, where="tandem run", change="add --dry-run")


def _print_plan(draft: RunDraft, *, as_json: bool) -> None:
    request = draft.inputs.request
    verb = "go on with" if request.kind == "resume" else "run"
    print_line(f"{request.environment}: {verb} {request.run}", stderr=as_json)
    print_rows(list_plan_rows(draft), stderr=as_json)


def _decline(draft: RunDraft, *, as_json: bool) -> ExitCode:
    request = draft.inputs.request
    if as_json:
        document = {"environment": request.environment, "run": request.run, "begun": False}
        print_json(document, ExitCode.STALE)
    print("nothing was requested", file=sys.stderr)
    return ExitCode.STALE


def _refuse_flags(flags: Mapping[str, object]) -> None:
    """Refuse what a resumed run takes from its request.

    Args:
        flags: flag -> its value; an empty one was not given.

    Raises:
        InputError: one was given.
    """
    given = ", ".join(flag for flag, value in flags.items() if value)
    if given:
        problem = f"{given} cannot be used with --resume: a run continues as it was requested"
        raise InputError(problem, where="tandem run", change=f"leave out {given}")


def _resume_request(record: RunRecord, request: RunRequest) -> RunRequest:
    """Return the request to go on with a run: its own, for another lease.

    Raises:
        InputError: it does not wait, or another experiment is named.
    """
    where = f"run {record.run}"
    if record.state != "waiting":
        raise InputError(
            f"the run is {record.state}; only a waiting run can be resumed",
            where=where,
            change="request a new run",
        )
    if request.experiment not in {"", record.experiment}:
        problem = f"the run is of {record.experiment}"
        raise InputError(problem, where=where, change="leave the experiment out")
    return msgspec.structs.replace(
        record.request,
        kind="resume",
        at=request.at,
        hours=request.hours,
        accept_unarmed=request.accept_unarmed,
    )


def _refuse_draft(draft: RunDraft) -> None:
    """Refuse a run that cannot be done now; all reasons but the first are printed.

    Raises:
        TandemError: there is a reason.
    """
    faults = [*draft.faults, *draft.runner_faults]
    for fault in faults[1:]:
        print_fault(fault)
    if faults:
        raise faults[0]


def _print_dry_run(draft: RunDraft, *, as_json: bool) -> ExitCode:
    """Print the plan and what would refuse it now; that no runner lives refuses no plan."""
    _print_plan(draft, as_json=as_json)
    faults = (*draft.faults, *draft.runner_faults)
    code = draft.faults[0].exit_code if draft.faults else ExitCode.DONE
    for fault in faults:
        print_fault(fault)
    if as_json:
        refusals = [fault.as_dict() for fault in faults]
        print_json(plan_as_dict(draft) | {"refusals": refusals}, code)
    return code


def _request_and_follow(
    client: RunClient, draft: RunDraft, selection: Selection, *, detach: bool, verbose: bool
) -> ExitCode:
    """Write the request, wait for the runner's answer, and follow the run."""
    request = draft.inputs.request
    as_json = selection.as_json
    suffix = ""
    if request.kind == "resume":
        suffix = f".resume-{int(draft.now.timestamp())}"
    key = client.write_request(request, f"{request.run}{suffix}")
    timeline = RunTimeline(
        client, request.run, estimate=draft.estimate, as_json=as_json, verbose=verbose
    )
    wait_for_answer(client, key)
    way_back = describe_return(client, request.run) if detach else "Ctrl-C leaves the run alone"
    print_line(f"  the runner takes up {request.run}; {way_back}", stderr=as_json)
    if not detach:
        return timeline.follow()
    if as_json:
        print_json(plan_as_dict(draft) | {"accepted": True})
    return ExitCode.DONE


def wait_for_answer(client: RunClient, key: str) -> None:
    """Wait until the runner accepts the request at a key.

    Raises:
        InputError: it refuses it.
        ExternalError: it says nothing for minutes; the request stands.
    """
    end = current_time() + ANSWER_LIMIT
    advice = "the request stays valid for an hour"
    answer = None
    try:
        while answer is None:
            # S3 may be away for a moment, and the request lies there
            with contextlib.suppress(ExternalError):
                answer = client.read_answer(key)
            if answer is None and current_time() > end:
                raise ExternalError(
                    "the runner has not answered", where=client.config.url(key), change=advice
                )
            time.sleep(0 if answer else ANSWER_POLL_S)
    except KeyboardInterrupt:
        print(f"the runner has not answered; {advice}", file=sys.stderr)
        raise
    if not answer.is_accepted:
        raise InputError(
            answer.reason or "refused without a reason", where="the runner", change=answer.change
        )
