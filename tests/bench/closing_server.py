"""An HTTP server of the standard library that says keep-alive and does not keep a connection, as
llama.cpp's does."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

MODEL = "closing"
OWNER = "closing-owner"
Closing = Literal["never", "after_stream", "on_reuse", "reset_on_reuse", "always"]
STREAM = (
    {
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
        ]
    },
    {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}},
)


@dataclass
class ClosingServer:
    """What it is told, and what it was asked.

    Args:
        closing: `after_stream` closes behind each stream; the others wait for the next POST on a
            connection that has carried a request and end it then, with `reset` by a TCP reset;
            `always` ends every POST.
        delay_s: how long it waits before it ends a connection.
        requests: method, path and how many requests the connection had carried before.
    """

    closing: Closing
    delay_s: float = 0.0
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    url: str = ""

    @property
    def posted(self) -> list[int]:
        """For each POST, how many requests its connection had carried before."""
        return [carried for method, _, carried in self.requests if method == "POST"]


class _Listener(ThreadingHTTPServer):
    told: ClosingServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "closing-server/1.0"
    sys_version = ""
    server: _Listener
    carried = 0

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def note(self) -> int:
        """Keep what is asked; return how many requests the connection has carried before."""
        self.server.told.requests.append((self.command, self.path, self.carried))
        self.carried += 1
        return self.carried - 1

    def do_GET(self) -> None:
        """Answer a page."""
        self.note()
        page = (
            {"object": "list", "data": [{"id": MODEL, "owned_by": OWNER}]}
            if self.path == "/v1/models"
            else {}
        )
        body = json.dumps(page).encode()
        self.send_response(200 if self.path in {"/v1/models", "/health"} else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer a stream, or end the connection."""
        carried = self.note()
        closing = self.server.told.closing
        self.rfile.read(int(self.headers["Content-Length"]))
        if closing == "always" or (carried and closing not in {"never", "after_stream"}):
            self.end_connection()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Keep-Alive", "timeout=5, max=100")
        self.end_headers()
        frames = [f"data: {json.dumps({'model': MODEL, **event})}\n\n" for event in STREAM]
        for frame in (*frames, "data: [DONE]\n\n"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame.encode()))
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = closing == "after_stream"

    def end_connection(self) -> None:
        """End it as told."""
        text = self.server.told
        time.sleep(text.delay_s)
        if "reset" in text.closing:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True

    def finish(self) -> None:
        """Close what is still open."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()


@contextlib.contextmanager
def closing_server(closing: Closing, delay_s: float = 0.0) -> Iterator[ClosingServer]:
    """Run a server beside the test."""
    server = ClosingServer(closing, delay_s)
    with _Listener(("127.0.0.1", 0), _Handler) as listening:
        listening.told = server
        server.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join(10)
