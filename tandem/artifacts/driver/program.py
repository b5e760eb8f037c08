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

from tandem.artifacts.driver.lines import OutputLines

LINGER_TIMEOUT_S = 10.0  # for what the program left behind
POLL_INTERVAL_S = 0.2


def count_oom_kills(events_path: Path) -> int:
    """Return how often the kernel killed in this container's control group; 0 where nobody counts."""
    try:
        match = re.search(r"^oom_kill (\d+)$", events_path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


class ProgramGroup:
    """The program in its own process group, and all that it starts."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.lines = OutputLines()
        self._process = subprocess.Popen(  # noqa: S603 - the rendered command is the purpose
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._forward_output, daemon=True)
        self._reader.start()

    def _forward_output(self) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while piece := os.read(pipe, 1 << 16):
            self.lines.add_bytes(piece)

    def status(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end, so long at most; whether it came."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self, grace_s: float, *, whole_group: bool) -> bool:
        """Send SIGTERM and wait; whether it ended.

        Args:
            grace_s: seconds to wait.
            whole_group: to the whole group; else to the program, which ends its own workers in order.
        """
        if whole_group:
            self._send_signal(signal.SIGTERM)
        else:
            self._process.terminate()
        return self.wait(grace_s)

    def kill_all(self) -> None:
        """Kill whatever is left, and read the last lines."""
        deadline_s = time.monotonic() + (LINGER_TIMEOUT_S if self.status() is not None else 0)
        while time.monotonic() < deadline_s and self._is_alive():
            time.sleep(POLL_INTERVAL_S)
        self._send_signal(signal.SIGKILL)
        for pid in _list_descendants(os.getpid()):
            _kill_process(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(LINGER_TIMEOUT_S)
        self.lines.flush()

    def _is_alive(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _send_signal(self, signal_number: int) -> None:
        try:
            os.killpg(self._process.pid, signal_number)
        except (ProcessLookupError, PermissionError):
            return


def _kill_process(pid: int, signal_number: int) -> None:
    try:
        os.kill(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return


def _list_descendants(ancestor: int) -> list[int]:
    """Return every process below `ancestor`, also those that left its group (Linux)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat_fields = stat.read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        parents[int(stat.parent.name)] = int(stat_fields[1])
    descendants: list[int] = []
    generation = [ancestor]
    while generation:
        generation = [pid for pid, parent in parents.items() if parent in generation]
        descendants += generation
    return descendants


def adopt_orphans() -> None:
    """Become the parent of what the program leaves behind, as process 1 of a container is anyway (Linux)."""
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (OSError, AttributeError):
        return
