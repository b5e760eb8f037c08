"""Hold one server: run a command until stdin closes, then end it. Imports no `tandem`.

Invariant: when the starter of this program goes away, even by a kill, the server and all its
processes are gone within GRACE_S. They live in their own process group, which ends with a kill of
the group. A kill of one process is not enough: the `node` of a Python package is a program that
starts another.

    python hold.py PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 5.0


def main() -> None:
    """Run the command until it ends or stdin closes; then kill its group, this process too."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    running = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_starter, args=[running], daemon=True).start()
    running.wait()
    os.killpg(0, signal.SIGKILL)


def _end_with_starter(running: subprocess.Popen[bytes]) -> None:
    # unbuffered: a buffer's lock would be held when this process ends first
    while os.read(sys.stdin.fileno(), 1):
        pass
    running.terminate()
    try:
        running.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        running.kill()


if __name__ == "__main__":
    main()
