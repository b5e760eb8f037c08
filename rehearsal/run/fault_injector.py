"""Injects faults at a moment of a rehearsed run: those of `settings` that have a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rehearsal.cluster.process_pods import ProcessPods
from rehearsal.cluster.server import ClusterFault
from rehearsal.cluster.store import Object, ObjectStore
from rehearsal.run.pod_programs import COMPONENT_LABEL, NAME_LABEL
from rehearsal.run.settings import RunFaults


@dataclass(kw_only=True, slots=True)
class FaultInjector:
    """Waits for the moment and acts once.

    Args:
        api_faults: those of the API that are still to come.
        drain_node: drains a node.
        terminate_instances: ends the accelerator instances and their nodes' processes.
        restart_endpoint: takes the local endpoint away for so many seconds, and returns at once.

    Attributes:
        is_done: the moment came.
        killed_pods: how many pods got SIGKILL at it.
    """

    store: ObjectStore
    pods: ProcessPods
    api_faults: list[ClusterFault]
    drain_node: Callable[[str], None]
    terminate_instances: Callable[[], None]
    restart_endpoint: Callable[[float], None]
    faults: RunFaults
    is_done: bool = field(default=False, init=False)
    killed_pods: int = field(default=0, init=False)
    _begin_s: float | None = field(default=None, init=False)
    _cordoned_nodes: list[str] = field(default_factory=list, init=False)
    _uncordon_at_s: float | None = field(default=None, init=False)

    def expect(self, faults: RunFaults) -> None:
        """Wait for the moment of other faults."""
        self.faults = faults
        self._begin_s = None
        self.is_done = False
        self.killed_pods = 0

    def act_if_due(self) -> None:
        """Inject the faults that are due; called at each tick of the cluster."""
        if self._uncordon_at_s is not None and time.monotonic() >= self._uncordon_at_s:
            self._uncordon_nodes()
        if self.is_done:
            return
        if self._begin_s is None and self._list_running(self.faults.moment):
            self._begin_s = time.monotonic()
        if self._begin_s is not None and time.monotonic() >= self._begin_s + self.faults.moment_s:
            self.is_done = True
            self._act(self.faults)

    def _list_running(self, component: str) -> list[Object]:
        labels = (COMPONENT_LABEL, NAME_LABEL)
        pods = [
            pod
            for key in labels
            for pod in self.store.list_objects("pods", label_selector=f"{key}={component}")
        ]
        return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]

    def _act(self, faults: RunFaults) -> None:
        if faults.second_replica:
            self._patch_server(faults.second_replica, {"replicas": 2})
        if faults.edited_server:
            for deployment in self._list_servers(faults.edited_server):
                deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] += " "
                self._patch_server(
                    faults.edited_server, {"template": deployment["spec"]["template"]}
                )
        if faults.killed_component:
            for pod in self._list_running(faults.killed_component):
                self.pods.kill_containers(pod)
                self.killed_pods += 1
        if faults.is_node_lost:
            self.terminate_instances()
        if faults.is_node_drained:
            self._drain_nodes(faults.uncordon_s)
        if faults.endpoint_down_s:
            self.restart_endpoint(faults.endpoint_down_s)
        if faults.api_status:
            self.api_faults.append(ClusterFault(faults.api_status, calls=faults.api_calls))

    def _drain_nodes(self, uncordon_s: float) -> None:
        """Drain each node that has devices, and remember when it takes pods again."""
        self._cordoned_nodes = [
            row["spec"]["nodeName"] for row in self.store.list_objects("resourceslices")
        ]
        for name in self._cordoned_nodes:
            self.drain_node(name)
        self._uncordon_at_s = time.monotonic() + uncordon_s if uncordon_s else None

    def _uncordon_nodes(self) -> None:
        self._uncordon_at_s = None
        known_names = {node["metadata"]["name"] for node in self.store.list_objects("nodes")}
        for name in known_names.intersection(self._cordoned_nodes):
            self.store.patch_object("nodes", "", name, {"spec": {"unschedulable": None}})

    def _list_servers(self, name: str) -> list[Object]:
        """Return the Deployment that the run has scaled; other experiments may have its name."""
        deployments = self.store.list_objects("deployments", field_selector=f"metadata.name={name}")
        return [deployment for deployment in deployments if deployment["spec"].get("replicas")]

    def _patch_server(self, name: str, spec: Object) -> None:
        for deployment in self._list_servers(name):
            self.store.patch_object(
                "deployments", deployment["metadata"]["namespace"], name, {"spec": spec}
            )
