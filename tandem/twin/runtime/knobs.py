"""What a test tells a stand-in beside its flags: how to fail, at which attempt, and what to leave half.

Invariant: without a knob a stand-in does what the real program does when all goes well.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tandem.twin.runtime.programs import KNOB

_LOST_PEER = """RuntimeError: neuronx-cc compilation failed with 70. Check compiler logs.
  File "vllm_neuron/parallel/neuron_parallel_state.py", line 1318, in tp_barrier
RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:22947"""
# what a real log says (tandem/artifacts/driver/failure.py has the sources), and the status that follows
CRASHES = {
    "transient": (_LOST_PEER, 1),
    "oom": ("[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory.", 70),
    "killed": ("", -signal.SIGKILL),
    "compiler-error": ("[ERROR] [NCC_IXCG856] Internal compiler error in the code generator", 70),
    "disk-full": ("OSError: [Errno 28] No space left on device: 'model.pt'", 1),
    "unknown": ("RuntimeError: something that nobody has seen before", 1),
}  # fmt: skip
HALVES = ("missing-rank", "truncated-shard", "truncated-graph", "half-graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The knobs, each from the variable TANDEM_STANDIN_<NAME>.

    Args:
        crash: one of CRASHES; empty for none. crash_at: attempts (from 1) that crash; empty for all.
        half: one of HALVES. failed_graph: mark a graph as failed in the compiler's cache, and go on.
        hang: never end. slow_s: seconds before anything is written. ignore_sigterm: end by SIGKILL alone.
        state: folder that outlives an attempt, in which attempts are counted.
    """

    crash: str
    crash_at: tuple[int, ...]
    half: str
    failed_graph: bool
    hang: bool
    slow_s: float
    ignore_sigterm: bool
    state: str

    @classmethod
    def read(cls) -> Knobs:
        """Read the environment.

        Raises:
            ValueError: a knob has no such position.
        """
        crash, half = _knob("CRASH"), _knob("HALF")
        if crash not in {"", *CRASHES} or half not in {"", *HALVES}:
            raise ValueError(f"no such position: {KNOB}CRASH={crash!r}, {KNOB}HALF={half!r}")
        return cls(
            crash=crash, crash_at=tuple(int(one) for one in _knob("CRASH_AT").split(",") if one), half=half,
            failed_graph=_knob("FAILED_GRAPH") == "1", hang=_knob("HANG") == "1",
            slow_s=float(_knob("SLOW_S") or 0), ignore_sigterm=_knob("IGNORE_SIGTERM") == "1", state=_knob("STATE"),
        )  # fmt: skip

    def begin(self) -> int:
        """Count this attempt and do what happens before anything is written; the attempt, from 1."""
        if self.ignore_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        attempt = self._count()
        time.sleep(self.slow_s)
        while self.hang:
            time.sleep(3600)
        return attempt

    def crashes(self, attempt: int) -> bool:
        """Whether this attempt is to fail."""
        return bool(self.crash) and (not self.crash_at or attempt in self.crash_at)

    def crash_now(self, attempt: int) -> None:
        """End as the knob says, in the middle of the work; return where it says nothing."""
        if not self.crashes(attempt):
            return
        said, status = CRASHES[self.crash]
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        if status < 0:
            os.kill(os.getpid(), -status)
        raise SystemExit(status)

    def _count(self) -> int:
        if not self.state:
            return 1
        file = Path(self.state) / "attempts"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as counted:
            counted.write("x")
        return len(file.read_text())


def _knob(name: str) -> str:
    return os.environ.get(KNOB + name, "")
