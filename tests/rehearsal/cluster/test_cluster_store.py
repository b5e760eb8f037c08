"""Objects keep versions and refuse conflicts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rehearsal.cluster.store import ApiError, ObjectStore

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture
def store():
    return ObjectStore(lambda: NOW)


def build_job(**metadata) -> dict:
    template = {"spec": {"containers": [{"name": "main", "image": "one"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "compile", **metadata},
        "spec": {"template": template},
    }


def refuse(call, *arguments, **keywords) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **keywords)
    return caught.value.status, caught.value.reason


def test_server_adds_identity_and_generation(store):
    metadata = store.create_object("jobs", "post", build_job())["metadata"]
    assert (metadata["namespace"], metadata["generation"], metadata["creationTimestamp"]) == (
        "post",
        1,
        "2026-11-24T12:00:00Z",
    )


def test_a_name_that_is_taken_is_refused(store):
    store.create_object("jobs", "post", build_job())
    assert refuse(store.create_object, "jobs", "post", build_job()) == (409, "AlreadyExists")


def test_an_older_version_is_a_conflict(store):
    old = store.create_object("jobs", "post", build_job())
    store.patch_object("jobs", "post", "compile", {"metadata": {"labels": {"a": "b"}}})
    assert refuse(store.replace_object, "jobs", "post", "compile", old) == (409, "Conflict")


def test_a_status_is_changed_by_its_subresource_alone(store):
    store.create_object("jobs", "post", build_job())
    assert "status" not in store.patch_object("jobs", "post", "compile", {"status": {"active": 1}})


def test_a_jobs_template_never_changes(store):
    store.create_object("jobs", "post", build_job())
    patch = {"spec": {"template": {"spec": {"containers": []}}}}
    assert refuse(store.patch_object, "jobs", "post", "compile", patch) == (422, "Invalid")


def add_pod(store, phase: str = "Running", **metadata) -> None:
    body = {
        "metadata": {"name": "server", **metadata},
        "spec": {"nodeName": "node"},
        "status": {"phase": phase},
    }
    store.create_object("pods", "post", body)


def test_pod_on_a_node_stays_until_its_kubelet_has_stopped_it(store):
    add_pod(store)
    store.delete_object("pods", "post", "server")
    assert (
        store.get_object("pods", "post", "server")["metadata"]["deletionGracePeriodSeconds"] == 30
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_is_removed_at_once(store, phase):
    add_pod(store, phase)
    store.delete_object("pods", "post", "server")
    assert store.list_objects("pods") == []


def test_finalizer_keeps_a_removed_pod_until_it_goes(store):
    add_pod(store, finalizers=["batch.kubernetes.io/job-tracking"])
    store.delete_object("pods", "post", "server", grace_s=0)
    assert len(store.list_objects("pods")) == 1
    store.patch_object("pods", "post", "server", {"metadata": {"finalizers": None}})
    assert store.list_objects("pods") == []
