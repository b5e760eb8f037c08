"""Jobs of a run: only the runner makes them of CronJobs, looks at them, keeps log tails, deletes.

Invariant: a Job's name follows from run, CronJob and attempt, so a new runner finds the Jobs of the
last one. Its labels name run and step: a Job of such a name without them is somebody else's, and no
runner deletes it. A Job has no owner: pruning a CronJob kills no work that is paid for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal

import msgspec

from tandem.errors import TandemError
from tandem.run.cluster import Object, RefusedCallError
from tandem.run.fleet_nodes import describe_taints, list_fleet_nodes
from tandem.run.run_keys import log_key, mark_jobs
from tandem.run.run_values import list_confirmed
from tandem.run.run_world import RunEndError, StepWork
from tandem.shell_command import quote_command

RUN_LABEL = "tandem.run/id"
STEP_LABEL = "tandem.run/step"
MAX_WORD_CHARACTERS = 240  # of a container's last words in a sentence
# from the Job to its pod's first container; a system node pulls its image
START_WAIT = timedelta(minutes=15)
JobState = Literal["absent", "running", "succeeded", "failed"]


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """State of one Job.

    Args:
        name: of the Job.
        state: of the Job; `failed` if its pod does not start in START_WAIT, because its node costs
            money.
        exit_code: of the last container that failed; None if none did.
        words: why it failed or waits, in a few words.
        image_id: of the image that its container runs, `sha256:...`; empty if not known yet.
    """

    name: str
    state: JobState
    exit_code: int | None = None
    words: str = ""
    image_id: str = ""


def name_job(run: str, cron_job: str, attempt: int) -> str:
    """Return the name of a run's Job: at most 52 + 8 + 3 characters."""
    return f"{cron_job}{mark_jobs(run)}{attempt}"


def start_job(
    work: StepWork,
    cron_job: str,
    attempt: int,
    *,
    variables: Mapping[str, str] | None = None,
    digest: str = "",
) -> None:
    """Make a Job of a CronJob unless the Job exists.

    Args:
        work: the run whose step needs the Job.
        cron_job: name of the CronJob.
        attempt: of this CronJob in the run, from 1.
        variables: values of environment variables that the CronJob leaves empty.
        digest: of the image that the Job runs; empty for the CronJob's image.

    Raises:
        RefusedCallError: the cluster has no such CronJob now; the step goes on when it is back.
        ExternalError: Kubernetes failed.
    """
    rendered = work.world.cluster.get_object("cronjobs", work.namespace, cron_job)
    if rendered is None:
        raise _build_absence(work, cron_job)
    template = copy.deepcopy(rendered["spec"]["jobTemplate"])
    pod = template["spec"]["template"]["spec"]
    if digest:
        for container in pod["containers"]:
            container["image"] = _pin_image(container["image"], digest)
    values = variables or {}
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for variable in container.get("env", []):
            if variable["name"] in values:
                variable["value"] = values[variable["name"]]

    name = name_job(work.run, cron_job, attempt)
    own_labels = {RUN_LABEL: work.run, STEP_LABEL: work.name}
    metadata = {
        "name": name,
        "namespace": work.namespace,
        "labels": template.get("metadata", {}).get("labels", {}) | own_labels,
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": template["spec"],
    }
    work.world.cluster.create_job(work.namespace, body)
    work.add_job(name)


def _pin_image(image: str, digest: str) -> str:
    """Return an image by its digest, without the tag or digest that it has."""
    repository = image.partition("@")[0]
    folder, slash, name = repository.rpartition("/")
    return f"{folder}{slash}{name.partition(':')[0]}@{digest}"


def _build_absence(work: StepWork, cron_job: str) -> RefusedCallError:
    """Return that a CronJob is missing, and how to judge the measured rounds without this run."""
    problem = f"namespace {work.namespace} lacks CronJob {cron_job}: deploy or sync the manifests"
    change = "then start another run"
    if list_confirmed(work.steps.values()) and not work.pair:
        environment = work.world.environment.name
        command = quote_command("tandem", "results", work.run, "--env", environment, "--out", "DIR")
        change = f"the measured rounds are kept: {command}, then tandem bench report DIR"
    return RefusedCallError(problem, change=change)


def look_at_job(work: StepWork, name: str) -> JobLook:
    """Return the state of a Job.

    Raises:
        RunEndError: somebody else made a Job of this name.
        ExternalError: Kubernetes failed.
    """
    job = work.world.cluster.get_object("jobs", work.namespace, name)
    if job is None:
        return JobLook(name=name, state="absent")
    _require_own_job(work, job)
    work.add_job(name)
    pods = _list_job_pods(work, name)
    statuses = list(chain.from_iterable(map(list_container_statuses, pods)))
    failure = _find_last_failure(statuses)
    state, reason = _read_conditions(job)
    words = _read_last_words(failure) or reason or describe_waiting(work, pods)
    if state == "running" and not any(map(_has_begun, statuses)) and _is_overdue(work, job):
        state = "failed"
        minutes = START_WAIT.seconds // 60
        words = f"its pod did not start in {minutes} min: {words or 'it has none'}"
    return JobLook(
        name=name,
        state=state,
        exit_code=failure.get("exitCode"),
        words=words[:MAX_WORD_CHARACTERS],
        image_id=_read_image_id(statuses),
    )


def _require_own_job(work: StepWork, job: Object) -> None:
    """Check by its labels that a Job is of this step.

    Raises:
        RunEndError: somebody else made it.
    """
    labels = job["metadata"].get("labels") or {}
    if (labels.get(RUN_LABEL), labels.get(STEP_LABEL)) != (work.run, work.name):
        name = f"{work.namespace}/{job['metadata']['name']}"
        raise RunEndError(
            f"Job {name} exists and this run did not create it; see who made it, delete it, and"
            " start another run"
        )


def _list_job_pods(work: StepWork, name: str) -> list[Object]:
    """Return a Job's pods, the oldest first."""
    labels = {"batch.kubernetes.io/job-name": name}
    pods = work.world.cluster.list_objects("pods", work.namespace, labels)
    return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


def _read_conditions(job: Object) -> tuple[JobState, str]:
    """Return a Job's state, and Kubernetes' reason of a failure."""
    rows = job.get("status", {}).get("conditions", [])
    conditions = {row["type"]: row for row in rows if row["status"] == "True"}
    if "Complete" in conditions:
        return "succeeded", ""
    if "Failed" in conditions:
        return "failed", _join_reason(conditions["Failed"])
    return "running", ""


def _find_last_failure(statuses: Sequence[Object]) -> Object:
    """Return the end of the last container that failed; an empty mapping if none did."""
    ends: list[Object] = [row.get("state", {}).get("terminated") or {} for row in statuses]
    for end in reversed(ends):
        if end.get("exitCode"):
            return end
    return {}


def _has_begun(status: Object) -> bool:
    is_under_way = status.get("state", {}).keys() & {"running", "terminated"}
    return bool(is_under_way or status.get("restartCount"))


def _is_overdue(work: StepWork, job: Object) -> bool:
    created_at = datetime.fromisoformat(str(job["metadata"]["creationTimestamp"]))
    return work.world.now() - created_at > START_WAIT


def _read_image_id(statuses: Sequence[Object]) -> str:
    image_ids = [row.get("imageID", "") for row in statuses]
    digests = [text.rpartition("@")[2] for text in image_ids if "@sha256:" in text]
    return digests[-1] if digests else ""


def _read_last_words(failure: Object) -> str:
    """Return a container's last line; of our own log line its sentence and what to change."""
    lines = str(failure.get("message") or "").strip().splitlines()
    if not lines:
        return ""
    try:
        row = msgspec.json.decode(lines[-1], type=dict[str, Any])
    except msgspec.DecodeError:
        return lines[-1]
    words = [str(row[key]) for key in ("event", "change") if row.get(key)]
    return "; ".join(words) or lines[-1]


def list_container_statuses(pod: Object) -> list[Object]:
    """Return the statuses of a pod's containers, init containers first."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def describe_waiting(work: StepWork, pods: list[Object]) -> str:
    """Return why the newest pod does not run, in Kubernetes' words; empty if it runs.

    Kubernetes 1.36 says that a taint keeps the pod away, and not which.

    Raises:
        ExternalError: Kubernetes failed.
    """
    if not pods:
        return ""
    statuses = list_container_statuses(pods[-1])
    waiting = [row["state"]["waiting"] for row in statuses if row["state"].get("waiting")]
    unscheduled = [
        row
        for row in pods[-1].get("status", {}).get("conditions", [])
        if row["type"] == "PodScheduled" and row["status"] != "True" and row.get("reason")
    ]
    words = next(map(_join_reason, [*waiting, *unscheduled]), "")
    if "untolerated taint" not in words:
        return words
    taints = describe_taints(list_fleet_nodes(work))
    return f"{taints}: {words}" if taints else words


def _join_reason(row: Object) -> str:
    """Return Kubernetes' reason and message of a state or condition."""
    return ": ".join(filter(None, (row.get("reason"), row.get("message"))))


def close_job(work: StepWork, name: str) -> None:
    """Keep the tail of a Job's log in the bucket, then delete the Job.

    Raises:
        ExternalError: Kubernetes failed. A log that cannot be read or kept delays nothing.
    """
    cluster = work.world.cluster
    tails = []
    try:
        for pod in _list_job_pods(work, name):
            pod_name = pod["metadata"]["name"]
            for row in list_container_statuses(pod):
                if not row.get("state", {}).get("waiting"):
                    log = cluster.read_log(work.namespace, pod_name, row["name"])
                    tails.append(f"== {pod_name} {row['name']}\n{log}")
        if tails:
            work.journal.file.write_text(log_key(work.run, name), "\n".join(tails))
    except TandemError as fault:
        work.world.log(f"the log of job {name} is not kept: {fault.problem}")
    cluster.delete_job(work.namespace, name)


def has_ended(work: StepWork, name: str) -> bool:
    """Close a Job that does not count, and return whether none of its pods is left.

    Raises:
        ExternalError: Kubernetes failed.
    """
    if look_at_job(work, name).state != "absent":
        close_job(work, name)
    return not _list_job_pods(work, name)


def close_jobs(work: StepWork) -> None:
    """Close every Job of the run, in its namespace.

    Raises:
        ExternalError: Kubernetes failed.
    """
    for job in work.world.cluster.list_objects("jobs", work.namespace, {RUN_LABEL: work.run}):
        if "deletionTimestamp" not in job["metadata"]:
            close_job(work, job["metadata"]["name"])
