"""How much of a server's answer is read: each limit against a real server, at the limit and beyond
it."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import uvloop
from independent_server import MODEL
from measured import arm
from one_request import LONG, asking
from plain_server import PIECE, PlainAnswer, PlainServer, plain_server

from tandem.bench.load import answer
from tandem.bench.load.client import ERROR_BODY_BYTES, PAGE_BYTES, STREAM_BYTES, CompletionClient
from tandem.bench.load.metrics_scraper import METRICS_BYTES, is_alive, read_counters
from tandem.bench.load.probe import probe_server
from tandem.bench.load.reply import ServerReply
from tandem.bench.records.record import RequestRecord
from tandem.errors import ExternalError

CHAT = "/v1/chat/completions"
COUNTER = b"vllm:generation_tokens_total 7\n"
GZIP = ("Content-Encoding: gzip",)
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
ENDLESS = PlainAnswer(itertools.repeat(PIECE))
UNREAD_BYTES = 16 << 20  # what sockets and both processes may hold of what was sent and never read
T = TypeVar("T")


def bomb(size: int) -> bytes:
    """Return so many plain bytes of comments, a gzip of a thousandth."""
    packer = zlib.compressobj(9, wbits=31)
    line = b"#" * 1023 + b"\n"
    return b"".join(packer.compress(line) for _ in range(size // len(line))) + packer.flush()


def call_client(server: PlainServer, call: Callable[[CompletionClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with CompletionClient(arm("arm", url=server.url, model=MODEL), limit=1) as client:
            return await call(client)

    return uvloop.run(main())


def read_page_counters(server: PlainServer) -> tuple[dict[str, float] | None, str | None]:
    return call_client(server, lambda client: read_counters(client, ()))


def get_page(server: PlainServer, path: str) -> ServerReply:
    return call_client(server, lambda client: client.get(path))


def ask_server(server: PlainServer) -> tuple[ServerReply, RequestRecord]:
    reply = call_client(server, lambda client: client.send_request(asking(), LONG))
    return reply, answer.parse_answer(reply, asking())


# Pages


@pytest.mark.parametrize(("excess_bytes", "is_gzip"), [(0, False), (1, False), (1, True)])
def test_a_metrics_page_is_read_up_to_its_limit(excess_bytes, is_gzip):
    size = METRICS_BYTES + excess_bytes
    body = (COUNTER + (b"# " + b"x" * 253 + b"\n") * (size // 256 - 1)).ljust(size, b"\n")
    page_answer = PlainAnswer(
        [gzip.compress(body, 1) if is_gzip else body], headers=GZIP if is_gzip else ()
    )
    with plain_server({"/metrics": page_answer}) as server:
        counters, reason = read_page_counters(server)

    error = f"/metrics: endless: the answer of {server.url}/metrics has more than 8,388,608 bytes"
    assert (reason, counters) == (
        (error, None) if excess_bytes else (None, {"generation_tokens": 7.0})
    )


@pytest.mark.parametrize("page", [ENDLESS, PlainAnswer([bomb(16 << 20)], headers=GZIP)])
def test_an_endless_list_of_models_is_a_fault_and_left(page):
    with plain_server({"/v1/models": page}) as server:
        with pytest.raises(
            ExternalError, match=f"the answer of {server.url}/v1/models has more than 1,048,576 b"
        ):
            call_client(server, probe_server)
        assert server.sent_bytes < PAGE_BYTES + UNREAD_BYTES


# A whole stream


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_stream_is_kept_up_to_its_limit(is_gzip):
    comments = PlainAnswer(itertools.repeat(b": " + b"x" * 60_000 + b"\n\n"))
    with plain_server(
        {CHAT: PlainAnswer([bomb(16 << 20)], headers=GZIP) if is_gzip else comments}
    ) as server:
        reply, answer_ = ask_server(server)
    assert (answer_.error, STREAM_BYTES < len(reply.body) < 2 * STREAM_BYTES) == ("endless", True)


def test_a_compressed_stream_is_read_though_none_was_asked_for():
    with plain_server({CHAT: PlainAnswer([gzip.compress(EVENT)], headers=GZIP)}) as server:
        _, answer_ = ask_server(server)
    assert (answer_.text, answer_.error) == ("a", None)


@pytest.mark.parametrize("coding", ["br", "gzip"])
def test_a_coding_that_cannot_be_undone_is_a_word(coding):
    with plain_server(
        {CHAT: PlainAnswer([b"\x01\x02\x03\x04"], headers=(f"Content-Encoding: {coding}",))}
    ) as server:
        assert ask_server(server)[1].error == "decode"


# The body of an error


@pytest.mark.parametrize(
    ("excess_bytes", "begin"), [(0, "m" * 300), (1, '{"error":{"message":"mmm')]
)
def test_an_error_body_is_read_up_to_its_limit(excess_bytes, begin):
    body = b'{"error":{"message":"%s"}}'
    body %= b"m" * (ERROR_BODY_BYTES + excess_bytes - len(body) + 2)
    with plain_server({CHAT: PlainAnswer([body], "503 No")}) as server:
        reply, answer_ = ask_server(server)

    assert (answer_.error, len(reply.body)) == ("status_503", ERROR_BODY_BYTES)
    assert str(answer_.error_detail).startswith(begin)


# Redirects


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/version", "/health", CHAT])
def test_no_redirect_is_followed(path):
    with plain_server({}) as second:
        moved = PlainAnswer(
            status="302 Found", headers=(f"Location: {second.url}/latest/meta-data",)
        )
        with plain_server({path: moved}) as server:
            if path == "/metrics":
                _, error = read_page_counters(server)
            else:
                error = (ask_server(server)[0] if path == CHAT else get_page(server, path)).error

    assert (server.paths, second.paths) == ([path], [])
    assert (
        error == "status_302"
        if path != "/metrics"
        else "latest/meta-data; redirects are not followed" in error
    )


def test_a_server_whose_health_points_elsewhere_is_alive():
    with plain_server(
        {"/health": PlainAnswer(status="302 Found", headers=("Location: /login",))}
    ) as server:
        assert call_client(server, is_alive)
