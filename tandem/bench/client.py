"""One request on the wire, measured right.

Invariant: a request is sent once, but for the one case below, and its read loop keeps (time, bytes), counts the bytes
and does nothing else; what a server does never raises, it is a word in the reply. No redirect is followed, and no
answer is read beyond its limit (`response_limits`).

How the times are taken: `start_ns` in the moment the body is handed to the transport (headers and body leave in one
write), so that waiting for a connection is not in it; each read when the event loop hands its bytes over. How long
after a server's write that is, by load, stands in docs/measurement.md. Run it on uvloop, parse after the request.

The one case: a connection that had carried a whole request dies before any byte of the next answer (RFC 9112 9.3.1).
llama.cpp's server closes after each stream although it says keep-alive, and a request may be on its way by then. It is
asked once more, on a connection of its own (`connection.py`), and the reply says so. aiohttp repeats only idempotent
methods (`IDEMPOTENT_METHODS` in aiohttp/client.py) and every measured request is a POST, so a page is repeated by
aiohttp alone and a measured request by this module alone. Stale connections are avoided where a server keeps its word:
idle ones are closed here after KEEP_ALIVE_S, before a vLLM closes them.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from tandem.bench import wire
from tandem.bench.certificate import describe_tls_error
from tandem.bench.connection import create_connector, watch_answer
from tandem.bench.event import DETAIL
from tandem.bench.fault import BenchError
from tandem.bench.reply import Reply
from tandem.bench.response_limits import (
    ERROR_BODY_BYTES,
    EVENT_BYTES,
    PAGE_BYTES,
    compute_stream_bytes,
    describe_excess,
)
from tandem.bench.simulation import HEADER
from tandem.bench.watch import Watch
from tandem.bench.wire import Ask, Server, TimeOuts

KEEP_ALIVE_S = 4.0  # vLLM closes idle connections after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE in vllm/envs.py)
READ_BYTES = 1 << 18  # what may wait unread before the socket is paused
OK = 200
INTERRUPTED = "the run was interrupted"
OPENING = TimeOuts(connect_s=10.0, first_token_s=10.0, gap_s=10.0, whole_s=10.0)
HEADERS = {
    "Accept": "text/event-stream, application/json",
    "Accept-Encoding": "identity",  # a compressor holds chunks back
    "User-Agent": "tandem-bench",
}


class Client:
    """Asks one server. An async context manager; one per arm.

    Args:
        server: whom to ask.
        limit: connections at most, the concurrency; 0 for no limit (an open loop).
        trust_env: use the proxies that HTTP_PROXY and the like name.

    Raises:
        BenchError: the server's address is no http or https URL.
    """

    def __init__(self, server: Server, *, limit: int, trust_env: bool = False) -> None:
        _check_address(server)
        self.server = server
        self._limit, self._trust_env = limit, trust_env
        self._session: aiohttp.ClientSession | None = None
        self._fresh_session: aiohttp.ClientSession | None = None
        self._watches: set[Watch] = set()
        self._interrupted = False

    async def __aenter__(self) -> Self:
        """Open the sessions; no connection yet."""
        self._session = self._open_session(create_connector(limit=self._limit, keepalive_timeout=KEEP_ALIVE_S))
        self._fresh_session = self._open_session(create_connector(limit=0, force_close=True))
        return self

    def _open_session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=HEADERS | ({"Authorization": f"Bearer {self.server.api_key}"} if self.server.api_key else {}),
            trace_configs=[_connection_trace()],
            auto_decompress=False,  # takes time in the read loop; answer.py does it after the request
            read_bufsize=READ_BYTES,
            trust_env=self._trust_env,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        for session in (self._session, self._fresh_session):
            if session is not None:
                await session.close()

    async def open_connections(self, count: int) -> int:
        """Open connections until `count` are open and idle; return how many are. Never raises for a server.

        They are opened by as many requests at the same moment: none of them can use another's connection. Idle ones
        are used first. They are gone again after KEEP_ALIVE_S without a request.

        Args:
            count: at most the client's limit.
        """
        replies = await asyncio.gather(*(self.get("/v1/models") for _ in range(count)))
        return sum(reply.error is None or reply.error.startswith("status_") for reply in replies)

    async def get(self, path: str, outs: TimeOuts = OPENING, *, limit_bytes: int = PAGE_BYTES) -> Reply:
        """Get `path` of the server, as models, version or metrics; never raises for what the server does.

        Args:
            path: after the server's root.
            outs: how long it may take.
            limit_bytes: how many bytes the page may have; more is the error `endless`.
        """
        return await self._exchange(_Request("GET", self.server.root + path, outs, limit_bytes))

    async def ask(self, ask: Ask, outs: TimeOuts) -> Reply:
        """Send one request and return its reply; never raises for what the server does.

        It is sent twice where a reused connection dies before any byte of the answer; then `Reply.reconnected` is 1
        and every time of the reply is that of the second sending.

        Raises:
            BenchError: the request cannot be formed (`wire.body`).
        """
        content = wire.body(ask, self.server)
        limit_bytes = compute_stream_bytes(ask.max_tokens, len(content))
        return await self._exchange(_Request("POST", self.server.endpoint, outs, limit_bytes, ask, content))

    def interrupt(self) -> None:
        """Cut every request in flight: each `ask` returns at once with the error `interrupted` and what it has.

        So does every later `ask`, without sending anything.
        """
        self._interrupted = True
        for watch in self._watches:
            watch.cut("interrupted", INTERRUPTED)

    async def _exchange(self, request: _Request) -> Reply:
        reply = Reply(time.monotonic_ns(), url=request.url, limit_bytes=request.limit_bytes)
        if self._interrupted:
            reply.error, reply.error_detail, reply.end_ns = "interrupted", INTERRUPTED, reply.start_ns
            return reply
        try:
            async with asyncio.timeout(None) as bound:
                watch = Watch(reply, request.outs, bound)
                self._watches.add(watch)
                await self._send_again_if_stale(request, reply, watch)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            reply.error, reply.error_detail = _word(error, reply, watch, request.outs)
        finally:
            reply.end_ns = reply.end_ns or time.monotonic_ns()
            watch.stop()
            self._watches.discard(watch)
        return reply

    async def _send_again_if_stale(self, request: _Request, reply: Reply, watch: Watch) -> None:
        """Send; send a measured request once more where its connection was stale."""
        assert self._session is not None, "a Client is used inside `async with`"
        assert self._fresh_session is not None, "both sessions are opened together"
        body = _StampedBody(request.content, reply, watch)
        try:
            await self._send(self._session, request, reply, watch, body)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            if request.ask is None or not reply.reused or body.saw_answer():
                raise
            reply.reconnected = 1
            watch.sent = False
            again = _StampedBody(request.content, reply, watch)
            await self._send(self._fresh_session, request, reply, watch, again)

    async def _send(
        self, session: aiohttp.ClientSession, request: _Request, reply: Reply, watch: Watch, body: _StampedBody
    ) -> None:
        if request.ask is not None:
            watch.expect(request.ask)
        else:
            watch.sent = True  # no body will tell; what is not measured may be timed from its beginning
            watch.most_events = sys.maxsize  # a page may hold any text
        answer = session.request(
            request.method,
            request.url,
            data=body if request.ask is not None else None,
            headers={"X-Request-Id": request.ask.request_id} if request.ask is not None else {"Accept": "*/*"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=request.outs.connect_s),
            trace_request_ctx=reply,
        )
        async with answer as response:
            _take_headers(reply, response)
            await _read_body(reply, response, EVENT_BYTES if request.ask is not None else reply.limit_bytes)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    outs: TimeOuts
    limit_bytes: int
    ask: Ask | None = None
    content: bytes = b""


class _StampedBody(aiohttp.BytesPayload):
    """A body that takes the time in the moment it goes to the transport."""

    def __init__(self, content: bytes, reply: Reply, watch: Watch) -> None:
        super().__init__(content, content_type="application/json")
        self._reply, self._watch = reply, watch
        self._saw_answer: Callable[[], bool] = lambda: False  # no byte was sent, so none was answered

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Stamp, then write."""
        self._saw_answer = watch_answer(writer)
        self._watch.sent = True
        self._reply.start_ns = time.monotonic_ns()
        await super().write_with_length(writer, content_length)

    def saw_answer(self) -> bool:
        """Return whether a byte came on the connection after this body was written to it."""
        return self._saw_answer()


def _connection_trace() -> aiohttp.TraceConfig:
    """Return a trace that writes into a request's reply whether its connection was open before."""

    async def reused(_session: aiohttp.ClientSession, request: SimpleNamespace, _what: object) -> None:
        request.trace_request_ctx.reused = True

    async def created(_session: aiohttp.ClientSession, request: SimpleNamespace, _what: object) -> None:
        request.trace_request_ctx.reused = False

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    trace.on_connection_create_end.append(created)
    return trace


def _take_headers(reply: Reply, response: aiohttp.ClientResponse) -> None:
    reply.headers_ns = time.monotonic_ns()
    reply.status = response.status
    reply.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    reply.content_encoding = response.headers.get("Content-Encoding", "").strip().lower()
    reply.retry_after_s = _retry_after_s(response.headers.get("Retry-After"))
    reply.server_header = response.headers.get("Server", "")[:DETAIL] or None
    reply.says_keep_alive = _says_keep_alive(response)
    reply.simulated = response.headers.get(HEADER)
    if response.status != OK:
        reply.error = f"status_{response.status}"
        reply.limit_bytes = ERROR_BODY_BYTES
        if "Location" in response.headers:
            reply.error_detail = f"it points to {response.headers['Location'][:DETAIL]}, which is not followed"


def _says_keep_alive(response: aiohttp.ClientResponse) -> bool:
    """Return whether another request may follow on the connection, as HTTP/1.1 has it (RFC 9112 9.3)."""
    has_end = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
    closes = "close" in response.headers.get("Connection", "").lower()
    return response.version == aiohttp.HttpVersion11 and has_end and not closes


async def _read_body(reply: Reply, response: aiohttp.ClientResponse, line_limit_bytes: int) -> None:
    """Keep each read of the body; stop where the body, or one line of it, exceeds its limit, and keep no more of it."""
    read, keep, now = response.content.readany, reply.reads.append, time.monotonic_ns
    size = line_size = 0
    while piece := await read():
        keep((now(), piece))
        size += len(piece)
        line_end = piece.rfind(b"\n")
        if line_end < 0:
            line_end = piece.rfind(b"\r")  # a CR alone ends a line, too
        line_size = len(piece) - line_end - 1 + (line_size if line_end < 0 else 0)
        if size > reply.limit_bytes or line_size > line_limit_bytes:
            _give_up(reply, size, line_limit_bytes)
            response.close()
            break
    reply.end_ns = now()


def _give_up(reply: Reply, size: int, line_limit_bytes: int) -> None:
    """Say that the body is too long, and drop what it has beyond its limit."""
    if size > reply.limit_bytes:
        at_ns, piece = reply.reads.pop()
        reply.reads.append((at_ns, piece[: reply.limit_bytes - size]))
        answer = f"the answer of {reply.url}" if reply.status == OK else f"the error body of {reply.url}"
        reply.excess = describe_excess(answer, reply.limit_bytes)
    else:
        reply.excess = describe_excess(f"one event of {reply.url}", line_limit_bytes)
    if reply.error is None:
        reply.error, reply.error_detail = "endless", reply.excess


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date (RFC 9110 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _word(error: Exception, reply: Reply, watch: Watch, outs: TimeOuts) -> tuple[str, str | None]:
    """Return the error's word and what a person should know; a status that came stays the word."""
    if reply.status not in {None, OK}:
        return f"status_{reply.status}", reply.error_detail
    if watch.word is not None:
        return watch.word, watch.detail
    if isinstance(error, TimeoutError):
        return "connect_timeout", f"no connection within {outs.connect_s:g} s"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError | aiohttp.InvalidURL):
        return _describe_no_connection(error)
    if isinstance(error, aiohttp.ClientResponseError):
        return "not_sse", f"what answers speaks no HTTP: {' '.join(error.message.split())}"
    when = "before an answer" if reply.headers_ns is None else "in the middle of the answer"
    why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return "closed", f"the connection was closed {when}{why}"


def _describe_no_connection(error: Exception) -> tuple[str, str]:
    if isinstance(error, aiohttp.ClientSSLError):
        return describe_tls_error(error)
    if not isinstance(error, aiohttp.ClientConnectorError):
        return "connect", str(error)
    number = error.os_error.errno or 0  # a name that is not found has a negative one, of its own list
    return "connect", f"{error.host}:{error.port}: {os.strerror(number) if number > 0 else error.strerror}"


def _check_address(server: Server) -> None:
    address = urlsplit(server.root)
    try:
        whole = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is no number
        whole = False
    if not whole or address.query or address.fragment:
        raise BenchError(
            f"{server.url!r} is no address of a server",
            where=server.name,
            change="give it as http://HOST:PORT, with or without /v1",
        )
    if address.username or address.password:
        raise BenchError(
            "the address holds a user name or a password, which would stand in every record of it",
            where=server.name,
            change="leave it out and give the key by its own option",
        )
