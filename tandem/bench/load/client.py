"""The client: one measured request on the wire.

Invariant: a request is sent once, except in the one case below, and its read loop keeps (time,
bytes), counts the bytes and does nothing else; a server's fault never raises, it is a word in the
reply. The client follows no redirect and reads no answer beyond its limit, which holds for the
bytes after decompression; docs/bench-faults.md lists the limits.

Times: `start_ns` is the moment at which the transport gets the body (headers and body leave in one
write), so the wait for a connection is not included; each read has the moment at which the event
loop delivers its bytes. docs/measurement.md gives the delay after a server's write, by load. Run on
uvloop; parse after the request.

The one case: a connection that had carried a complete request dies before the head of the next
answer (RFC 9112 9.3.1). llama.cpp's server closes after each stream although it announces
keep-alive, and the next request may be on its way by then. The client sends that request once more,
on a new connection, and the reply says so. aiohttp repeats only idempotent methods
(`IDEMPOTENT_METHODS` in aiohttp/client.py) and every measured request is a POST, so only aiohttp
repeats a page and only this module repeats a measured request. The client closes idle connections
after KEEP_ALIVE_S, before a vLLM closes them, so stale connections are rare.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from tandem.bench.load import completion_request
from tandem.bench.load.completion_request import API_PATHS, MODELS_PATH, CompletionRequest
from tandem.bench.load.event import DETAIL_CHARACTERS
from tandem.bench.load.proxy import find_proxy
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.request_deadline import RequestDeadline
from tandem.bench.plan.run_options import ApiName
from tandem.bench.plan.server_access import NO_ACCESS, ServerAccess
from tandem.bench.records.manifest import ManifestArm, Timeouts
from tandem.errors import InputError

# vLLM closes idle connections after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE in vllm/envs.py)
KEEP_ALIVE_S = 4.0
READ_BYTES = 1 << 18  # unread bytes at which the socket is paused
PAGE_BYTES = 1 << 20  # limit of a page such as /v1/models, /version or /health
ERROR_BODY_BYTES = 64 << 10  # limit of the body of an answer whose status is not 200
# limit of a stream, plus the next two for each token and each byte of its request
STREAM_BYTES = 1 << 20
# an event with running usage, ids and a few log-probabilities has under 2,000
STREAM_BYTES_PER_TOKEN = 4096
STREAM_BYTES_PER_REQUEST_BYTE = 8  # prompt_token_ids: at most one id a byte, seven characters each
OK = 200
INTERRUPT_MESSAGE = "the run was interrupted"
PAGE_TIMEOUTS = Timeouts(connect_s=10.0, first_token_s=10.0, gap_s=10.0, whole_s=10.0)
REQUEST_HEADERS = {
    "Accept": "text/event-stream, application/json",
    "Accept-Encoding": "identity",  # a compressor holds chunks back
    "User-Agent": "tandem-bench",
}
_SendMethod = Callable[[RequestDeadline], Awaitable[None]]
CERTIFICATE_CHANGE = (
    "renew it, use a host name that it covers, or trust it: export SSL_CERT_FILE=FILE, the"
    " certificate of its authority or, if it is self-signed, its own"
)


class CompletionClient:
    """Client of one server. An async context manager; one per arm.

    Args:
        arm: has the server's URL and model.
        limit: most connections, the concurrency; 0 for no limit (an open loop).
        api: one of the two streaming APIs.
        access: key and headers of the server; never logged or recorded. What the server repeats of
            them is hidden in the reply.

    Attributes:
        proxy: URL of the proxy to the server; None for a direct connection.

    Raises:
        InputError: the environment names a proxy that cannot be used.
    """

    def __init__(
        self,
        arm: ManifestArm,
        *,
        limit: int,
        api: ApiName = "chat",
        access: ServerAccess = NO_ACCESS,
    ) -> None:
        self.arm = arm
        self.api = api
        self._limit = limit
        self._access = access
        self.proxy = find_proxy(arm.root, has_secret=bool(access.list_headers()))
        self._deadlines: set[RequestDeadline] = set()
        self._is_interrupted = False

    async def __aenter__(self) -> Self:
        """Open the sessions; no connection yet.

        Raises:
            InputError: SSL_CERT_FILE names no certificates, which OpenSSL would not say.
        """
        if self.arm.url.startswith("https:"):
            require_certificates(os.environ.get("SSL_CERT_FILE"))
        self._session = self._open_session(limit=self._limit, keepalive_timeout=KEEP_ALIVE_S)
        self._fresh_session = self._open_session(limit=0, force_close=True)
        return self

    def _open_session(self, **options: Any) -> aiohttp.ClientSession:
        async def mark(
            _: aiohttp.ClientSession, context: SimpleNamespace, _params: object, *, was_open: bool
        ) -> None:
            context.trace_request_ctx.had_open_connection = was_open

        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(functools.partial(mark, was_open=True))
        trace.on_connection_create_end.append(functools.partial(mark, was_open=False))
        headers = self._access.list_headers()
        own_names = {name.casefold() for name in headers}
        headers |= {
            name: value
            for name, value in REQUEST_HEADERS.items()
            if name.casefold() not in own_names
        }
        connector = aiohttp.TCPConnector(ttl_dns_cache=None, **options)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            proxy=self.proxy,
            request_class=_ServerRequest,
            trace_configs=[trace],  # a reply says whether its connection was open before
            read_bufsize=READ_BYTES,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._session.close()
        await self._fresh_session.close()

    async def open_connections(self, count: int) -> int:
        """Open connections until `count` are idle; return how many. Never raises for servers.

        `count` simultaneous requests open the connections: no request can use the connection of
        another. Idle connections are used first. All close after KEEP_ALIVE_S without a request.

        Args:
            count: at most the client's limit.
        """
        replies = await asyncio.gather(*(self.get(MODELS_PATH) for _ in range(count)))
        return sum(reply.error is None or reply.error.startswith("status_") for reply in replies)

    async def get(
        self,
        path: str,
        timeouts: Timeouts = PAGE_TIMEOUTS,
        *,
        limit_bytes: int = PAGE_BYTES,
        apart: bool = False,
    ) -> ServerReply:
        """Get `path` of the server (models, version, metrics); never raises for a server's fault.

        Args:
            path: after the server's root; MODELS_PATH comes after that of its API.
            timeouts: of the request.
            limit_bytes: most bytes of the page; more is the error `endless`.
            apart: use a new connection, whatever requests are in flight.
        """
        root = self.arm.api_root if path == MODELS_PATH else self.arm.root
        reply = ServerReply(time.monotonic_ns(), url=root + path, limit_bytes=limit_bytes)

        async def send(deadline: RequestDeadline) -> None:
            deadline.is_sent = True  # a GET has no body that sets this; a page is not measured
            session = self._fresh_session if apart else self._session
            await _send(session, "GET", reply, timeouts, headers={"Accept": "*/*"})

        return await self._exchange(reply, timeouts, math.inf, send)

    async def send_request(self, request: CompletionRequest, timeouts: Timeouts) -> ServerReply:
        """Send one request and return its reply; never raises for a server's fault.

        If a reused connection dies before the answer's head, the client sends the request twice;
        then `ServerReply.reconnects` is 1 and every time of the reply belongs to the second
        sending.
        """
        content = completion_request.encode_body(request, self.arm.model, self.api)
        limit_bytes = STREAM_BYTES + STREAM_BYTES_PER_TOKEN * request.max_tokens
        limit_bytes += STREAM_BYTES_PER_REQUEST_BYTE * len(content)
        reply = ServerReply(
            time.monotonic_ns(),
            url=self.arm.api_root + API_PATHS[self.api],
            limit_bytes=limit_bytes,
        )

        async def send(deadline: RequestDeadline) -> None:
            headers = {"X-Request-Id": request.request_id}
            for session in (self._session, self._fresh_session):
                deadline.is_sent = False
                body = _StampedBody(content, reply, deadline)
                try:
                    await _send(session, "POST", reply, timeouts, headers=headers, data=body)
                    break
                except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                    is_stale = reply.had_open_connection and reply.headers_ns is None
                    if reply.reconnects or not is_stale:
                        raise
                    reply.reconnects = 1

        return await self._exchange(reply, timeouts, request.max_tokens, send)

    def interrupt(self) -> None:
        """Cut every request in flight: each returns `interrupted` and its bytes so far.

        Every later request returns the same error and sends nothing.
        """
        self._is_interrupted = True
        for deadline in self._deadlines:
            deadline.cut("interrupted", INTERRUPT_MESSAGE)

    async def _exchange(
        self, reply: ServerReply, timeouts: Timeouts, max_tokens: float, send: _SendMethod
    ) -> ServerReply:
        if self._is_interrupted:
            reply.error = "interrupted"
            reply.error_detail = INTERRUPT_MESSAGE
            reply.end_ns = reply.start_ns
            return reply
        try:
            async with asyncio.timeout(None) as timeout:
                deadline = RequestDeadline(reply, timeouts, timeout, max_tokens)
                self._deadlines.add(deadline)
                await send(deadline)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            reply.error, reply.error_detail = _describe_failure(error, reply, deadline, timeouts)
            if not isinstance(error, aiohttp.ClientProxyConnectionError):
                reply.error_number = getattr(error, "errno", None)
        finally:
            reply.end_ns = reply.end_ns or time.monotonic_ns()
            deadline.stop()
            self._deadlines.discard(deadline)
        self._hide_secrets(reply)
        _note_redirect(reply)
        return reply

    def _hide_secrets(self, reply: ServerReply) -> None:
        """Hide the server's secrets where its reply repeats them."""
        if not self._access.list_headers():
            return
        reply.access = self._access
        mask = self._access.mask_values
        mask_text = self._access.mask_text
        for name, value in list(reply.headers.items()):
            reply.headers[name] = mask_text(value)
        body = reply.body
        reply.repeats_secret = mask(body) != body
        if reply.repeats_secret:
            reply.reads[:] = [(at_ns, mask(piece)) for at_ns, piece in _join_lines(reply.reads)]
        if reply.error_detail is not None:
            reply.error_detail = mask_text(reply.error_detail)


class _ServerRequest(aiohttp.ClientRequest):
    """Request whose headers are for the server alone.

    aiohttp sends a session's headers, a key among them, to a proxy too, in the clear before TLS.
    """

    def update_proxy(self, proxy: Any, proxy_auth: Any, _proxy_headers: Any) -> None:
        """Give the proxy its own user and password, and no header."""
        super().update_proxy(proxy, proxy_auth, None)


class _StampedBody(aiohttp.BytesPayload):
    """Request body that stores the time at which the transport gets the body."""

    def __init__(self, content: bytes, reply: ServerReply, deadline: RequestDeadline) -> None:
        super().__init__(content, content_type="application/json")
        self._reply = reply
        self._deadline = deadline

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Store the time, then write."""
        self._deadline.is_sent = True
        self._reply.start_ns = time.monotonic_ns()
        await super().write_with_length(writer, content_length)


async def _send(
    session: aiohttp.ClientSession,
    method: str,
    reply: ServerReply,
    timeouts: Timeouts,
    **options: Any,
) -> None:
    """Keep each read of the body; stop at the body's limit and keep no byte beyond it."""
    timeout = aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s)
    options |= {"allow_redirects": False, "timeout": timeout, "trace_request_ctx": reply}
    async with session.request(method, reply.url, **options) as response:
        _read_headers(reply, response)
        read = response.content.readany
        append_read = reply.reads.append
        now = time.monotonic_ns
        size = 0
        while piece := await read():
            append_read((now(), piece))
            size += len(piece)
            if size > reply.limit_bytes:
                reply.reads[-1] = (reply.reads[-1][0], piece[: reply.limit_bytes - size])
                if reply.error is None:
                    detail = f"the answer of {reply.url} has more than {reply.limit_bytes:,} bytes"
                    reply.error = "endless"
                    reply.error_detail = detail
                response.close()
                break
        reply.end_ns = now()


def _join_lines(reads: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the reads with whole lines only; the read that ends an event stays the same."""
    rest = b""
    for at_ns, piece in reads:
        content = rest + piece
        end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1  # a stream may have either
        yield at_ns, content[:end]
        rest = content[end:]
    yield reads[-1][0], rest


def _read_headers(reply: ServerReply, response: aiohttp.ClientResponse) -> None:
    reply.headers_ns = time.monotonic_ns()
    reply.status = response.status
    reply.headers = response.headers.copy()
    if response.status != OK:
        reply.error = f"status_{response.status}"
        reply.limit_bytes = ERROR_BODY_BYTES


def _note_redirect(reply: ServerReply) -> None:
    """Say where a refusal sends the client, once the server's secrets are hidden."""
    location = reply.headers.get("Location")
    if location is not None and reply.status != OK:
        place = location[:DETAIL_CHARACTERS]
        reply.error_detail = f"it redirects to {place}; redirects are not followed"


def _describe_failure(
    error: Exception, reply: ServerReply, deadline: RequestDeadline, timeouts: Timeouts
) -> tuple[str, str | None]:
    """Return the error's word and a detail; a status other than 200 is the word."""
    if reply.status not in {None, OK}:
        return f"status_{reply.status}", reply.error_detail
    if deadline.word is not None:
        return deadline.word, deadline.detail
    if isinstance(error, aiohttp.ClientSSLError):
        return describe_tls_error(error)
    return _describe_exception(error, reply, timeouts)


def _describe_exception(
    error: Exception, reply: ServerReply, timeouts: Timeouts
) -> tuple[str, str | None]:
    """Return the word and a detail of a fault on the wire."""
    match error:
        case TimeoutError():
            word = "connect_timeout"
            detail = f"no connection within {timeouts.connect_s:g} s"
        case aiohttp.ClientConnectorError():
            # a failed name lookup has a negative number, from another list
            number = error.os_error.errno or 0
            cause = os.strerror(number) if number > 0 else error.strerror
            word = "connect"
            detail = f"{error.host}:{error.port}: {cause}"
            if isinstance(error, aiohttp.ClientProxyConnectionError):
                detail = f"the proxy {detail}"
        case aiohttp.ClientHttpProxyError():  # whose text has the proxy's password
            word = "connect"
            detail = f"the proxy answered {error.status}: {' '.join(error.message.split())}"
        case aiohttp.InvalidURL():
            word = "connect"
            detail = str(error)
        case aiohttp.ClientError() if "content-encoding" in str(error):
            cause = " ".join(str(error).split())
            word = "decode"
            detail = f"the body is compressed, although the request asked for plain text: {cause}"
        case aiohttp.ClientResponseError():
            word = "not_sse"
            detail = f"the server does not speak HTTP: {' '.join(error.message.split())}"
        case _:
            place = "in the middle of the answer"
            if reply.headers_ns is None:
                place = "before an answer"
            cause = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
            word = "closed"
            detail = f"the connection was closed {place}{cause}"
    return word, detail


def describe_tls_error(error: aiohttp.ClientSSLError) -> tuple[str, str]:
    """Return the error's word, `certificate` or `connect`, and its cause and remedy for a person.

    The text omits the system's error number: OpenSSL's numbers are no errno, and 1 reads as
    "Operation not permitted".
    """
    address = f"{error.host}:{error.port}"
    cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = (
            f"the certificate of {address} is not accepted: {cause.verify_message.rstrip('.')}"
        )
        return "certificate", f"{problem}; {CERTIFICATE_CHANGE}"
    reason = (getattr(cause, "reason", None) or str(cause)).replace("_", " ").lower()
    return (
        "connect",
        f"{address}: no TLS connection: {reason}; if the server has no TLS, use http://",
    )


def require_certificates(path: str | None) -> None:
    """Check that a file has certificates; None is OpenSSL's own.

    Raises:
        InputError: it cannot be read, or has none.
    """
    if not path:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "it has no certificate"
        if isinstance(error, ssl.SSLError):
            reason = "it has no certificate in PEM form"
        change = "name a file of certificates in PEM form, or unset the variable"
        raise InputError(f"{path}: {reason}", where="SSL_CERT_FILE", change=change) from error
