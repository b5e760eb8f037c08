"""The controllers of workloads: garbage collection, Deployments, Jobs and EndpointSlices.

Left out: ReplicaSets (a Deployment owns its pods), strategies other than Recreate, minReadySeconds,
pausing and the status of Deployments; parallelism and completions above 1, indexed Jobs,
podFailurePolicy and the suspension of a running Job; CronJobs; deletion in the foreground; ports of
EndpointSlices.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rehearsal.cluster.statuses import (
    has_condition,
    is_active,
    is_unfinished,
    set_condition,
    write_status,
)
from rehearsal.cluster.store import Object, ObjectStore, copy_object, format_time

# a Job's pod carries it until the Job has counted the pod
TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
FIRST_RETRY_S = 10.0
LONGEST_RETRY_S = 360.0
DEFAULT_BACKOFF_LIMIT = 6
IMAGE_VERSION = 2  # of marshal: without references, so that an equal template has equal bytes


def collect_garbage(store: ObjectStore) -> None:
    """Delete each object whose owners are all gone."""
    for plural, namespace, name in store.list_orphans():
        store.delete_object(plural, namespace, name)


def sync_deployments(store: ObjectStore) -> None:
    """Give each Deployment its pods."""
    for deployment in store.list_objects("deployments"):
        template_hash = compute_hash(deployment["spec"]["template"])
        _replace_pods(store, deployment, template_hash)


def sync_jobs(
    store: ObjectStore, job_end_s: float = 0.0, ends: dict[str, datetime] | None = None
) -> None:
    """Count each Job's pods, start and retry them, end the Job, and delete it after its time.

    Args:
        store: the cluster.
        job_end_s: seconds between the condition that names a Job's end and the one that ends it.
        ends: uid of a Job to the moment at which its end had a name; kept between passes.
    """
    ends = {} if ends is None else ends
    for job in store.view_objects("jobs"):
        if not is_finished(job):
            _sync_job(store, copy_object(job), job_end_s, ends)
            continue
        ends.pop(job["metadata"]["uid"], None)
        spec = job["spec"]
        conditions = job["status"]["conditions"]
        end = datetime.fromisoformat(conditions[-1]["lastTransitionTime"])
        if "ttlSecondsAfterFinished" in spec and store.now() >= end + timedelta(
            seconds=spec["ttlSecondsAfterFinished"]
        ):
            store.delete_object("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
    job_uids = {
        job["metadata"]["uid"] for job in store.view_objects("jobs") if not is_finished(job)
    }
    for pod in store.view_objects("pods"):
        if is_tracked(pod) and not job_uids & {
            owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])
        }:
            _release_pod(store, pod)


def sync_endpoint_slices(store: ObjectStore) -> None:
    """Keep one EndpointSlice per Service with a selector: its pods' addresses, ready or not."""
    for service in store.view_objects("services"):
        if not service["spec"].get("selector"):
            continue
        namespace = service["metadata"]["namespace"]
        name = service["metadata"]["name"]
        selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
        pods = store.view_objects("pods", namespace, label_selector=selector)
        pods = [pod for pod in pods if pod.get("status", {}).get("podIP") and is_unfinished(pod)]
        content = {
            "addressType": "IPv4",
            "endpoints": [_describe_endpoint(pod) for pod in pods],
        }
        slices = list_children(store, service, "endpointslices")
        if slices:
            metadata = slices[0]["metadata"]
            store.replace_object("endpointslices", namespace, metadata["name"], slices[0] | content)
            continue
        labels = {
            "kubernetes.io/service-name": name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        metadata = {
            "generateName": f"{name}-",
            "labels": labels,
            "ownerReferences": [build_owner(service)],
        }
        store.create_object("endpointslices", namespace, {"metadata": metadata} | content)


def list_children(store: ObjectStore, owner: Object, plural: str = "pods") -> list[Object]:
    """Return the objects that an object owns, as stored; the caller changes nothing in them."""
    return store.view_objects(
        plural, owner["metadata"]["namespace"], owner_uid=owner["metadata"]["uid"]
    )


def build_owner(body: Object) -> Object:
    """Return the reference with which a child names its controlling object."""
    reference = {key: body["metadata"][key] for key in ("name", "uid")}
    flags = {"controller": True, "blockOwnerDeletion": True}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"]} | reference | flags


def compute_hash(template: Object) -> str:
    """Return the label value that separates the pods of one template from those of another."""
    return _hash_image(marshal.dumps(template, IMAGE_VERSION))


@lru_cache(maxsize=256)  # a template is hashed in each pass, and seldom changes
def _hash_image(image: bytes) -> str:
    template = marshal.loads(image)  # noqa: S302 - written a moment ago, by this process
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def is_finished(job: Object) -> bool:
    """Tell whether a Job is Complete or Failed."""
    conditions = job.get("status", {}).get("conditions", [])
    return has_condition(conditions, "Complete") or has_condition(conditions, "Failed")


def is_ready(pod: Object) -> bool:
    """Tell whether a pod is ready."""
    return has_condition(pod.get("status", {}).get("conditions", []), "Ready")


def is_tracked(pod: Object) -> bool:
    """Tell whether a Job still has to count a pod."""
    return TRACKING_FINALIZER in pod["metadata"].get("finalizers", [])


def _replace_pods(store: ObjectStore, deployment: Object, template_hash: str) -> None:
    """Create and delete pods: a new template's pod waits until all pods of the old one are gone."""
    children = list_children(store, deployment)
    active = [pod for pod in children if is_active(pod)]
    new = [pod for pod in active if _has_hash(pod, template_hash)]
    old = [pod for pod in active if pod not in new]
    desired = deployment["spec"].get("replicas", 1)
    if any(is_unfinished(pod) and not _has_hash(pod, template_hash) for pod in children):
        desired = min(desired, len(new))

    for _ in range(desired - len(new)):
        _create_pod(store, deployment, f"{template_hash}-", {"pod-template-hash": template_hash})
    surplus = sorted(new, key=is_ready)[: max(0, len(new) - desired)]
    for pod in old + surplus:
        store.delete_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _has_hash(pod: Object, template_hash: str) -> bool:
    return bool(pod["metadata"]["labels"].get("pod-template-hash") == template_hash)


def _create_pod(
    store: ObjectStore, owner: Object, suffix: str, labels: dict[str, str], *finalizers: str
) -> None:
    """Create a pod from its owner's template."""
    template = owner["spec"]["template"]
    metadata = owner["metadata"]
    own = template.get("metadata", {})
    body = {
        "metadata": {
            "generateName": f"{metadata['name']}-{suffix}",
            "labels": own.get("labels", {}) | labels,
            "annotations": own.get("annotations", {}),
            "ownerReferences": [build_owner(owner)],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
    if finalizers:
        body["metadata"]["finalizers"] = list(finalizers)
    store.create_object("pods", metadata["namespace"], body)


def _sync_job(store: ObjectStore, job: Object, job_end_s: float, ends: dict[str, datetime]) -> None:
    status = job.get("status", {})
    status.setdefault("conditions", [])
    status.setdefault("startTime", format_time(store.now()))
    pods = list_children(store, job)
    _count_pods(store, job, status, pods)
    active = [pod for pod in pods if is_active(pod)]
    is_done = status.get("succeeded", 0) >= job["spec"].get("completions", 1)
    failure = _find_failure(store, job, status, active)
    if is_done and not has_condition(status["conditions"], "FailureTarget"):
        message = "Reached expected number of succeeded pods"
        end_row = ("SuccessCriteriaMet", "Complete", "CompletionsReached", message)
        _end_job(store, job, status, end_row, may_finish=_is_end_due(store, job, job_end_s, ends))
    elif failure:
        may_finish = _is_end_due(store, job, job_end_s, ends)
        _end_job(store, job, status, ("FailureTarget", "Failed", *failure), may_finish=may_finish)
    elif (
        not active
        and not job["spec"].get("suspend", False)
        and not _waits_for_pods(job, pods)
        and store.now() >= _find_retry_time(status, pods)
    ):
        name = job["metadata"]["name"]
        uid = job["metadata"]["uid"]
        labels = {"job-name": name, "controller-uid": uid}
        labels |= {f"batch.kubernetes.io/{key}": value for key, value in labels.items()}
        _create_pod(store, job, "", labels, TRACKING_FINALIZER)
    if not status["conditions"]:
        del status["conditions"]
    write_status(store, "jobs", job, status)


def _count_pods(store: ObjectStore, job: Object, status: Object, pods: list[Object]) -> None:
    """Count the pods that ended since the last pass, each once."""
    for pod in pods:
        phase = pod.get("status", {}).get("phase")
        # a deleted pod counts at once, because it may never be Failed, unless only Failed pods are
        # replaced
        is_leaving = "deletionTimestamp" in pod["metadata"] and not _replaces_failed_only(job)
        if not is_tracked(pod) or not (is_leaving or phase in {"Succeeded", "Failed"}):
            continue
        count = "succeeded" if phase == "Succeeded" else "failed"
        status[count] = status.get(count, 0) + 1
        _release_pod(store, pod)


def _find_failure(
    store: ObjectStore, job: Object, status: Object, active: Iterable[Object]
) -> tuple[str, str] | None:
    """Return why a Job fails, as reason and message; None if it does not."""
    target = next((row for row in status["conditions"] if row["type"] == "FailureTarget"), None)
    if target:
        return target["reason"], target["message"]
    limit = job["spec"].get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    restarts = 0
    if job["spec"]["template"]["spec"].get("restartPolicy") == "OnFailure":
        rows = [row for pod in active for row in pod.get("status", {}).get("containerStatuses", [])]
        restarts = sum(row["restartCount"] for row in rows)
    if status.get("failed", 0) > limit or (restarts and restarts >= limit):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline_s = job["spec"].get("activeDeadlineSeconds")
    start = datetime.fromisoformat(status["startTime"])
    if deadline_s is not None and store.now() >= start + timedelta(seconds=deadline_s):
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _replaces_failed_only(job: Object) -> bool:
    """Tell whether a Job replaces only Failed pods; by default it replaces terminating ones too."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def _waits_for_pods(job: Object, pods: Iterable[Object]) -> bool:
    """Tell whether a deleted pod that still runs keeps the next one from being made."""
    return _replaces_failed_only(job) and any(is_unfinished(pod) for pod in pods)


def _is_end_due(
    store: ObjectStore, job: Object, job_end_s: float, ends: dict[str, datetime]
) -> bool:
    """Tell whether the end of a Job has had its name for long enough."""
    begin = ends.setdefault(job["metadata"]["uid"], store.now())
    return (store.now() - begin).total_seconds() >= job_end_s


def _end_job(
    store: ObjectStore,
    job: Object,
    status: Object,
    end: tuple[str, str, str, str],
    *,
    may_finish: bool,
) -> None:
    """Say how a Job will end, delete its running pods, and end the Job once none is left.

    Args:
        store: the cluster.
        job: the Job that ends.
        status: of the Job; gets the conditions.
        end: the condition that comes first, the one that ends the Job, their reason and message.
        may_finish: whether the second condition may follow already.
    """
    first, last, reason, message = end
    set_condition(store, status, first, reason=reason, message=message)
    pods = [pod for pod in list_children(store, job) if is_unfinished(pod)]
    for pod in pods:
        store.delete_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    if not pods and may_finish:
        set_condition(store, status, last, reason=reason, message=message)


def _find_retry_time(status: Object, pods: Iterable[Object]) -> datetime:
    """Return when a Job may start its next pod; a removed pod that failed no longer delays it."""
    rows = [row for pod in pods for row in pod.get("status", {}).get("containerStatuses", [])]
    ends = [row["state"]["terminated"] for row in rows if "terminated" in row["state"]]
    times = [datetime.fromisoformat(end["finishedAt"]) for end in ends if end["exitCode"]]
    failures = status.get("failed", 0)
    if not failures or not times:
        return datetime.min.replace(tzinfo=UTC)
    return max(times) + timedelta(seconds=min(FIRST_RETRY_S * 2 ** (failures - 1), LONGEST_RETRY_S))


def _release_pod(store: ObjectStore, pod: Object) -> None:
    """Take the Job's mark from a pod, so that the pod may be removed."""
    finalizers = [
        name for name in pod["metadata"].get("finalizers", []) if name != TRACKING_FINALIZER
    ]
    change = {"metadata": {"finalizers": finalizers or None}}
    store.patch_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], change)


def _describe_endpoint(pod: Object) -> Object:
    is_leaving = "deletionTimestamp" in pod["metadata"]
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": is_ready(pod) and not is_leaving},
        "targetRef": {"kind": "Pod", "uid": pod["metadata"]["uid"]},
    }
