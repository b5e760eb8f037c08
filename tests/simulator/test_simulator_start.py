"""How a simulator comes up and goes down, as a process: ready or refused, and what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulator_client import CHAT, ask, chat, until

from tandem.simulator.__main__ import main

ROOT = Path(__file__).parents[2]
QUICK = {"model": "m", "step_ms": [1], "prefill_base_ms": 1}
END_S = 20


class Started:
    """A simulator's process."""

    def __init__(self, folder: Path, knobs: dict[str, Any], *more: str) -> None:
        self.log = folder / "truth.jsonl"
        file = folder / "knobs.yaml"
        file.write_text(yaml.safe_dump(knobs))
        command = [
            sys.executable,
            "-m",
            "tandem.simulator",
            "--knobs",
            str(file),
            "--log",
            str(self.log),
            *more,
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> str:
        """Wait for its line; the URL."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready http://127.0.0.1:"), line
        return line.split()[1]

    def ended(self) -> tuple[int, str]:
        """Wait for its end; code and standard error."""
        _, output = self.process.communicate(timeout=END_S)
        return self.process.returncode, output


@pytest.fixture
def start(tmp_path):
    running: list[Started] = []

    def act(knobs: dict[str, Any], *more: str) -> Started:
        running.append(Started(tmp_path, {**QUICK, **knobs}, *more))
        return running[-1]

    yield act
    for engine in running:
        if engine.process.poll() is None:
            engine.process.kill()
        engine.process.communicate()


@pytest.fixture
def refuse(tmp_path, capsys):
    """Start a simulator that ends at once; its code and its one sentence."""

    def act(knobs: dict[str, Any], *more: str) -> tuple[int, str]:
        file = tmp_path / "knobs.yaml"
        file.write_text(yaml.safe_dump({**QUICK, **knobs}))
        code = main(["--knobs", str(file), *more])
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        return code, output.err

    return act


def test_it_serves_and_ends_in_order_when_told_to(start):
    simulator = start({})
    url = simulator.ready()

    assert ask(url, "/health").status == 200
    assert ask(url, CHAT, chat(max_tokens=5)).status == 200
    simulator.process.send_signal(signal.SIGTERM)
    assert simulator.ended() == (0, "")
    head, request = map(json.loads, simulator.log.read_text().splitlines())
    assert (head["knobs"]["model"], request["completion_tokens"]) == ("m", 5)


def test_it_ends_with_its_parent(start):
    simulator = start({}, "--with-parent")
    simulator.ready()
    assert simulator.process.stdin is not None
    simulator.process.stdin.close()
    simulator.process.stdin = None

    assert simulator.ended() == (0, "")


@pytest.mark.parametrize(
    ("knobs", "option", "value", "code", "word"),
    [
        ({"colour": "blue"}, "--port", "0", 2, "colour"),
        ({}, "--port", "{port}", 3, "--port"),
        ({}, "--log", "/nowhere/folder.jsonl", 3, "--log"),
    ],
)
def test_what_cannot_be_used_is_told(refuse, simulator, knobs, option, value, code, word):
    status, output = refuse(knobs, option, value.format(port=simulator.url.rpartition(":")[2]))
    assert (status, word in output) == (code, True)


def test_a_server_that_starts_answers_nothing_until_its_time(start_simulator):
    soon = start_simulator(start_s=0.1).url
    starting = start_simulator(start_s=60.0).url
    assert [ask(starting, path).status for path in ("/health", "/ping")] == [503, 503]
    assert ask(starting, CHAT, chat()).status == 503
    assert until(lambda: ask(soon, "/health").status == 200)
