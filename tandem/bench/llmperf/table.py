"""llmperf's figures beside Tandem's and the truth of the server that both measured, recomputed from their files.

Invariant: every figure is computed here from what is in the folder; none is stored. Truth comes from the server's own
log by the arithmetic of `tandem.bench.truth`, Tandem's figures from its records by `summarize`, llmperf's from its
result files as it wrote them; medians of requests, in milliseconds and tokens.

A folder holds `about.json` and for each scenario `<name>/llmperf/` and, where Tandem measured it too, `<name>/tandem/`,
each with the log of the server that it measured, twin.jsonl. The two are measured one after the other, each on a new
server of the same knobs, so that each stands beside the truth of its own requests.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from tandem.bench.fault import BenchError
from tandem.bench.llmperf import results
from tandem.bench.llmperf.run import Call, calls_of, folder_of
from tandem.bench.record import Record, read_records
from tandem.bench.summary import Summary, summarize
from tandem.bench.truth import Served

ABOUT, LOG, RECORDS, FOREIGN = "about.json", "twin.jsonl", "records.jsonl", "foreign.json"
NONE = "-"
HEAD = ("scenario", "figure", "truth", "Tandem", "truth", "llmperf")


class Told(Served, frozen=True, kw_only=True):
    """One request as the server logged it, those without an answer included. Times as in `Served`."""

    ended_s: float
    status: int = 200
    completion_tokens: int = 0
    finish_reason: str | None = None

    @property
    def longest_gap_ms(self) -> float:
        """The longest time between two bursts."""
        times = [at for at, _ in self.bursts]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One generator's part of a scenario; what it did not give is None.

    Args:
        told: what the server did for it.
    """

    told: tuple[Told, ...]
    ttft_ms: float | None = None
    token_ms: float | None = None
    e2e_ms: float | None = None
    longest_gap_ms: float | None = None
    tokens: float | None = None
    stream_per_s: float | None = None
    all_per_s: float | None = None
    counted: int = 0
    errors: int = 0

    @property
    def answered(self) -> list[Told]:
        """What was answered in full."""
        return [told for told in self.told if told.finish_reason is not None]

    def truth(self, of: Callable[[Told], float | None]) -> float | None:
        """Return the median of what was answered."""
        values = [value for told in self.answered if (value := of(told)) is not None]
        return median(values) if values else None

    @property
    def true_per_s(self) -> float | None:
        """Tokens of all answers by the time from the first request to the last end."""
        if not self.answered:
            return None
        span = max(told.ended_s for told in self.answered) - min(told.accepted_s for told in self.answered)
        return sum(told.tokens for told in self.answered) / span

    @property
    def failed(self) -> int:
        """How many requests the server did not answer in full."""
        return len(self.told) - len(self.answered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One server, measured by both."""

    name: str
    title: str
    tandem: Side | None
    llmperf: Side
    calls: tuple[Call, ...]


def read(folder: Path) -> list[Scenario]:
    """Read the scenarios of `folder`, in the order of its about.json.

    Raises:
        BenchError: a file is missing, or is not what it must be.
    """
    return [_scenario(folder / name, name, str(title)) for name, title in about(folder).get("scenarios", {}).items()]


def about(folder: Path) -> dict[str, Any]:
    """Return what is known of the run: scenarios, command, machine, date.

    Raises:
        BenchError: it cannot be read.
    """
    found: dict[str, Any] = _json(folder / ABOUT)
    return found


def lines(folder: Path) -> Iterator[str]:
    """Yield the comparison as a table of Markdown.

    Raises:
        BenchError: as `read`.
    """
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * 2}{'---:|' * 4}"
    for scenario in read(folder):
        title = scenario.title
        for figure, *cells in _rows(scenario):
            yield f"| {title} | {figure} | {' | '.join(cells)} |"
            title = ""


def foreign(folder: Path) -> Iterator[str]:
    """Yield the counts of the same texts by two tokenizers as a table of Markdown.

    Raises:
        BenchError: they cannot be read.
    """
    yield "| text | tokens of Qwen3 | of Llama 2, as llmperf counts | ratio |"
    yield "|---|---:|---:|---:|"
    for row in _json(folder / FOREIGN):
        yield f"| {row['text']} | {row['qwen3']} | {row['llama2']} | {row['llama2'] / row['qwen3']:.2f} |"


def _rows(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """Yield figure, Tandem's truth, Tandem's, llmperf's truth, llmperf's."""
    ours, theirs = scenario.tandem, scenario.llmperf
    figures: tuple[tuple[str, int, Callable[[Told], float | None], Callable[[Side], float | None]], ...] = (
        ("TTFT, ms", 1, lambda told: told.ttft_ms, lambda side: side.ttft_ms),
        ("time per token, ms (llmperf: inter-token latency)", 2, lambda told: told.tpot_ms, lambda side: side.token_ms),
        ("E2E, ms", 1, lambda told: told.e2e_ms, lambda side: side.e2e_ms),
        ("longest silence, ms", 1, lambda told: told.longest_gap_ms, lambda side: side.longest_gap_ms),
        ("output tokens of a request", 0, lambda told: float(told.tokens), lambda side: side.tokens),
        ("output tokens/s of a stream", 1, lambda told: told.output_tokens_per_s, lambda side: side.stream_per_s),
    )
    for figure, digits, true, measured in figures:
        if measured(theirs) is not None or (ours and measured(ours) is not None):
            yield (
                figure,
                *((_shown(ours.truth(true), digits), _shown(measured(ours), digits)) if ours else (NONE, NONE)),
                _shown(theirs.truth(true), digits), _shown(measured(theirs), digits),
            )  # fmt: skip
    yield (
        "output tokens/s in all",
        *((_shown(ours.true_per_s, 1), _shown(ours.all_per_s, 1)) if ours else (NONE, NONE)),
        _shown(theirs.true_per_s, 1), _shown(theirs.all_per_s, 1),
    )  # fmt: skip
    yield (
        "requests sent, counted",
        *((str(len(ours.told)), str(ours.counted)) if ours else (NONE, NONE)),
        str(len(theirs.told)), str(theirs.counted),
    )  # fmt: skip
    if theirs.failed or any(call.how != "done" for call in scenario.calls):
        yield (
            "requests failed, noted as failed",
            *((str(ours.failed), str(ours.errors)) if ours else (NONE, NONE)),
            str(theirs.failed), str(theirs.errors),
        )  # fmt: skip
        ends = ", ".join(f"{call.how} (exit {call.exit_code})" for call in scenario.calls)
        yield ("how llmperf ended", NONE, NONE, NONE, ends)


def _shown(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _scenario(folder: Path, name: str, title: str) -> Scenario:
    calls = tuple(calls_of(folder / "llmperf"))
    ours = folder / "tandem"
    return Scenario(
        name=name, title=title, tandem=_tandem(ours) if ours.is_dir() else None,
        llmperf=_llmperf(folder / "llmperf", calls), calls=calls,
    )  # fmt: skip


def _llmperf(folder: Path, calls: Sequence[Call]) -> Side:
    found = [each for call in calls if (each := results.read(folder_of(folder, call.arm, call.call)))]
    rows = [row for each in found for row in each.rows if not row.failed]

    def middle(of: Callable[[results.Row], float | None], factor: float = 1.0) -> float | None:
        values = [value * factor for row in rows if (value := of(row)) is not None]
        return median(values) if values else None

    overall = [each.output_throughput_token_per_s for each in found if each.output_throughput_token_per_s]
    return Side(
        told=tuple(_log(folder / LOG)),
        ttft_ms=middle(lambda row: row.ttft_s, 1000), token_ms=middle(lambda row: row.inter_token_latency_s, 1000),
        e2e_ms=middle(lambda row: row.end_to_end_latency_s, 1000), tokens=middle(lambda row: row.output_tokens),
        stream_per_s=middle(lambda row: row.request_output_throughput_token_per_s),
        all_per_s=median(overall) if overall else None, counted=len(rows), errors=sum(each.errors for each in found),
    )  # fmt: skip


def _tandem(folder: Path) -> Side:
    records = list(read_records(folder / RECORDS))
    counted = {record.request_id for record in records}
    summary = summarize(folder)
    return Side(
        told=tuple(told for told in _log(folder / LOG) if told.request_id in counted),
        ttft_ms=_cell(summary, "ttft_ms"), token_ms=_cell(summary, "tpot_ms"), e2e_ms=_cell(summary, "e2e_ms"),
        longest_gap_ms=median(map(_longest_gap_ms, records)), tokens=_cell(summary, "completion_tokens"),
        stream_per_s=_cell(summary, "output_tokens_per_s"), all_per_s=_cell(summary, "system_output_tokens_per_s"),
        counted=sum(one.succeeded for one in summary.requests), errors=sum(one.failed for one in summary.requests),
    )  # fmt: skip


def _cell(summary: Summary, metric: str) -> float | None:
    """Return the median over all classes."""
    found = [cell.p50 for cell in summary.cells if (cell.metric, cell.class_) == (metric, "all")]
    return found[0] if found else None


def _longest_gap_ms(record: Record) -> float:
    times = [chunk.at_s for chunk in record.chunks if chunk.bears_tokens]
    return max((after - before for before, after in itertools.pairwise(times)), default=0.0) * 1000


def _log(path: Path) -> Iterator[Told]:
    """Yield every request of a server's log."""
    try:
        content = path.read_bytes().splitlines()
        parsed = [msgspec.json.decode(line) for line in content if line]
        yield from (msgspec.convert(line, Told) for line in parsed if "request_id" in line)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BenchError(
            f"this is no server's log: {error}", where=str(path), change="restore it from a copy"
        ) from error


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchError(
            f"it cannot be read: {error}", where=str(path), change="name a folder of `make llmperf`"
        ) from error
