"""What a late act left behind a run's end: the live runner removes it, and nothing of anybody
else."""

from __future__ import annotations

import pytest
from virtual_world import BASELINE, FULL_BUCKET, NAMESPACE, RUN, VirtualWorld, reach

from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.run.jobs import RUN_LABEL

BEAT_LOOKS = 3


def put_job(world, name, labels):
    """Make a Job that no controller looks at."""
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": {}}},
    }
    world.store.create_object("jobs", NAMESPACE, body)


def list_jobs(world):
    return [
        job["metadata"]["name"]
        for job in world.store.list_objects("jobs")
        if not job["metadata"].get("deletionTimestamp")
    ]


def look_on(world):
    for _ in range(BEAT_LOOKS):
        world.look()


@pytest.fixture
def idle_world():
    """A world whose run is judged."""
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask()
    assert world.live()["state"] == "judged"
    return world


def scale_up(world):
    world.api.scale_deployment(NAMESPACE, BASELINE, 1)


def read_replicas(world):
    return world.store.view_object("deployments", NAMESPACE, BASELINE)["spec"]["replicas"]


def test_a_job_of_a_run_that_is_over_is_deleted(idle_world):
    put_job(idle_world, "late", {RUN_LABEL: RUN})
    look_on(idle_world)
    assert list_jobs(idle_world) == []


def test_a_job_of_nobody_stays(idle_world):
    put_job(idle_world, "by-hand", {})
    look_on(idle_world)
    assert list_jobs(idle_world) == ["by-hand"]


def test_job_of_another_run_is_deleted():
    world = reach("round-")
    put_job(world, "late", {RUN_LABEL: "former"})
    look_on(world)
    jobs = list_jobs(world)
    assert "late" not in jobs
    assert jobs


def test_server_without_a_lease_is_set_to_zero(idle_world):
    scale_up(idle_world)
    look_on(idle_world)
    assert read_replicas(idle_world) == 0


def test_a_server_under_a_lease_by_hand_stays(idle_world):
    guard = idle_world.runner.world.guard
    request = RaiseRequest(
        run="by-hand", hours=1, nodes=1, experiment="post", node_labels={}, who="anna"
    )
    raise_fleet(idle_world.account.clients, guard, request, idle_world.account.now)
    scale_up(idle_world)
    look_on(idle_world)
    assert read_replicas(idle_world) == 1


def test_a_server_of_an_experiment_that_never_ran_stays():
    world = VirtualWorld(stored=FULL_BUCKET)
    scale_up(world)
    look_on(world)
    assert read_replicas(world) == 1
