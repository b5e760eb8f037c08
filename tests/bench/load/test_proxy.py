"""Proxies that the environment names, over real HTTP and TLS; the client is a process with its own
variables."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys

import pytest
from forward_proxy import forward_proxy
from independent_server import MODEL
from plain_server import PlainAnswer, plain_server
from test_certificate import certify

from tandem.bench.load.proxy import describe_proxy, find_proxy
from tandem.errors import InputError

HOST = "server.example"
KEY = "sk-of-the-server"
MODELS = PlainAnswer([json.dumps({"data": [{"id": MODEL}]}).encode()])
PROGRAM = """
import asyncio, sys
import uvloop
from tandem.bench.load.client import CompletionClient
from tandem.bench.plan.server_access import ServerAccess
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import TandemError

async def main():
    arm = ManifestArm(name="arm", role="variant", url=sys.argv[1], model="m")
    access = ServerAccess(api_key=sys.argv[2] or None)
    async with CompletionClient(arm, limit=1, access=access) as client:
        reply = await client.get("/v1/models")
        return reply.error_detail or reply.error

try:
    print(uvloop.run(main()))
except TandemError as fault:
    print(fault)
"""


def get_models(url: str, variables: dict[str, str], key: str = "") -> str:
    """Get the models of a server, and return the error word, or the fault of the client."""
    environment = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    command = [sys.executable, "-c", PROGRAM, url, key]
    done = subprocess.run(
        command, env=environment | variables, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_a_proxy_gets_the_requests_of_a_server_without_a_key():
    with plain_server({"/v1/models": MODELS}) as server, forward_proxy() as proxy:
        url = server.url.replace("127.0.0.1", HOST)
        assert get_models(url, {"HTTP_PROXY": proxy.url}) == "None"
        assert proxy.request_lines == [f"GET {url}/v1/models HTTP/1.1"]


@pytest.mark.parametrize("host", ["127.0.0.1", HOST])
def test_no_proxy_gets_what_goes_directly(host):
    with plain_server({"/v1/models": MODELS}) as server, forward_proxy() as proxy:
        url = server.url.replace("127.0.0.1", host)
        error = get_models(url, {"HTTP_PROXY": proxy.url, "NO_PROXY": f".x,{HOST}"})
        assert (error == "None") == (host != HOST)  # only the proxy knows that host
        assert proxy.received == b""


def test_a_refusal_of_a_proxy_has_no_password():
    with plain_server({}) as proxy:
        url = proxy.url.replace("127.0.0.1", "user:secret@127.0.0.1")
        error = get_models(f"https://{HOST}", {"HTTPS_PROXY": url})
    assert error == "the proxy answered 404: Not Found"


def test_a_proxy_that_is_away_is_named():
    error = get_models(f"http://{HOST}:8000", {"HTTP_PROXY": "http://127.0.0.1:9"})
    assert error == "the proxy 127.0.0.1:9: Connection refused"


def test_a_key_goes_through_a_proxy_only_inside_tls(tmp_path):
    pair = certify(tmp_path, f"DNS:{HOST}")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    with plain_server({"/v1/models": MODELS}, tls) as server, forward_proxy() as proxy:
        url = server.url.replace("127.0.0.1", HOST)
        variables = {"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(pair)}
        assert get_models(url, variables, KEY) == "None"
        assert server.paths == ["/v1/models"]
        assert proxy.request_lines == [f"CONNECT {url.removeprefix('https://')} HTTP/1.1"]
        assert KEY.encode() not in proxy.received


def test_a_key_that_a_proxy_would_read_is_refused():
    with forward_proxy() as proxy:
        fault = get_models(f"http://{HOST}:8000", {"HTTP_PROXY": proxy.url}, KEY)
        assert f"the proxy {proxy.url} of HTTP_PROXY would read the key" in fault
        assert f"export NO_PROXY={HOST}" in fault
        assert proxy.received == b""


@pytest.mark.parametrize(
    ("url", "names", "is_direct"),
    [
        ("http://10.1.2.3:8000", "10.0.0.0/8", True),
        ("http://11.1.2.3:8000", "10.0.0.0/8", False),
        ("http://a.server.example", "server.example", True),
        ("http://server.example:8000", "server.example:8001", False),
        ("http://server.example", "*", True),
        ("http://localhost:8000", "", True),
        ("http://[::1]:8000", "", True),
        ("http://server.example", "", False),
    ],
)
def test_a_server_is_direct_by_name_network_or_place(monkeypatch, url, names, is_direct):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", names)
    assert (find_proxy(url, has_secret=False) is None) == is_direct


def test_what_is_no_http_proxy_is_refused(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(InputError, match="is no HTTP proxy"):
        find_proxy(f"https://{HOST}", has_secret=True)


def test_a_note_has_no_password_of_a_proxy():
    assert "pass" not in describe_proxy("base", "http://user:pass@proxy.example:3128")
