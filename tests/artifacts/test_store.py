"""The bucket: conditional writes that believe only what they read back, and what is not there told
from denied."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import Mock

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    AnswerLossFault,
    DropFault,
    FaultRule,
    StatusFault,
)

from tandem.artifacts.store import ObjectStore, open_store
from tandem.errors import ExternalError, InputError

pytestmark = pytest.mark.endpoint
CONFLICT = StatusFault(status=409, code="ConditionalRequestConflict")


def test_a_second_write_counts_as_ours_with_the_same_bytes_alone(store):
    writes = [store.create("models/m", body) for body in (b"first", b"first", b"second")]
    assert (writes, store.read("models/m").body) == ([True, True, False], b"first")


@pytest.mark.parametrize("etag", [False, True], ids=["create", "replace"])
def test_a_write_whose_answer_was_lost_is_ours(proxy_store, proxy, etag):
    if etag:
        proxy_store.create("models/m", b"old")
    old = proxy_store.read("models/m").etag if etag else None
    proxy.use(FaultRule(operation="PutObject", fault=AnswerLossFault(), times=1))

    done = (
        proxy_store.write_if("models/m", b"ours", old) is not None
        if etag
        else proxy_store.create("models/m", b"ours")
    )

    assert done
    assert [request.status for request in proxy.requests("PutObject")][-2:] == [200, 412]


def test_unanswered_write_that_was_outrun_is_not_ours(proxy_store, proxy, endpoint, bucket):
    def outrun(moment, request):
        if moment == "done" and request.operation == "PutObject":
            proxy.moment_callback = None
            endpoint.client("s3").put_object(Bucket=bucket, Key="models/m", Body=b"theirs")

    proxy.moment_callback = outrun
    proxy.use(FaultRule(operation="PutObject", fault=AnswerLossFault(), times=1))

    assert not proxy_store.create("models/m", b"ours")


def test_a_conflict_with_another_write_is_tried_again(proxy_store, proxy):
    proxy.use(FaultRule(operation="PutObject", fault=CONFLICT, times=3))
    assert proxy_store.create("models/m", b"{}")
    assert proxy_store.read("models/m").body == b"{}"


def test_an_object_that_has_changed_is_not_replaced(store):
    store.create("models/m", b"old")
    etag = store.read("models/m").etag
    store.write_if("models/m", b"new", etag)
    assert (store.write_if("models/m", b"late", etag), store.read("models/m").body) == (
        None,
        b"new",
    )


def test_an_object_that_is_gone_is_not_replaced(store):
    store.create("models/m", b"old")
    etag = store.read("models/m").etag
    store.delete(["models/m"])
    assert (store.write_if("models/m", b"late", etag), store.read("models/m")) == (None, None)


@pytest.mark.parametrize("operation", ["HeadObject", "GetObject"])
def test_denied_object_that_is_not_listed_is_absent(proxy_store, proxy, operation):
    """An identity that may list a prefix only gets 403 for a missing object."""
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))
    assert (proxy_store.head if operation == "HeadObject" else proxy_store.read)("models/m") is None


@pytest.mark.parametrize("operation", ["HeadObject", "GetObject"])
def test_a_denied_answer_for_what_is_listed_is_a_fault(proxy_store, proxy, operation):
    proxy_store.create("models/m", b"{}")
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))
    with pytest.raises(ExternalError, match="allow s3:GetObject for"):
        (proxy_store.head if operation == "HeadObject" else proxy_store.read)("models/m")


def test_a_listing_has_every_page(store, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PAGE_ROWS", 2)
    for number in range(5):
        store.create(f"models/{number}", b"x" * number)
    assert [(row.key, row.size) for row in store.list("models/")] == [
        (f"models/{n}", n) for n in range(5)
    ]


def test_the_time_is_of_the_service(store):
    store.create("models/m", b"{}")
    content = store.read("models/m")
    assert timedelta(0) <= content.read_at - content.modified_at < timedelta(seconds=30)
    assert abs(store.now() - content.read_at) < timedelta(seconds=30)


def test_a_connection_that_always_drops_is_told_with_the_object(proxy_store, proxy):
    proxy.use(FaultRule(fault=DropFault()))
    with pytest.raises(
        ExternalError, match=f"s3://{proxy_store.bucket}/models/m: .*run the same command again"
    ):
        proxy_store.read("models/m")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("variable", "value"), [("AWS_PROFILE", "nobody"), ("AWS_MAX_ATTEMPTS", "many")]
)
def test_a_setting_that_cannot_be_is_bad_input(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=f"{value}.*{variable}"):
        open_store("some-bucket")


@pytest.mark.parametrize(
    ("code", "words"), [("SlowDown", "at every try"), ("AccessDenied", "is denied")]
)
def test_a_key_that_s3_does_not_delete_is_named(code, words):
    client = Mock()
    client.delete_objects.return_value = {"Errors": [{"Key": "b", "Code": code, "Message": "said"}]}
    with pytest.raises(ExternalError, match=rf"^s3://bucket/b: .*{words}"):
        ObjectStore("bucket", client).delete(["a", "b"])
