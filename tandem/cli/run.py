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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Group, Parameter

from tandem.artifacts.inventory import find_read_fault, read_inventory
from tandem.artifacts.needs import list_needs, merge_needs
from tandem.artifacts.store import ObjectStore
from tandem.artifacts.survey import survey_bucket
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.cli import fleet
from tandem.cli.console import (
    ask_consent,
    format_count,
    print_fault,
    print_json,
    print_line,
    print_rows,
)
from tandem.cli.flags import EXCLUSIVE, EnvironmentName, Name, Whole, require_range
from tandem.cli.fleet import TextRow, format_moment, format_span
from tandem.cli.image_digests import resolve_digest
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.run_timeline import RunTimeline, describe_return
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.start import build_unarmed_error, list_reservation_notes
from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.errors import ExitCode, ExternalError, InputError, TandemError
from tandem.guard.fleet_start import RaiseRequest, check_start
from tandem.ops.account import AccountClients, require_account
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.ops.doctor.runner import CHECKS, run_checks
from tandem.ops.guard_config import build_guard_config
from tandem.ops.node_admission import admit_servers
from tandem.ops.status import current_time
from tandem.ops.stop_paths import StopPath, read_stop_paths
from tandem.run import run_plan
from tandem.run.run_client import BEAT_LIMIT, RunClient, name_people
from tandem.run.run_keys import find_run_id_fault, lease_run
from tandem.run.run_refusals import list_refusals
from tandem.run.run_values import LastStep, RunRecord, RunRequest, estimate_round_s
from tandem.run.starts_options import StartsOption, compare_starts
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command

ANSWER_POLL_S = 2.0
ANSWER_LIMIT = timedelta(minutes=3)  # the runner looks for requests every few seconds
# journal's step, without its number -> the row of the plan that it is part of
PHASES = {"round": "measure", "pair": "pairs"} | dict.fromkeys(
    ("raise", "node", "park", "end"), "nodes"
)
PHASES |= dict.fromkeys(("label", "serve", "ready", "check", "restart"), "serve")
# what of doctor's checks holds for a run of what is deployed; the others are of a deploy, or ask
# registries
RUN_CHECKS = frozenset(
    {
        "stacks",
        "offering",
        "quota",
        "reservation",
        "block-end",
        "budget",
        "bucket",
        "bucket-key",
        "own-images",
        "fleet",
        "capacity-kind",
        "scaling",
        "schedules",
        "subscriptions",
    }
)
# those that read nothing of the fleet
STAGE_CHECKS = frozenset({"stacks", "bucket", "bucket-key", "own-images"})
MAX_ID_PREFIX_CHARACTERS = 24  # and a moment of 16 characters: a run's id has 40
SIZE = Group("How much is asked", validator=EXCLUSIVE, sort_key=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """A run that may be requested.

    Args:
        inputs: of its plan.
        now: when it was looked at.
        estimate: the plan.
        paths: reaper and budget, as they stand.
        notes: what is to be known of the reservation.
        faults: why it would be refused now.
        runner_faults: why nobody would take it up.
        findings: of doctor's checks, those that are not ok.
    """

    inputs: run_plan.RunPlanInputs
    now: datetime
    estimate: run_plan.RunEstimate
    paths: Sequence[StopPath] = ()
    notes: Sequence[str] = ()
    faults: Sequence[TandemError] = ()
    runner_faults: Sequence[TandemError] = ()
    findings: Sequence[Finding] = ()


def run(
    experiment: Name | None = None,
    /,
    *,
    env: EnvironmentName,
    hours: Annotated[
        float | None, Parameter(metavar="H", validator=require_range(1e-9, 1e9, "hours above 0"))
    ] = None,
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
    detach: bool = False,
    yes: bool = False,
    verbose: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Run an experiment: stage, compile, serve, measure, judge, and an empty fleet.

    Args:
        experiment: which; with --resume the run's own
        env: the environment
        hours: how long the lease lasts; the fleet stops at its end even if in use (not with --until
            stage)
        until: end after this step: stage (the models; raises no node) or compile (the artifacts)
        quick: three classes, short answers
        full: every prompt, as long as its suite states
        rounds: in addition to one control round; four by default, and as many as starts
        starts: how often to restart each server; with 6 or more, the verdict covers differences
            between starts
        llmperf: also run the post's own generator, after the rounds
        budget_usd: of a sweep's nodes: then it decides by its results so far; 0 is none
        run: the run's id; made of the experiment and the time by default
        resume: go on with a run that waits for another lease
        accept_unarmed: go on although a path would not stop the fleet; the lease says so
        dry_run: print the plan, and ask for nothing
        detach: ask for it, and do not follow
        yes: ask nothing
        verbose: print every note of a step, too

    Raises:
        TandemError: it is refused, or an external service failed.
    """
    inputs = read_legal_inputs(selection.narrow((env,)))
    environment = inputs.environments()[0]
    measuring_flags = {
        "--quick": quick,
        "--full": full,
        "--rounds": rounds,
        "--starts": starts > 1,
        "--llmperf": llmperf,
        "--budget-usd": budget_usd > 0,
    }
    lease_flags = {"--hours": hours, "--accept-unarmed": accept_unarmed}
    _check_flags(measuring_flags, lease_flags, identity=run, resume=resume, until=until)
    try:
        client = RunClient(environment)
        caller = require_account(environment, client.session)
        now = current_time()
        earlier_run = client.read_run(resume) if resume else None
        own_id = f"{(experiment or '')[:MAX_ID_PREFIX_CHARACTERS].rstrip('-')}-{now:%Y%m%d-%H%M%S}"
        request = RunRequest(
            kind="run",
            run=run or own_id,
            environment=env,
            experiment=experiment or "",
            at=now.isoformat(),
            until=until or "judge",
            hours=hours or 0,
            starts=starts,
            size="quick" if quick else "full" if full else "default",
            rounds=rounds or max(FEWEST_ROUNDS, starts),
            llmperf=llmperf,
            accept_unarmed=accept_unarmed,
            budget_usd=budget_usd,
        )
        if earlier_run is not None:
            request = _resume_request(earlier_run, request)
        draft = _draft_run(client, inputs, request, caller, earlier_run)
        if not dry_run and (faults := [*draft.faults, *draft.runner_faults]):
            for fault in faults[1:]:
                print_fault(fault)
            raise faults[0]
        print_line(
            f"{env}: {'go on with' if resume else 'run'} {request.run}", stderr=selection.as_json
        )
        print_rows(_list_plan_rows(draft), stderr=selection.as_json)
        if dry_run:
            return _end_dry_run(draft, as_json=selection.as_json)
        if not yes and not ask_consent("begin?", where=f"environment {env}"):
            if selection.as_json:
                print_json(
                    {
                        "environment": env,
                        "run": request.run,
                        "begun": False,
                        "exit_code": int(ExitCode.STALE),
                    }
                )
            print("nothing was requested", file=sys.stderr)
            return ExitCode.STALE
        return _ask_and_follow(client, draft, selection, detach=detach, verbose=verbose)
    except TandemError as fault:
        raise fleet.explain_fault(fault, environment) from fault


def _check_flags(
    measuring_flags: Mapping[str, object],
    lease_flags: Mapping[str, object],
    *,
    identity: str | None,
    resume: str | None,
    until: LastStep | None,
) -> None:
    """Refuse flags that do not fit each other.

    Args:
        measuring_flags: flag -> value, of what measures.
        lease_flags: flag -> value, of the lease.
        identity: the value of --run.
        resume: of --resume.
        until: of --until.

    Raises:
        InputError: two do not fit, or --hours is missing.
    """
    if resume:
        new_flags = {**measuring_flags, "--run": identity, "--until": until}
        _refuse_flags("--resume", "a run goes on as it was requested", new_flags)
    if until:
        _refuse_flags(f"--until {until}", "such a run measures nothing", measuring_flags)
    if until == "stage":
        _refuse_flags("--until stage", "staging has no lease", lease_flags)
    elif lease_flags["--hours"] is None:
        change = "add the lease's hours, for example --hours 8 (only --until stage needs none)"
        raise InputError("--hours is missing", where="tandem run", change=change)


def _refuse_flags(beside: str, reason: str, flags: Mapping[str, object]) -> None:
    """Refuse flags that do not fit another one.

    Args:
        beside: that other one.
        reason: why they do not fit.
        flags: flag -> its value; an empty one was not given.

    Raises:
        InputError: one was given.
    """
    given = [flag for flag, value in flags.items() if value]
    if given:
        problem = f"{', '.join(given)} cannot be used with {beside}: {reason}"
        raise InputError(problem, where="tandem run", change=f"leave out {', '.join(given)}")


def _resume_request(record: RunRecord, asked: RunRequest) -> RunRequest:
    """Return the request to go on with a run: its own, for another lease.

    Raises:
        InputError: it does not wait, or another experiment is named.
    """
    if record.state != "waiting":
        change = "only a waiting run can be resumed; ask for a new one"
        raise InputError(f"it is {record.state}", where=f"run {record.run}", change=change)
    if asked.experiment not in {"", record.experiment}:
        raise InputError(
            f"it is of {record.experiment}",
            where=f"run {record.run}",
            change="leave the experiment out",
        )
    changes = {"at": asked.at, "hours": asked.hours, "accept_unarmed": asked.accept_unarmed}
    return msgspec.structs.replace(record.request, kind="resume", **changes)


def _draft_run(
    client: RunClient,
    inputs: CommandInputs,
    request: RunRequest,
    caller: str,
    earlier_run: RunRecord | None,
) -> RunDraft:
    """Look at everything that a run depends on.

    Raises:
        InputError: no experiment is named, or the id names no run.
        ExternalError: an external service failed.
    """
    environment = client.environment
    catalogue = inputs.catalogue
    now = current_time()
    experiment = inputs.find_experiment(environment, request.experiment)
    if sentence := find_run_id_fault(request.run):
        raise InputError(sentence, where="--run", change="write another name")
    steps = client.read_steps(request.run) if earlier_run else ()
    plan_inputs = run_plan.RunPlanInputs(
        environment=environment,
        experiment=experiment,
        catalogue=catalogue,
        gaps=_read_gaps(client, inputs, experiment),
        request=msgspec.structs.replace(
            request, spec_digest=compute_spec_digest(environment, experiment, catalogue)
        ),
        done_steps=frozenset(step.step for step in steps if step.state == "done"),
        measured_minutes=estimate_round_s(steps) / 60,
    )
    draft = RunDraft(
        inputs=plan_inputs,
        now=now,
        estimate=run_plan.estimate_run(plan_inputs),
        faults=list_refusals(plan_inputs),
        runner_faults=tuple(_find_runner_faults(client, plan_inputs.request, now)),
    )
    if draft.faults:
        return draft
    if not plan_inputs.needs_nodes:
        return _examine_account(client, draft, STAGE_CHECKS)
    lease = lease_run(request.run, len(earlier_run.leases) + 1 if earlier_run else 1)
    return _look_at_fleet(client, draft, lease, caller)


def _read_gaps(
    client: RunClient, inputs: CommandInputs, experiment: Experiment
) -> run_plan.BucketGaps:
    """Return what has to be staged and compiled.

    Raises:
        InputError: something is stored that neither mends.
        ExternalError: the bucket cannot be read.
    """
    needs = merge_needs(list_needs(client.environment.name, [experiment], inputs.catalogue))
    with name_people(client.environment, "engineer"):
        stored_sets = read_inventory(ObjectStore(client.config.bucket, client.clients.s3))
        rows = [
            row for row in survey_bucket(client.config.bucket, needs, stored_sets) if row.used_by
        ]
        if fault := find_read_fault(stored_sets):
            raise fault
    for row in rows:
        if row.needs_person:
            change = (
                f"{build_tandem_command('artifacts list', client.environment.name)},"
                " docs/artifacts.md"
            )
            raise InputError(
                f"{row.name} is {row.state}: {', '.join(row.why)}", where=row.prefix, change=change
            )
    return run_plan.find_gaps(rows)


def _look_at_fleet(client: RunClient, draft: RunDraft, lease: str, caller: str) -> RunDraft:
    """Return the draft with the start's view of the fleet: fence, lease, window, unarmed stops.

    Raises:
        ExternalError: AWS could not be asked.
    """
    inputs = draft.inputs
    environment = client.environment
    admission = admit_servers(environment, inputs.experiment, inputs.catalogue, nodes=inputs.nodes)
    request = RaiseRequest(
        run=lease,
        hours=inputs.request.hours,
        nodes=inputs.nodes,
        experiment=inputs.experiment.name,
        node_labels=admission.labels,
        who=caller,
        beats=True,
    )
    draft = _examine_account(client, draft, RUN_CHECKS)
    limits = build_guard_config(environment)
    try:
        fleet_state = check_start(client.clients, limits, request, draft.now)
    except InputError as fault:
        return replace(draft, faults=(*draft.faults, fault))
    notes = list_reservation_notes(client.clients, environment, fleet_state)
    all_paths, _ = read_stop_paths(client.clients, client.session, environment, limits, fleet_state)
    paths = [path for path in all_paths if path.name != "schedule"]  # that one the raise arms
    unarmed_paths = [path for path in paths if path.state == "unarmed"]
    is_refused = unarmed_paths and not inputs.request.accept_unarmed
    faults = [build_unarmed_error(environment, unarmed_paths)] if is_refused else []
    return replace(draft, paths=paths, notes=notes, faults=(*draft.faults, *faults))


def _examine_account(client: RunClient, draft: RunDraft, check_ids: frozenset[str]) -> RunDraft:
    """Return the draft with what these checks of doctor find; what fails there refuses it."""
    context = DoctorContext(
        environment=client.environment,
        experiments=(draft.inputs.experiment,),
        catalogue=draft.inputs.catalogue,
        now=draft.now,
        resolve_digest=resolve_digest,
    )
    checks = [check for check in CHECKS if check.id in check_ids]
    lines = run_checks(context, AccountClients(client.environment, client.session), checks)
    findings = [line for line in lines if line.level != "ok"]
    faults = [
        InputError(line.message, where=f"doctor: {line.check}", change=line.action or line.command)
        for line in findings
        if line.level == "fail"
    ]
    return replace(draft, findings=findings, faults=faults)


def _find_runner_faults(
    client: RunClient, request: RunRequest, now: datetime
) -> Iterator[TandemError]:
    """Yield why nobody would take the run up: no runner lives, or it has other specs."""
    environment = client.environment
    beat = client.read_beat()
    where = f"the runner of {environment.name}"
    age = now - datetime.fromisoformat(beat.at) if beat else None
    if beat is None or age is None or age > BEAT_LIMIT:
        seen = f"it has not written for {format_span(age)}" if age else "none has ever written"
        kubectl = quote_command("kubectl", "-n", "runner-system", "get", "pods")
        yield ExternalError(
            seen, where=where, change=f"see its pod (inside the VPC): {kubectl}; or deploy it"
        )
    elif beat.spec_digests.get(request.experiment) != request.spec_digest:
        deploy = build_cdk_command("deploy", environment.name, "Workloads")
        change = (
            "deploy or sync first:"
            f" {deploy if environment.delivery.kind == 'cdk' else 'tandem render, commit, sync'}"
        )
        yield InputError(
            f"it has other specs of {request.experiment} than these files",
            where=where,
            change=change,
        )


def _end_dry_run(draft: RunDraft, *, as_json: bool) -> ExitCode:
    """Print what would refuse the run now; that no runner lives refuses no plan."""
    faults = (*draft.faults, *draft.runner_faults)
    code = draft.faults[0].exit_code if draft.faults else ExitCode.DONE
    for fault in faults:
        print_fault(fault)
    if as_json:
        refusals = [fault.as_dict() for fault in faults]
        print_json({**_plan_as_dict(draft), "refusals": refusals, "exit_code": int(code)})
    return code


def _ask_and_follow(
    client: RunClient, draft: RunDraft, selection: Selection, *, detach: bool, verbose: bool
) -> ExitCode:
    """Write the request, wait for the runner's answer, and follow the run."""
    request = draft.inputs.request
    as_json = selection.as_json
    suffix = f".resume-{int(draft.now.timestamp())}" if request.kind == "resume" else ""
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
        print_json({**_plan_as_dict(draft), "accepted": True, "exit_code": 0})
    return ExitCode.DONE


def wait_for_answer(client: RunClient, key: str) -> None:
    """Wait until the runner accepts the request at a key.

    Raises:
        InputError: it refuses it.
        ExternalError: it says nothing for minutes; the request stands.
    """
    end = current_time() + ANSWER_LIMIT
    advice = "the request stands, and is refused once it is an hour old"
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


def _list_plan_rows(draft: RunDraft) -> Iterator[TextRow]:
    """Yield what will be done, its time and cost and their ground, and what will end it."""
    inputs = draft.inputs
    estimate = draft.estimate
    request = draft.inputs.request
    if request.until == "judge":
        yield from _list_arm_rows(inputs)
    else:
        yield "until", f"{request.until}: nothing is served or measured"
    if inputs.needs_nodes:
        capacity = inputs.environment.capacity
        yield (
            "fleet",
            f"0 -> {estimate.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})",
        )
        yield from (("reserved", note) for note in draft.notes)
    if draft.findings:
        levels = Counter(line.level for line in draft.findings)
        counts = ", ".join(f"{count} {level}" for level, count in sorted(levels.items()))
        yield "doctor", f"{counts}: {build_tandem_command('doctor', request.environment)}"

    phases: dict[str, list[run_plan.StepEstimate]] = {}
    for step in estimate.steps[1:]:  # preflight is a minute, and free
        word = step.step.partition(".")[0].partition("-")[0]
        phases.setdefault(PHASES.get(word, word), []).append(step)
    yield from ((phase, _format_phase(rows)) for phase, rows in phases.items() if rows[0].minutes)

    if inputs.needs_nodes:
        yield from _list_money_rows(draft)
    else:
        yield "total", f"{_format_size(estimate)}  no node"


def _list_arm_rows(inputs: run_plan.RunPlanInputs) -> Iterator[TextRow]:
    """Yield what is measured."""
    request = inputs.request
    sweep = inputs.experiment.sweep
    names = ", ".join(arm.name for arm in inputs.arms)
    if sweep:
        names = (
            f"{inputs.arms[0].name} and each of at most {len(sweep.variants())} candidates, one"
            " after the other"
        )
    rounds = format_count(request.rounds + request.control_rounds, "round")
    arms = f"{names}: {rounds}, {request.control_rounds} of control"
    yield (
        "arms",
        f"{arms}; {format_count(request.starts, 'start')} of each server, {request.size} size",
    )
    if sweep:
        yield from _list_sweep_rows(inputs)
    if request.budget_usd:
        yield (
            "budget",
            f"{request.budget_usd:.2f} USD of nodes: then the sweep decides by its results so far",
        )


def _list_sweep_rows(inputs: run_plan.RunPlanInputs) -> Iterator[TextRow]:
    """Yield what the tasks of a sweep cost, and what keeps its candidates from winning."""
    tasks = inputs.experiment.quality
    if inputs.request.rounds < FEWEST_ROUNDS:
        yield "rounds", f"fewer than {FEWEST_ROUNDS}: no candidate can win"
    if not tasks:
        yield "tasks", "none: a candidate whose output is not that of plain decoding cannot win"
        return

    names = ", ".join(
        f"{task.name} ({format_count(run_plan.count_items(task), 'item')})" for task in tasks
    )
    cost = f"at most {inputs.quality_minutes:.0f} min and {inputs.quality_usd:.2f} USD for a pair"
    who = "a candidate that leads so far" if inputs.asks_leaders_only else "every candidate"
    yield "tasks", f"{names}: {cost}; {who} and plain decoding answer"
    if any(run_plan.count_items(task) < run_plan.ITEMS_OF_WORD for task in tasks):
        yield "", f"a task of fewer than {run_plan.ITEMS_OF_WORD} items decides nothing"


def _list_money_rows(draft: RunDraft) -> Iterator[TextRow]:
    """Yield the price of all nodes, the leases, the price of other starts, and the stops."""
    inputs = draft.inputs
    estimate = draft.estimate
    request = draft.inputs.request
    capacity = inputs.environment.capacity
    deadline = draft.now + timedelta(hours=request.hours)
    price = f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"
    paid = "; the capacity is paid already" if capacity.needs_reservation else ""
    yield (
        "total",
        f"{_format_size(estimate)}  {estimate.node_minutes:.0f} node-minutes at {price}{paid}",
    )
    if estimate.leases > 1:
        resume = build_tandem_command("run", request.environment, "--resume", request.run)
        yield (
            "leases",
            (
                f"{estimate.leases} of {request.hours:g} h: between two the run waits for {resume}"
                " --hours H"
            ),
        )
    for option in _list_starts_options(inputs) if request.kind == "run" else ():
        notes = f", {option.rounds} rounds" if option.rounds != request.rounds else ""
        notes += f", {option.estimate.leases} leases" if option.estimate.leases > 1 else ""
        text = (
            f"{_format_size(option.estimate)}  {format_count(option.starts, 'start')}{notes}:"
            f" {option.word_scope}"
        )
        yield "" if option.starts > 1 else "starts", text
    yield (
        "stops",
        f"schedule  {format_moment(deadline, draft.now)}: calls EKS itself; armed before the raise",
    )
    yield from (
        ("", f"{path.name:<9} {fleet.describe_path(path, draft.now)}") for path in draft.paths
    )


def _list_starts_options(inputs: run_plan.RunPlanInputs) -> Sequence[StartsOption]:
    """Return what other numbers of starts cost; none where the servers start once or never."""
    if inputs.experiment.sweep or inputs.request.until != "judge":
        return ()
    return compare_starts(inputs)


def _format_phase(steps: Sequence[run_plan.StepEstimate]) -> str:
    rounds = sum(step.step.startswith("round-") for step in steps)
    bases = dict.fromkeys(step.basis for step in steps)
    count = f"{format_count(rounds, 'round')}: " if rounds else ""
    deadline_minutes = max(step.deadline_minutes for step in steps)
    ending = f"{steps[-1].ending} after {deadline_minutes:.0f} min{' each' * (len(steps) > 1)}"
    return (
        f"{_format_size(run_plan.RunEstimate(steps=tuple(steps), nodes=1))} "
        f" {count}{'; '.join(bases)}; {ending}"
    )


def _format_size(estimate: run_plan.RunEstimate) -> str:
    bound = "at most" if estimate.has_bounds else "about"
    span = format_span(timedelta(minutes=estimate.minutes))
    unpriced = "".join(f" + {text}" for text in estimate.unpriced)
    return f"{bound} {span:<10} {estimate.usd:>9,.2f} USD{unpriced}"


def _plan_as_dict(draft: RunDraft) -> dict[str, Any]:
    request = draft.inputs.request
    estimate = draft.estimate
    starts = [
        {
            "starts": row.starts,
            "rounds": row.rounds,
            "word": row.word_scope,
            **_size_as_dict(row.estimate),
        }
        for row in _list_starts_options(draft.inputs)
    ]
    return {
        "environment": request.environment,
        "run": request.run,
        **msgspec.to_builtins(
            {"request": request, "gaps": draft.inputs.gaps, "steps": estimate.steps}
        ),
        **_size_as_dict(estimate),
        "starts": starts,
        "tasks": _tasks_as_dict(draft.inputs),
        "stops": [fleet.path_as_dict(path) for path in draft.paths],
    }


def _tasks_as_dict(inputs: run_plan.RunPlanInputs) -> dict[str, Any]:
    items = {task.name: run_plan.count_items(task) for task in inputs.experiment.quality}
    figures = {"minutes": round(inputs.quality_minutes, 2), "usd": round(inputs.quality_usd, 2)}
    return {"items": items, **figures, "asks_leaders_only": inputs.asks_leaders_only}


def _size_as_dict(estimate: run_plan.RunEstimate) -> dict[str, Any]:
    figures = {
        "minutes": estimate.minutes,
        "node_minutes": estimate.node_minutes,
        "usd": estimate.usd,
    }
    figures = {name: round(value, 2) for name, value in figures.items()}
    counts = {"nodes": estimate.nodes, "leases": estimate.leases}
    return {
        **figures,
        **counts,
        "is_bound": estimate.has_bounds,
        "unpriced": list(estimate.unpriced),
    }
