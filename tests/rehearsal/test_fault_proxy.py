"""The fault proxy in front of a plain HTTP server: what passes passes unchanged, and every fault
has its effect."""

from __future__ import annotations

import http.client
from functools import partial
from http.server import BaseHTTPRequestHandler

import pytest
from doubles import loopback
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.rules import (
    INTERNAL_ERROR_FAULT,
    AnswerCorruptionFault,
    AnswerCutFault,
    AnswerLossFault,
    DropFault,
    FaultRule,
)

PAYLOAD = bytes(range(256)) * 4096  # 1 MiB, several pieces


class Upstream(BaseHTTPRequestHandler):
    """Keeps what it was asked; answers with the payload."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, requests, *arguments):
        self.requests = requests
        super().__init__(*arguments)

    def log_message(self, *_):
        pass

    def answer(self):
        request_body = b"".join(loopback.read_body(self.headers, self.rfile))
        self.requests.append((self.command, self.path, self.headers.items(), request_body))
        is_in_chunks = self.path == "/chunked"
        body = b"" if self.path == "/empty" else PAYLOAD
        self.send_response(200, "Fine")
        self.send_header(
            *(
                ("Transfer-Encoding", "chunked")
                if is_in_chunks
                else ("Content-Length", str(len(body)))
            )
        )
        self.send_header("X-Twice", "a")
        self.send_header("X-Twice", "b")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_in_chunks else body)

    do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815


@pytest.fixture
def requests():
    return []


@pytest.fixture
def proxy(requests):
    upstream = loopback.LoopbackServer(partial(Upstream, requests))
    upstream.start()
    with FaultProxy(upstream.url) as running:
        yield running
    upstream.stop()


@pytest.fixture
def connection(proxy):
    client = http.client.HTTPConnection("127.0.0.1", int(proxy.url.rpartition(":")[2]), timeout=10)
    yield client
    client.close()


def get(connection, path="/x", method="GET", **more):
    connection.request(method, path, **more)
    answer = connection.getresponse()
    return answer, answer.read()


def broken(connection, path="/x"):
    """How a request ends whose connection does."""
    with pytest.raises((http.client.HTTPException, ConnectionError)) as error:
        get(connection, path)
    connection.close()
    return error.value


def test_a_request_passes_unchanged(connection, requests):
    get(
        connection,
        "/a%2Fb?c=%20d",
        "PUT",
        body=PAYLOAD,
        headers={"Host": "bucket.example", "X-Amz-Meta-A": "1"},
    )

    ((method, path, headers, body),) = requests
    assert (method, path, body) == ("PUT", "/a%2Fb?c=%20d", PAYLOAD)
    assert dict(headers) == {
        "Host": "bucket.example",
        "Accept-Encoding": "identity",
        "X-Amz-Meta-A": "1",
        "Content-Length": str(len(PAYLOAD)),
    }


def test_a_status_is_answered_in_place_of_the_endpoint(proxy, connection, requests):
    proxy.use(FaultRule(fault=INTERNAL_ERROR_FAULT))
    answer, body = get(connection, method="PUT", body=PAYLOAD)
    assert (answer.status, b"<Code>InternalError</Code>" in body, requests) == (500, True, [])


def test_a_dropped_request_is_never_asked(proxy, connection, requests):
    proxy.use(FaultRule(fault=DropFault()))
    assert isinstance(broken(connection), http.client.RemoteDisconnected)
    assert (requests, proxy.log[0].status, proxy.log[0].done) == ([], None, False)


def test_a_lost_answer_was_asked_and_done(proxy, connection, requests):
    proxy.use(FaultRule(fault=AnswerLossFault()))
    assert isinstance(broken(connection), http.client.RemoteDisconnected)
    assert (len(requests), proxy.log[0].status, proxy.log[0].done) == (1, 200, True)


@pytest.mark.parametrize("path", ["/x", "/chunked"])
def test_a_cut_answer_ends_within_its_body(proxy, connection, path):
    proxy.use(FaultRule(fault=AnswerCutFault(after=300_000)))
    assert isinstance(broken(connection, path), http.client.IncompleteRead)
    assert proxy.log[0].answer_bytes == 300_000


@pytest.mark.parametrize("at", [None, 0, len(PAYLOAD) - 1])
def test_a_corrupt_answer_differs_in_one_byte(proxy, connection, at):
    proxy.use(FaultRule(fault=AnswerCorruptionFault(at=at)))
    body = get(connection)[1]
    differing = [place for place in range(len(PAYLOAD)) if body[place] != PAYLOAD[place]]
    assert (len(body), differing) == (len(PAYLOAD), [len(PAYLOAD) // 2 if at is None else at])


def outcomes(connection, requests):
    return [get(connection, "/x")[0].status for _ in range(requests)]


def test_every_nth_request_can_fail(proxy, connection):
    proxy.use(FaultRule(fault=INTERNAL_ERROR_FAULT, skip=1, every=3, times=2))
    assert outcomes(connection, 11) == [200, 200, 200, 500, 200, 200, 500, 200, 200, 200, 200]


@pytest.mark.parametrize(
    ("rule", "path", "method"),
    [
        (FaultRule(fault=INTERNAL_ERROR_FAULT, path="/other/*"), "/other/one", "GET"),
        (FaultRule(fault=INTERNAL_ERROR_FAULT, method="PUT"), "/x", "PUT"),
        (
            FaultRule(fault=INTERNAL_ERROR_FAULT, operation="UploadPart"),
            "/b/k?uploadId=u&partNumber=1",
            "PUT",
        ),
        (FaultRule(fault=INTERNAL_ERROR_FAULT, operation="List*"), "/b?list-type=2", "GET"),
    ],
    ids=str,
)
def test_a_rule_fits_only_what_it_names(proxy, connection, rule, path, method):
    proxy.use(rule)
    assert [get(connection, "/b/k")[0].status, get(connection, path, method)[0].status] == [
        200,
        500,
    ]
