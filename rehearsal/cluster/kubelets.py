"""The kubelets of all nodes: they start bound pods, write their status, and stop deleted pods."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from rehearsal.cluster.pods import PodRuntime, PodState
from rehearsal.cluster.statuses import is_unfinished, set_condition, write_status
from rehearsal.cluster.store import Object, ObjectStore, copy_object, format_time

TERMINATED_EXIT_CODE = 143  # SIGTERM
# kubernetes.io docs/tasks/debug/debug-application/determine-reason-pod-failure
MESSAGE_CHARACTERS = 2048


class KubeletGroup:
    """The kubelets of a cluster.

    Args:
        store: of the cluster.
        runtime: of the pods.
        has_kubelet: tells whether the kubelet of a node lives; the pods of a dead one stay as the
            API has them.
    """

    def __init__(
        self, store: ObjectStore, runtime: PodRuntime, has_kubelet: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._has_kubelet = has_kubelet
        self._started: dict[str, Object] = {}

    def sync(self) -> None:
        """Make one pass."""
        uids = set()
        for pod in self._store.view_objects("pods"):
            uids.add(pod["metadata"]["uid"])
            name = pod["spec"].get("nodeName")
            if not name or not self._has_kubelet(name):
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self._stop_pod(copy_object(pod))
            elif is_unfinished(pod):
                self._run_pod(pod)

        for uid, pod in list(self._started.items()):
            # a pod that was removed by force still has its processes, unless its node is lost
            is_dead = not self._has_kubelet(pod["spec"]["nodeName"])
            if is_dead or (uid not in uids and self._runtime.stop_pod(pod)):
                del self._started[uid]

    def _run_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._started:
            self._started[uid] = copy_object(pod)
            self._runtime.start_pod(self._started[uid])
        status = _describe_pod(self._store, pod, self._runtime.look_at_pod(pod))
        write_status(self._store, "pods", pod, status)

    def _stop_pod(self, pod: Object) -> None:
        """Stop a deleted pod; remove it when its processes are gone and its Job has counted it."""
        metadata = pod["metadata"]
        if not self._runtime.stop_pod(pod):
            return
        self._started.pop(metadata["uid"], None)
        if metadata.get("finalizers") and is_unfinished(pod):
            state = self._runtime.look_at_pod(pod)
            if state.phase not in {"Succeeded", "Failed"}:
                state = PodState(
                    phase="Failed", exit_code=TERMINATED_EXIT_CODE, restarts=state.restarts
                )
            write_status(self._store, "pods", pod, _describe_pod(self._store, pod, state))
        self._store.delete_object("pods", metadata["namespace"], metadata["name"], grace_s=0)


def _describe_pod(store: ObjectStore, pod: Object, state: PodState) -> Object:
    """Return a pod's status from the runtime's state; times of the status before stay."""
    status: Object = pod.get("status", {}) | {"phase": state.phase}
    status.setdefault("startTime", format_time(store.now()))
    first_boxes = [
        box for box in pod["spec"].get("initContainers", []) if box["name"] in state.containers
    ]
    for key, boxes in (
        ("initContainerStatuses", first_boxes),
        ("containerStatuses", pod["spec"]["containers"]),
    ):
        rows = {row["name"]: row for row in status.get(key, [])}
        status[key] = [
            _describe_container(
                store, box, rows.get(box["name"], {}), state.containers.get(box["name"], state)
            )
            for box in boxes
        ]
    if not first_boxes:
        del status["initContainerStatuses"]
    details = {} if state.is_ready else {"reason": "ContainersNotReady"}
    if state.phase in {"Succeeded", "Failed"}:
        details = {"reason": "PodCompleted" if state.phase == "Succeeded" else "PodFailed"}
    is_initialized = all(
        "terminated" in row["state"] for row in status.get("initContainerStatuses", [])
    )
    set_condition(store, status, "Initialized", value=is_initialized)
    set_condition(store, status, "ContainersReady", value=state.is_ready, **details)
    set_condition(store, status, "Ready", value=state.is_ready, **details)
    if state.phase != "Pending" and "podIP" not in status:
        status["podIP"] = _choose_address(store)
        status["podIPs"] = [{"ip": status["podIP"]}]
    return status


def _describe_container(
    store: ObjectStore, container: Object, old: Object, state: PodState
) -> Object:
    now = store.now()
    was_running = (
        old.get("state", {}).get("running", {}) if old.get("restartCount") == state.restarts else {}
    )
    started_at = (
        format_time(state.started_at)
        if state.started_at
        else was_running.get("startedAt", format_time(now))
    )
    image = container.get("image", "")
    row: Object = {"name": container["name"], "image": image, "imageID": pin_image(image)}
    row |= {"ready": state.is_ready, "restartCount": state.restarts, "lastState": {}}
    code = state.exit_code or 0
    end = {"exitCode": code, "reason": "Error" if code else "Completed"}
    if code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        end["message"] = state.log[-MESSAGE_CHARACTERS:]
    if state.phase in {"Succeeded", "Failed"}:
        end |= {"startedAt": started_at, "finishedAt": format_time(state.finished_at or now)}
        return row | {"started": False, "state": {"terminated": end}}
    if state.exit_code is not None:
        row["lastState"] = {"terminated": end}
    if state.waiting_reason:
        return row | {"started": False, "state": {"waiting": {"reason": state.waiting_reason}}}
    return row | {"started": True, "state": {"running": {"startedAt": started_at}}}


def pin_image(image: str) -> str:
    """Return an image's reference by digest: its own, or one made from the whole reference."""
    repository, _, tag = image.rpartition(":")
    if "@" in image or not image:
        return image
    name = image if not repository or "/" in tag else repository
    return f"{name}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _choose_address(store: ObjectStore) -> str:
    """Return the lowest address of 10.244.0.0/16 that no pod has."""
    used = {pod.get("status", {}).get("podIP") for pod in store.view_objects("pods")}
    addresses = (f"10.244.{number // 256}.{number % 256}" for number in range(1, 2**16))
    return next(address for address in addresses if address not in used)
