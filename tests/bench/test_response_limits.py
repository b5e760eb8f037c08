"""How much of a server's answer is read: each limit against a real server, at the limit and beyond it."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import uvloop
from independent_server import MODEL
from one_request import LONG, asking, come
from plain_server import PIECE, PlainAnswer, PlainServer, plain_server
from planned import plan

from tandem.bench import answer
from tandem.bench.client import READ_BYTES, CompletionClient
from tandem.bench.completion_request import ModelServer, encode_body
from tandem.bench.counters import MetricsScrape
from tandem.bench.event import EventError
from tandem.bench.fault import ExternalBenchError
from tandem.bench.metrics_scraper import MetricsScraper
from tandem.bench.probe import probe_server
from tandem.bench.reply import ServerReply, read_page
from tandem.bench.response_limits import ERROR_BODY_BYTES, EVENT_BYTES, METRICS_BYTES, PAGE_BYTES, compute_stream_bytes
from tandem.bench.sse import EventSplitter

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


def address_of(server: PlainServer) -> ModelServer:
    return ModelServer(name="arm", url=server.url, model=MODEL)


def scrape(server: PlainServer) -> MetricsScrape:
    async def main() -> MetricsScrape:
        async with MetricsScraper([address_of(server)]) as pages:
            return await pages.scrape("arm", plan(classes={"code": 1}).round(0)[0], "before")

    return uvloop.run(main())


def call_client(server: PlainServer, call: Callable[[CompletionClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with CompletionClient(address_of(server), limit=1) as client:
            return await call(client)

    return uvloop.run(main())


def get_page(server: PlainServer, path: str) -> ServerReply:
    return call_client(server, lambda client: client.get(path))


def ask_server(server: PlainServer, max_tokens: int = 16) -> tuple[ServerReply, answer.ServerAnswer]:
    reply = call_client(server, lambda client: client.send_request(asking(max_tokens=max_tokens), LONG))
    return reply, answer.parse_answer(reply, asking())


# Pages


@pytest.mark.parametrize(("packed", "form"), [(False, "the answer of {}"), (True, "{}, decompressed,")])
@pytest.mark.parametrize("excess_bytes", [0, 1])
def test_a_metrics_page_is_read_up_to_its_limit(excess_bytes: int, packed: bool, form: str) -> None:
    size = METRICS_BYTES + excess_bytes
    body = (COUNTER + (b"# " + b"x" * 253 + b"\n") * (size // 256 - 1)).ljust(size, b"\n")
    page_answer = PlainAnswer([gzip.compress(body, 1) if packed else body], headers=GZIP if packed else ())
    with plain_server({"/metrics": page_answer}) as server:
        page = scrape(server)

    error = f"/metrics: endless: {form.format(f'{server.url}/metrics')} has more than 8,388,608 bytes"
    assert (page.error, page.counters) == ((error, None) if excess_bytes else (None, {"generation_tokens": 7.0}))


def test_a_gzip_bomb_allocates_no_more_than_its_limit() -> None:
    reply = ServerReply(0, reads=[(0, bomb(64 << 20))], status=200, content_encoding="gzip", limit_bytes=METRICS_BYTES)

    tracemalloc.start()
    with pytest.raises(EventError, match="endless"):
        read_page(reply)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak_bytes < METRICS_BYTES + (2 << 20)


def models_page(size: int) -> bytes:
    body = json.dumps({"data": [{"id": MODEL}]}).encode()
    return body + b" " * (size - len(body))


@pytest.mark.parametrize(("excess_bytes", "error"), [(0, None), (1, "endless")])
def test_a_page_is_kept_up_to_its_limit(excess_bytes: int, error: str | None) -> None:
    with plain_server({"/v1/models": PlainAnswer([models_page(PAGE_BYTES + excess_bytes)])}) as server:
        reply = get_page(server, "/v1/models")
    assert (reply.error, len(reply.body)) == (error, PAGE_BYTES)


@pytest.mark.parametrize(
    ("page", "place"),
    [(ENDLESS, r"the answer of {}/v1/models"), (PlainAnswer([bomb(16 << 20)], headers=GZIP), "{}.*, decompressed,")],
)
def test_an_endless_list_of_models_is_a_fault_and_left(page: PlainAnswer, place: str) -> None:
    with plain_server({"/v1/models": page}) as server:
        with pytest.raises(ExternalBenchError, match=rf"{place.format(server.url)} has more than 1,048,576 bytes"):
            call_client(server, lambda client: probe_server(client, client.server))
        assert server.sent_bytes < PAGE_BYTES + UNREAD_BYTES


def test_a_compressed_list_of_models_is_read_and_an_endless_version_named() -> None:
    models = PlainAnswer([gzip.compress(models_page(500))], headers=GZIP)
    with plain_server({"/v1/models": models, "/version": ENDLESS, CHAT: PlainAnswer([EVENT])}) as server:
        probed = call_client(server, lambda client: probe_server(client, client.server))

    sentence = f"its version is not known: the answer of {server.url}/version has more than 1,048,576 bytes"
    assert (probed.model_ids, probed.version, probed.notes) == ((MODEL,), None, (sentence,))


# One event of a stream


def event_of(size: int) -> bytes:
    """Return an event of so many bytes without its blank line, which has one token of text."""
    start, end = EVENT.removesuffix(b"\n\n").split(b'"a"')
    return start + b'"' + b"a" * (size - len(start) - len(end) - 3) + b'"' + end + b"\n\n"


@pytest.mark.parametrize("pause", [1, 3])
def test_an_event_of_exactly_the_limit_is_read(pause: int) -> None:
    event = event_of(EVENT_BYTES)
    raw = tuple(event[at : at + len(event) // pause + 1].hex() for at in range(0, len(event), len(event) // pause + 1))
    came = come(asking(max_tokens=64), raw=raw)
    assert (came.answer.error, len(came.answer.text) > EVENT_BYTES - 200) == (None, True)


def test_a_longer_event_is_an_error_and_what_came_before_is_kept() -> None:
    came = come(asking(max_tokens=64), raw=((EVENT + event_of(EVENT_BYTES + 1)).hex(),))
    sentence = f"one event of http://127.0.0.1:{came.server.port}{CHAT} has more than 1,048,576 bytes"
    assert (came.answer.error, came.answer.error_detail, came.answer.text) == ("endless", sentence, "a")


def test_an_endless_event_is_left_by_the_client() -> None:
    with plain_server({CHAT: PlainAnswer(itertools.chain([b"data: "], itertools.repeat(PIECE)))}) as server:
        reply, _ = ask_server(server, max_tokens=100_000)
    assert (reply.error, len(reply.body) < EVENT_BYTES + 4 * READ_BYTES) == ("endless", True)


def test_a_compressed_event_beyond_the_limit_is_endless() -> None:
    packed = gzip.compress(event_of(EVENT_BYTES + 1))
    with plain_server({CHAT: PlainAnswer([packed], headers=GZIP)}) as server:
        assert ask_server(server)[1].error == "endless"


@pytest.mark.parametrize("size", [1, 2, 7, 60, 4096, EVENT_BYTES])
@pytest.mark.parametrize(("excess_bytes", "events"), [(0, 2), (1, 1)])
def test_the_limit_of_an_event_depends_on_no_read(size: int, excess_bytes: int, events: int, monkeypatch) -> None:
    monkeypatch.setattr("tandem.bench.sse.EVENT_BYTES", 4000)
    stream, splitter = EVENT + b": note\r\n" + event_of(4000 - 7 + excess_bytes), EventSplitter()
    given = [event for at in range(0, len(stream), size) for event in splitter.feed(stream[at : at + size])]
    assert (len(given), splitter.has_excess) == (events, bool(excess_bytes))


def test_a_stream_that_ends_its_lines_by_cr_alone_is_read() -> None:
    event = EVENT.replace(b"\n", b"\r").hex()
    wide = (b": " + b"x" * (EVENT_BYTES // 2) + b"\r\r").hex()
    assert come(asking(max_tokens=1000), raw=(wide, wide, wide, event)).answer.error is None


# A whole stream


def test_a_stream_is_kept_up_to_its_limit() -> None:
    comments = itertools.repeat(b": " + b"x" * 60_000 + b"\n\n")
    with plain_server({CHAT: PlainAnswer(comments)}) as server:
        reply, _ = ask_server(server)

    request_bytes = len(encode_body(asking(), address_of(server)))
    assert (reply.error, len(reply.body)) == ("endless", compute_stream_bytes(16, request_bytes))


@pytest.mark.parametrize(("excess_bytes", "error"), [(0, None), (1, "endless")])
def test_a_compressed_stream_has_the_limit_of_a_plain_one(excess_bytes: int, error: str | None) -> None:
    packed, limit_bytes = gzip.compress(EVENT * 100), 100 * len(EVENT) - excess_bytes
    reply = ServerReply(0, reads=[(0, packed)], status=200, content_encoding="gzip", limit_bytes=limit_bytes)
    assert answer.parse_answer(reply, asking(max_tokens=100)).error == error


# The body of an error


@pytest.mark.parametrize(("excess_bytes", "begin"), [(0, "m" * 300), (1, "the error body of {} has more than 65,536 ")])
def test_an_error_body_is_read_up_to_its_limit(excess_bytes: int, begin: str) -> None:
    body = b'{"error":{"message":"%s"}}'
    body %= b"m" * (ERROR_BODY_BYTES + excess_bytes - len(body) + 2)
    with plain_server({CHAT: PlainAnswer([body], "503 No")}) as server:
        reply, said = ask_server(server)

    assert (said.error, len(reply.body)) == ("status_503", ERROR_BODY_BYTES)
    assert str(said.error_detail).startswith(begin.format(f"{server.url}{CHAT}"))


def test_a_gzip_bomb_as_an_error_body_is_not_unpacked() -> None:
    with plain_server({CHAT: PlainAnswer([bomb(16 << 20)], "500 No", GZIP)}) as server:
        _, said = ask_server(server)
    sentence = f"{server.url}{CHAT}, decompressed, has more than 65,536 bytes"
    assert (said.error, said.error_detail) == ("status_500", sentence)


# Redirects


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/version", "/health", CHAT])
def test_no_redirect_is_followed(path: str) -> None:
    with plain_server({}) as other:
        moved = PlainAnswer(status="302 Found", headers=(f"Location: {other.url}/latest/meta-data",))
        with plain_server({path: moved}) as server:
            if path == "/metrics":
                error = scrape(server).error
            else:
                error = (ask_server(server)[0] if path == CHAT else get_page(server, path)).error

    assert (server.paths, other.paths) == ([path], [])
    assert error == "status_302" if path != "/metrics" else "latest/meta-data, which is not followed" in error


def test_a_server_whose_health_points_elsewhere_is_alive() -> None:
    async def look(server: PlainServer) -> bool:
        async with MetricsScraper([address_of(server)]) as pages:
            return await pages.is_alive("arm")

    with plain_server({"/health": PlainAnswer(status="302 Found", headers=("Location: /login",))}) as server:
        assert uvloop.run(look(server))
