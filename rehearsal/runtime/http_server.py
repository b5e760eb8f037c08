"""The HTTP side of a stand-in server: health at once, one completion, an end by SIGTERM."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

COMPLETION_PATHS = ("/v1/completions", "/v1/chat/completions")


class _StandInHandler(BaseHTTPRequestHandler):
    fault: ClassVar[str] = ""  # the failure of every request in the engine

    def do_GET(self) -> None:
        self._answer(200 if self.path in ("/health", "/ping") else 404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path not in COMPLETION_PATHS:
            self._answer(404, {})
        elif self.fault:
            sys.stdout.write(f"ERROR in the engine: {self.fault}\n")
            sys.stdout.flush()
            self._answer(500, {"error": self.fault})
        else:
            self._answer(200, {"object": "stand-in", "choices": []})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("x-tandem-simulated", "1")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


def serve_requests(host: str, port: int, stop_event: threading.Event, fault: str) -> int:
    """Answer until `stop_event` is set; return the exit code.

    Args:
        host, port: where.
        stop_event: set when the server shall end.
        fault: with which every completion fails; empty for none.
    """
    handler = type("Handler", (_StandInHandler,), {"fault": fault})
    with ThreadingHTTPServer((host, port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"serving on {host}:{port}\n")
        sys.stdout.flush()
        stop_event.wait()
        server.shutdown()
    sys.stdout.write("ended in order\n")
    return 0
