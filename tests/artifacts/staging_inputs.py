"""Hubs that are none, and snapshots on disk, shared by the tests of staging."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from doubles.checkpoint import RandomCheckpoint

MODEL = "acme/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
TOKEN = "hf_" + "Z9" * 17
EXTRAS = {
    "README.md": b"# a model\n",
    "pytorch_model.bin": b"\x80\x04pickle",
    "model.onnx": b"onnx",
    "picture.png": b"png",
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "modeling_tiny.py": b"print('code')\n",
    "original/consolidated.safetensors": b"0" * 64,
}


def snapshot(folder, *, extras=True, **shape):
    """A checkpoint of real format, with files beside it that no server reads."""
    RandomCheckpoint(**shape).write(folder)
    for name, body in EXTRAS.items() if extras else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def listing(siblings, sha=COMMIT, **more):
    """What a hub answers when it is asked for a model."""
    return json.dumps({"id": MODEL, "sha": sha, "gated": False, "siblings": siblings, **more}).encode()


Answer = Callable[[str, int], tuple[int, dict[str, str], bytes]]


@contextmanager
def plain_hub(answer):
    """An HTTP server that answers as it is told: called with the path and how often that path was asked for."""
    asked: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            asked[path] = asked.get(path, 0) + 1
            status, headers, body = answer(path, asked[path])
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """The tests look at what the client says."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
