"""A small HTTP server on 127.0.0.1, for the doubles that speak HTTP: one thread a connection,
stopped at once.

Invariant: after `stop` no connection of it is open and its port refuses; `start` takes the same
port again.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, NamedTuple

from rehearsal.loopback import HOST

PIECE_BYTES = 256 * 1024  # bytes held at a time of a body that passes through
_POLL_S = 0.05  # how soon a stop is seen


class _LoopbackHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__((HOST, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def close_connections(self) -> None:
        """End every open connection, so that no thread waits for a client that keeps one alive."""
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class LoopbackServer:
    """One server that can be stopped and started again on its port.

    Args:
        handler: makes the handler of one connection, called as `socketserver` calls its handler
            class.
        port: 0 takes a free one at the first start.
    """

    def __init__(self, handler: Callable[..., BaseHTTPRequestHandler], port: int = 0) -> None:
        self.port = port
        self._handler = handler
        self._server: _LoopbackHttpServer | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: somebody else has the port.
        """
        if self._server is not None:
            return
        self._server = _LoopbackHttpServer(self.port, self._handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=[_POLL_S], daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections and end the open ones."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._server = None


class Question(NamedTuple):
    """A request as the function that answers it sees it."""

    method: str
    path: str
    headers: Message
    body: bytes


@contextlib.contextmanager
def answer_requests(
    answer: Callable[[Question], tuple[int, dict[str, str], bytes] | None],
) -> Iterator[str]:
    """A server that answers as a function says: status, headers and body, or none; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers = answer(Question(self.command, self.path, self.headers, body))
            if answers is None:
                self.close_connection = True
                return
            status, headers, content = answers
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = LoopbackServer(Handler)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def read_body(headers: Message, stream: BufferedIOBase) -> Iterator[bytes]:
    """The body of a request in pieces, its transfer encoding taken off and nothing else changed.

    Raises:
        ConnectionError: the client went away in the middle.
    """
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        while chunk_bytes := int(stream.readline().split(b";")[0], 16):
            yield from _read_exactly(stream, chunk_bytes)
            stream.readline()
        while stream.readline().strip():  # trailers
            pass
    else:
        yield from _read_exactly(stream, int(headers.get("Content-Length", "0")))


def _read_exactly(stream: BufferedIOBase, remaining_bytes: int) -> Iterator[bytes]:
    while remaining_bytes:
        piece = stream.read(min(remaining_bytes, PIECE_BYTES))
        if not piece:
            raise ConnectionAbortedError("the client went away in the middle of its request")
        remaining_bytes -= len(piece)
        yield piece
