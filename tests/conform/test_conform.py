"""`make conform`: manifests, rights and the runner on a cluster that the caller named.

The tests run in their order: each takes the cluster as the one before left it.
"""

from __future__ import annotations

from http import HTTPStatus

import pytest
from account_rights import list_accounts, list_allowed, list_expected, list_requests
from both_apis import look_at_named, look_at_rehearsal
from bound_tokens import wait_for_refusal
from declared_post import NAME as POST
from declared_post import NAMESPACE
from given_manifests import WAYS
from neuron_claims import read_replicas, read_server_devices
from played_nodes import play_nodes
from played_world import deploy_world
from run_lives import RunLives
from runner_looks import LOOKS
from shipped import ENVIRONMENTS
from withdrawn_rights import PRUNE_LABEL, list_withdrawn

from rehearsal.run.settings import RunFaults
from stacks.kubectl import SETTINGS
from tandem.ops.people.cluster_rights import RUNNER_CLUSTER_RIGHTS

pytestmark = [
    pytest.mark.conform,
    pytest.mark.usefixtures("made_objects"),
    pytest.mark.xdist_group("conform"),
]
TITLES = [account.title for account in list_accounts(NAMESPACE)]


def test_a_withdrawn_right_is_pruned(cluster, monkeypatch, record_property):
    """Applies a right as the CDK's handler does, then a manifest without it, with the handler's
    settings of kubectl."""
    bodies = list_withdrawn()
    cluster.run("apply", bodies=bodies)
    monkeypatch.setenv("KUBERC", str(SETTINGS))
    text = cluster.run("apply", "--prune", "--selector", PRUNE_LABEL, bodies=bodies[:1])
    cluster.run("delete", bodies=bodies[:1])
    kinds = sorted(
        line.partition("/")[0].partition(".")[0]
        for line in text.splitlines()
        if line.endswith(" pruned")
    )
    record_property("pruned", kinds)
    assert kinds == sorted(body["kind"].lower() for body in bodies[1:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_manifests_are_taken_twice(environments, play, record_property, name, way):
    """Applies strictly, folder by folder, then whole, and looks for a difference."""
    manifests = environments[name]
    with play() as kubelets:
        play_nodes(kubelets)
        try:
            first = manifests.apply_parts(way)
            second = manifests.apply(way)
            difference = manifests.find_difference(way)
        finally:
            manifests.delete()
    record_property("objects", sum(first.values()))
    record_property("of kinds that are not there", dict(manifests.absent))
    assert difference == ""
    assert set(second) <= {"unchanged", "serverside-applied"}, second


def test_two_servers_get_two_halves(cluster, environments, play, record_property):
    """Scales the two servers of the post to 1 on one Trn2 node, and reads the devices of their
    claims."""
    with play() as kubelets:
        play_nodes(kubelets)
        try:
            environments[POST].apply("server side")
            devices = read_server_devices(cluster, NAMESPACE)
        finally:
            environments[POST].delete()
    record_property("devices", devices)
    halves = sorted(devices.values())
    assert halves == [list(range(8)), list(range(8, 16))]


class TestRights:
    """With the post's environment applied."""

    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def applied(environments, play):
        with play():
            environments[POST].apply("server side")
            yield
            environments[POST].delete()

    @pytest.mark.parametrize("title", TITLES)
    def test_rights_are_those_of_the_tables(self, store, record_property, title):
        """Has every verb on every resource of the API judged by SubjectAccessReview, in three
        places."""
        account = next(row for row in list_accounts(NAMESPACE) if row.title == title)
        requests = list_requests(store, NAMESPACE)
        expected = list_expected(account.rights, requests, NAMESPACE) | list_allowed(
            store, *account.stranger, requests
        )
        allowance = list_allowed(store, account.user, account.groups, requests)
        record_property("reviews", len(requests))
        record_property("allowed", len(allowance))
        assert (sorted(allowance - expected), sorted(expected - allowance)) == ([], [])


class TestLooks:
    """The runner's own reads and writes, in the named cluster and in a rehearsed one."""

    @pytest.fixture(scope="class")
    @staticmethod
    def named(cluster, environments, store, address, tmp_path_factory):
        folder = tmp_path_factory.mktemp("named")
        with look_at_named(cluster, environments[POST], store, address, folder) as looks:
            yield looks

    @pytest.fixture(scope="class")
    @staticmethod
    def rehearsed(environments, tmp_path_factory):
        with look_at_rehearsal(environments[POST], tmp_path_factory.mktemp("rehearsed")) as looks:
            yield looks

    @pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
    def test_the_rehearsal_answers_as_the_named_cluster(self, named, rehearsed, look):
        """Makes the same calls to both, by the runner's functions, and compares what they
        return."""
        answer = look(named.looks)
        rehearsed_answer = look(rehearsed[0])
        assert rehearsed_answer == answer

    def test_the_looks_make_every_call_of_the_runner(self, rehearsed, record_property):
        """Compares the calls that the rehearsed API answered with the rows of the runner's
        rights."""
        calls = {
            (call.verb, "/".join(filter(None, (call.kind.plural, call.subresource))))
            for _, call, status in rehearsed[1].calls
            if status < HTTPStatus.BAD_REQUEST
        }
        rights = {
            (verb, resource)
            for right in RUNNER_CLUSTER_RIGHTS
            for resource in right.resources
            for verb in right.verbs
        }
        record_property("calls", len(calls))
        assert calls == rights

    def test_a_token_that_ended_is_read_again(self, cluster, named, record_property):
        """Deletes the pod to which the runner's token is bound, writes its successor's into the
        file, and calls."""
        token = named.replace_runner()
        record_property(
            "seconds until 401",
            round(wait_for_refusal(cluster.read_address(), token)),
        )
        assert named.looks.look_at_nodes()


class TestRun:
    """A whole run of the post from an empty bucket, its runner killed three times and its node
    drained once."""

    FAULTS = (
        RunFaults(moment="stage", killed_component="runner"),
        RunFaults(moment="compile", killed_component="runner"),
        RunFaults(moment="bench", killed_component="runner"),
        RunFaults(moment="bench", moment_s=2.0, is_node_drained=True, uncordon_s=5.0),
    )

    @pytest.fixture(scope="class")
    @staticmethod
    def lives(cluster, store, made_objects, address, tmp_path_factory):
        """The real CLI's account at the local AWS endpoint, deployed, and the runner in the named
        cluster."""
        made_objects.delete_nodes()
        with deploy_world(cluster, store, POST, tmp_path_factory.mktemp("world"), address) as world:
            yield RunLives(world, tmp_path_factory.mktemp("results"))

    @pytest.fixture(scope="class")
    @staticmethod
    def life(lives):
        return lives.live(faults=TestRun.FAULTS, is_new=True)

    def test_a_run_is_judged(self, life, record_property):
        """Runs `tandem run post --quick` from an empty bucket, by the runner with its own bound
        token."""
        record_property("state", life.record["state"])
        record_property("words", life.record.get("verdict") or life.record["reason"])
        assert life.record["state"] == "judged", life.output

    def test_kills_and_a_drain_came(self, lives, life, record_property):
        """Kills the runner while it stages, compiles and measures; drains the node while a round is
        measured."""
        record_property("kills", sum(bool(fault.killed_component) for fault in life.acting_faults))
        record_property(
            "drained pods", sum(text.count(" evicted") for text in lives.world.live.drains)
        )
        assert life.acting_faults == self.FAULTS

    def test_a_run_ends_at_zero(self, cluster, lives, life, record_property):
        """Reads instances and fence from the local AWS endpoint, and the servers' replicas from the
        cluster."""
        record_property("node-minutes", f"{lives.world.count_node_minutes():.1f}")
        lives.hold_end(life)
        assert set(read_replicas(cluster, NAMESPACE).values()) == {0}


def test_nothing_is_left(made_objects, play, record_property):
    """Deletes all that was made, and compares every object of the cluster with those before."""
    with play():
        made_objects.delete_all()
    left = made_objects.list_left()
    record_property("objects before", len(made_objects.before))
    assert left == []
