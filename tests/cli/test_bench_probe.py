"""`tandem bench probe`: what it says of a server, and the codes it ends with."""

from __future__ import annotations

import json

import pytest
from bench_cli import Pair
from independent_server import MODEL, Schedule

from tandem.cli.program import main

LABELS = [
    "server",
    "model",
    "streams",
    "limit",
    "usage",
    "extras",
    "takes",
    "refuses",
    "metrics",
    "next",
]


@pytest.fixture(scope="module")
def pair():
    servers = Pair(Schedule(ttft_ms=1, step_ms=1, tokens=40))
    yield servers
    servers.end()


@pytest.fixture
def server(pair):
    """A server that refuses the seed, and remembers nothing of other tests."""
    served = pair.servers[0]
    served.truths.clear()
    served.refused_fields = ("seed",)
    served.name = "independent/1.0"
    yield served
    served.refused_fields = ()
    served.lethal_field = None
    served.is_dead = False


def name_url(server) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_ten_lines_say_what_a_server_is_takes_and_offers(server, capsys):
    code = main(["bench", "probe", name_url(server)])
    screen = capsys.readouterr()

    lines = screen.out.splitlines()
    texts = {line.split()[0]: line.partition(" ")[2].strip() for line in lines}
    assert (code, list(texts)) == (0, LABELS)
    assert texts["server"] == f"{name_url(server)}: version 0.0.1, Server independent/1.0"
    assert texts["model"] == f"{MODEL}, of 1 listed; may answer as /models/independent"
    assert texts["limit"] == "keeps to max_tokens"
    assert texts["usage"] == "counts tokens in the stream and at the end"
    assert texts["takes"] == "max_tokens, temperature, stream_options, continuous_usage_stats"
    assert texts["refuses"] == "seed"
    assert texts["metrics"].startswith("none: /metrics: status 404")
    assert screen.err.startswith("note: server refuses seed (status_400: unknown field seed)")


def test_json_has_null_for_what_was_not_asked_for(server, capsys):
    code = main(["bench", "probe", name_url(server), "--record", "token-ids", "--json"])
    document = json.loads(capsys.readouterr().out)

    assert (code, document["exit_code"]) == (0, 0)
    assert (document["token_ids"], document["logprobs"]) == (True, None)
    assert document["refused_fields"] == ["seed"]
    assert document["answer"]["output_events"] == 8


def test_keys_and_headers_go_with_every_request(server, monkeypatch):
    monkeypatch.setenv("PROBE_KEY", "key-of-the-probe-1\n")
    flags = ["--api-key-env", "PROBE_KEY", "--header", "x-app:test", "--leave-out", "temperature"]

    assert main(["bench", "probe", name_url(server), *flags]) == 0

    headers = [truth["headers"] for truth in server.truths]
    assert {header.get("authorization") for header in headers} == {"Bearer key-of-the-probe-1"}
    assert {header.get("x-app") for header in headers} == {"test"}
    assert not any("temperature" in truth["body"] for truth in server.posted)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "http://user:secret@host", "http://host?key=secret"]
)
def test_what_is_no_address_is_refused_and_not_shown(capsys, url):
    assert main(["bench", "probe", url]) == 2
    screen = "".join(capsys.readouterr())
    assert "not a URL; allowed: http(s)://HOST:PORT" in " ".join(screen.split())
    assert "secret" not in screen
