"""`tandem simulate`: an experiment's servers come up together, say where they are, and end with the
command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bucket_specs import folders
from lone_variant import lone

from tandem.cli.program import main
from tandem.simulator.settings import read_settings

ROOT = Path(__file__).parents[2]
END_S = 20


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310 - our own server
            return int(answer.status)
    except (urllib.error.URLError, OSError):
        return 0


def gone(urls: list[str]) -> bool:
    ends = time.monotonic() + END_S
    while any(status(url) for url in urls) and time.monotonic() < ends:
        time.sleep(0.05)
    return not any(status(url) for url in urls)


@contextmanager
def command(*flags: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The running command and what it printed until it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", "simulate", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] not in {"", "ready\n"}:
        lines.append(process.stdout.readline())
    yield process, lines
    process.kill()
    process.communicate()


@pytest.fixture
def pair(tmp_path):
    with command("--experiment", "post", "--log", str(tmp_path / "logs")) as running:
        yield running


@pytest.fixture
def alone(tmp_path):
    with command(*lone(tmp_path)) as running:
        yield running


def test_an_interrupt_ends_every_server(pair, tmp_path):
    process, lines = pair
    urls = dict(line.split()[:2] for line in lines[:-1])

    assert list(urls) == ["qwen-vllm", "qwen-sd-vllm"]
    assert lines[-1] == "ready\n"
    assert [status(url) for url in urls.values()] == [200, 200]
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        "qwen-vllm.jsonl",
        "qwen-sd-vllm.jsonl",
    }
    process.send_signal(signal.SIGINT)
    assert process.wait(END_S) == 0
    assert gone(list(urls.values()))


def test_its_server_ends_when_the_command_is_killed(alone):
    process, lines = alone
    process.kill()
    assert gone([line.split()[1] for line in lines[:-1]])


def simulate(*more: str) -> int:
    return main(["simulate", *more, *folders(ROOT)])


def test_the_knobs_can_be_written_instead_and_read_again(tmp_path, capsys):
    assert simulate("--experiment", "post", "--write", str(tmp_path)) == 0
    lines = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in lines] == ["qwen-vllm.yaml", "qwen-sd-vllm.yaml"]
    assert [read_settings(path).law for path in lines] == ["none", "nxdi"]


def test_a_time_scale_divides_every_time_alone(tmp_path):
    for folder, flags in (("plain", []), ("fast", ["--time-scale", "5"])):
        simulate("--experiment", "post", "--write", str(tmp_path / folder), *flags)

    plain, fast = (read_settings(tmp_path / name / "qwen-vllm.yaml") for name in ("plain", "fast"))
    assert (plain.step_ms, fast.step_ms) == ((45.0,), (9.0,))
    assert fast == plain.scale_time(5)
