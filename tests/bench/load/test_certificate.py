"""Certificates that are not accepted, shown by a real TLS server; the client is a process with its
own authorities."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys

import pytest
from independent_server import MODEL
from plain_server import PlainAnswer, plain_server

from tandem.bench.load.client import require_certificates
from tandem.errors import InputError

HERE = "IP:127.0.0.1"
MODELS = PlainAnswer([json.dumps({"data": [{"id": MODEL}]}).encode()])
PROGRAM = """
import asyncio, json, sys
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.probe import probe_server
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import TandemError

async def main():
    arm = ManifestArm(name="arm", role="variant", url=sys.argv[1], model="m")
    async with CompletionClient(arm, limit=1) as client:
        reply = await client.get("/v1/models")
        try:
            await probe_server(client)
        except TandemError as fault:
            return reply.error, reply.error_detail, str(fault), fault.exit_code

print(json.dumps(asyncio.run(main())))
"""
NEW_KEY = (
    "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=twin -keyout key.pem"
    " -x509 -days 2"
)


def certify(folder, name=HERE):
    """Make a key and a self-signed certificate for a name; return the file of both."""
    command = ["openssl", *NEW_KEY.split(), "-out", "made.pem", "-addext", f"subjectAltName={name}"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    pair = folder / "pair.pem"
    pair.write_text((folder / "key.pem").read_text() + (folder / "made.pem").read_text())
    return pair


def connect(pair, authorities, scheme="https"):
    """Return error, detail, the fault of the probe and its code of a client that trusts
    `authorities`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if pair:
        tls.load_cert_chain(pair)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("SSL_CERT")
    }
    environment |= {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    with plain_server({"/v1/models": MODELS}, tls if pair else None) as server:
        command = [sys.executable, "-c", PROGRAM, f"{scheme}:{server.url.partition(':')[2]}"]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return tuple(json.loads(done.stdout))


def test_a_certificate_counts_where_its_authority_is_trusted(tmp_path):
    pair = certify(tmp_path)

    error, detail, fault, code = connect(pair, None)

    assert (error, code, connect(pair, pair)[:2]) == ("certificate", 2, (None, None))
    assert (
        "is not accepted: self-signed certificate; renew it, use a host name that it covers, or trust it:"
        " export" in detail
    )
    assert "TLS certificate verification failed" in fault
    assert "Operation not permitted" not in fault


def test_a_certificate_of_another_name_is_explained(tmp_path):
    pair = certify(tmp_path, "DNS:elsewhere.example")
    error, detail, _, _ = connect(pair, pair)
    assert error == "certificate"
    assert "is not valid for '127.0.0.1'; renew it" in detail


def test_https_to_a_server_without_tls_is_said():
    error, detail, fault, code = connect(None, None)
    assert error == "connect"
    assert detail.endswith("if the server has no TLS, use http://")
    assert "Operation not permitted" not in detail
    assert code == 2
    assert re.search(
        r"the address says https, and the server speaks http .*; name it as http://127", fault
    )


def test_http_to_a_server_with_tls_is_said(tmp_path):
    _, _, fault, code = connect(certify(tmp_path), None, scheme="http")
    assert code == 2
    assert re.search(
        r"the address says http, and the server speaks https .*; name it as https://127", fault
    )


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_refused(content, tmp_path):
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as refusal:
        require_certificates(str(path))
    assert refusal.value.where == "SSL_CERT_FILE"
