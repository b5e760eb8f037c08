"""The tool as a program: its files, its command line, its variables, and its Ray.

Invariant: the tool runs as published and as in the post; `LlmperfLoad` has its settings, the same
for all servers. Every process of `run_ray` has ended at the end of the context.

The tool seeds its own prompts with a constant, so every call sends the same prompts, whatever the
seed; the seed of `LlmperfLoad` is only a sampling parameter for the server.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from typing import Any

from tandem.bench.llmperf.source import PACKAGES
from tandem.errors import ExternalError, convert_os_errors

# the tool's limit for a silent server, in its OpenAI client; no option of its command line changes
# it
REQUEST_LIMIT_S = 180.0
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",  # the tool forks
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's 30 s are too short on a busy machine, and then all of Ray ends
    "RAY_agent_register_timeout_ms": "300000",
    "PYTHONUNBUFFERED": "1",
}
RAY_STORE_BYTES = 100_000_000  # the tool needs a few kilobytes; Ray refuses less than 75 MiB
RAY_TIMEOUT_S = 600.0
MAX_CHARACTERS = 500  # of the last output of a crash
GRACE_S = 40.0  # Ray drains for up to 30 s
POLL_S = 0.2
READY_TEXT = "Ray runtime started"
# Ray uses ports up to 19999 for its workers, and the kernel assigns ports from 32768 on
RAY_PORTS = range(20_100, 32_700)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmperfTool:
    """Files of the tool.

    Args:
        source: checkout of its commit.
        python: interpreter with its packages.
        home: working directory, with the tokenizer's folder.
    """

    source: Path
    python: Path
    home: Path

    def start_process(
        self, command: Sequence[str], output: Path, variables: Mapping[str, str]
    ) -> Popen[bytes]:
        """Start a program of the tool in its own process group, with our variables and OFFLINE.

        Args:
            command: program and arguments.
            output: file for its printed output.
            variables: further environment variables.

        Raises:
            InputError: the program cannot be started.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        environment = {
            **own,
            **OFFLINE,
            "PYTHONPATH": str(self.source / PACKAGES),
            "PATH": path,
            **variables,
        }
        options: dict[str, Any] = {"stdin": DEVNULL, "stderr": STDOUT, "start_new_session": True}
        change = (
            "name the Python that has llmperf's packages by --python, and a folder that may be"
            " written to by --out"
        )
        with (
            convert_os_errors("it cannot be started", Path(command[0]), change),
            output.open("wb") as file,
        ):
            return Popen(command, cwd=self.home, env=environment, stdout=file, **options)  # noqa: S603 - the tool's own program


@dataclass(frozen=True, kw_only=True)
class LlmperfLoad:
    """One call's load; the defaults are the post's.

    Args:
        input_tokens, output_tokens: by the tool's own tokenizer; the latter is sent as max_tokens.
        temperature, seed: sent with each request; None is not sent.
        concurrency: requests at once.
        requests: counted results; the tool sends more.
        timeout_s: seconds after which the tool starts no further request.
        extra_sampling: further sampling parameters.
    """

    input_tokens: int = 64
    output_tokens: int = 600
    temperature: float | None = 0.0
    seed: int | None = None
    concurrency: int = 4
    requests: int = 8
    timeout_s: int = 600
    extra_sampling: Mapping[str, object] | None = None

    def arguments(self, model: str, results: Path) -> list[str]:
        """Return the tool's arguments for a call to `model`; results go to the folder `results`."""
        parameters = {
            "temperature": self.temperature,
            "seed": self.seed,
            **(self.extra_sampling or {}),
        }
        sampling = {name: value for name, value in parameters.items() if value is not None}
        return [
            *("--model", model, "--llm-api", "openai", "--timeout", str(self.timeout_s)),
            *("--mean-input-tokens", str(self.input_tokens), "--stddev-input-tokens", "0"),
            *("--mean-output-tokens", str(self.output_tokens), "--stddev-output-tokens", "0"),
            *("--max-num-completed-requests", str(self.requests)),
            *("--num-concurrent-requests", str(self.concurrency), "--results-dir", str(results)),
            *("--additional-sampling-params", json.dumps(sampling)),
        ]


@contextlib.contextmanager
def run_ray(
    tool: LlmperfTool, log: Path, *, cpus: int, say: Callable[[str], None]
) -> Iterator[str]:
    """Run Ray; yield its address.

    Args:
        tool: has the interpreter and the working directory.
        log: file for Ray's output, overwritten.
        cpus: number of Ray's CPUs, one for each worker.
        say: takes a line of progress.

    Raises:
        InputError: Ray's program cannot be started.
        ExternalError: Ray did not start in time.
    """
    # the paths of Ray's sockets are long, and a socket's path may have at most 107 characters
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    process = None
    port = _find_free_port()
    start_s = time.monotonic()
    command = [str(tool.python.parent / "ray"), *_list_ray_words(port, cpus, folder)]
    try:
        process = tool.start_process(command, log, {"RAY_TMPDIR": str(folder)})
        _wait_for_ray(process, log, start_s + RAY_TIMEOUT_S)
        say(f"Ray is up after {time.monotonic() - start_s:.0f} s")
        yield f"127.0.0.1:{port}"
    finally:
        if process is not None:
            end_process(process)
        shutil.rmtree(folder, ignore_errors=True)


def _list_ray_words(port: int, cpus: int, folder: Path) -> list[str]:
    """Return the arguments of a Ray that only this machine reaches."""
    return [
        *("start", "--head", "--block", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--include-dashboard", "false"),
        *("--disable-usage-stats", "--dashboard-agent-listen-port", "0"),
        *("--num-cpus", str(cpus), "--num-gpus", "0"),
        *("--object-store-memory", str(RAY_STORE_BYTES), "--temp-dir", str(folder)),
    ]


def _wait_for_ray(process: Popen[bytes], log: Path, end_s: float) -> None:
    """Wait until Ray is ready.

    Raises:
        ExternalError: Ray ended, or was not ready in time.
    """
    text = ""
    while READY_TEXT not in text and process.poll() is None and time.monotonic() < end_s:
        time.sleep(POLL_S)
        text = log.read_text(errors="replace")
    # the last output may come with the end of the process
    text = log.read_text(errors="replace")
    if READY_TEXT not in text:
        problem = f"Ray did not start: {text.strip()[-MAX_CHARACTERS:]}"
        change = (
            "run again when the machine has less to do;"
            " it needs 2 GB of memory and 200 MB of /dev/shm"
        )
        raise ExternalError(problem, where=str(log), change=change)


def end_process(process: Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End a process and its group; give it `grace_s` seconds to end the others itself."""
    process.terminate()
    with contextlib.suppress(TimeoutExpired):
        process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _find_free_port() -> int:
    start = os.getpid() % len(RAY_PORTS)
    for port in itertools.chain(RAY_PORTS[start:], RAY_PORTS[:start]):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ExternalError("no port is free", change="end some of the programs that listen")
