"""Steps that measure and judge: a Job for each round, the tasks, the post's generator, the judge.

Invariant: a round counts only if its servers were the same before and after it. The journal has the
servers before the round's Job is made. One image digest measures all rounds of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tandem.bench.records.quality_rows import QUALITY_FILE
from tandem.declarations import names
from tandem.declarations.suite_file import DeclaredSuite
from tandem.declarations.system_jobs import JUDGE_JOB, MEASURE_JOB, QUALITY_JOB, SERVERS_VARIABLE
from tandem.errors import ExitCode
from tandem.run.fleet_steps import release_fleet
from tandem.run.jobs import close_job, has_ended, look_at_job, name_job, start_job
from tandem.run.run_keys import (
    JUDGMENT_FILE,
    RANK_STEP,
    ROUND_FILE,
    ROUND_STEP,
    job_prefix,
    results_prefix,
    round_prefix,
)
from tandem.run.run_plan import LLMPERF_MINUTES, QUALITY_WAIT_MINUTES
from tandem.run.run_values import (
    SILENT_EXIT_CODE,
    TASK_VARIABLE,
    BenchTask,
    JudgmentResult,
    RoundResult,
    list_confirmed,
)
from tandem.run.run_world import LEASE_MARGIN_S, RunEndError, StepProgress, StepWork
from tandem.run.server_state import (
    UNALLOCATED,
    ServerState,
    read_servers,
    read_serving_servers,
    require_single_servers,
)
from tandem.run.serving_steps import check_servers
from tandem.run.task_settings import build_task_settings

MAX_ROUND_ATTEMPTS = 3
MAX_JUDGE_ATTEMPTS = 3
MAX_QUALITY_ATTEMPTS = 2
LLMPERF_WAIT_S = 110 * 60  # it is skipped before its step's deadline would end the run
QUALITY_WAIT_S = 60 * QUALITY_WAIT_MINUTES  # the same for the tasks
REFUSED_EXIT_CODE = 2
RANK_JOBS = 50  # numbers of the judge's Jobs that rank a pair begin behind it
SERVER_LEFT = "a server went away right after the check; checking again"
# After the last heartbeat of a lost node its pods stay Ready for --node-monitor-grace-period, 50 s
# (kube-controller-manager 1.36), and for the 5 s between two looks of the node controller.
SILENCE_WAIT = timedelta(seconds=60)


def build_task(work: StepWork, servers: dict[str, ServerState], **fields: Any) -> BenchTask:
    """Return the task of a bench Job."""
    environment = work.world.environment
    experiment = work.experiment
    request = work.request
    capacity = environment.capacity
    confirmed = list_confirmed(work.steps.values())
    arms = tuple(
        msgspec.structs.replace(
            arm, placement=servers[arm.name].placement if arm.name in servers else None
        )
        for arm in work.plan_inputs.arms
    )
    return BenchTask(
        run=work.results_run,
        environment=environment.name,
        experiment=experiment.name,
        account=environment.account,
        region=environment.region,
        bucket=names.bucket_name(environment),
        confirmed=confirmed,
        arms=arms,
        suites=tuple(map(_encode_suite, experiment.suites)),
        most_tokens=experiment.max_output_tokens,
        size=request.size,
        rounds=request.rounds,
        control_rounds=request.control_rounds,
        seed=request.seed,
        schedule=experiment.schedule,
        goodput=experiment.goodput.list_limits() if experiment.goodput else None,
        concurrency=experiment.concurrency,
        instance_type=capacity.instance_type,
        usd_per_hour=capacity.usd_per_hour * work.plan_inputs.nodes,
        claims=experiment.claims,
        show_prompts=experiment.report.show_prompts,
        drafts={
            variant.name: variant.draft for variant in experiment.all_variants() if variant.draft
        },
        **fields,
    )


def _encode_suite(suite: DeclaredSuite) -> str | dict[str, Any]:
    """Return a suite as a task has it."""
    return suite if isinstance(suite, str) else suite.model_dump(exclude_defaults=True)


def measure_round(work: StepWork) -> StepProgress:
    """Measure one round: observe the servers, run its Job, observe them again.

    Raises:
        RunEndError: a second endpoint, or no attempt that counts.
        ExternalError: AWS or Kubernetes failed.
    """
    number = int(work.name.removeprefix(ROUND_STEP))
    require_single_servers(work)
    work.restart_clock()
    if "before" not in work.result:
        return _prepare_round(work, number)

    look = look_at_job(work, name_job(work.run, MEASURE_JOB, _count_job(work, number)))
    # a round that is stored whole counts, however its Job ended later
    measured = _read_round(work, number) if look.state != "running" else None
    if look.state == "absent" and measured is None:
        return _start_round(work, number)
    change = _describe_change(work)
    if look.state == "running" and not change:
        note = look.words or f"measures for {int(work.count_elapsed_s() // 60)} min"
        return work.keep_running(note)

    reason = change or look.words or "its Job left no records"
    if measured is not None:
        planned_requests = count_requests(work, number)
        if measured.requests != planned_requests:
            reason = f"its Job recorded {measured.requests} of {planned_requests} requests"
        elif not change:
            close_job(work, look.name)
            return _confirm_round(work, measured, look.image_id)
    if look.exit_code == REFUSED_EXIT_CODE and not change:
        refusal = f"the Job of round {number} refused its input: {look.words}; the records are kept"
        raise RunEndError(refusal, "failed")
    if work.attempts >= MAX_ROUND_ATTEMPTS:
        failure = f"round {number} could not be measured in {work.attempts} attempts: {reason}"
        raise RunEndError(failure, "void" if change else "failed")
    times = _time_next_attempt(work, is_silent=look.exit_code == SILENT_EXIT_CODE)
    result = {"voided": [*work.result.get("voided", []), reason], **times}
    note = f"attempt {work.attempts} does not count: {reason}"
    return StepProgress(note=note, result=result)


def _read_round(work: StepWork, number: int) -> RoundResult | None:
    """Return what an attempt of a round stored; a run of the same name elsewhere may have too."""
    key = _round_key(work, number, work.attempts)
    result = work.journal.file.at_root().read(key, RoundResult)
    is_own = result is not None and result.environment == work.world.environment.name
    return result if is_own else None


def _round_key(work: StepWork, number: int, attempt: int) -> str:
    return round_prefix(work.experiment.name, work.results_run, number, attempt) + ROUND_FILE


def _start_round(work: StepWork, number: int) -> StepProgress:
    """Start the Job of an attempt, with the image of the run's earlier rounds."""
    task = build_task(work, _read_servers_before(work), number=number, attempt=work.attempts)
    digests = [
        step.result.get("image_id")
        for name, step in work.journal.steps.items()
        if ROUND_STEP in name
    ]
    start_job(
        work,
        MEASURE_JOB,
        _count_job(work, number),
        variables={TASK_VARIABLE: msgspec.json.encode(task).decode()},
        digest=next(filter(None, digests), ""),
    )
    return work.keep_running(f"attempt {work.attempts} begins")


def _read_servers_before(work: StepWork) -> dict[str, ServerState]:
    """Return the servers as the attempt began with them."""
    return msgspec.convert(work.result["before"], dict[str, ServerState])


def _describe_change(work: StepWork) -> str:
    """Return how the servers changed since the attempt began; empty if they did not."""
    return describe_change(_read_servers_before(work), read_servers(work))


def _time_next_attempt(work: StepWork, *, is_silent: bool) -> dict[str, str]:
    """Return when the next attempt's phase begins, and until when it waits after no answer."""
    now = work.world.now()
    times = {"since": now.isoformat()}
    if is_silent:
        times["silent_until"] = (now + SILENCE_WAIT).isoformat()
    return times


def _describe_silence(work: StepWork) -> str:
    """Return why the next attempt waits; empty if it does not."""
    until = work.result.get("silent_until")
    if until is None or work.world.now() >= datetime.fromisoformat(until):
        return ""
    return (
        "the last attempt got no answer; the next one starts at"
        f" {datetime.fromisoformat(until):%H:%M:%S} UTC"
    )


def count_requests(work: StepWork, number: int) -> int:
    """Return how many requests the run's plan sends in a round, over all arms."""
    plan = build_task_settings(build_task(work, {}), work.world.store).plan()
    return sum(turn.request_count for turn in plan.round(number))


def _prepare_round(work: StepWork, number: int) -> StepProgress:
    """Check that all servers are ready and as declared, and record them before the Job is made."""
    former_job = name_job(work.run, MEASURE_JOB, _count_job(work, number))
    # it may still send requests to the servers
    if work.attempts and not has_ended(work, former_job):
        return work.keep_running(f"waits for {former_job} to go")
    return _begin_attempt(
        work,
        check_servers,
        note="the servers are as declared",
        result={**work.result, "begun_at": work.world.now().isoformat()},
    )


def _begin_attempt(
    work: StepWork,
    check: Callable[[StepWork], StepProgress],
    *,
    note: str,
    result: dict[str, Any],
) -> StepProgress:
    """Record the servers before the Job of an attempt is made, or return why it has to wait."""
    silence = _describe_silence(work)
    if silence:
        return work.keep_running(silence)
    progress = check(work)
    if progress.state != "done":
        return progress
    servers = read_serving_servers(work)
    if not servers:
        return work.keep_running(SERVER_LEFT)
    result = {**result, "before": msgspec.to_builtins(servers)}
    return StepProgress(note=note, result=result, attempts=work.attempts + 1)


def _confirm_round(work: StepWork, measured: RoundResult, image_id: str) -> StepProgress:
    """Return that a round counts; it lasted until its Job stored it, however late that is seen."""
    key = _round_key(work, measured.number, measured.attempt)
    rows = list(work.journal.file.at_root().list_keys(key))
    ended_at = rows[0][2] if rows else work.world.now()
    begun_at = datetime.fromisoformat(work.result["begun_at"])
    used_s = ((ended_at or work.world.now()) - begun_at).total_seconds()
    failed = f", {measured.failed} failed" if measured.failed else ""
    servers = _read_servers_before(work)
    result = {
        "number": measured.number,
        "attempt": measured.attempt,
        "used_s": used_s,
        "image_id": image_id,
        "voided": work.result.get("voided", []),
        "placements": {name: server.placement for name, server in servers.items()},
        "is_simulated": measured.is_simulated,
    }
    return StepProgress(
        state="done",
        note=f"{measured.requests} requests{failed} in {used_s / 60:.1f} min",
        result=result,
    )


def _count_job(work: StepWork, number: int) -> int:
    """Return the number in the Job's name: the attempts of a round have adjacent numbers."""
    return 1_000_000 * work.pair + 100 * number + work.attempts


def describe_change(before: dict[str, ServerState], after: dict[str, ServerState]) -> str:
    """Return the changes of the servers in a round; empty if there are none."""
    for name, server in before.items():
        now = after.get(name)
        if now is None:
            return f"{name} no longer has exactly one pod"
        for field in ("uid", "restarts", "image", "words", "claim", "devices", "endpoints"):
            if getattr(server, field) == getattr(now, field):
                continue
            if now.claim:
                return f"{name}: {field} changed"
            return f"{name}: {field} changed, and it has no devices: {now.trouble or UNALLOCATED}"
    return ""


def run_llmperf(work: StepWork) -> StepProgress:
    """Run the post's generator on both arms at once when they answer; note its failure or hang.

    Raises:
        LeaseEndError: the rest of the lease is too short for the generator, before it has begun.
        ExternalError: AWS or Kubernetes failed.
    """
    job = name_job(work.run, names.LLMPERF_JOB, 1)
    if not work.attempts:
        work.require_lease_s(60 * LLMPERF_MINUTES, "llmperf")
        return _begin_attempt(work, _check_or_skip, note="begins", result={"job": job})

    look = look_at_job(work, job)
    left_s = work.count_lease_s()
    is_lease_over = left_s is not None and left_s < LEASE_MARGIN_S
    is_late = is_lease_over or work.count_elapsed_s() > LLMPERF_WAIT_S
    fault = ""
    change = _describe_change(work)
    if change:
        fault = f"does not count: {change}"
    elif look.state == "failed":
        fault = f"failed: {look.words or 'it says nothing'}"
    elif look.state != "succeeded" and is_late:
        fault = f"took too long: {look.words or 'it did not end'}"
    if fault:
        close_job(work, job)
        return StepProgress(state="skipped", note=f"llmperf {fault}")

    if look.state == "succeeded":
        close_job(work, job)
        place = job_prefix(work.experiment.name, "llmperf", job)
        return StepProgress(state="done", note=f"{place}/", result={"job": job})
    if look.state == "absent":
        start_job(work, names.LLMPERF_JOB, 1)
    return work.keep_running(look.words or "llmperf runs")


def ask_tasks(work: StepWork) -> StepProgress:
    """Ask all servers the tasks; if that fails, the verdict says why it knows no quality.

    Raises:
        LeaseEndError: the rest of the lease is too short; the next lease asks again.
        ExternalError: AWS or Kubernetes failed.
    """
    step_s = work.count_elapsed_s()
    work.restart_clock()
    if "before" not in work.result:
        return _prepare_tasks(work)
    name = name_job(work.run, QUALITY_JOB, work.result["number"])
    if "end" in work.result:
        return _end_attempt(work, name)
    look = look_at_job(work, name)
    is_late = step_s > QUALITY_WAIT_S
    is_stored = look.state != "running" and _has_answers(work, name)  # however the Job ended later
    if look.state == "absent" and not (is_stored or is_late):
        servers = " ".join(f"{arm.name}={arm.url}" for arm in work.plan_inputs.arms)
        start_job(work, QUALITY_JOB, work.result["number"], variables={SERVERS_VARIABLE: servers})
    change = _describe_change(work)
    if look.state in {"absent", "running"} and not (is_stored or is_late or change):
        return work.keep_running(look.words or "asks the tasks")
    end: dict[str, Any] = {
        "words": change or look.words or "its Job left no answers",
        "is_stored": is_stored and not change,
        "is_final": is_late or (look.exit_code == REFUSED_EXIT_CODE and not change),
        "exit_code": look.exit_code,
    }
    note = "the answers are stored" if end["is_stored"] else end["words"]
    return StepProgress(note=note, result={**work.result, "end": end})


def _end_attempt(work: StepWork, job: str) -> StepProgress:
    """Close the Job of an attempt; end the step, or let another attempt follow."""
    if not has_ended(work, job):  # it may still send requests to the servers
        return work.keep_running(f"waits for {job} to go")
    end = work.result["end"]
    tries = work.result["tries"]
    if end["is_stored"]:
        result = {"job": job, "since": work.result["since"]}
        return StepProgress(
            state="done", note=f"{job_prefix(work.experiment.name, 'quality', job)}/", result=result
        )
    if end["is_final"] or tries >= MAX_QUALITY_ATTEMPTS:
        return StepProgress(state="skipped", note=end["words"])
    # the quality Job has one exit code for all faults outside it, so each of them gets the pause
    times = _time_next_attempt(work, is_silent=end["exit_code"] == ExitCode.EXTERNAL_FAILURE)
    result = {"tries": tries, **times}
    return StepProgress(
        note=f"attempt {work.attempts} does not count: {end['words']}", result=result
    )


def _prepare_tasks(work: StepWork) -> StepProgress:
    """Check that the lease lasts and all servers are as declared; record them before the Job."""
    work.require_lease_s(60 * work.plan_inputs.quality_minutes, "quality")
    attempt = work.attempts + 1
    result = {
        "number": 100 * work.pair + attempt,
        "tries": work.result.get("tries", 0) + 1,
        "since": work.world.now().isoformat(),
    }
    return _begin_attempt(work, _check_or_skip, note=f"attempt {attempt}", result=result)


def _check_or_skip(work: StepWork) -> StepProgress:
    """Check servers after the last round; if one changed, skip the step: rounds are measured."""
    try:
        return check_servers(work)
    except RunEndError as end:
        return StepProgress(state="skipped", note=end.reason)


def _has_answers(work: StepWork, job: str) -> bool:
    """Return whether a Job has stored its answers."""
    prefix = f"{job_prefix(work.experiment.name, 'quality', job)}-"
    rows = work.journal.file.at_root().list_keys(prefix)
    return any(key.endswith(f"/{QUALITY_FILE}") for key, _, _ in rows)


def _find_job(work: StepWork, step: str) -> str:
    """Return the Job of a step that left files for the judge; empty if there is none."""
    record = work.steps.get(step)
    return record.result.get("job", "") if record else ""


def read_judgment(work: StepWork) -> JudgmentResult | None:
    """Return what the judge's Job stored; None as long as there is nothing.

    Raises:
        ExternalError: S3 failed.
    """
    key = results_prefix(work.experiment.name, work.results_run) + JUDGMENT_FILE
    return work.journal.file.at_root().read(key, JudgmentResult)


def judge_run(work: StepWork) -> StepProgress:
    """Run the judge's Job, which makes verdict and report of all rounds.

    Raises:
        RunEndError: no attempt made a verdict; the records are whole.
        ExternalError: AWS or Kubernetes failed.
    """
    attempt = work.attempts
    if work.has_lease and not work.pair and not release_fleet(work):  # a verdict needs no node
        return work.keep_running("the fleet goes to zero first")
    if not attempt or work.result.get("phase") == "again":
        return StepProgress(
            note=f"attempt {attempt + 1}", result={"phase": "judge"}, attempts=attempt + 1
        )
    number = 100 * work.pair + attempt
    if work.name == RANK_STEP:
        number += RANK_JOBS
    name = name_job(work.run, JUDGE_JOB, number)
    look = look_at_job(work, name)
    if look.state == "absent":
        quality = work.steps.get("quality")
        quality_job = _find_job(work, "quality")
        task = build_task(
            work,
            {},
            llmperf_job=_find_job(work, "llmperf"),
            quality_job=quality_job,
            quality_fault=quality.note if quality and not quality_job else "",
        )
        variables = {TASK_VARIABLE: msgspec.json.encode(task).decode()}
        start_job(work, JUDGE_JOB, number, variables=variables)
        return work.keep_running("begins")
    if look.state == "running":
        return work.keep_running(look.words or "judges")
    judgment = read_judgment(work) if look.state == "succeeded" else None
    close_job(work, name)
    if judgment is not None:
        return StepProgress(
            state="done", note=judgment.sentence, result=msgspec.to_builtins(judgment)
        )
    if attempt >= MAX_JUDGE_ATTEMPTS or look.exit_code == REFUSED_EXIT_CODE:
        reason = look.words or "its Job left no verdict"
        raise RunEndError(f"no verdict could be made: {reason}; the records are whole", "failed")
    return StepProgress(note=f"attempt {attempt} failed: {look.words}", result={"phase": "again"})
