"""One client's connection through the proxy: what is asked goes on, the fault is done to it, the
answer comes back."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Iterable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from doubles import loopback
from doubles.fault_proxy.aws_operation import find_operation, find_service
from doubles.fault_proxy.error_response import build_error_response
from doubles.fault_proxy.request import ProxyMoment
from doubles.fault_proxy.rules import (
    AnswerCorruptionFault,
    AnswerCutFault,
    AnswerLossFault,
    DelayFault,
    DropFault,
    ProxyFault,
    SlowAnswerFault,
    StatusFault,
)

if TYPE_CHECKING:
    from doubles.fault_proxy.proxy import FaultProxy

UPSTREAM_TIMEOUT_S = 600.0  # an endpoint may take minutes to join the parts of a large object
_SLOW_STEP_S = 0.02  # how often a slow answer sends
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FORM_BYTES = 1 << 20
# RFC 9110 7.6.1, and Expect, which is answered here
_HOP_BY_HOP = {
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_SECRET_HEADERS = {"authorization", "x-amz-security-token"}


class _ConnectionEndError(Exception):
    """The connection to the client is to end now."""


class ProxyConnection(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the head of an answer would wait 40 ms for its body

    def __init__(self, proxy: FaultProxy, *arguments: Any) -> None:
        self.proxy = proxy
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """The proxy has a log of its own."""

    def _forward_or_control(self) -> None:
        path, _, query = self.path.partition("?")
        self.form = b""
        self.pieces = loopback.read_body(self.headers, self.rfile)
        if self.headers.get("Content-Type", "").startswith(_FORM_TYPE):
            self.form = b"".join(
                itertools.islice(self.pieces, _MAX_FORM_BYTES // loopback.PIECE_BYTES)
            )
            self.pieces = itertools.chain([self.form] if self.form else [], self.pieces)
        self.request_headers = {name.lower(): value for name, value in self.headers.items()}
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        form = dict(parse_qsl(self.form.decode(errors="replace")))
        service = find_service(self.request_headers, parameters) if self.proxy.is_aws else ""
        target = unquote(path)
        self.log_entry, fault = self.proxy.log_arrival(
            service=service,
            operation=find_operation(
                service, self.command, target, {**parameters, **form}, self.request_headers
            ),
            method=self.command,
            path=target,
            query=parameters,
            headers={
                name: "..." if name in _SECRET_HEADERS else value
                for name, value in self.request_headers.items()
            },
        )
        try:
            self._apply_fault(fault)
        except (_ConnectionEndError, ConnectionError, TimeoutError, http.client.HTTPException):
            self.close_connection = True
        finally:
            if self.log_entry.ended_s is None:
                self._update_log(is_end=True)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _forward_or_control  # noqa: N815

    def _update_log(self, *, is_end: bool = False, **changes: Any) -> None:
        self.log_entry = self.proxy.update_request(self.log_entry, is_end=is_end, **changes)

    def _call_back(self, moment: ProxyMoment) -> None:
        if self.proxy.moment_callback is not None:
            self.proxy.moment_callback(moment, self.log_entry)

    def _apply_fault(self, fault: ProxyFault | None) -> None:
        self._call_back("asked")
        if isinstance(fault, DropFault):
            raise _ConnectionEndError
        if isinstance(fault, StatusFault):
            self._refuse(fault)
            return
        if isinstance(fault, DelayFault):
            time.sleep(fault.delay_s)
        upstream = http.client.HTTPConnection(*self.proxy.upstream, timeout=UPSTREAM_TIMEOUT_S)
        with contextlib.closing(upstream):
            answer = self._forward(upstream)
            with contextlib.closing(answer):
                self._update_log(status=answer.status)
                self._call_back("done")
                self._relay(answer, fault)

    def _refuse(self, fault: StatusFault) -> None:
        for _ in self.pieces:
            pass
        content_type, content = build_error_response(
            self.log_entry.service,
            fault.code,
            self.request_headers,
            is_query_protocol=bool(self.form),
        )
        content = b"" if self.command == "HEAD" else content
        self._update_log(status=fault.status, answer_bytes=len(content), is_end=True)
        self.send_response_only(fault.status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-amzn-errortype", fault.code)
        self.end_headers()
        self.wfile.write(content)

    def _forward(self, upstream: http.client.HTTPConnection) -> http.client.HTTPResponse:
        uses_chunks = self.request_headers.get("transfer-encoding", "").lower() == "chunked"
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                upstream.putheader(name, value)
        if uses_chunks:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        for piece in self.pieces:
            upstream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if uses_chunks else piece)
        if uses_chunks:
            upstream.send(b"0\r\n\r\n")
        return upstream.getresponse()

    def _relay(self, answer: http.client.HTTPResponse, fault: ProxyFault | None) -> None:
        if isinstance(fault, AnswerLossFault):
            while answer.read(loopback.PIECE_BYTES):
                pass
            raise _ConnectionEndError
        size = answer.length  # None where it comes in chunks; 0 for HEAD
        cut = isinstance(fault, AnswerCutFault)
        if cut and size == 0:
            raise _ConnectionEndError
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if size is None:
            self.send_header("Transfer-Encoding", "chunked")
        self._send(
            _apply_answer_fault(iter(partial(answer.read, loopback.PIECE_BYTES), b""), size, fault),
            uses_chunks=size is None,
        )
        if cut or (size is not None and self.log_entry.answer_bytes < size):
            raise _ConnectionEndError
        if size is None:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, pieces: Iterable[bytes], *, uses_chunks: bool) -> None:
        """Send head and body. The log says that it ended before the last piece leaves, so that who
        has it may look."""
        piece_iterator = iter(pieces)
        piece = next(piece_iterator, b"")
        following = next(piece_iterator, b"")
        self._update_log(answer_bytes=len(piece), is_end=not following)
        self.end_headers()
        while piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if uses_chunks else piece)
            piece = following
            following = next(piece_iterator, b"")
            self._update_log(
                answer_bytes=self.log_entry.answer_bytes + len(piece), is_end=not following
            )


def _apply_answer_fault(
    pieces: Iterator[bytes], size: int | None, fault: ProxyFault | None
) -> Iterator[bytes]:
    """The answer's body as the client gets it."""
    if isinstance(fault, AnswerCutFault):
        return _cut_answer(pieces, (size or 0) // 2 if fault.after is None else fault.after)
    if isinstance(fault, AnswerCorruptionFault):
        return _corrupt_answer(pieces, (size or 0) // 2 if fault.at is None else fault.at)
    if isinstance(fault, SlowAnswerFault):
        return _slow_answer(pieces, fault.bytes_per_s)
    return pieces


def _cut_answer(pieces: Iterator[bytes], remaining_bytes: int) -> Iterator[bytes]:
    while remaining_bytes > 0 and (piece := next(pieces, b"")):
        yield piece[:remaining_bytes]
        remaining_bytes -= len(piece)


def _corrupt_answer(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for piece in pieces:
        if 0 <= offset < len(piece):
            piece = piece[:offset] + bytes([piece[offset] ^ 1]) + piece[offset + 1 :]  # noqa: PLW2901
        offset -= len(piece)
        yield piece


def _slow_answer(pieces: Iterator[bytes], bytes_per_s: float) -> Iterator[bytes]:
    step = max(1, int(bytes_per_s * _SLOW_STEP_S))
    for piece in pieces:
        for start in range(0, len(piece), step):
            part = piece[start : start + step]
            time.sleep(len(part) / bytes_per_s)
            yield part
