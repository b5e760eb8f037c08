"""CloudFormation, ECR and CodeBuild as far as one function speaks to them, over real HTTP on this machine."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]


@dataclass
class Aws:
    """What each operation answers, and what was asked.

    Args:
        answers: operation -> its answers in order; the last one stays.
        lost: how many of the first answers to CloudFormation get no reply.
    """

    url: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    told: list[dict[str, Any]] = field(default_factory=list)
    content_types: list[str | None] = field(default_factory=list)
    lost: int = 0

    def answer(self, operation: str, body: dict[str, Any]) -> Answer:
        self.asked[operation].append(body)
        answers = self.answers[operation]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def serving() -> Iterator[Aws]:
    aws = Aws()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            status, body = aws.answer(operation, self._body())
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_PUT(self) -> None:
            body = self._body()
            if aws.lost:
                aws.lost -= 1
                return  # closes the connection without a reply
            aws.told.append(body)
            aws.content_types.append(self.headers["Content-Type"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _body(self) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            return found

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    aws.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield aws
    finally:
        server.shutdown()
        server.server_close()
