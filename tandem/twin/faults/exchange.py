"""One client's connection through the proxy: what is asked goes on, the fault is done to it, the answer comes back."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError

from tandem.twin import loopback
from tandem.twin.faults.operation import operation_of, service_of
from tandem.twin.faults.refusal import refusal
from tandem.twin.faults.request import Moment
from tandem.twin.faults.rules import RULES, CorruptAnswer, CutAnswer, Delay, Drop, Fault, LoseAnswer, SlowAnswer, Status

if TYPE_CHECKING:
    from tandem.twin.faults.proxy import FaultProxy

FAULTS = "/__faults"
LOG = "/__log"
UPSTREAM_S = 600.0  # an endpoint may take minutes to join the parts of a large object
_TICK_S = 0.02  # how often a slow answer sends
_FORM = "application/x-www-form-urlencoded"
_FORM_BYTES = 1 << 20
# RFC 9110 7.6.1, and Expect, which is answered here
_HOP_BY_HOP = {"connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
               "upgrade"}  # fmt: skip
_SECRET = {"authorization", "x-amz-security-token"}


class _EndedError(Exception):
    """The connection to the client is to end now."""


class Exchange(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the head of an answer would wait 40 ms for its body

    def __init__(self, proxy: FaultProxy, *arguments: Any) -> None:
        self.proxy = proxy
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """The proxy has a log of its own."""

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        if path in {FAULTS, LOG}:
            self._control(path)
            return
        self.form = b""
        self.pieces = loopback.body(self.headers, self.rfile)
        if self.headers.get("Content-Type", "").startswith(_FORM):
            self.form = b"".join(itertools.islice(self.pieces, _FORM_BYTES // loopback.PIECE))
            self.pieces = itertools.chain([self.form] if self.form else [], self.pieces)
        self.asked = {name.lower(): value for name, value in self.headers.items()}
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        form = dict(parse_qsl(self.form.decode(errors="replace")))
        service = service_of(self.asked, parameters) if self.proxy.aws else ""
        target = unquote(path)
        self.request_, fault = self.proxy.arrived(
            service=service,
            operation=operation_of(service, self.command, target, {**parameters, **form}, self.asked),
            method=self.command,
            path=target,
            query=parameters,
            headers={name: "..." if name in _SECRET else value for name, value in self.asked.items()},
        )
        try:
            self._meet(fault)
        except (_EndedError, ConnectionError, TimeoutError, http.client.HTTPException):
            self.close_connection = True
        finally:
            if self.request_.ended_s is None:
                self._note(ended=True)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _handle  # noqa: N815

    def _note(self, *, ended: bool = False, **changes: Any) -> None:
        self.request_ = self.proxy.note(self.request_, ended=ended, **changes)

    def _watch(self, moment: Moment) -> None:
        if self.proxy.watch is not None:
            self.proxy.watch(moment, self.request_)

    def _meet(self, fault: Fault | None) -> None:
        self._watch("asked")
        if isinstance(fault, Drop):
            raise _EndedError
        if isinstance(fault, Status):
            self._refuse(fault)
            return
        if isinstance(fault, Delay):
            time.sleep(fault.delay_s)
        upstream = http.client.HTTPConnection(*self.proxy.upstream, timeout=UPSTREAM_S)
        with contextlib.closing(upstream):
            answer = self._forward(upstream)
            with contextlib.closing(answer):
                self._note(status=answer.status)
                self._watch("done")
                self._relay(answer, fault)

    def _refuse(self, fault: Status) -> None:
        for piece in self._counted():
            del piece
        kind, said = refusal(self.request_.service, fault.code, self.asked, query_protocol=bool(self.form))
        said = b"" if self.command == "HEAD" else said
        self._note(status=fault.status, answer_bytes=len(said), ended=True)
        self._answer(fault.status, kind, said, {"x-amzn-errortype": fault.code})

    def _counted(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self._note(request_bytes=self.request_.request_bytes + len(piece))
            yield piece

    def _forward(self, upstream: http.client.HTTPConnection) -> http.client.HTTPResponse:
        chunked = self.asked.get("transfer-encoding", "").lower() == "chunked"
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                upstream.putheader(name, value)
        if chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        for piece in self._counted():
            upstream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            upstream.send(b"0\r\n\r\n")
        return upstream.getresponse()

    def _relay(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        if isinstance(fault, LoseAnswer):
            while answer.read(loopback.PIECE):
                pass
            raise _EndedError
        size = answer.length  # None where it comes in chunks; 0 for HEAD
        cut = isinstance(fault, CutAnswer)
        if cut and size == 0:
            raise _EndedError
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if size is None:
            self.send_header("Transfer-Encoding", "chunked")
        self._send(_changed(iter(partial(answer.read, loopback.PIECE), b""), size, fault), chunked=size is None)
        if cut or (size is not None and self.request_.answer_bytes < size):
            raise _EndedError
        if size is None:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, pieces: Iterable[bytes], *, chunked: bool) -> None:
        """Send head and body. The log says that it ended before the last piece leaves, so that who has it may look."""
        ahead = iter(pieces)
        piece = next(ahead, b"")
        following = next(ahead, b"")
        self._note(answer_bytes=len(piece), ended=not following)
        self.end_headers()
        while piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            piece, following = following, next(ahead, b"")
            self._note(answer_bytes=self.request_.answer_bytes + len(piece), ended=not following)

    def _answer(self, status: int, kind: str, said: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(said)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def _control(self, path: str) -> None:
        given = b"".join(loopback.body(self.headers, self.rfile))
        status: int = http.client.OK
        said: Any = None
        if (path, self.command) == (LOG, "DELETE"):
            self.proxy.forget()
        elif (path, self.command) == (LOG, "GET"):
            said = [asdict(one) for one in self.proxy.log]
        elif (path, self.command) == (FAULTS, "DELETE"):
            self.proxy.use()
        elif (path, self.command) == (FAULTS, "PUT"):
            try:
                self.proxy.use(*RULES.validate_json(given))
            except ValidationError as error:
                status, said = 400, error.errors(include_url=False, include_context=False)
        if path == FAULTS and status == http.client.OK:
            said = [{**rule.model_dump(), "fired": fired}
                    for rule, fired in zip(self.proxy.rules, self.proxy.fired, strict=True)]  # fmt: skip
        self._answer(status, "application/json", json.dumps(said).encode())


def _changed(pieces: Iterator[bytes], size: int | None, fault: Fault | None) -> Iterator[bytes]:
    """The answer's body as the client gets it."""
    if isinstance(fault, CutAnswer):
        return _cut(pieces, (size or 0) // 2 if fault.after is None else fault.after)
    if isinstance(fault, CorruptAnswer):
        return _corrupted(pieces, (size or 0) // 2 if fault.at is None else fault.at)
    if isinstance(fault, SlowAnswer):
        return _slowed(pieces, fault.bytes_per_s)
    return pieces


def _cut(pieces: Iterator[bytes], left: int) -> Iterator[bytes]:
    while left > 0 and (piece := next(pieces, b"")):
        yield piece[:left]
        left -= len(piece)


def _corrupted(pieces: Iterator[bytes], at: int) -> Iterator[bytes]:
    for piece in pieces:
        if 0 <= at < len(piece):
            piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]  # noqa: PLW2901
        at -= len(piece)
        yield piece


def _slowed(pieces: Iterator[bytes], bytes_per_s: float) -> Iterator[bytes]:
    step = max(1, int(bytes_per_s * _TICK_S))
    for piece in pieces:
        for start in range(0, len(piece), step):
            part = piece[start : start + step]
            time.sleep(len(part) / bytes_per_s)
            yield part
