"""`tandem bench` as its user meets it: two independent servers in a thread, the command in a
process or in this one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

import pytest  # noqa: E402
from independent_server import MODEL, Schedule, Server  # noqa: E402
from planned import suite_file  # noqa: E402

from tandem.cli.bench_flags import RunFlags  # noqa: E402
from tandem.cli.program import app  # noqa: E402

READY_S = 30


def run_flags(*words: str) -> RunFlags:
    """The flags of `tandem bench run` as the command line reads them."""
    flags: RunFlags = app.parse_args(["bench", "run", *words])[1].arguments["flags"]
    return flags


class Pair:
    """Two servers in a thread of their own, until `end`."""

    def __init__(self, schedule: Schedule) -> None:
        self.servers = [Server(schedule), Server(schedule)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for server in self.servers:
            self._do(server.__aenter__())

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(READY_S)

    def end(self) -> None:
        for server in self.servers:
            self._do(server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(READY_S)
        self._loop.close()

    def forget(self) -> None:
        for server in self.servers:
            server.truths.clear()

    def asked(self) -> list[str]:
        """Ids of all requests that were measured."""
        return [
            truth["request_id"]
            for server in self.servers
            for truth in server.posted
            if truth["path"] != "/x"
        ]

    def flags(self, folder: Path, prompts: dict[str, list[str]], *more: str) -> list[str]:
        """The command without --out; one round, unless `more` says otherwise."""
        first, second = (f"http://127.0.0.1:{server.port}" for server in self.servers)
        suite = suite_file(folder, prompts)
        return [
            "bench",
            "run",
            "--baseline",
            f"a={first}",
            "--variant",
            f"b={second}/v1",
            "--model",
            MODEL,
            "--suite",
            str(suite),
            "--concurrency",
            "2",
            "--warm-up",
            "0",
            "--rounds",
            "1",
            "--control-rounds",
            "0",
            *more,
        ]


def start(flags: list[str], **how: Any) -> subprocess.Popen[str]:
    """Start the command in a process of its own; it keeps no bytecode, of which a small disk would
    leave a half."""
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "tandem", *flags],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


@contextmanager
def without_page() -> Iterator[None]:
    """Leave the page out, which takes seconds to draw: for what the verdict alone shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tandem.report.page.write_report", lambda _, __, folder, ___: folder / "report.html"
        )
        patch.setattr(
            "tandem.report.arm_page.write_arm_report",
            lambda _, __, table: table.folder / "report.html",
        )
        yield


@contextmanager
def however_busy() -> Iterator[None]:
    """Void no run because this machine is busy: what is measured here runs beside other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tandem.judge.controls.LEAST_S", float("inf"))
        yield


def wait(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that `process` does."""
    ends = time.monotonic() + READY_S
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.02)


def records(folder: Path) -> list[dict[str, Any]]:
    """What a run has recorded so far, whole lines alone."""
    path = folder / "records.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
