"""One holder at a time: by conditional writes, by S3's clock, and the one who lost it knows."""

from __future__ import annotations

import json
import threading
import time
from argparse import ArgumentTypeError
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from doubles.fault_proxy.rules import AnswerLossFault, DropFault, FaultRule

from tandem.artifacts.lease import (
    LeaseConflictError,
    hold_lease,
    parse_lease,
    parse_ttl_s,
    release_lease,
)
from tandem.artifacts.store import ObjectContent
from tandem.errors import ExternalError, InputError, SchemaError

KEY = "models/o/n/r/tandem-lease.json"
OTHER = b'{"schema_version": 1, "state": "held", "holder": "job-b", "ttl_s": 600}'
AT = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def state(store):
    return json.loads(store.read(KEY).body)


@pytest.fixture
def later(monkeypatch):
    """Let S3's clock run ahead by so many seconds: of its answers alone, as no time passes here."""
    ahead = [0.0]
    real = parse_lease

    def shifted(lease_object, where):
        now = lease_object.read_at + timedelta(seconds=ahead[0])
        return real(replace(lease_object, read_at=now), where)

    monkeypatch.setattr("tandem.artifacts.lease.parse_lease", shifted)
    return lambda seconds: ahead.__setitem__(0, seconds)


@pytest.mark.endpoint
def test_a_free_lease_is_taken_and_released(store):
    with hold_lease(store, KEY, "job-a", 60, 0) as lease:
        lease.check()
        held = state(store)
        assert (held["state"], held["holder"]) == ("held", "job-a")
    assert state(store)["state"] == "released"


@pytest.mark.endpoint
def test_a_held_lease_says_who_has_it_and_until_when(store):
    with hold_lease(store, KEY, "job-a", 60, 0):
        with (
            pytest.raises(
                LeaseConflictError,
                match=r"it is held by job-a until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
            ),
            hold_lease(store, KEY, "job-b", 60, 0),
        ):
            pass
        assert state(store)["holder"] == "job-a"


@pytest.mark.endpoint
def test_one_who_waits_gets_it_after_the_release(store, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.lease.POLL_S", 0.05)
    with ExitStack() as stack:
        stack.enter_context(hold_lease(store, KEY, "job-a", 60, 0))
        threading.Timer(0.2, stack.close).start()
        with hold_lease(store, KEY, "job-b", 60, 30):
            assert state(store)["holder"] == "job-b"


@pytest.mark.endpoint
def test_the_same_holder_takes_it_back_at_once(store):
    with hold_lease(store, KEY, "job-a", 3600, 0, keep=True):
        pass
    assert state(store)["state"] == "held"

    with hold_lease(store, KEY, "job-a", 60, 0) as lease:
        lease.check()
    assert state(store)["state"] == "released"


@pytest.mark.endpoint
def test_an_expired_lease_is_taken_over(store, later):
    with hold_lease(store, KEY, "dead", 60, 0, keep=True):
        pass
    later(63)
    with hold_lease(store, KEY, "job-b", 60, 0) as lease:
        lease.check()
        assert state(store)["holder"] == "job-b"


@pytest.mark.endpoint
def test_the_heartbeat_finds_out_that_it_was_taken_over(store):
    with hold_lease(store, KEY, "slow", 0.6, 0) as slow:
        there = store.read(KEY)
        while not store.write_if(KEY, OTHER, there.etag):
            there = store.read(KEY)
        slow.renewal.join(10)
        with pytest.raises(LeaseConflictError, match="lost"):
            slow.check()


@pytest.mark.endpoint
def test_a_confirmed_lease_is_one_that_s3_still_has(store):
    with hold_lease(store, KEY, "job-a", 60, 0) as lease:
        lease.confirm()
        there = store.read(KEY)
        store.write_if(KEY, OTHER, there.etag)
        lease.check()  # which knows what the last heartbeat knew
        with pytest.raises(LeaseConflictError, match="another writer has it"):
            lease.confirm()


@pytest.mark.endpoint
def test_lease_of_a_dead_process_of_ours_is_released(store):
    with hold_lease(store, KEY, "job-a", 3600, 0, keep=True):
        pass
    release_lease(store, KEY, "job-b")
    assert state(store)["state"] == "held"

    release_lease(store, KEY, "job-a")
    release_lease(store, "models/no/such/lease", "job-a")
    assert state(store)["state"] == "released"


@pytest.mark.endpoint
def test_a_heartbeat_keeps_it(store):
    with hold_lease(store, KEY, "job-a", 0.9, 0) as lease:
        before = store.read(KEY).etag
        time.sleep(1.5)
        lease.check()
        assert store.read(KEY).etag != before


@pytest.mark.endpoint
def test_a_holder_that_cannot_renew_stops_in_time(proxy_store, proxy):
    with hold_lease(proxy_store, KEY, "job-a", 0.5, 0) as lease:
        proxy.use(FaultRule(operation="PutObject", fault=DropFault()))
        time.sleep(0.6)
        with pytest.raises(LeaseConflictError, match=r"could not be renewed within 0\.5 s"):
            lease.check()
        proxy.use()


@pytest.mark.endpoint
def test_a_release_that_fails_is_no_error(proxy_store, proxy):
    with hold_lease(proxy_store, KEY, "job-a", 60, 0):
        proxy.use(FaultRule(operation="PutObject", fault=DropFault()))
    proxy.use()
    assert state(proxy_store)["state"] == "held"


@pytest.mark.endpoint
def test_of_many_at_once_one_holds_it_at_a_time(store, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.lease.POLL_S", 0.02)
    inside = []
    most = []

    def act(number):
        with hold_lease(store, KEY, f"job-{number}", 60, 60):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(act, range(5)))
    assert most == [1] * 5


def lease_of(now_s, **changes):
    plain = {"schema_version": 1, "state": "held", "holder": "job-a", "ttl_s": 60} | changes
    return ObjectContent(
        body=json.dumps(plain).encode(),
        etag="e",
        modified_at=AT,
        read_at=AT + timedelta(seconds=now_s),
    )


@pytest.mark.parametrize(
    ("now_s", "is_held"), [(0, True), (60, True), (61, True), (62, False), (600, False)]
)
def test_lease_ends_by_s3s_clock_with_its_rounding(now_s, is_held):
    assert parse_lease(lease_of(now_s), "").is_active is is_held


@pytest.mark.parametrize(
    "changes", [{"state": "lent"}, {"ttl_s": "soon"}, {"ttl_s": 1e400}], ids=str
)
def test_what_is_no_lease_is_refused(changes):
    with pytest.raises(InputError, match="s3://b/k: this is not a lease"):
        parse_lease(lease_of(0, **changes), "s3://b/k")


@pytest.mark.parametrize("version", [0, 2])
def test_a_lease_of_another_schema_is_refused_with_both(version):
    with pytest.raises(
        SchemaError,
        match=f"s3://b/k: the lease has schema {version}; this version of Tandem reads schema 1",
    ):
        parse_lease(lease_of(0, schema_version=version), "s3://b/k")


@pytest.mark.endpoint
def test_unanswered_renewal_is_known_as_ours(proxy_store, proxy):
    with hold_lease(proxy_store, KEY, "job-a", 60, 0) as lease:
        proxy.use(
            FaultRule(operation="PutObject", fault=AnswerLossFault(), times=1),
            FaultRule(operation="PutObject", fault=DropFault()),
        )
        with pytest.raises(ExternalError, match="the connection ended"):
            lease.confirm()
        proxy.use()
        lease.confirm()
    assert state(proxy_store)["state"] == "released"


@pytest.mark.endpoint
def test_machine_that_slept_has_lost_its_lease(store, monkeypatch):
    awake = time.monotonic
    slept = [0.0]
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: awake() + slept[0])
    with hold_lease(store, KEY, "laptop", 60, 0) as lease:
        lease.check()
        slept[0] = 61.0
        with pytest.raises(LeaseConflictError, match="could not be renewed"):
            lease.check()


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "2592001", "x"])
def test_length_that_no_lease_has_is_refused(seconds):
    with pytest.raises(ArgumentTypeError, match="seconds, more than 0 and at most 2592000"):
        parse_ttl_s(seconds)
