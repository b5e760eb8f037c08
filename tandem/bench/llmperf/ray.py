"""The Ray that the tool runs on: one, of known size, started before it and ended after it.

Invariant: every process that is started here has ended when the context is left.

The tool starts a Ray of its own where it finds none: one for each server that it measures, each with as many workers
as the machine has processors and a third of its memory. One that all calls share takes less, and can be waited for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tandem.bench.fault import ExternalBenchError
from tandem.bench.llmperf.tool import LlmperfTool

STORE_BYTES = 100_000_000  # the tool passes a few kilobytes; under the least that Ray takes, 75 MiB, it refuses
MAX_TRIES = 4
START_TIMEOUT_S = 240.0  # of one try
PAUSE_S = 20.0
GRACE_S = 40.0  # Ray drains for up to 30 s
POLL_S = 0.2
READY_TEXT = "Ray runtime started"
# Ray gives its workers ports up to 19999, and the kernel gives programs those from 32768 on
PORTS = range(20_100, 32_700)


@contextlib.contextmanager
def run_ray(tool: LlmperfTool, log: Path, *, cpus: int, say: Callable[[str], None]) -> Iterator[str]:
    """Run Ray; its address.

    Args:
        tool: whose interpreter and working directory it takes.
        log: file that its output is added to.
        cpus: workers that stand ready.
        say: takes a line of progress.

    Raises:
        ExternalBenchError: it did not start, however often it was tried.
    """
    # its sockets' paths are long, and a socket's may have 107 characters
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        for attempt in range(1, MAX_TRIES + 1):
            port, start_s = _find_free_port(), time.monotonic()
            process = _start_ray(tool, log, folder, port, cpus)
            is_up = False
            while not is_up and process.poll() is None and time.monotonic() < start_s + START_TIMEOUT_S:
                time.sleep(POLL_S)
                is_up = READY_TEXT in log.read_text(errors="replace")
            if is_up:
                say(f"Ray is up after {time.monotonic() - start_s:.0f} s")
                break
            end_process(process)
            last_line = next((line for line in log.read_text(errors="replace").split("\n")[::-1] if line.strip()), "")
            say(f"Ray did not start (try {attempt} of {MAX_TRIES}); {last_line.strip()}")
            time.sleep(PAUSE_S * attempt if attempt < MAX_TRIES else 0)
        else:
            problem = f"Ray did not start in {MAX_TRIES} tries: {last_line.strip() or 'it said nothing'}"
            change = "run again when the machine has less to do; it needs 2 GB of memory and 200 MB of /dev/shm"
            raise ExternalBenchError(problem, where=str(log), change=change)
        yield f"127.0.0.1:{port}"
    finally:
        if process is not None:
            end_process(process)
        shutil.rmtree(folder, ignore_errors=True)


def end_process(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End a process and all that it started: it leads a group, and first gets the time to end the others itself."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start_ray(tool: LlmperfTool, log: Path, folder: Path, port: int, cpus: int) -> subprocess.Popen[bytes]:
    command = [
        *(str(tool.python.parent / "ray"), "start", "--head", "--block", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--include-dashboard", "false", "--disable-usage-stats"),
        *("--dashboard-agent-listen-port", "0", "--num-cpus", str(cpus), "--num-gpus", "0"),
        *("--object-store-memory", str(STORE_BYTES), "--temp-dir", str(folder)),
    ]
    return tool.start_process(command, log, {"RAY_TMPDIR": str(folder)})


def _find_free_port() -> int:
    start = os.getpid() % len(PORTS)
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ExternalBenchError("no port is free", change="end some of the programs that listen")
