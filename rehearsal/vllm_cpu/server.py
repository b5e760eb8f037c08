"""Starts and stops real vLLM servers on 127.0.0.1, alike in everything but their arguments.

Invariant: a server that `start` returned answers on its port. After `stop`, or the death of this
process by any means, none of the server's processes is left (launcher.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rehearsal.loopback import HOST, find_free_port
from rehearsal.vllm_cpu.errors import VllmSetupError

PACKAGE_FOLDER = Path(__file__).resolve().parent
MODEL = "smollm2"  # the served name of the model
READY_S = 300.0  # 33 s on two idle cores; eight times that has been seen on busy ones
STOP_S = 15.0  # the launcher kills after 10
LOG_TAIL_CHARS = 3000  # characters of the log that an error shows
MAX_MODEL_LEN = 2048  # prompt and answer together, in tokens
MAX_NUM_SEQS = 4  # requests in one batch at most
KV_CACHE_GIB = 1
THREADS = 2
# a company's proxy cannot reach loopback
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

NGRAM_SPECULATION = {
    "method": "ngram",
    "num_speculative_tokens": 7,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
SELF_DRAFT_TOKENS = 4


def build_self_draft(weights: Path) -> dict[str, Any]:
    """Return a speculation with the target as draft: all accepted, none cheaper than the target.

    Args:
        weights: the folder of the target.
    """
    return {
        "method": "draft_model",
        "model": weights.name,
        "num_speculative_tokens": SELF_DRAFT_TOKENS,
    }


def server_arguments(weights: Path, port: int, speculation: dict[str, Any] | None) -> list[str]:
    """Return vLLM's arguments. Two servers differ only in port and `--speculative-config`.

    The path of the weights is relative to the server's folder, so that no answer contains a path of
    this machine. Prefix caching is off: a repeated prompt would skip its prefill, so the second arm
    would look faster. Asynchronous scheduling is off: vLLM 0.32 turns it off for n-gram drafts, and
    the other arm would keep it.
    """
    argument_list = [
        "--model",
        weights.name,
        "--served-model-name",
        MODEL,
        "--host",
        HOST,
        "--port",
        str(port),
        "--dtype",
        "float32",
        "--max-model-len",
        str(MAX_MODEL_LEN),
        "--max-num-seqs",
        str(MAX_NUM_SEQS),
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--no-async-scheduling",
    ]
    return (
        argument_list
        if speculation is None
        else [*argument_list, "--speculative-config", json.dumps(speculation)]
    )


def server_variables(threads: int = THREADS) -> dict[str, str]:
    """Return a server's environment; the caller's only for places of programs and temporary files.

    Args:
        threads: that compute one step together. They wait for each other after every operation, so
            one thread is many times faster than two if other programs use the machine's cores.
    """
    inherited_variables = {
        name: os.environ[name] for name in ("PATH", "LANG", "HOME", "TMPDIR") if name in os.environ
    }
    return {
        **inherited_variables,
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `all` fails at start where cores may not be bound
        "OMP_NUM_THREADS": str(threads),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


@dataclass(kw_only=True)
class CpuVllmServer:
    """One vLLM.

    Args:
        interpreter: of the environment that holds vLLM (installation.py).
        weights: a folder as weights.py makes it.
        name: for messages and the log's name.
        folder: of its log.
        speculation: vLLM's own speculative configuration, or None.
        port: 0 takes a free one.
        threads: that compute one step together.
        ready_s: longest wait for its first answer, in seconds.
    """

    interpreter: Path
    weights: Path
    name: str
    folder: Path
    speculation: dict[str, Any] | None = None
    port: int = 0
    threads: int = THREADS
    ready_s: float = READY_S
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """The server's address, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file of the server's output."""
        return self.folder / f"{self.name}.log"

    @property
    def process_group(self) -> int:
        """The group of all processes of the server, to watch their use of the machine."""
        assert self._process is not None, "the server was never launched"
        return self._process.pid

    def variables(self) -> dict[str, str]:
        """Return all servers' variables, and Intel's OpenMP lest vLLM warn of slow speculation."""
        library = self.interpreter.parent.parent / "lib" / "libiomp5.so"  # brought by intel-openmp
        preload = {"LD_PRELOAD": str(library)} if library.exists() else {}
        return {**server_variables(self.threads), **preload}

    def launch(self) -> Self:
        """Start the server without waiting, so that two can load at once.

        Raises:
            VllmSetupError: the interpreter is not there.
        """
        self.port = self.port or find_free_port()
        command = [str(self.interpreter), str(PACKAGE_FOLDER / "launcher.py")]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, *server_arguments(self.weights, self.port, self.speculation)],
                    cwd=self.weights.parent,
                    env=self.variables(),
                    stdin=subprocess.PIPE,  # the launcher ends all when this closes
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for the starter, which stops it in its own time
                    start_new_session=True,
                )
        except OSError as error:
            raise VllmSetupError(
                f"vLLM {self.name} cannot be started by {self.interpreter}: {error}"
            ) from error
        return self

    def wait(self) -> Self:
        """Wait until the server answers /health.

        Raises:
            VllmSetupError: the server ended, or did not answer in time; the end of its log is in
                the message.
        """
        assert self._process is not None, "the server was never launched"
        deadline = time.monotonic() + self.ready_s
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._is_healthy():
                return self
            time.sleep(0.5)
        has_exit = self._process.poll() is not None
        self.stop()
        problem = (
            "ended before it was ready"
            if has_exit
            else f"did not answer /health within {self.ready_s:.0f} s"
        )
        tail = self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        raise VllmSetupError(f"vLLM {self.name} {problem}; the end of its log {self.log}:\n{tail}")

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            VllmSetupError: as `launch` and `wait` say.
        """
        return self.launch().wait()

    def _is_healthy(self) -> bool:
        try:
            self.read_page("/health")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True

    def read_page(self, path: str) -> str:
        """Return the text of one of the server's pages, for example `/metrics`.

        Raises:
            OSError: the server does not answer, or answers with an error.
        """
        with _OPENER.open(f"{self.url}{path}", timeout=30) as response:
            return str(response.read().decode())

    def stop(self) -> None:
        """End the server and all its processes."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()
