"""What the runner reads of a cluster, by the runner's own functions, and the answers to what it
writes.

Invariant: each look is a call of tandem.run with the client of the runner's account. An answer
leaves out what no two clusters share: uids, names that a controller makes up, moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
from declared_post import ENVIRONMENT, EXPERIMENT, NAMESPACE, VARIANTS
from played_nodes import NEURON_NODE

from rehearsal.cluster.pods import PodScript
from rehearsal.cluster.store import Object
from tandem.declarations.catalogue import load_catalogue
from tandem.errors import TandemError
from tandem.ops.guard_config import build_guard_config
from tandem.run import fleet_nodes, fleet_steps, jobs, server_state
from tandem.run.cluster import KubernetesCluster
from tandem.run.run_keys import mark_jobs

JOB = "tandem-measure"
SERVER, OTHER = VARIANTS
ABSENT = "absent"
SETTLE_S = 60.0
LOOK_S = 0.25
# until a silent node is unknown, and until the pods of a node that is gone are removed
LOSS_S = 180.0
SCRIPTS = {  # run -> what the pod of its Job does
    "waits": PodScript(start_s=3600),
    "runs": PodScript(log="one\ntwo\n"),
    "succeeds": PodScript(run_s=1, log="done\n"),
    "fails": PodScript(run_s=1, exit_code=2, log='{"event": "a bad task", "change": "mend it"}\n'),
}


def choose_script(pod: Object) -> PodScript:
    """Return what a pod does, in both clusters."""
    job = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", "")
    return next(
        (script for run, script in SCRIPTS.items() if mark_jobs(run) in job),
        PodScript(ready_after_s=1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLooks:
    """The looks of a runner at one cluster with the post's manifests and a Trn2 node.

    Args:
        client: of the runner's account.
        delete_pod: deletes a pod of the experiment by its name, which the runner may not.
        cordon_node: takes the Trn2 node away from new pods, or gives it back.
        lose_node: ends the Trn2 node's kubelet and processes; the cloud no longer has the instance.
    """

    client: KubernetesCluster
    delete_pod: Callable[[str], None]
    cordon_node: Callable[[bool], None]
    lose_node: Callable[[], None]

    def look_at_nodes(self) -> Any:
        """Read the nodes of the fleet: whether each is ready, and its devices."""
        work = self._work()
        names = [
            (node["metadata"]["name"], fleet_nodes.is_node_ready(node))
            for node in fleet_nodes.list_fleet_nodes(work)
        ]
        return names, fleet_steps.count_devices(work, NEURON_NODE)

    def look_at_what_is_rendered(self) -> Any:
        """Get CronJobs and Deployments, and those that are not there."""
        places = (
            ("jobs", ABSENT),
            ("cronjobs", JOB),
            ("cronjobs", ABSENT),
            ("deployments", SERVER),
            ("deployments", ABSENT),
        )
        return [self.client.get_object(kind, NAMESPACE, name) is not None for kind, name in places]

    def start_servers(self) -> Any:
        """Scale both servers to 1 and read them once they are ready."""
        for server in VARIANTS:
            self.client.scale_deployment(NAMESPACE, server, 1)
            self._settle(lambda server=server: self._is_ready(server))
        return self._read_servers()

    def compare_servers(self) -> Any:
        """Compare the servers' pods with their declaration: arguments, environment, quantities,
        volumes."""
        work = self._work()
        return [
            [
                *server_state.list_differences(
                    work, variant, server_state.list_active_pods(work, variant.name)[0]
                )
            ]
            for variant in EXPERIMENT.all_variants()
        ]

    def look_at_a_deleted_server(self) -> Any:
        """Delete a server's pod and read the servers when its successor is ready."""
        work = self._work()
        (pod,) = server_state.list_active_pods(work, SERVER)
        self.delete_pod(pod["metadata"]["name"])
        self._settle(
            lambda: self._is_ready(SERVER) and self._find_uid(SERVER) != pod["metadata"]["uid"]
        )
        return self._read_servers()

    def park_servers(self) -> Any:
        """Scale both servers to 0 and read them, and the claims of the namespace, once they are
        gone."""
        work = self._work()
        for server in VARIANTS:
            self.client.scale_deployment(NAMESPACE, server, 0)
        self._settle(
            lambda: not any(server_state.list_unfinished_pods(work, server) for server in VARIANTS)
        )
        self._settle(lambda: not self.client.list_objects("resourceclaims", NAMESPACE))
        return self._read_servers()

    def look_at_a_server_without_a_node(self) -> Any:
        """Delete a server's pod on a node that takes no new one, read its successor, and give the
        node back."""
        (pod,) = server_state.list_active_pods(self._work(), SERVER)
        self.cordon_node(True)
        self.delete_pod(pod["metadata"]["name"])
        self._settle(lambda: self._find_trouble(SERVER) == "Unschedulable")
        states = self._read_servers()
        self.cordon_node(False)
        self._settle(lambda: self._is_ready(SERVER))
        # the scheduler's sentence is for people: its reason is compared
        return states | {
            SERVER: msgspec.structs.replace(states[SERVER], trouble=self._find_trouble(SERVER))
        }

    def look_at_a_lost_node(self) -> Any:
        """Lose the node of the servers: read them at once, and when the node is gone and they wait
        for another."""
        self.lose_node()
        states = self._read_servers()
        self._settle(lambda: not fleet_nodes.list_fleet_nodes(self._work()), LOSS_S)
        self._settle(
            lambda: all(self._find_trouble(server) == "Unschedulable" for server in VARIANTS),
            LOSS_S,
        )
        return (
            states,
            fleet_steps.count_devices(self._work(), NEURON_NODE),
            sorted(self._read_servers()),
        )

    def scale_what_is_absent(self) -> Any:
        """Scale a Deployment that is not there to 0, then to 1."""
        return [
            _try(lambda size=size: self.client.scale_deployment(NAMESPACE, ABSENT, size))
            for size in (0, 1)
        ]

    def look_at_a_waiting_job(self) -> Any:
        """Start a Job whose container waits, and read its look and its log."""
        return self._start_job("waits", lambda look: look.words != "")

    def look_at_a_running_job(self) -> Any:
        """Start a Job that runs, twice, and read its look and its log."""
        self._start_job("runs", lambda look: look.image_id != "")
        return self._start_job("runs", lambda look: look.image_id != "")

    def look_at_a_done_job(self) -> Any:
        """Start a Job that ends with 0, and read its look and its log."""
        return self._start_job("succeeds", lambda look: look.state == "succeeded")

    def look_at_a_failed_job(self) -> Any:
        """Start a Job that ends with 2, and read its look and its log."""
        return self._start_job("fails", lambda look: look.state == "failed")

    def close_jobs(self) -> Any:
        """Close every Job, read what is kept of its log, wait until none is left, and close it
        again."""
        logs = {}
        for run in SCRIPTS:
            work = self._work(run)
            work.journal = SimpleNamespace(file=SimpleNamespace(write_text=logs.__setitem__))
            name = jobs.name_job(run, JOB, 1)
            jobs.close_jobs(work)
            self._settle(lambda work=work, name=name: jobs.has_ended(work, name))
            jobs.close_job(work, name)
        return sorted(text.partition("\n")[2] for text in logs.values())

    def call_what_is_forbidden(self) -> Any:
        """Make calls that the runner's rights do not have."""
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": ABSENT}}
        calls = (
            lambda: self.client.list_objects("pods", "kube-system"),
            lambda: self.client.get_object("pods", NAMESPACE, ABSENT),
            lambda: self.client.create_job("kube-system", body),
            lambda: self.client.scale_deployment("kube-system", ABSENT, 0),
        )
        return [_try(call) for call in calls]

    def create_a_bad_job(self) -> Any:
        """Create a Job whose name the API does not take."""
        body = self.client.get_object("cronjobs", NAMESPACE, JOB) or {}
        head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "Not_A_Name"}}
        return _try(
            lambda: self.client.create_job(
                NAMESPACE, head | {"spec": body["spec"]["jobTemplate"]["spec"]}
            )
        )

    def read_the_log_of_no_pod(self) -> Any:
        """Read the log of a pod that is not there."""
        return _try(lambda: self.client.read_log(NAMESPACE, ABSENT, "main"))

    def _start_job(self, run: str, is_there: Callable[[jobs.JobLook], bool]) -> Any:
        work = self._work(run)
        name = jobs.start_job(work, JOB, 1)
        self._settle(lambda: is_there(jobs.look_at_job(work, name)))
        (pod,) = self.client.list_objects("pods", NAMESPACE, {"batch.kubernetes.io/job-name": name})
        container = pod["spec"]["containers"][0]["name"]
        log = _try(lambda: self.client.read_log(NAMESPACE, pod["metadata"]["name"], container))
        return jobs.look_at_job(work, name), log

    def _read_servers(self) -> dict[str, Any]:
        states = server_state.read_servers(self._work())
        return {
            name: msgspec.structs.replace(
                state,
                pod="",
                uid="",
                claim="allocated" if state.claim else "",
                endpoints=tuple(
                    "own" if uid == state.uid else "another" for uid in state.endpoints
                ),
            )
            for name, state in states.items()
        }

    def _is_ready(self, server: str) -> bool:
        state = server_state.read_servers(self._work()).get(server)
        return state is not None and state.is_ready and bool(state.endpoints)

    def _find_uid(self, server: str) -> str:
        pods = server_state.list_active_pods(self._work(), server)
        return pods[0]["metadata"]["uid"] if pods else ""

    def _find_trouble(self, server: str) -> str:
        """Return the reason why a server waits, without the sentence."""
        state = server_state.read_servers(self._work()).get(server)
        return state.trouble.partition(":")[0] if state else ""

    def _settle(self, is_there: Callable[[], bool], longest_s: float = SETTLE_S) -> None:
        end_s = time.monotonic() + longest_s
        while not is_there():
            assert time.monotonic() < end_s, f"nothing after {longest_s:g} s"
            time.sleep(LOOK_S)

    def _work(self, run: str = "none") -> Any:
        """Return what the readers need of a step's work."""
        world = SimpleNamespace(
            cluster=self.client,
            catalogue=load_catalogue(),
            environment=ENVIRONMENT,
            guard=build_guard_config(ENVIRONMENT),
            now=lambda: datetime.now(UTC),
            log=print,
        )
        return SimpleNamespace(
            world=world,
            run=run,
            name="step",
            namespace=NAMESPACE,
            experiment=EXPERIMENT,
            arms=VARIANTS,
        )


LOOKS = (
    RunnerLooks.look_at_nodes,
    RunnerLooks.look_at_what_is_rendered,
    RunnerLooks.park_servers,
    RunnerLooks.start_servers,
    RunnerLooks.compare_servers,
    RunnerLooks.look_at_a_deleted_server,
    RunnerLooks.look_at_a_server_without_a_node,
    RunnerLooks.scale_what_is_absent,
    RunnerLooks.look_at_a_waiting_job,
    RunnerLooks.look_at_a_running_job,
    RunnerLooks.look_at_a_done_job,
    RunnerLooks.look_at_a_failed_job,
    RunnerLooks.close_jobs,
    RunnerLooks.call_what_is_forbidden,
    RunnerLooks.create_a_bad_job,
    RunnerLooks.read_the_log_of_no_pod,
    RunnerLooks.look_at_a_lost_node,
)


def _try(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the class of its error and the status that the API
    answered."""
    try:
        return call()
    except TandemError as error:
        return type(error).__name__, getattr(getattr(error.__cause__, "status", None), "code", None)
