"""The port of the played kubelets: logs of containers, or why there are none.

The certificate is made for a day; an API server verifies it only with
--kubelet-certificate-authority.
"""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from api_store import ApiStore

from rehearsal.cluster.server import find_log_obstacle
from rehearsal.cluster.store import Object

ROOT = "containerLogs"
_CERTIFICATE = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=played"
)


class LogConnection(BaseHTTPRequestHandler):
    """A call of the API server: `/containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N`."""

    store: ApiStore
    read_log: Callable[[Object, str], str]

    def do_GET(self) -> None:
        """Answer the last lines of a container."""
        address = urlsplit(self.path)
        root, *names = address.path.strip("/").split("/")
        if root != ROOT:
            self._answer(404, "only the logs of containers are here\n")
            return
        namespace, name, container = names
        pod = self.store.get_object("pods", namespace, name)
        obstacle = find_log_obstacle(pod, container)
        if obstacle:
            self._answer(400, obstacle)
            return
        lines = self.read_log(pod, container).splitlines(keepends=True)
        count = parse_qs(address.query).get("tailLines", [str(len(lines))])[0]
        self._answer(200, "".join(lines[max(0, len(lines) - int(count)) :]))

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of http.server
        """Say nothing of a call that was answered."""

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_logs(
    store: ApiStore, read_log: Callable[[Object, str], str], folder: Path, address: str
) -> Iterator[int]:
    """Serve the logs of all played nodes over TLS; yield the port."""
    words = ["openssl", *_CERTIFICATE.split(), "-keyout", "kubelet.key", "-out", "kubelet.crt"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    members = {"store": store, "read_log": staticmethod(read_log)}
    server = ThreadingHTTPServer((address, 0), type("PlayedLogs", (LogConnection,), members))
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True, name="logs").start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
