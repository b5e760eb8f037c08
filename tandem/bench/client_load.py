"""How busy the measuring machine was, round by round: what tells rounds in which it was itself the bottleneck.

Invariant: one line when a round ends, or is cut; a round that was gone on with has a line for each part. Nothing here
decides anything: whoever judges reads the figures (`tandem.judge.controls`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tandem.bench import json_file
from tandem.bench.fault import convert_os_errors
from tandem.bench.host import HostWatch
from tandem.bench.json_file import DECODE_ERRORS
from tandem.bench.plan import PlanTurn

FILE = "rounds.jsonl"


class RoundLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The measuring machine during one round, or one part of it.

    Args:
        round: its number, from 0.
        wall_s: how long it was watched.
        cpu_busy: share of all CPUs that worked, 0 to 1.
        client_cpu: what the measuring process took of one CPU.
        lag_p50_s, lag_p90_s, lag_p99_s, lag_max_s: how much later than asked its event loop woke.
        wakes: how many of these lags there are.
    """

    round: int
    wall_s: float
    cpu_busy: float | None = None
    client_cpu: float | None = None
    lag_p50_s: float | None = None
    lag_p90_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None
    wakes: int = 0


@dataclass(slots=True, kw_only=True)
class ClientLoadWriter:
    """Keeps the load of each round of a run.

    Args:
        folder: of the run.
        watch: begun.
        has_requests: whether the present round has asked anything; the run sets it.
    """

    folder: Path
    watch: HostWatch
    has_requests: bool = False
    _round: int | None = field(default=None, init=False)

    def begin_turn(self, turn: PlanTurn) -> None:
        """Take note of a turn: where it begins a new round, the one before has ended.

        Raises:
            ExternalBenchError: the disk took no more.
        """
        if turn.round != self._round:
            self.end()
            self._round = turn.round

    def end(self) -> None:
        """Write the load of the round that has ended; nothing where it asked nothing.

        Raises:
            ExternalBenchError: the disk took no more.
        """
        sample, number, has_requests = self.watch.sample(), self._round, self.has_requests
        self._round, self.has_requests = None, False
        if number is not None and has_requests:
            load = RoundLoad(round=number, **sample._asdict())
            json_file.append_json(self.folder / FILE, load, label="the load of a round")


def read_round_loads(folder: Path) -> Iterator[RoundLoad]:
    """Yield what was kept; a run without the file has none, and a torn line is passed over.

    A kill may tear a line, and a resumed run writes behind it: then the line that both make is passed over too.

    Raises:
        BenchError: the file cannot be read.
    """
    path = folder / FILE
    change = "see that it may be read, or remove it: then no round is marked"
    with convert_os_errors("the load of the rounds cannot be read", path, change):
        lines = path.read_bytes().splitlines() if path.exists() else []
    for line in lines:
        with contextlib.suppress(*DECODE_ERRORS):
            yield msgspec.json.decode(line, type=RoundLoad)
