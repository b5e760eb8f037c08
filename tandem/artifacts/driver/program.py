"""The program as processes: its own group, all that it starts, and how the kernel ends it.

Invariant: after `clear` nothing of it runs any more.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts.driver.lines import Lines

LINGER_S = 10.0  # for what the program left behind
POLL_S = 0.2


def oom_kills(events: Path) -> int:
    """Return how often the kernel killed in this container's control group; 0 where nobody counts."""
    try:
        found = re.search(r"^oom_kill (\d+)$", events.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


class Program:
    """The program in its own process group, and all that it starts."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.lines = Lines()
        self._process = subprocess.Popen(  # noqa: S603 - the rendered command is the purpose
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while piece := os.read(pipe, 1 << 16):
            self.lines.take(piece)

    def status(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._process.poll()

    def wait(self, most_s: float) -> bool:
        """Wait for the end, so long at most; whether it came."""
        try:
            self._process.wait(most_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ask_to_end(self, grace_s: float, *, all_of_it: bool) -> bool:
        """Send SIGTERM and wait; whether it ended.

        Args:
            grace_s: seconds to wait.
            all_of_it: to the whole group; else to the program, which ends its own workers in order.
        """
        if all_of_it:
            self._signal(signal.SIGTERM)
        else:
            self._process.terminate()
        return self.wait(grace_s)

    def clear(self) -> None:
        """Kill whatever is left, and read the last lines."""
        ends = time.monotonic() + (LINGER_S if self.status() is not None else 0)
        while time.monotonic() < ends and self._alive():
            time.sleep(POLL_S)
        self._signal(signal.SIGKILL)
        for pid in _descendants(os.getpid()):
            _kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(LINGER_S)
        self.lines.end()

    def _alive(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants(ancestor: int) -> list[int]:
    """Return every process below `ancestor`, also those that left its group (Linux)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        parents[int(stat.parent.name)] = int(after_name[1])
    found: list[int] = []
    front = [ancestor]
    while front:
        front = [pid for pid, parent in parents.items() if parent in front]
        found += front
    return found


def adopt_orphans() -> None:
    """Become the parent of what the program leaves behind, as process 1 of a container is anyway (Linux)."""
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (OSError, AttributeError):
        return
