"""A snapshot on a hub, over real HTTP: what is received is what the hub lists, or it is not
received."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest
from doubles.fault_proxy.rules import (
    AnswerCorruptionFault,
    AnswerCutFault,
    FaultRule,
    SlowAnswerFault,
    StatusFault,
)
from doubles.hub.server import LocalHub
from staging_inputs import COMMIT, MODEL, OTHER, TOKEN, listing, plain_hub, snapshot

from rehearsal.hub.connection import HubAccess
from tandem.artifacts import hub as hub_module
from tandem.artifacts.hub import read_hub_address, resolve_snapshot
from tandem.artifacts.hub_secret import SECRET_NAME_VARIABLE
from tandem.errors import ExternalError, InputError

SHARD = "model-00002-of-00004.safetensors"
STRANGER = "hf_stranger_stranger"
ACCESS = HubAccess(
    tokens=frozenset({TOKEN}),
    unauthorized_tokens=frozenset({STRANGER}),
    gated_repositories=frozenset({"acme/gated"}),
    private_repositories=frozenset({"acme/private"}),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("hub")
    for name in (MODEL, "acme/gated", "acme/private"):
        snapshot(top / name / COMMIT)
    return top


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch):
    """No secret is declared, unless a test says other."""
    monkeypatch.delenv(SECRET_NAME_VARIABLE, raising=False)


@pytest.fixture
def hub(folder, monkeypatch):
    monkeypatch.setattr(hub_module, "FIRST_WAIT_S", 0.01)
    with LocalHub(folder, access=ACCESS) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def hub_snapshot(hub, tmp_path):
    source = resolve_snapshot(MODEL, COMMIT, tmp_path / "work")
    hub.forget()
    return source


def received(source, name):
    path, sha256 = source.receive(source.entries[name])
    body = path.read_bytes()
    assert hashlib.sha256(body).hexdigest() == sha256
    return body


def resolved_and_received(work, name, model=MODEL):
    source = resolve_snapshot(model, COMMIT, work)
    return received(source, name)


def with_secret(monkeypatch, value):
    monkeypatch.setenv(SECRET_NAME_VARIABLE, "hub-token")
    monkeypatch.setattr(hub_module, "read_token", lambda _name: value)


@pytest.fixture
def unread_secret(monkeypatch):
    """A declared secret that nobody may read."""
    monkeypatch.setenv(SECRET_NAME_VARIABLE, "hub-token")
    monkeypatch.setattr(hub_module, "read_token", lambda _name: pytest.fail("the secret was read"))


@pytest.mark.parametrize("name", ["config.json", SHARD])  # by git's sum, by SHA-256
def test_a_corrupted_download_is_thrown_away_and_fetched_again(
    hub, hub_snapshot, folder, name, log_lines
):
    hub.use(FaultRule(path=f"*/{COMMIT}/{name}", fault=AnswerCorruptionFault(), times=2))
    assert received(hub_snapshot, name) == (folder / MODEL / COMMIT / name).read_bytes()
    assert "content is not what the hub lists, thrown away" in {
        line["event"] for line in log_lines()
    }


def test_corrupt_download_is_given_up_after_three(hub, hub_snapshot):
    hub.use(FaultRule(path=f"/cdn/*/{SHARD}", fault=AnswerCorruptionFault()))

    with pytest.raises(ExternalError, match=SHARD):
        received(hub_snapshot, SHARD)

    assert len([request for request in hub.log if request.path.startswith("/cdn/")]) == 3
    assert not (hub_snapshot.folder / SHARD).exists()


def test_download_that_is_cut_goes_on_at_the_same_byte(hub, hub_snapshot):
    hub.use(FaultRule(path=f"/cdn/*/{SHARD}", fault=AnswerCutFault(after=10_000), times=1))
    body = received(hub_snapshot, SHARD)
    assert [
        request.headers.get("range") for request in hub.log if request.path.startswith("/cdn/")
    ] == [
        None,
        "bytes=10000-",
    ]
    assert hub.count_file_bytes(SHARD) <= len(body)


@pytest.mark.parametrize(
    "left", [b"x" * 5000, b"x" * 29_912, b"x" * 90_000], ids=["short", "as long", "longer"]
)
def test_a_local_file_of_other_bytes_is_thrown_away(hub_snapshot, folder, left):
    hub_snapshot.folder.mkdir(parents=True)
    (hub_snapshot.folder / SHARD).write_bytes(left)
    assert received(hub_snapshot, SHARD) == (folder / MODEL / COMMIT / SHARD).read_bytes()


def test_check_ends_a_download_after_a_piece(hub, hub_snapshot):
    hub.use(FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=100_000)))

    def refuse():
        raise ExternalError("the lease was lost", change="x")

    with pytest.raises(ExternalError, match="the lease was lost"):
        hub_snapshot.receive(hub_snapshot.entries[SHARD], refuse)

    assert (hub_snapshot.folder / SHARD).stat().st_size < hub_snapshot.entries[SHARD].size


def test_an_answer_that_never_ends_does_not_fill_the_disk(tmp_path):
    model_listing = listing([{"rfilename": "config.json", "size": 10, "blobId": "0" * 40}])
    endless = b"x" * (32 << 20)
    with plain_hub(
        lambda path, _: (200, {}, model_listing if path.startswith("/api/") else endless)
    ):
        source = resolve_snapshot(MODEL, COMMIT, tmp_path)
        sizes = list[int]()
        path = source.folder / "config.json"

        with pytest.raises(ExternalError, match=r"config\.json"):
            source.receive(source.entries["config.json"], lambda: sizes.append(path.stat().st_size))

    assert sum(sizes) < len(endless) // 10  # of all three fetches


@pytest.mark.parametrize("path", ["/api/*", "/cdn/*"])
def test_what_does_not_pass_is_given_up_after_five_tries(hub, tmp_path, path):
    hub.use(FaultRule(path=path, fault=StatusFault(status=502, code="x")))

    with pytest.raises(ExternalError, match="502, asked 5 times") as caught:
        resolved_and_received(tmp_path, SHARD)

    assert "--from" in caught.value.change
    assert len([request for request in hub.log if request.status == 502]) == 5


def test_tries_begin_anew_when_bytes_came(hub, hub_snapshot, folder):
    hub.use(FaultRule(path=f"/cdn/*/{SHARD}", fault=AnswerCutFault(after=2_000), times=9))
    assert received(hub_snapshot, SHARD) == (folder / MODEL / COMMIT / SHARD).read_bytes()


def throttled(times, headers):
    model_listing = listing([])
    return lambda _path, count: (429, headers, b"") if count <= times else (200, {}, model_listing)


@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "1"}, {"RateLimit": '"api";r=0;t=0'}],
    ids=["retry-after", "rate limit"],
)
def test_a_hub_that_asks_to_wait_is_waited_for(monkeypatch, tmp_path, log_lines, headers):
    slept: list[float] = []
    monkeypatch.setattr("tandem.artifacts.retry.time.sleep", slept.append)
    with plain_hub(throttled(1, headers)):
        resolve_snapshot(MODEL, COMMIT, tmp_path)

    assert [line["wait_s"] for line in log_lines() if line["event"] == "trying again"] == [1.0]
    assert 1.0 in slept


def test_hub_that_asks_to_wait_for_hours_is_a_fault(tmp_path):
    with (
        plain_hub(throttled(9, {"Retry-After": "7200"})),
        pytest.raises(ExternalError, match="asks to wait 7200 seconds"),
    ):
        resolve_snapshot(MODEL, COMMIT, tmp_path)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("model", "revision", "words"),
    [
        (MODEL, OTHER, f"no revision {OTHER}"),
        ("acme/nothing", COMMIT, "the hub has no model acme/nothing, or it is private"),
        ("acme/a--b", COMMIT, "not the name of a model"),
    ],
    ids=["revision", "model", "two hyphens"],
)
def test_what_the_hub_does_not_have_is_refused_by_name(tmp_path, model, revision, words):
    with pytest.raises(InputError, match=words):
        resolve_snapshot(model, revision, tmp_path)


@pytest.mark.parametrize(
    ("body", "model_listing"),
    [
        (listing([], sha=OTHER), f"answers with the commit {OTHER}"),
        (listing([{"rfilename": "config.json"}]), "config.json without size or checksum"),
        (listing(["config.json"]), "the answer is not from a hub"),
        (b"<html>log in</html>", "the answer is not from a hub"),
    ],
    ids=["another commit", "no checksum", "no files", "login page"],
)
def test_an_answer_that_no_hub_gives_is_a_fault(tmp_path, body, model_listing):
    with (
        plain_hub(lambda _path, _count: (200, {}, body)),
        pytest.raises(ExternalError, match=model_listing),
    ):
        resolve_snapshot(MODEL, COMMIT, tmp_path)


@pytest.mark.parametrize("path", ["../up.json", "/etc/config.json", "bell\a.json"])
def test_a_listed_path_that_leaves_its_folder_is_refused(tmp_path, path):
    model_listing = listing([{"rfilename": path, "size": 1, "blobId": "0" * 40}])
    with plain_hub(lambda _path, _count: (200, {}, model_listing)), pytest.raises(InputError):
        resolve_snapshot(MODEL, COMMIT, tmp_path)


@pytest.mark.parametrize("gates_metadata", [True, False])
def test_a_gated_model_without_a_secret_says_page_and_variable(
    folder, monkeypatch, tmp_path, *, gates_metadata
):
    access = HubAccess(gated_repositories=ACCESS.gated_repositories, gates_metadata=gates_metadata)
    with LocalHub(folder, access=access) as gate:
        monkeypatch.setenv("HF_ENDPOINT", gate.url)
        with pytest.raises(InputError, match="gated and no token was sent") as caught:
            resolved_and_received(tmp_path, "config.json", "acme/gated")

    assert f"{gate.url}/acme/gated" in caught.value.change
    assert SECRET_NAME_VARIABLE in caught.value.change


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("model", ["acme/gated", "acme/private"])
def test_a_token_opens_a_closed_model(monkeypatch, tmp_path, folder, model):
    with_secret(monkeypatch, TOKEN)
    body = resolved_and_received(tmp_path, SHARD, model)
    assert body == (folder / model / COMMIT / SHARD).read_bytes()


def test_gated_model_of_an_open_mirror_needs_no_secret(tmp_path):
    body = b"{}"
    blob = hashlib.sha1(b"blob 2\0{}", usedforsecurity=False).hexdigest()
    model_listing = listing(
        [{"rfilename": "config.json", "size": 2, "blobId": blob}], gated="manual"
    )
    with plain_hub(lambda path, _: (200, {}, model_listing if path.startswith("/api/") else body)):
        assert resolved_and_received(tmp_path, "config.json") == body


def test_token_does_not_follow_a_redirect(hub, monkeypatch, tmp_path):
    with_secret(monkeypatch, TOKEN)
    source = resolve_snapshot("acme/gated", COMMIT, tmp_path)
    hub.forget()

    received(source, SHARD)

    assert [
        ("authorization" in request.headers, request.path.split("/")[1]) for request in hub.log
    ] == [
        (True, "acme"),
        (False, "cdn"),
    ]


def test_token_without_the_licence_is_told_to_accept_it(hub, monkeypatch, tmp_path):
    with_secret(monkeypatch, STRANGER)
    source = resolve_snapshot("acme/gated", COMMIT, tmp_path)

    with pytest.raises(
        InputError, match="the token in the secret hub-token does not open it"
    ) as caught:
        received(source, SHARD)

    assert f"accept the licence at {hub.url}/acme/gated" in caught.value.change
    assert STRANGER not in str(caught.value)


@pytest.mark.usefixtures("hub")
def test_unknown_token_is_named_by_its_secret(monkeypatch, tmp_path):
    with_secret(monkeypatch, "hf_nobody_knows_me")
    with pytest.raises(
        InputError, match="does not accept the token in the secret hub-token"
    ) as caught:
        resolve_snapshot("acme/gated", COMMIT, tmp_path)
    assert "hf_nobody_knows_me" not in str(caught.value)


@pytest.mark.usefixtures("unread_secret")
def test_an_open_model_is_sent_neither_the_secret_nor_a_token(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    resolved_and_received(tmp_path, SHARD)
    assert not any("authorization" in request.headers for request in hub.log)


@pytest.mark.usefixtures("unread_secret")
def test_a_token_is_not_sent_over_plain_http(monkeypatch, tmp_path):
    def refuse(_query):
        raise hub_module.HubAccessError("gated", change="x")

    monkeypatch.setenv("HF_ENDPOINT", "http://hub.internal")
    monkeypatch.setattr(hub_module, "_request_model_info", refuse)

    with pytest.raises(InputError, match="not sent over plain http"):
        resolve_snapshot(MODEL, COMMIT, tmp_path)


@pytest.mark.parametrize("model_listing", ["hub.internal", "ftp://hub.internal", "https://"])
def test_an_endpoint_that_is_no_address_is_refused(monkeypatch, model_listing):
    monkeypatch.setenv("HF_ENDPOINT", model_listing)
    with pytest.raises(InputError, match="not an http URL"):
        read_hub_address()


def test_an_endpoint_with_a_password_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://me:sesame@hub.internal")
    with pytest.raises(InputError) as caught:
        read_hub_address()
    assert "sesame" not in str(caught.value)


def test_a_disk_that_fills_up_names_the_file(hub_snapshot):
    hub_snapshot.folder.mkdir(parents=True)
    (hub_snapshot.folder / SHARD).symlink_to("/dev/full")  # a real ENOSPC
    with pytest.raises(ExternalError, match="the disk is full") as caught:
        received(hub_snapshot, SHARD)
    assert caught.value.where.endswith(SHARD)


def test_full_disk_is_refused_before_any_request(hub, hub_snapshot, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=1000))
    with pytest.raises(ExternalError, match=f"{SHARD} needs 29912 bytes on this disk"):
        received(hub_snapshot, SHARD)
    assert hub.log == ()
