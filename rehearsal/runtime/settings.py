"""Knobs of a stand-in for tests, besides its flags: how to fail, at which attempt, output to cut.

Invariant: without a knob a stand-in acts as the real program when all goes well.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from rehearsal.runtime.programs import SETTING_PREFIX

_LOST_PEER_LOG = """RuntimeError: neuronx-cc compilation failed with 70. Check compiler logs.
  File "vllm_neuron/parallel/neuron_parallel_state.py", line 1318, in tp_barrier
RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:22947"""
# lines of a real log (tandem/artifacts/driver/failure.py has the sources), and the exit status
# after them
CRASH_KINDS = {
    "transient": (_LOST_PEER_LOG, 1),
    "killed": ("", -signal.SIGKILL),
}
TRUNCATED_SHARD = "truncated-shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInSettings:
    """The knobs, each from the variable TANDEM_STANDIN_<NAME>.

    Args:
        crash_kind: one of CRASH_KINDS; empty for none. crash_at: attempts (from 1) that crash;
            empty for all.
        has_truncated_shard: end well with a truncated weight file.
        marks_graph_failure: mark a graph as failed in the compiler's cache, and continue.
        state_folder: folder that outlives an attempt, in which attempts are counted.
    """

    crash_kind: str
    crash_attempts: tuple[int, ...]
    has_truncated_shard: bool
    marks_graph_failure: bool
    state_folder: str

    @classmethod
    def read(cls) -> StandInSettings:
        """Read the environment.

        Raises:
            ValueError: a knob does not take the value.
        """
        crash_kind = _read_variable("CRASH")
        incomplete_output = _read_variable("HALF")
        if crash_kind not in {"", *CRASH_KINDS} or incomplete_output not in {"", TRUNCATED_SHARD}:
            raise ValueError(
                f"no such position: {SETTING_PREFIX}CRASH={crash_kind!r},"
                f" {SETTING_PREFIX}HALF={incomplete_output!r}"
            )
        return cls(
            crash_kind=crash_kind,
            crash_attempts=tuple(
                int(attempt) for attempt in _read_variable("CRASH_AT").split(",") if attempt
            ),
            has_truncated_shard=bool(incomplete_output),
            marks_graph_failure=_read_variable("FAILED_GRAPH") == "1",
            state_folder=_read_variable("STATE"),
        )

    def start_attempt(self) -> int:
        """Count this attempt; return its number, from 1."""
        if not self.state_folder:
            return 1
        file = Path(self.state_folder) / "attempts"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as attempts_file:
            attempts_file.write("x")
        return len(file.read_text())

    def is_crash(self, attempt: int) -> bool:
        """Return whether this attempt fails."""
        return bool(self.crash_kind) and (not self.crash_attempts or attempt in self.crash_attempts)

    def crash_if_due(self, attempt: int) -> None:
        """End in the middle of the work, as the knob says; return if the knob is not set."""
        if not self.is_crash(attempt):
            return
        log_text, status = CRASH_KINDS[self.crash_kind]
        sys.stdout.write(f"{log_text}\n")
        sys.stdout.flush()
        if status < 0:
            os.kill(os.getpid(), -status)
        raise SystemExit(status)


def _read_variable(name: str) -> str:
    return os.environ.get(SETTING_PREFIX + name, "")
