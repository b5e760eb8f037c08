"""Holds one vLLM and all its processes, in vLLM's environment; imports nothing of `tandem`.

Invariant: when the starter of this program goes away, even by a kill, vLLM and its engine processes
are gone within GRACE_S. They live in their own process group, which ends with a kill of the group.

    python launcher.py ARGUMENT...        vLLM's own arguments; standard input stays open for as
    long as it shall run
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

# the `vllm` program looks for a package of its upstream name and fails
MODULE = "vllm.entrypoints.openai.api_server"
GRACE_S = 10.0  # for a clean end; the engine process takes one to three seconds
_POLL_S = 0.2


def main() -> None:
    """Run vLLM until it ends, stdin closes or SIGTERM comes; then kill the rest of the group."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    stop_event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    signal.signal(signal.SIGINT, lambda *_: stop_event.set())
    threading.Thread(target=_wait_for_starter, args=[stop_event], daemon=True).start()
    vllm_process = subprocess.Popen(
        [sys.executable, "-m", MODULE, *sys.argv[1:]], stdin=subprocess.DEVNULL
    )
    while vllm_process.poll() is None and not stop_event.wait(_POLL_S):
        pass
    exit_code = vllm_process.poll()
    if exit_code is None:
        _terminate_process(vllm_process)
    else:
        print(f"vLLM ended with code {exit_code}", flush=True)  # the starter reads it in the log
    os.killpg(0, signal.SIGKILL)  # without it an engine whose API server died keeps its memory


def _wait_for_starter(stop_event: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop_event.set()


def _terminate_process(vllm_process: subprocess.Popen[bytes]) -> None:
    vllm_process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        vllm_process.wait(GRACE_S)


if __name__ == "__main__":
    main()
