"""Hold one server: run a command until standard input closes, then end it. Imports nothing of `tandem`.

Invariant: when whoever started this goes away, even by a kill, the server is gone within GRACE_S.

    python hold.py PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

GRACE_S = 5.0


def main() -> int:
    """Run the command; return its exit code."""
    running = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_starter, args=[running], daemon=True).start()
    return running.wait()


def _end_with_starter(running: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1):  # unbuffered: a buffer's lock would be held when this process ends first
        pass
    running.terminate()
    try:
        running.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        running.kill()


if __name__ == "__main__":
    sys.exit(main())
