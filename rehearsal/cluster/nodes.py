"""The controllers of nodes: a node that is lost, its taints, the eviction of its pods, and drains.

The order of a loss: the processes are gone at once, and the API says Running and Ready until the
grace is over. Then the node's conditions are Unknown, its pods' Ready is False, and the node has
the taints `unreachable`. If the cloud no longer has the instance, the Node object goes, its
ResourceSlices go with it as children, and later the pods are marked Failed and removed. If the
instance is still there, its pods are deleted when their toleration ends, and stay.

Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go, pkg/controller/tainteviction,
pkg/controller/podgc, cloud-provider/controllers/nodelifecycle, kubectl/pkg/drain.
Left out: heartbeats, `not-ready` of a node that joins, the rate limits of evictions, the rule that
evicts nothing when no node is ready, and PodDisruptionBudgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from rehearsal.cluster.pods import PodRuntime
from rehearsal.cluster.scheduling import is_tolerated
from rehearsal.cluster.statuses import has_condition, is_unfinished, set_condition, write_status
from rehearsal.cluster.store import Object, ObjectStore, copy_object, format_time
from rehearsal.cluster.timing import ClusterTiming

UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
CORDON_TAINT = "node.kubernetes.io/unschedulable"
# the pressures are conditions of a kubelet too, but no node of a rehearsal has them
_SILENT = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """The loss of a node.

    Args:
        uid: of the Node object.
        moment: when its kubelet and its processes ended.
        is_terminated: whether the cloud no longer has the instance.
    """

    uid: str
    moment: datetime
    is_terminated: bool


class NodeController:
    """All controllers of nodes, and the knowledge which kubelets live.

    Args:
        store: of the cluster.
        runtime: of its pods.
    """

    def __init__(self, store: ObjectStore, runtime: PodRuntime) -> None:
        self._store = store
        self._runtime = runtime
        self._losses: dict[str, NodeLoss] = {}
        self._taint_starts: dict[str, datetime] = {}  # by uid of a pod on a node with NoExecute
        self._absences: dict[str, datetime] = {}  # by name of a node that pods are bound to
        self._seen_version = 0

    def lose_node(self, name: str, *, is_terminated: bool = True) -> None:
        """End a node's kubelet and processes at once; the API learns of it by time alone.

        Args:
            name: of the node; a second call for the same node changes nothing.
            is_terminated: whether the cloud no longer has the instance.

        Raises:
            ApiError: 404.
        """
        node = self._store.get_object("nodes", "", name)
        if not self.has_kubelet(name):
            return
        self._losses[name] = NodeLoss(node["metadata"]["uid"], self._store.now(), is_terminated)
        for pod in self._list_pods(name):
            self._runtime.kill_pod(pod)

    def has_kubelet(self, name: str) -> bool:
        """Tell whether a node's kubelet answers."""
        return name not in self._losses

    def sync(self, timing: ClusterTiming) -> None:
        """Make one pass; where nothing has changed and no time runs, there is nothing to do."""
        if self._store.version == self._seen_version and not (
            self._losses or self._taint_starts or self._absences
        ):
            return
        self._seen_version = self._store.version

        for name, loss in list(self._losses.items()):
            self._follow_loss(name, loss, timing)
        for node in self._store.view_objects("nodes"):
            self._sync_taints(node)
        nodes = self._store.view_objects("nodes")
        self._evict_pods(nodes)
        self._collect_orphans({node["metadata"]["name"] for node in nodes}, timing)

    def _list_pods(self, name: str) -> list[Object]:
        return self._store.list_objects("pods", field_selector=f"spec.nodeName={name}")

    def _follow_loss(self, name: str, loss: NodeLoss, timing: ClusterTiming) -> None:
        nodes = self._store.list_objects("nodes", field_selector=f"metadata.name={name}")
        if not nodes:
            return
        if nodes[0]["metadata"]["uid"] != loss.uid:  # another machine has joined under this name
            del self._losses[name]
            return

        silence_s = (self._store.now() - loss.moment).total_seconds()
        if silence_s < timing.node_grace_s:
            return
        if has_condition(nodes[0].get("status", {}).get("conditions", []), "Ready"):
            self._mark_unknown(nodes[0])
        if loss.is_terminated and silence_s >= timing.node_grace_s + timing.cloud_look_s:
            self._store.delete_object("nodes", "", name)

    def _mark_unknown(self, node: Object) -> None:
        """Write that a node is silent, and that its pods are not ready; they stay Running."""
        now = format_time(self._store.now())
        status = node["status"]
        for row in status["conditions"]:
            row |= {"status": "Unknown", "lastTransitionTime": now, **_SILENT}
        write_status(self._store, "nodes", node, status)

        for pod in self._list_pods(node["metadata"]["name"]):
            pod_status = pod.get("status", {})
            if has_condition(pod_status.get("conditions", []), "Ready"):
                set_condition(self._store, pod_status, "Ready", value=False)
                write_status(self._store, "pods", pod, pod_status)

    def _sync_taints(self, node: Object) -> None:
        """Give a node the taints that its conditions and a cordon mean."""
        old = node.get("spec", {}).get("taints", [])
        conditions = node.get("status", {}).get("conditions", [])
        is_silent = any(row["type"] == "Ready" and row["status"] == "Unknown" for row in conditions)
        is_cordoned = node.get("spec", {}).get("unschedulable", False)

        wanted = []
        if is_cordoned:
            wanted.append((CORDON_TAINT, "NoSchedule"))
        if is_silent:
            wanted += [(UNREACHABLE_TAINT, "NoSchedule"), (UNREACHABLE_TAINT, "NoExecute")]

        known = {(taint["key"], taint["effect"]) for taint in old}
        now = format_time(self._store.now())
        kept = [
            taint
            for taint in old
            if taint["key"] not in {CORDON_TAINT, UNREACHABLE_TAINT}
            or (taint["key"], taint["effect"]) in wanted
        ]
        added = [
            {"key": key, "effect": effect, "timeAdded": now}
            for key, effect in wanted
            if (key, effect) not in known
        ]
        if added or kept != old:
            self._store.patch_object(
                "nodes", "", node["metadata"]["name"], {"spec": {"taints": kept + added}}
            )

    def _evict_pods(self, nodes: Iterable[Object]) -> None:
        """Delete the pods that do not, or no longer, tolerate a NoExecute taint of their node."""
        seen = set()
        for node in nodes:
            taints = [
                taint
                for taint in node.get("spec", {}).get("taints", [])
                if taint["effect"] == "NoExecute"
            ]
            for pod in self._list_pods(node["metadata"]["name"]) if taints else ():
                uid = pod["metadata"]["uid"]
                seen.add(uid)
                start = self._taint_starts.setdefault(uid, self._store.now())
                limit_s = find_toleration_s(taints, pod["spec"].get("tolerations", []))
                is_due = (
                    limit_s is not None and (self._store.now() - start).total_seconds() >= limit_s
                )
                if is_due and "deletionTimestamp" not in pod["metadata"] and is_unfinished(pod):
                    reason = (
                        "DeletionByTaintManager",
                        "Taint manager: deleting due to NoExecute taint",
                    )
                    _disrupt_pod(self._store, pod, *reason)
                    self._store.delete_object(
                        "pods", pod["metadata"]["namespace"], pod["metadata"]["name"]
                    )
        self._taint_starts = {
            uid: start for uid, start in self._taint_starts.items() if uid in seen
        }

    def _collect_orphans(self, names: set[str], timing: ClusterTiming) -> None:
        """Remove pods of nodes that are gone, and deleted pods that never had a node."""
        seen = set()
        for pod in self._store.view_objects("pods"):
            name = pod["spec"].get("nodeName")
            if not name and "deletionTimestamp" in pod["metadata"]:
                self._remove_pod(pod)
            if not name or name in names:
                continue
            seen.add(name)
            start = self._absences.setdefault(name, self._store.now())
            if (self._store.now() - start).total_seconds() >= timing.orphan_s:
                changed = copy_object(pod)
                _disrupt_pod(
                    self._store, changed, "DeletionByPodGC", "PodGC: node no longer exists"
                )
                self._remove_pod(changed)
        self._absences = {name: start for name, start in self._absences.items() if name in seen}

    def _remove_pod(self, pod: Object) -> None:
        """Mark a pod Failed and remove it by force; its Job counts it first, if it has one."""
        if is_unfinished(pod):
            write_status(self._store, "pods", pod, pod.get("status", {}) | {"phase": "Failed"})
        self._store.delete_object(
            "pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace_s=0
        )


def _disrupt_pod(store: ObjectStore, pod: Object, reason: str, message: str) -> None:
    status = pod.get("status", {})
    set_condition(store, status, "DisruptionTarget", reason=reason, message=message)
    write_status(store, "pods", pod, status)


def drain_node(store: ObjectStore, name: str) -> None:
    """Cordon a node and evict each pod on it but those of DaemonSets, as `kubectl drain` begins.

    Raises:
        ApiError: 404.
    """
    store.patch_object("nodes", "", name, {"spec": {"unschedulable": True}})
    for pod in store.list_objects("pods", field_selector=f"spec.nodeName={name}"):
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
        if "DaemonSet" not in owners:
            _disrupt_pod(store, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            store.delete_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def find_toleration_s(
    taints: Iterable[Mapping[str, str]], tolerations: Iterable[Mapping[str, str]]
) -> float | None:
    """Return for how many seconds a pod tolerates NoExecute taints: 0 not at all, None for ever."""
    limits = []
    for taint in taints:
        match = next((row for row in tolerations if is_tolerated(taint, row)), None)
        if match is None:
            return 0.0
        if match.get("tolerationSeconds") is not None:
            limits.append(max(0.0, float(match["tolerationSeconds"])))
    return min(limits, default=None)
