"""A stand-in takes vLLM's place: a small program with its module name, health page and child
process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.server import (
    CpuVllmServer,
    build_self_draft,
    server_arguments,
    server_variables,
)

ROOT = Path(__file__).parent.parent.parent
SERVES = """
import http.server, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as vLLM starts its engine

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(" ".join(sys.argv[1:]).encode())

http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Page).serve_forever()
"""
ENDS = "import sys; print('no such weights'); sys.exit(7)"
HANGS = "import time; print('still loading', flush=True); time.sleep(600)"


@pytest.fixture
def stand_in(tmp_path):
    """Make an interpreter whose `vllm` is the given program."""

    def make(program: str) -> Path:
        package = tmp_path / "packages" / "vllm" / "entrypoints" / "openai"
        package.mkdir(parents=True)
        (package / "api_server.py").write_text(program)
        interpreter = tmp_path / "python"
        interpreter.write_text(
            f'#!/bin/sh\nPYTHONPATH={tmp_path / "packages"} exec {sys.executable} "$@"\n'
        )
        interpreter.chmod(0o755)
        return interpreter

    return make


@pytest.fixture
def server(stand_in, tmp_path):
    """Make a server that is not started; it is stopped at the end."""
    servers = []

    def make(program: str, **more) -> CpuVllmServer:
        (tmp_path / "weights").mkdir()
        new_server = CpuVllmServer(
            interpreter=stand_in(program),
            weights=tmp_path / "weights",
            name="base",
            folder=tmp_path / "logs",
            **more,
        )
        servers.append(new_server)
        return new_server

    yield make
    for running in servers:
        running.stop()


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def gone(group: int) -> bool:
    for _ in range(600):
        if not group_exists(group):
            return True
        time.sleep(0.05)
    return False


def test_a_started_server_answers_on_its_own_port(server):
    running = server(SERVES).start()
    assert f"--port {running.port}" in running.read_page("/health")


def test_a_server_that_ends_at_its_start_shows_the_end_of_its_log(server):
    with pytest.raises(
        VllmSetupError, match=r"(?s)vLLM base ended before it was ready.*no such weights.*code 7"
    ):
        server(ENDS).start()


def test_a_server_that_never_answers_is_given_up_and_ended(server):
    hanging = server(HANGS, ready_s=1.5).launch()
    group = hanging.process_group

    with pytest.raises(
        VllmSetupError, match=r"(?s)did not answer /health within 2 s.*still loading"
    ):
        hanging.wait()

    assert gone(group)


def test_a_server_ends_with_whoever_started_it_even_by_a_kill(stand_in, tmp_path):
    (tmp_path / "weights").mkdir()
    code = (
        "import pathlib, sys, time\nfrom rehearsal.vllm_cpu.server import CpuVllmServer\nhere ="
        f" pathlib.Path({str(tmp_path)!r})\none ="
        f" CpuVllmServer(interpreter=pathlib.Path({str(stand_in(SERVES))!r}), weights=here /"
        " 'weights', name='base', folder=here / 'logs').start()\nprint(one.process_group,"
        " flush=True)\ntime.sleep(600)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    group = int(starter.stdout.readline())
    assert group_exists(group)

    starter.send_signal(signal.SIGKILL)
    starter.wait()

    assert gone(group)


def test_a_server_is_told_no_path_of_this_machine():
    words = server_arguments(
        Path("/somewhere/smollm2"), 8801, build_self_draft(Path("/somewhere/smollm2"))
    )
    assert not [word for word in words if "/somewhere" in word]


def test_a_server_inherits_nothing_that_is_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    assert "s3cret" not in server_variables().values()
