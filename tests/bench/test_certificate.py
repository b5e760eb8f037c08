"""Certificates that are not accepted, shown by a real TLS server; the client is a process with its own authorities."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from independent_server import MODEL
from plain_server import PlainAnswer, plain_server

HERE = "IP:127.0.0.1"
MODELS = PlainAnswer([json.dumps({"data": [{"id": MODEL}]}).encode()])
PROGRAM = """
import asyncio, json, sys
from tandem.bench.client import CompletionClient
from tandem.bench.fault import BenchError
from tandem.bench.probe import probe_server
from tandem.bench.completion_request import ModelServer

async def main():
    async with CompletionClient(ModelServer("arm", sys.argv[1], "m"), limit=1) as client:
        reply = await client.get("/v1/models")
        try:
            await probe_server(client, None)
        except BenchError as fault:
            return reply.error, reply.error_detail, str(fault), fault.exit_code

print(json.dumps(asyncio.run(main())))
"""
AUTHORITY = """[ca]
default_ca = here
[here]
database = index
new_certs_dir = .
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""
NEW_KEY = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=twin -keyout key.pem"
PAST = "-startdate 20200101000000Z -enddate 20200201000000Z -notext"


def certify(folder: Path, name: str = HERE, *, expired: bool = False) -> Path:
    """Make a key and a self-signed certificate for a name; return the file of both."""
    texts = {"index": "", "serial": "01", "ca.conf": AUTHORITY} if expired else {}
    commands = [f"{NEW_KEY} -addext subjectAltName={name} -x509 -days 2 -out made.pem"]
    if expired:
        sign = "ca -batch -selfsign -config ca.conf -keyfile key.pem -in request.pem -out made.pem"
        commands = [f"{NEW_KEY} -addext subjectAltName={name} -new -out request.pem", f"{sign} {PAST}"]
    for file, text in texts.items():
        (folder / file).write_text(text)
    for command in commands:
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, cwd=folder)
    pair = folder / "pair.pem"
    pair.write_text((folder / "key.pem").read_text() + (folder / "made.pem").read_text())
    return pair


def connect(pair: Path | None, authorities: Path | None) -> tuple[str | None, str | None, str, int]:
    """Return error, detail, the fault of the probe and its code of a client that trusts `authorities`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if pair:
        tls.load_cert_chain(pair)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SSL_CERT")}
    environment |= {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    with plain_server({"/v1/models": MODELS}, tls if pair else None) as server:
        command = [sys.executable, "-c", PROGRAM, server.url.replace("http:", "https:")]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return tuple(json.loads(done.stdout))


def test_a_certificate_counts_where_its_authority_is_trusted(tmp_path: Path) -> None:
    pair = certify(tmp_path)

    error, detail, fault, code = connect(pair, None)

    assert (error, code, connect(pair, pair)[:2]) == ("certificate", 2, (None, None))
    assert "is not accepted: self-signed certificate; renew it, use a name that it holds, or trust it: export" in str(
        detail
    )
    assert "trust it, replace it, or use the name that it holds" in fault
    assert "Operation not permitted" not in fault


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"name": "DNS:elsewhere.example"}, "is not valid for '127.0.0.1'; renew it"),
        ({"expired": True}, "certificate has expired; renew it"),
    ],
)
def test_a_certificate_that_does_not_hold_is_said_with_what_to_change(made: dict, sentence: str, tmp_path) -> None:
    pair = certify(tmp_path, **made)
    error, detail, _, _ = connect(pair, pair)
    assert (error, sentence in str(detail)) == ("certificate", True)


def test_https_to_a_server_without_tls_is_said() -> None:
    error, detail, _, _ = connect(None, None)
    assert (error, str(detail).endswith("where the server has no TLS, use http://")) == ("connect", True)
    assert "Operation not permitted" not in str(detail)
