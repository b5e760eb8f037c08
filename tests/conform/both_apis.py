"""The same runner's looks at the named cluster and at a rehearsed one: the same manifests, nodes,
pods and account."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_store import ApiStore
from bound_tokens import RequestedTokens
from declared_post import NAMESPACE
from given_manifests import GivenManifests
from named_cluster import NamedCluster
from played_kubelets import PlayedKubelets
from played_nodes import NEURON_NODE, play_nodes
from runner_looks import LOOK_S, RunnerLooks, choose_script

from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.live_cluster import LiveCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.cluster.server import ClusterServer
from rehearsal.cluster.store import Object, ObjectStore
from rehearsal.cluster.timing import ClusterTiming
from rehearsal.run.manifests import account_token, apply_manifests, build_users
from tandem.ops.people.cluster_rights import RUNNER_ACCOUNT, RUNNER_NAMESPACE
from tandem.run.cluster import KubernetesCluster

# of the rehearsed cluster, whose times are not compared
TIMING = ClusterTiming(node_grace_s=3.0, cloud_look_s=1.0, orphan_s=3.0)


@contextmanager
def look_at_rehearsal(
    manifests: GivenManifests, folder: Path
) -> Iterator[tuple[RunnerLooks, ClusterServer]]:
    """Start a rehearsed cluster and yield the runner's looks at it, and its API."""
    store = ObjectStore(WallClock().now)
    pods = VirtualPods(store.now, choose_script)
    cluster = RehearsalCluster(WallClock(), lambda _: pods, store, TIMING)
    server = ClusterServer(
        store, build_users(manifests.objects), lambda pod, _: pods.look_at_pod(pod).log
    )
    with LiveCluster(cluster, server) as live:
        live.call(lambda: play_nodes(cluster))
        live.call(lambda: apply_manifests(store, manifests.objects))
        kubeconfig = live.build_kubeconfig(account_token(RUNNER_NAMESPACE, RUNNER_ACCOUNT))
        looks = RunnerLooks(
            client=build_client(kubeconfig, folder / "rehearsal.json"),
            delete_pod=lambda name: live.call(lambda: store.delete_object("pods", NAMESPACE, name)),
            cordon_node=lambda value: live.call(lambda: store.patch_object(*_spell_cordon(value))),
            lose_node=lambda: live.call(lambda: cluster.lose_node(NEURON_NODE)),
        )
        yield looks, server


@dataclass(frozen=True, slots=True)
class NamedLooks:
    """The runner's looks at the named cluster.

    Args:
        pod: the runner's.
        token: file of its token.
        tokens: of the played pods.
    """

    looks: RunnerLooks
    store: ApiStore
    pod: Object
    token: Path
    tokens: RequestedTokens

    def replace_runner(self) -> str:
        """Delete the runner's pod and write its successor's token into its file; return the token
        that ended."""
        ended_text = self.token.read_text()
        name = self.pod["metadata"]["name"]
        self.store.delete_object("pods", RUNNER_NAMESPACE, name)
        successors = [self.pod]
        while any(pod["metadata"]["name"] == name for pod in successors) or not successors:
            time.sleep(LOOK_S)
            successors = self.store.list_objects("pods", RUNNER_NAMESPACE)
        self.tokens.mount(successors[0], RUNNER_ACCOUNT, self.token)
        return ended_text


@contextmanager
def look_at_named(
    cluster: NamedCluster, manifests: GivenManifests, store: ApiStore, address: str, folder: Path
) -> Iterator[NamedLooks]:
    """Apply the manifests to the named cluster and yield the runner's looks at it."""
    pods = VirtualPods(store.now, choose_script)
    tokens = RequestedTokens(store)
    with PlayedKubelets(
        cluster, store, pods, lambda pod, _: pods.look_at_pod(pod).log, folder, address
    ) as kubelets:
        try:
            play_nodes(kubelets)
            manifests.apply("server side")
            words = ("--namespace", RUNNER_NAMESPACE)
            cluster.run(*words, "rollout", "status", "deployment/runner", "--timeout", "60s")
            (pod,) = store.list_objects("pods", RUNNER_NAMESPACE)
            tokens.mount(pod, RUNNER_ACCOUNT, folder / "token")
            kubeconfig = kubelets.build_kubeconfig("")
            kubeconfig["users"][0]["user"] = {"tokenFile": str(folder / "token")}
            client = build_client(kubeconfig, folder / "named.json")
            looks = RunnerLooks(
                client=client,
                delete_pod=lambda name: store.delete_object("pods", NAMESPACE, name),
                cordon_node=lambda value: store.patch_object(*_spell_cordon(value)),
                lose_node=lambda: kubelets.call(lambda: kubelets.lose_node(NEURON_NODE)),
            )
            yield NamedLooks(looks, store, pod, folder / "token", tokens)
        finally:
            manifests.delete()


def _spell_cordon(value: bool) -> tuple[str, str, str, Object]:
    return "nodes", "", NEURON_NODE, {"spec": {"unschedulable": value or None}}


def build_client(kubeconfig: Object, path: Path) -> KubernetesCluster:
    """Return the runner's client for a kubeconfig, which is written to a file."""
    path.write_text(json.dumps(kubeconfig))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(path))
        return KubernetesCluster()
