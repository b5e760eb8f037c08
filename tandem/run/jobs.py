"""Jobs of a run: only the runner makes them of CronJobs, looks at them, keeps log tails, deletes.

Invariant: a Job's name follows from run, CronJob and attempt, so a new runner finds the Jobs of the
last one. Its labels name run and step: a Job of such a name without them is somebody else's, and no
runner deletes it. A Job has no owner: pruning a CronJob kills no work that is paid for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    image: str = "",
) -> str:
    """Make a Job of a CronJob unless the Job exists, and return its name.

    Args:
        work: the run whose step needs the Job.
        cron_job: name of the CronJob.
        attempt: of this CronJob in the run, from 1.
        variables: values of environment variables that the CronJob leaves empty.
        image: image of the Job, pinned by digest; empty for the CronJob's image.

    Raises:
        RefusedCallError: the cluster has no such CronJob now; the step goes on when it is back.
        ExternalError: Kubernetes failed.
    """
    name = name_job(work.run, cron_job, attempt)
    namespace = work.namespace
    rendered = work.world.cluster.get_object("cronjobs", namespace, cron_job)
    if rendered is None:
        raise _build_absence(work, cron_job)
    template = copy.deepcopy(rendered["spec"]["jobTemplate"])
    pod = template["spec"]["template"]["spec"]
    for container in pod["containers"]:
        container["image"] = image or container["image"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for variable in container.get("env", []):
            if variable["name"] in (variables or {}):
                variable["value"] = (variables or {})[variable["name"]]
    labels = template.get("metadata", {}).get("labels", {}) | {
        RUN_LABEL: work.run,
        STEP_LABEL: work.name,
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": template["spec"],
    }
    work.world.cluster.create_job(namespace, body)
    return name


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
    cluster = work.world.cluster
    namespace = work.namespace
    job = cluster.get_object("jobs", namespace, name)
    if job is None:
        return JobLook(name=name, state="absent")
    labels = job["metadata"].get("labels") or {}
    if (labels.get(RUN_LABEL), labels.get(STEP_LABEL)) != (work.run, work.name):
        reason = f"Job {namespace}/{name} exists and this run did not create it"
        raise RunEndError(f"{reason}; see who made it, delete it, and start another run")
    conditions = {
        row["type"]: row
        for row in job.get("status", {}).get("conditions", [])
        if row["status"] == "True"
    }
    pods = cluster.list_objects("pods", namespace, {"batch.kubernetes.io/job-name": name})
    pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    statuses = [row for pod in pods for row in list_container_statuses(pod)]
    ended = [
        row["state"]["terminated"] for row in statuses if row.get("state", {}).get("terminated")
    ]
    failures = [row for row in ended if row.get("exitCode")]
    message = str(failures[-1].get("message") or "").strip() if failures else ""
    image_ids = [
        row["imageID"].rpartition("@")[2]
        for row in statuses
        if "@sha256:" in row.get("imageID", "")
    ]
    condition = conditions.get("Failed", {})
    reason = ": ".join(filter(None, (condition.get("reason", ""), condition.get("message", ""))))
    words = _read_last_words(message) if message else reason or describe_waiting(work, pods)
    state: JobState = (
        "succeeded"
        if "Complete" in conditions
        else "failed"
        if "Failed" in conditions
        else "running"
    )
    has_begun = any(
        row.get("state", {}).keys() & {"running", "terminated"} or row.get("restartCount")
        for row in statuses
    )
    created_at = datetime.fromisoformat(str(job["metadata"]["creationTimestamp"]))
    if state == "running" and not has_begun and work.world.now() - created_at > START_WAIT:
        state = "failed"
        words = f"its pod did not start in {START_WAIT.seconds // 60} min: {words or 'it has none'}"
    return JobLook(
        name=name,
        state=state,
        exit_code=failures[-1]["exitCode"] if failures else None,
        words=words[:MAX_WORD_CHARACTERS],
        image_id=image_ids[-1] if image_ids else "",
    )


def _read_last_words(message: str) -> str:
    """Return a container's last line; of our own log line its sentence and what to change."""
    line = message.splitlines()[-1]
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return line
    return "; ".join(str(row[key]) for key in ("event", "change") if row.get(key)) or line


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
    waiting = [
        row["state"]["waiting"]
        for row in list_container_statuses(pods[-1])
        if row["state"].get("waiting")
    ]
    conditions = [
        row
        for row in pods[-1].get("status", {}).get("conditions", [])
        if row["status"] != "True" and row.get("reason")
    ]
    rows = waiting or [row for row in conditions if row["type"] == "PodScheduled"]
    words = (
        ": ".join(filter(None, (rows[0].get("reason", ""), rows[0].get("message", ""))))
        if rows
        else ""
    )
    taints = describe_taints(list_fleet_nodes(work)) if "untolerated taint" in words else ""
    return f"{taints}: {words}" if taints else words


def close_job(work: StepWork, name: str) -> None:
    """Keep the tail of a Job's log in the bucket, then delete the Job.

    Raises:
        ExternalError: Kubernetes failed. A log that cannot be read or kept delays nothing.
    """
    cluster = work.world.cluster
    namespace = work.namespace
    try:
        tails = [
            f"== {pod['metadata']['name']} {row['name']}\n"
            f"{cluster.read_log(namespace, pod['metadata']['name'], row['name'])}"
            for pod in cluster.list_objects(
                "pods", namespace, {"batch.kubernetes.io/job-name": name}
            )
            for row in list_container_statuses(pod)
            if not row.get("state", {}).get("waiting")
        ]
        if tails:
            work.journal.file.write_text(log_key(work.run, name), "\n".join(tails))
    except TandemError as fault:
        work.world.log(f"the log of job {name} is not kept: {fault.problem}")
    cluster.delete_job(namespace, name)


def has_ended(work: StepWork, name: str) -> bool:
    """Close a Job that does not count, and return whether none of its pods is left.

    Raises:
        ExternalError: Kubernetes failed.
    """
    if look_at_job(work, name).state != "absent":
        close_job(work, name)
    return not work.world.cluster.list_objects(
        "pods", work.namespace, {"batch.kubernetes.io/job-name": name}
    )


def close_jobs(work: StepWork) -> None:
    """Close every Job of the run, in its namespace.

    Raises:
        ExternalError: Kubernetes failed.
    """
    for job in work.world.cluster.list_objects("jobs", work.namespace, {RUN_LABEL: work.run}):
        if "deletionTimestamp" not in job["metadata"]:
            close_job(work, job["metadata"]["name"])
