"""`collect` at a bucket: in which order it deletes, what an interruption leaves, what it never
touches."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule, StatusFault
from stored_sets import MODEL, keys, put, put_lease, put_set

from tandem.artifacts import gc as module
from tandem.artifacts.gc import execute_plan, has_versioning, plan_removals
from tandem.artifacts.inventory import read_inventory
from tandem.artifacts.lease import hold_lease
from tandem.errors import ExternalError

pytestmark = pytest.mark.endpoint
KEY = "artifacts/tiny-000000000000"
LEASE = f"{KEY}/tandem-lease.json"


def later(store):
    """A time for which everything is old."""
    return store.now() + timedelta(days=1)


def collect(store, *used):
    """Delete all that is not used; what became of each."""
    plan = plan_removals(read_inventory(store, with_uploads=True), used, later(store))
    return [outcome for _, outcome in execute_plan(store, plan, used, later(store))]


def test_a_set_that_nobody_uses_is_gone_altogether(store):
    put_set(store, KEY, "run")
    put_set(store, MODEL)
    assert (collect(store), keys(store)) == (["deleted", "deleted"], set())


def test_the_manifest_goes_first_and_the_lease_last(proxy_store, proxy):
    put_set(proxy_store, KEY, "run")
    proxy.forget()

    collect(proxy_store)

    deletes = [request for request in proxy.log if request.operation.startswith("Delete")]
    assert [request.operation for request in deletes] == [
        "DeleteObjects",
        "DeleteObjects",
        "DeleteObject",
    ]
    assert deletes[-1].path == f"/{proxy_store.bucket}/{LEASE}"


@pytest.mark.parametrize("operation", ["DeleteObjects", "DeleteObject"])
@pytest.mark.parametrize("skip", [0, 1])
def test_an_interrupted_collect_is_finished_by_the_next(proxy_store, proxy, operation, skip):
    put_set(proxy_store, KEY, "run")
    proxy.use(FaultRule(operation=operation, skip=skip, fault=ACCESS_DENIED_FAULT))
    try:
        collect(proxy_store)
    except ExternalError:
        proxy.use()
        collect(proxy_store)

    assert keys(proxy_store) == set()


def test_lease_of_a_dead_collect_stops_no_other(store, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 5)
    monkeypatch.setattr("tandem.artifacts.lease.POLL_S", 0.1)
    put_set(store, KEY, "run")
    put_lease(store, KEY, is_held=True, holder="collect-dead", ttl_s=1)
    assert (collect(store), keys(store)) == (["deleted"], set())


def test_a_set_that_a_job_took_since_stays(store):
    put_set(store, KEY, "run")
    plan = plan_removals(read_inventory(store, with_uploads=True), (), later(store))

    with hold_lease(store, LEASE, "compile-1", 600, 0):
        (outcome,) = [outcome for _, outcome in execute_plan(store, plan, (), later(store))]

    assert outcome[:30] == "kept: it is held by compile-1 "
    assert f"{KEY}/tandem-manifest.json" in keys(store)


def test_a_set_that_was_written_to_since_stays(store):
    put_set(store, KEY, "run")
    cutoff = store.now() - timedelta(days=30)
    plan = plan_removals(read_inventory(store, with_uploads=True), (), later(store))

    outcomes = [outcome for _, outcome in execute_plan(store, plan, (), cutoff)]

    assert outcomes == ["kept: it was written to since"]
    assert f"{KEY}/tandem-manifest.json" in keys(store)


def test_runs_that_lost_go_and_the_one_that_won_stays(store):
    manifest = put_set(store, KEY, "won")
    put(store, f"{KEY}/lost/a")

    collect(store, "tiny-000000000000")

    assert keys(store) == {
        LEASE,
        f"{KEY}/tandem-manifest.json",
        *(f"{KEY}/won/{file.path}" for file in manifest.files),
    }


def test_broken_uploads_of_what_tandem_wrote_are_aborted_alone(store):
    put_set(store, MODEL)
    others = {"elsewhere/big", "models/org/other/main/big", "big"}
    for key in (f"{MODEL}/big", *others):
        store.client.create_multipart_upload(Bucket=store.bucket, Key=key)
    collect(store, "org/name@main")
    left = store.client.list_multipart_uploads(Bucket=store.bucket)["Uploads"]
    assert {upload["Key"] for upload in left} == others


@pytest.mark.parametrize(
    "key",
    [
        "elsewhere/org/name/main/tandem-manifest.json",
        "models/org/name/readme.txt",
        "artifactsx/tiny-000000000000/tandem-lease.json",
        "models/mine/own/folder/file",
        "artifacts/own-folder/file",
        "tandem-manifest.json",
    ],
)
def test_what_is_not_tandems_is_never_touched(store, key):
    put_set(store, KEY, "run")
    put(store, key)
    collect(store)
    assert keys(store) == {key}


def test_keys_of_another_set_are_never_handed_to_s3(store):
    with hold_lease(store, "lease", "me", 60, 0) as lease, pytest.raises(AssertionError):
        module._delete_objects(store, lease, KEY, [f"{KEY}/a", "artifacts/tiny-000000000001/a"])


@pytest.mark.parametrize(
    ("status", "is_kept"), [("Enabled", True), ("Suspended", True), (None, False)]
)
def test_a_bucket_that_keeps_versions_is_known(store, status, is_kept):
    if status:
        store.client.put_bucket_versioning(
            Bucket=store.bucket, VersioningConfiguration={"Status": status}
        )
    assert has_versioning(store) is is_kept


def test_a_collect_that_slept_in_the_middle_deletes_no_further(proxy_store, proxy, monkeypatch):
    put_set(proxy_store, KEY, "run")
    monkeypatch.setattr(module.s3, "DELETE_BATCH", 1)
    awake = time.monotonic
    deletes = []

    def sleep(moment, request):
        deletes.extend(
            [request] if (moment, request.operation) == ("done", "DeleteObjects") else []
        )
        if len(deletes) == 2:  # the manifest, and one file
            monkeypatch.setattr(time, "clock_gettime", lambda _clock: awake() + 3600)

    monkeypatch.setattr(time, "clock_gettime", lambda _clock: awake())
    proxy.moment_callback = sleep
    with pytest.raises(ExternalError, match=r"the lease was lost.* while the set was deleted"):
        collect(proxy_store)

    left = keys(proxy_store)
    assert len([key for key in left if key.startswith(f"{KEY}/run/")]) == 1
    assert f"{KEY}/tandem-manifest.json" not in left


def test_lease_under_a_conflict_is_left_to_the_next_collect(proxy_store, proxy):
    put_set(proxy_store, KEY, "run")
    proxy.use(
        FaultRule(
            operation="DeleteObject",
            fault=StatusFault(status=409, code="ConditionalRequestConflict"),
            times=1,
        )
    )

    assert (collect(proxy_store), keys(proxy_store)) == (["deleted"], {LEASE})
    assert (collect(proxy_store), keys(proxy_store)) == (["deleted"], set())
