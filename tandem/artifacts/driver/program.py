"""The program as processes: its group, its descendants, its output, and kills by the kernel.

Invariant: after `kill_all` no process of the program runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts.driver.failure import SIGN_PATTERNS

LINGER_TIMEOUT_S = 10.0  # for processes that the program left
POLL_INTERVAL_S = 0.2
LINE_BYTES = 4096


class ProgramGroup:
    """The program in its own process group, its descendants, last line and signs of failure."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.last_line = ""
        self.sign_lines: dict[int, str] = {}  # index in SIGNS -> first line with that sign
        self._process = subprocess.Popen(  # noqa: S603 - the rendered command is the purpose
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._forward_output, daemon=True)
        self._reader.start()

    def _forward_output(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.readline(LINE_BYTES):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            for line in filter(
                None, map(str.rstrip, re.split(r"[\r\n]+", piece.decode(errors="replace")))
            ):
                self.last_line = line
                for index, pattern in enumerate(SIGN_PATTERNS):
                    if pattern.search(line):
                        self.sign_lines.setdefault(index, line)

    def status(self) -> int | None:
        """Return the exit status; None while the program runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so many seconds for the end; return whether the program ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.status() is not None

    def terminate(self, grace_s: float, *, whole_group: bool) -> bool:
        """Send SIGTERM and wait; return whether the program ended.

        Args:
            grace_s: seconds to wait.
            whole_group: whether to signal the whole group; else only the program, which ends its
                workers in order.
        """
        if whole_group:
            self._send_signal(signal.SIGTERM)
        else:
            self._process.terminate()
        return self.wait(grace_s)

    def kill_all(self) -> None:
        """Kill all remaining processes, and read the last lines."""
        deadline_s = time.monotonic()
        if self.status() is not None:
            deadline_s += LINGER_TIMEOUT_S
        while time.monotonic() < deadline_s and self._send_signal(0):
            time.sleep(POLL_INTERVAL_S)
        self._send_signal(signal.SIGKILL)
        for pid in _list_descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(LINGER_TIMEOUT_S)

    def _send_signal(self, signal_number: int) -> bool:
        """Send a signal to the group; return whether the group has a process."""
        try:
            os.killpg(self._process.pid, signal_number)
        except (ProcessLookupError, PermissionError) as error:
            return isinstance(error, PermissionError)
        return True


def _list_descendants(ancestor: int) -> list[int]:
    """Return every process below `ancestor`, also those that left its group (Linux)."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            # a program's name, in brackets, may have spaces
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    descendants = []
    generation = [ancestor]
    while generation:
        generation = [pid for pid, parent in parents.items() if parent in generation]
        descendants += generation
    return descendants


def count_oom_kills(events_path: Path) -> int:
    """Return the number of kernel memory kills in this container's control group; 0 if unknown."""
    try:
        match = re.search(r"^oom_kill (\d+)$", events_path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def adopt_orphans() -> None:
    """Become the parent of the program's orphans, as process 1 of a container is anyway (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
