"""Progress of a run for the operator, on standard error.

Invariant: no result depends on this output; a terminal gets one line that is rewritten, any other
output gets a plain line every few seconds, fit for a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from tandem.bench.plan.estimate import estimate_turn_s, format_duration
from tandem.bench.plan.request_plan import PlanTurn
from tandem.bench.records.record import RequestRecord
from tandem.bench.records.terminal_text import PrintableStream, fit_line, wrap_text

TERMINAL_S = 0.5
LOG_S = 5.0
BAR_COLUMNS = 20
TURN_COLUMNS = 20  # of a turn's name that the bar leaves, or the bar goes
PART_SEPARATOR = "; "
LOG_COLUMNS = 100  # if neither a terminal nor COLUMNS gives a width
CLEAR_LINE = "\r\x1b[K"


@dataclass(slots=True)
class _PhaseCount:
    """Records of the turns, or of a warm-up or restart beside them, and the time these took."""

    done: int = 0
    failures: int = 0
    earlier_s: float = 0.0
    start_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, without pauses."""
        now_s = 0.0 if self.start_s is None else time.monotonic() - self.start_s
        return self.earlier_s + now_s

    def resume(self) -> None:
        """Let time count, unless it does."""
        if self.start_s is None:
            self.start_s = time.monotonic()

    def pause(self) -> None:
        """Let no time count until the next `resume`."""
        self.earlier_s = self.elapsed_s
        self.start_s = None


class RunProgress:
    """Count of records and remaining time of a run.

    Args:
        out: stream for the output.
        requests: of the whole run; None if time limits the run.
        expected_s: duration of the whole run, or its time limit; a better figure may be set later.
    """

    def __init__(self, out: TextIO, *, requests: int | None, expected_s: float) -> None:
        self._out = out if isinstance(out, PrintableStream) else PrintableStream(out)
        self._requests = requests
        self.expected_s = expected_s
        self._terminal = out.isatty()
        self._turns = _PhaseCount()
        self._aside: _PhaseCount | None = None
        self._turn_name = ""

    def notify(self, sentence: str) -> None:
        """Write a sentence on a separate line."""
        columns = shutil.get_terminal_size((LOG_COLUMNS, 0)).columns
        self._replace_line("\n".join(wrap_text(sentence, columns, indent="    ")) + "\n")

    def begin_turn(self, turn: PlanTurn, *, recorded_count: int, phase: str = "") -> None:
        """Set the current turn.

        Args:
            turn: that begins.
            recorded_count: number of its requests that an earlier part of the run recorded.
            phase: of the run, in place of the round's number.
        """
        self._aside = None
        self._turns.resume()
        block = turn.block
        self._turn_name = (
            f"{phase or f'round {turn.round + 1}'}, {block.class_} at {block.load},"
            f" {' and '.join(turn.arms)}"
        )
        if self._requests is not None:
            self._requests -= recorded_count
            self.expected_s -= estimate_turn_s(turn) * recorded_count / turn.request_count

    def expect(self, remaining_s: float) -> None:
        """Set how long the run will still take, in seconds."""
        self.expected_s = self._turns.elapsed_s + remaining_s

    def count_record(self, record: RequestRecord) -> None:
        """Count a record."""
        count = self._aside or self._turns
        count.done += 1
        count.failures += record.error is not None

    def begin_warm_up(self, names: str) -> None:
        """Set the arms of the current warm-up and show them."""
        self.begin_wait(f"warm-up of {names}")
        self.notify(self._turn_name)

    def begin_wait(self, name: str) -> None:
        """Leave the turns for what is not measured; the next turn goes on with their count."""
        self._turns.pause()
        self._aside = _PhaseCount()
        self._aside.resume()
        self._turn_name = name

    def status_line(self) -> str:
        """Return the progress of the run as text."""
        return PART_SEPARATOR.join((self._describe_count(), self._turn_name, self._describe_time()))

    def _describe_count(self) -> str:
        count = self._aside or self._turns
        total = "" if self._aside or self._requests is None else f"/{self._requests}"
        failure_text = f", {count.failures} failed" if count.failures else ""
        return f"{count.done}{total} requests{failure_text}"

    def _describe_time(self) -> str:
        """Return how long a warm-up or a restart takes already, or the run will still take."""
        if self._aside:
            return f"{format_duration(self._aside.elapsed_s)} gone"
        elapsed_s = self._turns.elapsed_s
        if self._requests is None:
            return f"{format_duration(max(self.expected_s - elapsed_s, 0.0))} left"
        remaining_s = self.expected_s
        if done_count := self._turns.done:
            remaining_s = elapsed_s / done_count * (self._requests - done_count)
        return f"about {format_duration(remaining_s)} left"

    @contextlib.contextmanager
    def show_line(self) -> Iterator[None]:
        """Rewrite the line at intervals; at the end, clear the terminal's line."""
        task = asyncio.create_task(self._write_lines())
        try:
            yield
        finally:
            task.cancel()
            self._replace_line("")

    async def _write_lines(self) -> None:
        while True:
            await asyncio.sleep(TERMINAL_S if self._terminal else LOG_S)
            if self._turn_name:
                line = self._draw_line() if self._terminal else f"{self.status_line()}\n"
                self._replace_line(line)

    def _draw_line(self) -> str:
        """Return a terminal's line: a bar if there is room, then the status and the turn."""
        columns = shutil.get_terminal_size().columns - 1
        count_text = self._describe_count()
        time_text = self._describe_time()

        share = self._turns.done / self._requests if self._requests and not self._aside else 0.0
        bar = f"{'━' * round(share * BAR_COLUMNS):<{BAR_COLUMNS}} " if share else ""
        shortest_turn = self._turn_name[:TURN_COLUMNS]
        shortest_line = PART_SEPARATOR.join((f"{bar}{count_text}", shortest_turn, time_text))
        start = count_text if len(shortest_line) > columns else f"{bar}{count_text}"
        return fit_line(start, self._turn_name, time_text, width=columns, separator=PART_SEPARATOR)

    def _replace_line(self, text: str) -> None:
        """Write `text` in place of the line; a closed output does not stop the run."""
        with contextlib.suppress(OSError):
            if self._terminal:
                self._out.write_control(CLEAR_LINE)
            self._out.write(text)
            self._out.flush()
