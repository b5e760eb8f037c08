"""Jobs end as batch/v1 says, Deployments replace their pods, Services find them, children go with
owners."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from server_objects import add_node

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.pods import PodScript, VirtualPods
from rehearsal.cluster.timing import INSTANT

START = datetime(2026, 11, 24, 12, tzinfo=UTC)


class SmallCluster:
    """A store with one node, whose pods all follow `scripts` in the order of their creation, the
    last for ever."""

    def __init__(self) -> None:
        self.moment, self.scripts, self.given = START, [PodScript()], {}
        self.cluster = RehearsalCluster(
            SimpleNamespace(now=lambda: self.moment),
            lambda now: VirtualPods(now, self.choose_script),
            timing=INSTANT,
        )
        self.store = self.cluster.store
        add_node(self.store)

    def choose_script(self, pod: dict) -> PodScript:
        number = self.given.setdefault(pod["metadata"]["uid"], len(self.given))
        return self.scripts[min(number, len(self.scripts) - 1)]

    def run(self, seconds: int = 0) -> None:
        """Let time go by, a second a step, and let the controllers settle at each."""
        for second in range(seconds + 1):
            self.moment += timedelta(seconds=1 if second else 0)
            self.cluster.settle()

    def add_job(self, *, restart: str = "Never", **spec) -> None:
        template = {"metadata": {"labels": {"team": "x"}}, "spec": build_pod_spec(restart)}
        body = {"metadata": {"name": "compile"}, "spec": {"template": template} | spec}
        self.store.create_object("jobs", "post", body)

    def add_deployment(self, **spec) -> None:
        template = {"metadata": {"labels": {"app": "server"}}, "spec": build_pod_spec("Always")}
        body = {"metadata": {"name": "server"}, "spec": {"template": template} | spec}
        self.store.create_object("deployments", "post", body)

    def change_image(self) -> None:
        template = {
            "metadata": {"labels": {"app": "server"}},
            "spec": build_pod_spec("Always", "two"),
        }
        self.store.patch_object("deployments", "post", "server", {"spec": {"template": template}})

    @property
    def job(self) -> dict:
        return self.store.get_object("jobs", "post", "compile")["status"]

    @property
    def pods(self) -> list[dict]:
        return self.store.list_objects("pods")

    @property
    def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in self.pods)

    def list_conditions(self) -> list[tuple[str, str]]:
        return [(row["type"], row.get("reason", "")) for row in self.job.get("conditions", [])]


def build_pod_spec(restart: str, image: str = "one") -> dict:
    ports = [{"name": "http", "containerPort": 8000}]
    return {
        "restartPolicy": restart,
        "containers": [{"name": "main", "image": image, "ports": ports}],
    }


@pytest.fixture
def cluster():
    return SmallCluster()


def test_a_job_that_succeeds_is_complete(cluster):
    cluster.scripts = [PodScript(run_s=5)]
    cluster.add_job()
    cluster.run(6)
    assert cluster.list_conditions() == [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "CompletionsReached"),
    ]
    assert (cluster.job["succeeded"], cluster.job["startTime"]) == (1, "2026-11-24T12:00:00Z")


def test_a_job_fails_past_its_backoff_limit(cluster):
    cluster.scripts = [PodScript(run_s=1, exit_code=1)]
    cluster.add_job(backoffLimit=1)
    cluster.run(20)
    assert cluster.list_conditions() == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]
    assert (cluster.job["failed"], len(cluster.pods)) == (2, 2)


def test_a_job_past_its_deadline_stops_its_pod_first(cluster):
    cluster.scripts = [PodScript(stop_s=5)]
    cluster.add_job(activeDeadlineSeconds=10)
    cluster.run(11)
    assert cluster.list_conditions() == [("FailureTarget", "DeadlineExceeded")]
    cluster.run(5)
    assert cluster.list_conditions()[-1] == ("Failed", "DeadlineExceeded")
    assert (cluster.pods, cluster.job["failed"]) == ([], 1)


def test_end_of_a_job_has_a_name_some_time_before(cluster):
    cluster.cluster.timing = replace(INSTANT, job_end_s=3)
    cluster.scripts = [PodScript(run_s=5)]
    cluster.add_job()
    cluster.run(7)
    assert [type_ for type_, _ in cluster.list_conditions()] == ["SuccessCriteriaMet"]
    cluster.run(1)
    assert [type_ for type_, _ in cluster.list_conditions()] == ["SuccessCriteriaMet", "Complete"]


@pytest.mark.parametrize(("policy", "most_pods"), [("Failed", 1), ("TerminatingOrFailed", 2)])
def test_job_replaces_a_deleted_pod_as_its_policy_says(cluster, policy, most_pods):
    cluster.scripts = [PodScript(stop_s=20)]
    cluster.add_job(podReplacementPolicy=policy)
    cluster.run()
    cluster.store.delete_object("pods", "post", cluster.pods[0]["metadata"]["name"])
    counts = []
    for _ in range(19):
        cluster.run(1)
        counts.append(len(cluster.pods))
    assert max(counts) == most_pods
    cluster.run(20)
    assert (len(cluster.pods), cluster.job["failed"]) == (1, 1)


@pytest.mark.parametrize("code", [0, 1])
def test_ended_pod_is_no_endpoint(cluster, code):
    cluster.scripts = [PodScript(run_s=5, exit_code=code)]
    spec = {"selector": {"team": "x"}, "ports": [{"port": 80}]}
    cluster.store.create_object("services", "post", {"metadata": {"name": "front"}, "spec": spec})
    cluster.add_job(backoffLimit=0)
    counts = []
    for seconds in (1, 5):
        cluster.run(seconds)
        (row,) = cluster.store.list_objects("endpointslices")
        counts.append(len(row["endpoints"]))
    assert counts == [1, 0]


def test_a_finished_job_goes_after_its_time(cluster):
    cluster.scripts = [PodScript(run_s=5)]
    cluster.add_job(ttlSecondsAfterFinished=10)
    cluster.run(14)
    assert cluster.list_conditions()[-1][0] == "Complete"
    cluster.run(1)
    assert (cluster.store.list_objects("jobs"), cluster.pods) == ([], [])


def test_the_new_pod_waits_until_the_old_one_is_gone(cluster):
    cluster.scripts = [PodScript(stop_s=10)]
    cluster.add_deployment()
    cluster.run()
    cluster.change_image()
    cluster.run(9)
    assert cluster.images == ["one"]
    cluster.run(1)
    assert cluster.images == ["two"]


def test_a_slice_lists_the_pods_of_its_service(cluster):
    cluster.scripts = [PodScript(ready_after_s=10, stop_s=5)]
    spec = {
        "selector": {"app": "server"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    }
    cluster.store.create_object("services", "post", {"metadata": {"name": "front"}, "spec": spec})
    cluster.add_deployment()
    readiness = []
    for seconds in (1, 10):
        cluster.run(seconds)
        [row] = cluster.store.list_objects(
            "endpointslices", label_selector="kubernetes.io/service-name=front"
        )
        readiness.append(row["endpoints"][0]["conditions"]["ready"])
    assert readiness == [False, True]
    assert row["endpoints"][0]["addresses"] == [cluster.pods[0]["status"]["podIP"]]
    assert row["endpoints"][0]["targetRef"]["uid"] == cluster.pods[0]["metadata"]["uid"]


def test_a_settled_cluster_changes_nothing(cluster):
    cluster.add_deployment()
    cluster.add_job()
    cluster.run(2)
    version = cluster.store.version
    cluster.run(5)
    assert cluster.store.version == version
