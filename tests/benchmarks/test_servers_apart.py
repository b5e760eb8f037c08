"""A benchmark's server is a process of its own: it answers, logs what it did, and has ended when
its block is left."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import pytest
import servers_apart
from servers_apart import Server

FAST = {"step_ms": [1.0], "prefill_base_ms": 1.0}


def connect(server: Server) -> HTTPConnection:
    return HTTPConnection(server.url.removeprefix("http://"), timeout=30)


def ask(server: Server, request_id: str) -> int:
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "stream": True,
    }
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    connection = connect(server)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_the_twin_answers_under_the_name_of_its_knobs_and_logs_it(tmp_path):
    with servers_apart.simulator(tmp_path, {**FAST, "model": "named"}) as server:
        assert (server.model, ask(server, "asked-1")) == ("named", 200)
    assert "asked-1" in "".join(server.read_entries())
    with pytest.raises(ConnectionRefusedError):  # after its block
        connect(server).connect()
