"""Steps that fill the bucket with models and compiled artifacts, and the first look at the cluster.

Invariant: the bucket decides, not the Job: a Job that ended well and left nothing is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandem.artifacts.survey import SurveyRow
from tandem.artifacts.task_sets import read_task_set
from tandem.declarations import names
from tandem.declarations.system_jobs import JUDGE_JOB, MEASURE_JOB, QUALITY_JOB
from tandem.declarations.variant_key import compute_artifact_key
from tandem.errors import InputError
from tandem.guard.fleet_start import check_start
from tandem.ops.node_admission import admit_compile_jobs
from tandem.run.cluster import ObjectKind
from tandem.run.fleet_steps import build_raise_request
from tandem.run.jobs import close_job, look_at_job, name_job, start_job
from tandem.run.run_world import RunEndError, StepProgress, StepWork
from tandem.run.server_state import list_unfinished_pods

MAX_ATTEMPTS = 2  # each Job has its own retries
PARK_WAIT_S = 10 * 60


def check_bucket(work: StepWork) -> StepProgress:
    """Check that the cluster can stage what the bucket lacks; read no fleet, lease or stops.

    Raises:
        RunEndError: a CronJob is missing, or the bucket has a set that no Job repairs.
        ExternalError: AWS or Kubernetes failed.
    """
    _require_objects(work, [("cronjobs", job) for job in list_missing_jobs(work, "model")])
    return StepProgress(state="done")


def check_before_money(work: StepWork) -> StepProgress:
    """Check that specs, cluster and fleet admit the run, and let no server wait for its nodes.

    Raises:
        RunEndError: something does not fit; nothing was raised.
        InputError: the bucket lacks a task set or a file of prompts, or has other bytes of it.
        ExternalError: AWS or Kubernetes failed.
    """
    world = work.world
    request = work.request
    compile_jobs = list_missing_jobs(work, "artifact")
    jobs = [*list_missing_jobs(work, "model"), *compile_jobs]
    needed_objects: list[tuple[ObjectKind, str]] = [("cronjobs", job) for job in jobs]
    if request.measures:
        needed_objects += _list_measuring_objects(work)
    _require_objects(work, needed_objects)
    if request.until == "compile" and not compile_jobs:
        return StepProgress(state="done")  # no node will be raised

    has_begun = "since" in work.result
    if request.measures and not has_begun:  # once: each may have 64 MiB
        _check_task_sets(work)
    # free where this process has read them: another may have accepted the request
    world.read_file_suites(work.experiment, request)

    labels = admit_compile_jobs(work.experiment).labels
    raise_request = build_raise_request(work, work.lease_name, labels)
    try:
        check_start(world.clients, world.guard, raise_request, world.now())
    except InputError as fault:
        raise RunEndError(f"the fleet could not be raised: {fault}") from fault
    return park_servers(work)


def _list_measuring_objects(work: StepWork) -> list[tuple[ObjectKind, str]]:
    """Return the Deployments and CronJobs that measure and judge."""
    jobs = [MEASURE_JOB, JUDGE_JOB]
    if work.request.llmperf:
        jobs.append(names.LLMPERF_JOB)
    if work.experiment.quality:
        jobs.append(QUALITY_JOB)
    deployments: list[tuple[ObjectKind, str]] = [("deployments", server) for server in work.servers]
    return deployments + [("cronjobs", job) for job in jobs]


def _require_objects(work: StepWork, needed: Iterable[tuple[ObjectKind, str]]) -> None:
    """Check that the experiment's namespace has the objects that a run needs.

    Raises:
        RunEndError: it lacks some.
        ExternalError: Kubernetes failed.
    """
    cluster = work.world.cluster
    namespace = work.namespace
    absent = [name for kind, name in needed if cluster.get_object(kind, namespace, name) is None]
    if absent:
        raise RunEndError(f"namespace {namespace} lacks {', '.join(absent)}: deploy or sync first")


def _check_task_sets(work: StepWork) -> None:
    """Check that the bucket has the bytes of every declared task set.

    Raises:
        InputError: it lacks one, or has other bytes of it.
        ExternalError: S3 failed.
    """
    for task in work.experiment.quality:
        if task.sha256:
            read_task_set(work.world.store, task.name, task.sha256)


def park_servers(work: StepWork) -> StepProgress:
    """Set the experiment's servers to 0 and wait for their pods to go, so none takes a node."""
    for arm in work.servers:
        work.world.cluster.scale_deployment(work.namespace, arm, 0)
    waiting = [arm for arm in work.servers if list_unfinished_pods(work, arm)]
    if not waiting:
        return StepProgress(state="done")
    work.restart_clock()  # of the first look that scaled them all
    if "since" in work.result and work.count_elapsed_s() > PARK_WAIT_S:
        raise RunEndError(
            f"pods of {', '.join(waiting)} are still there {PARK_WAIT_S // 60} min after a scale"
            " to 0"
        )
    result = {"since": work.result.get("since") or work.world.now().isoformat()}
    return StepProgress(note=f"waits for pods of {', '.join(waiting)} to end", result=result)


def list_missing_jobs(work: StepWork, kind: str) -> dict[str, SurveyRow]:
    """Return CronJob -> the row that it makes, for all rows of a kind that the bucket lacks.

    Raises:
        RunEndError: the bucket has a set that no Job repairs.
        ExternalError: the bucket cannot be read.
    """
    experiment = work.experiment
    catalogue = work.world.catalogue
    rows = {
        row.prefix: row
        for row in work.world.survey(experiment)
        if row.kind == kind and row.state != "present"
    }
    for row in rows.values():
        if row.needs_person:
            raise RunEndError(
                f"{row.name} is {row.state}: {', '.join(row.why)}; see docs/artifacts.md"
            )
    if kind == "model":
        models = [catalogue.models[name] for name in experiment.all_models()]
        jobs = {names.stage_job_name(model): model.prefix() for model in models}
    else:
        keys = [
            compute_artifact_key(experiment, variant, catalogue)
            for variant in experiment.all_variants()
        ]
        jobs = {names.compile_job_name(key): key.prefix for key in keys}
    return {job: rows[prefix] for job, prefix in jobs.items() if prefix in rows}


def stage_models(work: StepWork) -> StepProgress:
    """Stage the models that the bucket lacks, all at once; no node is raised yet.

    Raises:
        RunEndError: a Job failed for good.
        ExternalError: AWS or Kubernetes failed.
    """
    return _run_jobs(work, "model", limit=len(work.experiment.all_models()))


def compile_artifacts(work: StepWork) -> StepProgress:
    """Compile the artifacts that the bucket lacks, as many at once as devices and memory allow.

    Raises:
        RunEndError: a Job failed for good.
        LeaseEndError: the lease ends before a compile could.
        ExternalError: AWS or Kubernetes failed.
    """
    inputs = work.plan_inputs
    return _run_jobs(
        work, "artifact", limit=max(1, inputs.nodes * inputs.count_slots(work.experiment.compile))
    )


def _run_jobs(work: StepWork, kind: str, *, limit: int) -> StepProgress:
    """Look at the Jobs of all missing rows; begin those with room, end the step if none is missing.

    The journal has an attempt before its Job is made: the look that decides on the attempt makes no
    Job.
    """
    missing = list_missing_jobs(work, kind)
    attempts = dict(work.result.get("attempts", {}))
    open_jobs = set(work.result.get("open", ()))
    notes = []
    for job in sorted(open_jobs):
        look = look_at_job(work, name_job(work.run, job, attempts[job]))
        reason = f" ({look.words})" if look.words else ""
        notes.append(f"{look.name} {look.state}{reason}")
        if look.state == "absent" and job in missing:
            start_job(work, job, attempts[job])
        elif look.state != "running":
            close_job(work, look.name)
            open_jobs.discard(job)
            is_last = attempts[job] >= MAX_ATTEMPTS
            if look.state == "failed" and job in missing and is_last:
                raise RunEndError(f"Job {look.name} failed: {look.words or 'it says nothing'}")

    if not missing and not open_jobs:
        if not attempts:
            return StepProgress(state="skipped", note="nothing was missing")
        return StepProgress(state="done", note=f"{len(attempts)} made now")

    idle_jobs = [job for job in missing if job not in open_jobs]
    room = max(0, limit - len(open_jobs))
    for job in idle_jobs[:room]:
        attempt = attempts.get(job, 0) + 1
        name = missing[job].name
        if attempt > MAX_ATTEMPTS:
            raise RunEndError(f"the bucket lacks {name} after {MAX_ATTEMPTS} Jobs of {job}")
        attempts[job] = attempt
        open_jobs.add(job)
        notes.append(f"{name} is begun")
    result = {"attempts": attempts, "open": sorted(open_jobs)}
    return StepProgress(note="; ".join(notes), result=result, attempts=sum(attempts.values()))
