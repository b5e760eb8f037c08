"""The kubelets of the played nodes: heartbeats, leases, pods, and what a cloud does with a lost
node.

Invariant: what a pod is comes from its runtime (processes, or a script), and is written by PATCH of
its status with its uid. A node beats while its kubelet lives.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeVar

from api_store import ApiStore
from kubelet_logs import serve_logs
from named_cluster import NamedCluster

from rehearsal.cluster.kubelets import KubeletGroup
from rehearsal.cluster.pods import PodRuntime
from rehearsal.cluster.statuses import has_condition
from rehearsal.cluster.store import ApiError, Object, format_time

T = TypeVar("T")
LOOK_S = 0.25
BEAT_S = 10.0  # a kubelet's nodeStatusUpdateFrequency, and a quarter of its leaseDurationSeconds
LEASE_S = 40
LEASE_NAMESPACE = "kube-node-lease"
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "100s")
_RACE_STATUSES = {404, 409}  # a pod that went, or whose name is another pod's, since the look began


class PlayedKubelets:
    """All kubelets of the played nodes, in one thread: a rehearsed cluster's methods on a real one.

    Args:
        cluster, store: the cluster.
        runtime: of the pods.
        read_log: returns the output of a pod's container.
        folder: for a certificate.
        address: at which the API server reaches this machine.
        actions: called at each look.

    Attributes:
        drains: what kubectl said of each drain.
    """

    def __init__(
        self,
        cluster: NamedCluster,
        store: ApiStore,
        runtime: PodRuntime,
        read_log: Callable[[Object, str], str],
        folder: Path,
        address: str,
        actions: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.store = store
        self.drains: list[str] = []
        self._cluster = cluster
        self._runtime = runtime
        self._read_log = read_log
        self._folder = folder
        self._address = address
        self._actions = actions
        self._group = KubeletGroup(store, runtime, self.has_kubelet)
        self._lost = set[str]()
        self._beats_s: dict[str, float] = {}
        self._lock = threading.RLock()
        self._stop_event = threading.Event()
        self._stack = ExitStack()
        self._port = 0

    def __enter__(self) -> Self:
        """Start."""
        logs = serve_logs(self.store, self._read_log, self._folder, self._address)
        self._port = self._stack.enter_context(logs)
        thread = threading.Thread(target=self._live, daemon=True, name="kubelets")
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stop_event.set)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the owner of the runtime stops that."""
        self._stack.close()

    def call(self, action: Callable[[], T]) -> T:
        """Return the result of an action while no look is under way."""
        with self._lock:
            return action()

    def build_kubeconfig(self, token: str, namespace: str = "default") -> Object:
        """Return the kubeconfig for a client of the cluster with a token."""
        name = "conform"
        context = {"cluster": name, "user": name, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": self._cluster.read_address()}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": context}],
        }

    def has_kubelet(self, name: str) -> bool:
        """Tell whether a node's kubelet lives."""
        return name not in self._lost

    def drain_node(self, name: str) -> None:
        """Begin `kubectl drain` of a node."""
        thread = threading.Thread(
            target=self._drain, args=(name,), daemon=True, name=f"drain {name}"
        )
        thread.start()
        self._stack.callback(thread.join)

    def lose_node(self, name: str) -> None:
        """End a node's kubelet and processes at once; the API server learns of it by its
        silence."""
        self._lost.add(name)
        for pod in self.store.list_objects("pods"):
            if pod["spec"]["nodeName"] == name:
                self._runtime.kill_pod(pod)

    def _drain(self, name: str) -> None:
        self.drains.append(self._cluster.run("drain", name, *DRAIN, codes=(0, 1)))

    def _live(self) -> None:
        while not self._stop_event.wait(LOOK_S):
            try:
                with self._lock:
                    self._look()
            except ApiError as error:
                if error.status not in _RACE_STATUSES:
                    traceback.print_exc()
            except Exception:  # noqa: BLE001 - told, and tried again: a kubelet that stands still says nothing
                traceback.print_exc()

    def _look(self) -> None:
        for action in self._actions:
            action()
        for node in self.store.list_objects("nodes"):
            if self.has_kubelet(node["metadata"]["name"]):
                self._beat(node)
            elif not has_condition(node["status"]["conditions"], "Ready"):
                # as a cloud's controller
                self.store.remove_object("nodes", "", node["metadata"]["name"])
        self._group.sync()

    def _beat(self, node: Object) -> None:
        """Say of a node that it is ready and where its logs are, if it is time."""
        name = node["metadata"]["name"]
        uid = node["metadata"]["uid"]
        if time.monotonic() < self._beats_s.get(uid, 0.0):
            return
        self._beats_s[uid] = time.monotonic() + BEAT_S
        now = format_time(self.store.now())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
        }
        status = {
            "addresses": [{"type": "InternalIP", "address": self._address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "conditions": [ready],
        }
        self.store.replace_object("nodes", "", name, {"status": status}, subresource="status")
        self._renew_lease(name, uid)

    def _renew_lease(self, name: str, uid: str) -> None:
        renewed_at = self.store.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": renewed_at}
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        try:
            self.store.patch_object("leases", LEASE_NAMESPACE, name, body)
        except ApiError:
            self.store.create_object("leases", LEASE_NAMESPACE, body)
