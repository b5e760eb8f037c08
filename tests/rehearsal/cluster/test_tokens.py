"""A pod's token ends, dies with its pod, and is written anew before; lightkube reads it again."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources import core_v1

from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.live_cluster import LiveCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.cluster.server import ClusterServer, ClusterUser
from rehearsal.cluster.store import ApiError, ObjectStore
from rehearsal.cluster.tokens import BoundTokens

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
RULE = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


class TokenWorld:
    """A pod with a token of 100 s."""

    def __init__(self, folder: Path) -> None:
        self.moment, self.dead_nodes = START, set[str]()
        self.store = ObjectStore(lambda: self.moment)
        self.tokens = BoundTokens(
            self.store, 100, lambda name: name not in self.dead_nodes, ["admin"]
        )
        pod = {"metadata": {"name": "runner"}, "spec": {"nodeName": "node"}}
        self.pod = self.store.create_object("pods", "system", pod)
        self.path = folder / "token"
        self.tokens.mount(self.pod, "runner", self.path)

    def wait(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.tokens.refresh()

    def is_admitted(self, token: str) -> bool:
        return is_admitted(self.tokens, token)


def is_admitted(tokens: BoundTokens, token: str) -> bool:
    try:
        return bool(tokens.find_account(token))
    except ApiError:
        return False


@pytest.fixture
def world(tmp_path):
    return TokenWorld(tmp_path)


def test_token_is_of_its_account(world):
    assert world.tokens.find_account(world.path.read_text()) == "runner"


@pytest.mark.parametrize(("seconds", "is_valid"), [(99, True), (100, False)])
def test_token_ends_after_its_life(world, seconds, is_valid):
    token = world.path.read_text()
    world.wait(seconds)
    assert world.is_admitted(token) is is_valid


@pytest.mark.parametrize(("seconds", "is_new"), [(79, False), (80, True)])
def test_file_is_written_anew_at_four_fifths_of_the_life(world, seconds, is_new):
    token = world.path.read_text()
    world.wait(seconds)
    assert (world.path.read_text() != token) is is_new


def test_dead_kubelet_writes_no_token(world):
    token = world.path.read_text()
    world.dead_nodes.add("node")
    world.wait(80)
    assert world.path.read_text() == token


def test_token_dies_with_its_pod(world):
    world.store.delete_object("pods", "system", "runner", grace_s=0)
    assert not world.is_admitted(world.path.read_text())


def test_client_reads_its_file_again_when_its_token_has_ended(tmp_path):
    cluster = RehearsalCluster(WallClock(), VirtualPods)
    pod = cluster.store.create_object(
        "pods", "system", {"metadata": {"name": "runner"}, "spec": {"containers": []}}
    )
    tokens = BoundTokens(cluster.store, 2.0)  # its last fifth is longer than a tick
    tokens.mount(pod, "runner", tmp_path / "token")
    users = {"runner": ClusterUser("runner", cluster_rules=[RULE])}
    server = ClusterServer(cluster.store, users, find_account=tokens.find_account)
    with LiveCluster(cluster, server, [tokens.refresh]) as live:
        config = live.build_kubeconfig("")
        config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
        client = Client(KubeConfig.from_dict(config))
        first_token = (tmp_path / "token").read_text()
        list(client.list(core_v1.Node))
        end = time.monotonic() + 5
        while is_admitted(tokens, first_token):
            assert time.monotonic() < end
            time.sleep(0.05)
        list(client.list(core_v1.Node))
    assert [status for _, _, status in server.calls] in ([200, 401, 200], [200, 401, 401, 200])
