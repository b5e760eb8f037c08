"""`upload`: inspected, stored, manifest last; the first whole artifact of a key wins."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from compiled import HOLDER, KEY, TARGET, write_artifact, write_outcome
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from stored_sets import list_files, read_folder

from tandem.artifacts.driver.failure import KINDS
from tandem.artifacts.lease import hold_lease
from tandem.artifacts.manifest import read_stored_manifest

pytestmark = pytest.mark.endpoint
LEASE = f"{KEY.prefix}/tandem-lease.json"


@pytest.fixture(autouse=True)
def artifact(tmp_path):
    """The folder that a compile left, beside the word of its driver."""
    write_outcome(tmp_path / "work")
    return write_artifact(tmp_path / "artifact")


def sizes(store):
    return {row.key: row.size for row in store.list("")}


def test_files_are_stored_below_the_run(store, upload, artifact):
    code, _ = upload()

    manifest = read_stored_manifest(store, KEY.prefix)
    local = read_folder(artifact)
    assert code == 0
    assert manifest.folder.startswith(f"{HOLDER}-")
    assert manifest.files == list_files(artifact)
    assert {
        name: store.read(f"{KEY.prefix}/{manifest.folder}/{name}").body for name in local
    } == local


def test_the_manifest_says_how_it_came_to_be(store, upload, monkeypatch):
    store.create(f"models/{TARGET.replace('@', '/')}/tandem-manifest.json", b"the target's")
    monkeypatch.setenv("TANDEM_UNPROVEN", '["said by the pod", "said by the driver"]')
    upload()

    assert read_stored_manifest(store, KEY.prefix).made == {
        "run": HOLDER,
        "where": "device",
        "attempts": [
            {"class": "transient", "seconds": 3.5},
            {"class": "compiled", "seconds": 12.25},
        ],
        "unproven": ["said by the driver", "said by the pod"],
        "models": {TARGET: hashlib.sha256(b"the target's").hexdigest()},
    }


def test_the_lease_that_fetch_left_is_taken_back(store, upload):
    with hold_lease(store, LEASE, HOLDER, 3600, 0, keep=True):
        pass
    assert (upload()[0], json.loads(store.read(LEASE).body)["state"]) == (0, "released")


def test_a_second_run_sends_nothing_and_says_present(proxy_store, proxy, upload):  # noqa: ARG001
    upload()
    proxy.forget()
    code, lines = upload()

    assert (code, lines[-1]["event"], lines[-1]["made_by"]) == (0, "present", HOLDER)
    assert {request.method for request in proxy.log} == {"GET"}


def test_writer_outrun_at_the_manifest_ends_well(proxy_store, proxy, upload, endpoint, bucket):
    """Somebody who holds no lease writes the manifest in the last moment."""
    upload()
    theirs = proxy_store.read(f"{KEY.prefix}/tandem-manifest.json").body.replace(
        HOLDER.encode(), b"somebody-else"
    )
    proxy_store.delete([f"{KEY.prefix}/tandem-manifest.json"])

    def outrun(moment, request):
        if (
            moment == "asked"
            and request.operation == "PutObject"
            and request.path.endswith("tandem-manifest.json")
        ):
            endpoint.client("s3").put_object(
                Bucket=bucket, Key=f"{KEY.prefix}/tandem-manifest.json", Body=theirs
            )

    proxy.moment_callback = outrun
    code, lines = upload()

    assert (code, lines[-1]["made_by"]) == (0, "somebody-else")


@pytest.fixture
def folder_of(store, upload):
    """Upload as if for the first time; the folder that the manifest names."""

    def act():
        assert upload()[0] == 0
        folder_name = read_stored_manifest(store, KEY.prefix).folder
        store.delete([f"{KEY.prefix}/tandem-manifest.json"])
        return folder_name

    return act


def test_two_pods_of_one_job_write_to_two_folders(folder_of, monkeypatch):
    first = folder_of()
    monkeypatch.setattr("tandem.artifacts.upload.node", lambda: "another-pod")
    second = folder_of()
    assert first != second
    assert re.fullmatch(rf"{HOLDER}-[0-9a-f]{{12}}", second) is not None


def test_restarted_container_continues_in_its_folder(folder_of):
    assert folder_of() == folder_of()


def test_second_compile_of_a_pod_has_another_folder(folder_of, tmp_path):
    first = folder_of()
    write_outcome(tmp_path / "work", began=2.0)
    assert folder_of() != first


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"result": "failed"}, "'failed'"),
        ({"result": "running"}, "'running'"),
        ({"attempts": None}, "no record says"),
    ],
)
def test_what_was_not_compiled_well_is_not_stored(store, upload, tmp_path, changes, words):
    write_outcome(tmp_path / "work", **changes)
    code, lines = upload()
    assert code == 2
    assert words in lines[-1]["event"]
    assert sizes(store) == {}


@pytest.mark.parametrize("kind", ["bad arguments", "transient"])
def test_failed_compile_frees_its_lease_and_keeps_its_code(store, upload, tmp_path, kind):
    with hold_lease(store, LEASE, HOLDER, 3600, 0, keep=True):
        pass
    attempts = [{"kind": kind, "exit": 70, "seconds": 1.0, "line": "what the log says"}]
    write_outcome(tmp_path / "work", result="given up", attempts=attempts)

    code, lines = upload()

    assert (code, lines[-1]["event"]) == (KINDS[kind].code, f"not compiled: {kind}")
    assert (list(sizes(store)), json.loads(store.read(LEASE).body)["state"]) == (
        [LEASE],
        "released",
    )


def test_stuck_lease_hides_no_failure_of_the_compile(proxy_store, proxy, upload, tmp_path):
    with hold_lease(proxy_store, LEASE, HOLDER, 3600, 0, keep=True):
        pass
    attempts = [{"kind": "compiler error", "exit": 70, "seconds": 1.0, "line": "x"}]
    write_outcome(tmp_path / "work", result="given up", attempts=attempts)
    proxy.use(FaultRule(operation="PutObject", fault=ACCESS_DENIED_FAULT))

    code, lines = upload()

    assert (code, [line["event"] for line in lines]) == (
        3,
        ["lease not released", "not compiled: compiler error"],
    )


def test_lost_lease_stops_the_writer_before_its_manifest(proxy_store, proxy, upload, endpoint):
    theirs = b'{"schema_version": 1, "state": "held", "holder": "usurper", "ttl_s": 3600}'

    def usurp(moment, request):
        if moment == "done" and request.path.endswith("model.pt") and request.method == "PUT":
            endpoint.client("s3").put_object(Bucket=proxy_store.bucket, Key=LEASE, Body=theirs)

    proxy.moment_callback = usurp
    code, lines = upload()

    assert code == 3
    assert "the lease was lost" in lines[-1]["event"]
    assert f"{KEY.prefix}/tandem-manifest.json" not in sizes(proxy_store)
    assert proxy_store.read(LEASE).body == theirs
