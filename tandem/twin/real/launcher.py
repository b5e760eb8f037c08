"""Holds one vLLM and all that it starts. Runs inside vLLM's own environment, so it imports nothing of `tandem`.

Invariant: when whoever started this goes away, even by a kill, vLLM and its engine processes are gone within GRACE_S.
They live in a process group of their own, which ends with a kill of the group.

    python launcher.py ARGUMENT...        vLLM's own arguments; standard input stays open for as long as it shall run
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

MODULE = "vllm.entrypoints.openai.api_server"  # the `vllm` program looks for a package of its upstream name and fails
GRACE_S = 10.0  # for a clean end; the engine process takes one to three seconds
_LOOK_S = 0.2


def main() -> None:
    """Run vLLM until it ends, standard input closes or SIGTERM comes; then kill what is left of the group."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    signal.signal(signal.SIGINT, lambda *_: asked.set())
    threading.Thread(target=_watch_starter, args=[asked], daemon=True).start()
    running = subprocess.Popen([sys.executable, "-m", MODULE, *sys.argv[1:]], stdin=subprocess.DEVNULL)
    while running.poll() is None and not asked.wait(_LOOK_S):
        pass
    code = running.poll()
    if code is None:
        _end(running)
    else:
        print(f"vLLM ended with code {code}", flush=True)  # the starter reads it in the log
    os.killpg(0, signal.SIGKILL)  # an engine whose API server died would keep its memory


def _watch_starter(asked: threading.Event) -> None:
    sys.stdin.buffer.read()
    asked.set()


def _end(running: subprocess.Popen[bytes]) -> None:
    running.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(GRACE_S)


if __name__ == "__main__":
    main()
