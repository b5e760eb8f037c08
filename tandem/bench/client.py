"""One request on the wire, measured right.

Invariant: a request is sent once, but for the one case below, and its read loop keeps (time, bytes), counts the bytes
and does nothing else; what a server does never raises, it is a word in the reply. No redirect is followed, and no
answer is read beyond its limit (`response_limits`).

How the times are taken: `start_ns` in the moment the body is handed to the transport (headers and body leave in one
write), so that waiting for a connection is not in it; each read when the event loop hands its bytes over. How long
after a server's write that is, by load, stands in docs/measurement.md. Run it on uvloop, parse after the request.

The one case: a connection that had carried a whole request dies before any byte of the next answer (RFC 9112 9.3.1).
llama.cpp's server closes after each stream although it says keep-alive, and a request may be on its way by then. It is
asked once more, on a connection of its own, and the reply says so. aiohttp repeats only idempotent methods
(`IDEMPOTENT_METHODS` in aiohttp/client.py) and every measured request is a POST, so a page is repeated by aiohttp alone
and a measured request by this module alone. Stale connections are avoided where a server keeps its word: idle ones are
closed here after KEEP_ALIVE_S, before a vLLM closes them.

aiohttp tells a connection that died before an answer from one that died inside its head only where the end was clean; a
reset hides what came before it. So each connection marks its reads itself (`MarkedConnection`), and one that is not
known to have been silent counts as one that has answered.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import math
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler

from tandem.bench import completion_request, response_limits
from tandem.bench.completion_request import CompletionRequest, ModelServer
from tandem.bench.event import DETAIL_CHARACTERS
from tandem.bench.fault import BenchError
from tandem.bench.manifest import Timeouts
from tandem.bench.reply import ServerReply
from tandem.bench.request_deadline import RequestDeadline
from tandem.bench.response_limits import describe_excess
from tandem.bench.simulation import SIMULATED_HEADER

KEEP_ALIVE_S = 4.0  # vLLM closes idle connections after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE in vllm/envs.py)
READ_BYTES = 1 << 18  # what may wait unread before the socket is paused
OK = 200
INTERRUPT_MESSAGE = "the run was interrupted"
DEFAULT_PAGE_TIMEOUTS = Timeouts(connect_s=10.0, first_token_s=10.0, gap_s=10.0, whole_s=10.0)
REQUEST_HEADERS = {
    "Accept": "text/event-stream, application/json",
    "Accept-Encoding": "identity",  # a compressor holds chunks back
    "User-Agent": "tandem-bench",
}
_SendMethod = Callable[[RequestDeadline], Awaitable[None]]
_TRUST = (
    "to trust it, export SSL_CERT_FILE=FILE, where FILE holds the certificate of its authority or, where it is "
    "self-signed, the certificate itself"
)
_NAME = "use a name that the certificate holds, or give the server a certificate for this name"
_CERTIFICATE_CHANGES = {  # X509_V_ERR_... in openssl/x509_vfy.h
    9: "see whether the clocks of this machine and of the server are right",
    10: "renew the server's certificate, and see whether this machine's clock is right",
    **dict.fromkeys((18, 19, 20, 21), _TRUST),
    **dict.fromkeys((62, 64), _NAME),
}


class CompletionClient:
    """Asks one server. An async context manager; one per arm.

    Args:
        server: whom to ask.
        limit: connections at most, the concurrency; 0 for no limit (an open loop).

    Raises:
        BenchError: the server's address is no http or https URL.
    """

    def __init__(self, server: ModelServer, *, limit: int) -> None:
        _check_address(server)
        self.server, self._limit = server, limit
        self._deadlines: set[RequestDeadline] = set()
        self._is_interrupted = False

    async def __aenter__(self) -> Self:
        """Open the sessions; no connection yet."""
        self._session = self._open_session(limit=self._limit, keepalive_timeout=KEEP_ALIVE_S)
        self._fresh_session = self._open_session(limit=0, force_close=True)
        return self

    def _open_session(self, **options: Any) -> aiohttp.ClientSession:
        async def mark(_: aiohttp.ClientSession, context: SimpleNamespace, _params: object, *, was_open: bool) -> None:
            context.trace_request_ctx.had_open_connection = was_open

        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(functools.partial(mark, was_open=True))
        trace.on_connection_create_end.append(functools.partial(mark, was_open=False))
        connector = aiohttp.TCPConnector(ttl_dns_cache=None, **options)
        make: Callable[..., ResponseHandler] = MarkedConnection
        connector._factory = functools.partial(make, loop=asyncio.get_running_loop())  # noqa: SLF001 - aiohttp has no public way to it; a test holds that it is taken
        key = self.server.api_key
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=REQUEST_HEADERS | ({"Authorization": f"Bearer {key}"} if key else {}),
            trace_configs=[trace],  # a reply says whether its connection was open before
            auto_decompress=False,  # takes time in the read loop; reply.py does it after the request
            read_bufsize=READ_BYTES,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._session.close()
        await self._fresh_session.close()

    async def open_connections(self, count: int) -> int:
        """Open connections until `count` are open and idle; return how many are. Never raises for a server.

        They are opened by as many requests at the same moment: none of them can use another's connection. Idle ones
        are used first. They are gone again after KEEP_ALIVE_S without a request.

        Args:
            count: at most the client's limit.
        """
        replies = await asyncio.gather(*(self.get("/v1/models") for _ in range(count)))
        return sum(reply.error is None or reply.error.startswith("status_") for reply in replies)

    async def get(
        self, path: str, timeouts: Timeouts = DEFAULT_PAGE_TIMEOUTS, *, limit_bytes: int = response_limits.PAGE_BYTES
    ) -> ServerReply:
        """Get `path` of the server, as models, version or metrics; never raises for what the server does.

        Args:
            path: after the server's root.
            timeouts: how long it may take.
            limit_bytes: how many bytes the page may have; more is the error `endless`.
        """
        reply = ServerReply(time.monotonic_ns(), url=self.server.root + path, limit_bytes=limit_bytes)

        async def send(deadline: RequestDeadline) -> None:
            deadline.is_sent = True  # no body will tell; what is not measured may be timed from its beginning
            await _send(self._session, "GET", reply, timeouts, headers={"Accept": "*/*"})

        return await self._exchange(reply, timeouts, math.inf, send)

    async def send_request(self, request: CompletionRequest, timeouts: Timeouts) -> ServerReply:
        """Send one request and return its reply; never raises for what the server does.

        It is sent twice where a reused connection dies before any byte of the answer; then `ServerReply.reconnects` is
        1 and every time of the reply is that of the second sending.

        Raises:
            BenchError: the request cannot be formed (`completion_request.encode_body`).
        """
        content = completion_request.encode_body(request, self.server)
        limit_bytes = response_limits.compute_stream_bytes(request.max_tokens, len(content))
        reply = ServerReply(time.monotonic_ns(), url=self.server.endpoint, limit_bytes=limit_bytes)

        async def send(deadline: RequestDeadline) -> None:
            headers = {"X-Request-Id": request.request_id}
            for session in (self._session, self._fresh_session):
                deadline.is_sent = False
                body = _StampedBody(content, reply, deadline)
                try:
                    await _send(session, "POST", reply, timeouts, headers=headers, data=body)
                    break
                except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                    if reply.reconnects or not reply.had_open_connection or body.has_answer():
                        raise
                    reply.reconnects = 1

        return await self._exchange(reply, timeouts, request.max_tokens, send)

    def interrupt(self) -> None:
        """Cut every request in flight: each returns at once with the error `interrupted` and what it has.

        So does every later request, without sending anything.
        """
        self._is_interrupted = True
        for deadline in self._deadlines:
            deadline.cut("interrupted", INTERRUPT_MESSAGE)

    async def _exchange(
        self, reply: ServerReply, timeouts: Timeouts, max_tokens: float, send: _SendMethod
    ) -> ServerReply:
        if self._is_interrupted:
            reply.error, reply.error_detail, reply.end_ns = "interrupted", INTERRUPT_MESSAGE, reply.start_ns
            return reply
        try:
            async with asyncio.timeout(None) as timeout:
                deadline = RequestDeadline(reply, timeouts, timeout, max_tokens)
                self._deadlines.add(deadline)
                await send(deadline)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            reply.error, reply.error_detail = _describe_failure(error, reply, deadline, timeouts)
        finally:
            reply.end_ns = reply.end_ns or time.monotonic_ns()
            deadline.stop()
            self._deadlines.discard(deadline)
        return reply


class MarkedConnection(ResponseHandler):
    """A client's connection that marks that something was read from it."""

    was_read = False

    def data_received(self, data: bytes) -> None:
        """Mark, then take the bytes as aiohttp does."""
        self.was_read = True
        super().data_received(data)


class _StampedBody(aiohttp.BytesPayload):
    """A body that takes the time in the moment it goes to the transport."""

    def __init__(self, content: bytes, reply: ServerReply, deadline: RequestDeadline) -> None:
        super().__init__(content, content_type="application/json")
        self._reply, self._deadline = reply, deadline
        self._connection: object | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Stamp, then write; forget what was read on the connection before."""
        self._connection = getattr(writer, "protocol", writer)
        if isinstance(self._connection, MarkedConnection):
            self._connection.was_read = False
        self._deadline.is_sent = True
        self._reply.start_ns = time.monotonic_ns()
        await super().write_with_length(writer, content_length)

    def has_answer(self) -> bool:
        """Return whether a byte came on the connection after this body was written to it."""
        return self._connection is not None and getattr(self._connection, "was_read", True)


async def _send(
    session: aiohttp.ClientSession, method: str, reply: ServerReply, timeouts: Timeouts, **options: Any
) -> None:
    """Keep each read of the body; stop where the body, or one line of it, exceeds its limit, and keep no more of it."""
    timeout = aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s)
    options |= {"allow_redirects": False, "timeout": timeout, "trace_request_ctx": reply}
    async with session.request(method, reply.url, **options) as response:
        _read_headers(reply, response)
        line_limit_bytes = response_limits.EVENT_BYTES if method == "POST" else reply.limit_bytes
        read, append_read, now = response.content.readany, reply.reads.append, time.monotonic_ns
        size = line_size = 0
        while piece := await read():
            append_read((now(), piece))
            size += len(piece)
            line_end = piece.rfind(b"\n")
            if line_end < 0:
                line_end = piece.rfind(b"\r")  # a CR alone ends a line, too
            line_size = len(piece) - line_end - 1 + (line_size if line_end < 0 else 0)
            if size > reply.limit_bytes or line_size > line_limit_bytes:
                _mark_excess(reply, size, line_limit_bytes)
                response.close()
                break
        reply.end_ns = now()


def _read_headers(reply: ServerReply, response: aiohttp.ClientResponse) -> None:
    headers = response.headers
    reply.headers_ns = time.monotonic_ns()
    reply.status = response.status
    reply.content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    reply.content_encoding = headers.get("Content-Encoding", "").strip().lower()
    reply.retry_after_s = _parse_retry_after_s(headers.get("Retry-After"))
    reply.server_header = headers.get("Server", "")[:DETAIL_CHARACTERS] or None
    reply.simulated_header = headers.get(SIMULATED_HEADER)
    # another request may follow on the connection, as HTTP/1.1 has it (RFC 9112 9.3)
    has_end = "Content-Length" in headers or "Transfer-Encoding" in headers
    closes = "close" in headers.get("Connection", "").lower()
    reply.claims_keep_alive = response.version == aiohttp.HttpVersion11 and has_end and not closes
    if response.status != OK:
        reply.error, reply.limit_bytes = f"status_{response.status}", response_limits.ERROR_BODY_BYTES
        if "Location" in headers:
            reply.error_detail = f"it points to {headers['Location'][:DETAIL_CHARACTERS]}, which is not followed"


def _mark_excess(reply: ServerReply, size: int, line_limit_bytes: int) -> None:
    """Say that the body is too long, and drop what it has beyond its limit."""
    reply.excess = describe_excess(f"one event of {reply.url}", line_limit_bytes)
    if size > reply.limit_bytes:
        at_ns, piece = reply.reads.pop()
        reply.reads.append((at_ns, piece[: reply.limit_bytes - size]))
        kind = "answer" if reply.status == OK else "error body"
        reply.excess = describe_excess(f"the {kind} of {reply.url}", reply.limit_bytes)
    if reply.error is None:
        reply.error, reply.error_detail = "endless", reply.excess


def _parse_retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date (RFC 9110 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _describe_failure(
    error: Exception, reply: ServerReply, deadline: RequestDeadline, timeouts: Timeouts
) -> tuple[str, str | None]:
    """Return the error's word and what a person should know; a status that came stays the word."""
    if reply.status not in {None, OK}:
        return f"status_{reply.status}", reply.error_detail
    if deadline.word is not None:
        return deadline.word, deadline.detail
    if isinstance(error, aiohttp.ClientSSLError):
        return describe_tls_error(error)
    match error:
        case TimeoutError():
            word, detail = "connect_timeout", f"no connection within {timeouts.connect_s:g} s"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno or 0  # a name that is not found has a negative one, of its own list
            cause = os.strerror(number) if number > 0 else error.strerror
            word, detail = "connect", f"{error.host}:{error.port}: {cause}"
        case aiohttp.ClientHttpProxyError() | aiohttp.InvalidURL():
            word, detail = "connect", str(error)
        case aiohttp.ClientResponseError():
            word, detail = "not_sse", f"what answers speaks no HTTP: {' '.join(error.message.split())}"
        case _:
            place = "before an answer" if reply.headers_ns is None else "in the middle of the answer"
            cause = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
            word, detail = "closed", f"the connection was closed {place}{cause}"
    return word, detail


def describe_tls_error(error: aiohttp.ClientSSLError) -> tuple[str, str]:
    """Return the error's word, `certificate` or `connect`, and what a person should know and change.

    The system's error number is never shown: OpenSSL's own numbers are no errno, and 1 reads as "Operation not
    permitted".
    """
    address, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = f"the certificate of {address} is not accepted: {cause.verify_message.rstrip('.')}"
        change = _CERTIFICATE_CHANGES.get(cause.verify_code)
        return "certificate", f"{problem}; {change}" if change else problem
    reason = (getattr(cause, "reason", None) or str(cause)).replace("_", " ").lower()
    return "connect", f"{address}: no TLS connection: {reason}; where the server has no TLS, use http://"


def _check_address(server: ModelServer) -> None:
    address = urlsplit(server.root)
    try:
        is_valid = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is no number
        is_valid = False
    if not is_valid or address.query or address.fragment:
        change = "give it as http://HOST:PORT, with or without /v1"
        raise BenchError(f"{server.url!r} is no address of a server", where=server.name, change=change)
    if address.username or address.password:
        problem = "the address holds a user name or a password, which would stand in every record of it"
        raise BenchError(problem, where=server.name, change="leave it out and give the key by its own option")
