"""Certificates that are not accepted, shown by a real TLS server; the client is a process with its own authorities."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from independent_server import MODEL
from plain_server import PlainAnswer, plain_server

from tandem.bench.client import describe_tls_error

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
            await probe_server(client, client.server)
        except BenchError as fault:
            return reply.error, reply.error_detail, str(fault), fault.exit_code

print(json.dumps(asyncio.run(main())))
"""
AUTHORITY = """[ca]
default_ca = here
[here]
database = {folder}/index
new_certs_dir = {folder}
serial = {folder}/serial
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""


REQUEST = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=twin")


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certify(folder: Path, name: str = HERE) -> Path:
    """Make a key and a self-signed certificate for a name; return the file of both."""
    pair = folder / "pair.pem"
    openssl(
        *REQUEST,
        "-x509",
        "-days",
        "2",
        "-addext",
        f"subjectAltName={name}",
        "-keyout",
        str(pair),
        "-out",
        f"{pair}.crt",
    )
    pair.write_text(pair.read_text() + Path(f"{pair}.crt").read_text())
    return pair


def certify_past(folder: Path) -> Path:
    """Make a certificate that has expired."""
    key, request, made = folder / "key.pem", folder / "request.pem", folder / "made.pem"
    folder.joinpath("index").touch()
    folder.joinpath("serial").write_text("01")
    folder.joinpath("ca.conf").write_text(AUTHORITY.format(folder=folder))
    openssl(*REQUEST, "-new", "-addext", f"subjectAltName={HERE}", "-keyout", str(key), "-out", str(request))
    openssl(
        "ca", "-batch", "-selfsign", "-config", str(folder / "ca.conf"), "-keyfile", str(key), "-in", str(request),
        "-out", str(made), "-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-notext",
    )  # fmt: skip
    pair = folder / "pair.pem"
    pair.write_text(key.read_text() + made.read_text())
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
    assert "is not accepted: self-signed certificate; to trust it, export SSL_CERT_FILE=FILE" in str(detail)
    assert "trust it, replace it, or use the name that it holds" in fault
    assert "Operation not permitted" not in fault


@pytest.mark.parametrize(
    ("pair_of", "sentence"),
    [
        (lambda folder: certify(folder, "DNS:elsewhere.example"), "is not valid for '127.0.0.1'; use a name that"),
        (certify_past, "certificate has expired; renew the server's certificate"),
    ],
    ids=["another name", "expired"],
)
def test_a_certificate_that_does_not_hold_is_said_with_what_to_change(pair_of, sentence: str, tmp_path: Path) -> None:
    pair = pair_of(tmp_path)
    error, detail, _, _ = connect(pair, pair)
    assert (error, sentence in str(detail)) == ("certificate", True)


def test_https_to_a_server_without_tls_is_said() -> None:
    error, detail, _, _ = connect(None, None)
    assert (error, str(detail).endswith("where the server has no TLS, use http://")) == ("connect", True)
    assert "Operation not permitted" not in str(detail)


def test_a_failure_without_advice_is_said_in_openssls_words() -> None:
    cause = ssl.SSLCertVerificationError()
    cause.verify_code, cause.verify_message = 23, "certificate revoked"
    word, detail = describe_tls_error(SimpleNamespace(host="host", port=443, os_error=cause))  # type: ignore[arg-type]
    assert (word, detail.endswith("certificate revoked")) == ("certificate", True)
