"""`tandem images --resolve` against a registry that speaks real HTTP on this machine."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from dxf import DXF

from tandem.cli.image_digests import resolve_digest, resolve_digests
from tandem.declarations.figure import read_data_file
from tandem.declarations.platform import DigestTable
from tandem.ops.doctor.context import MissingImageError, RegistryError

DIGEST = "sha256:" + "ab" * 32


class Registry(BaseHTTPRequestHandler):
    """Knows one tag, 1.0 of neuron/server, and its digest."""

    def do_HEAD(self) -> None:
        is_there = self.path in {
            "/v2/neuron/server/manifests/1.0",
            f"/v2/neuron/server/manifests/{DIGEST}",
        }
        self.send_response(200 if is_there else 404)
        if is_there:
            self.send_header("Docker-Content-Digest", DIGEST)
            self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def host():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def plain_http(host: str, repository: str) -> DXF:
    return DXF(host, repository, insecure=True, timeout=5)


def test_a_resolved_digest_is_read_back_by_the_catalogue(host, tmp_path):
    file = tmp_path / "digests.yaml"
    resolve_digests([f"{host}/neuron/server:1.0"], file, plain_http)
    digests = read_data_file(DigestTable, file)
    figure = digests.digests[f"{host}/neuron/server:1.0"]
    assert digests.find_digest(f"{host}/neuron/server:1.0") == DIGEST
    assert figure.source.where.startswith(host)


def test_resolving_keeps_what_was_known(host, tmp_path):
    file = tmp_path / "digests.yaml"
    file.write_text(
        'digests: {"a.example/b:1": {value: sha256:00, source: s}}\nsources: {s: {where: w, date:'
        " 2026-01-01}}\n"
    )

    resolve_digests([f"{host}/neuron/server:1.0"], file, plain_http)

    assert read_data_file(DigestTable, file).find_digest("a.example/b:1") == "sha256:00"


def test_an_unknown_tag_is_named_and_the_file_left_alone(host, tmp_path):
    file = tmp_path / "digests.yaml"
    with pytest.raises(RegistryError, match=r"neuron/server:2.0"):
        resolve_digests([f"{host}/neuron/server:2.0"], file, plain_http)
    assert not file.exists()


def test_a_pinned_image_is_asked_for_by_its_digest(host):
    assert resolve_digest(f"{host}/neuron/server@{DIGEST}", plain_http) == DIGEST


def test_a_missing_image_is_no_silent_registry(host):
    with pytest.raises(MissingImageError):
        resolve_digest(f"{host}/neuron/server@sha256:{'0' * 64}", plain_http)
    with pytest.raises(RegistryError) as silent:
        resolve_digest("127.0.0.1:9/neuron/server:1.0", plain_http)
    assert not isinstance(silent.value, MissingImageError)
