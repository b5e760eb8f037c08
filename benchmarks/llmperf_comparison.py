"""llmperf's figures next to Tandem's and the truth of the server that both measured, recomputed from their files.

Invariant: this module computes every figure from the files of the folder; none is stored. Truth comes from the server's
own log by the arithmetic of `tandem.bench.ground_truth`. Tandem's figures come from its records by `summarize_run`,
llmperf's from its unchanged result files. All are medians of requests, in milliseconds and tokens.

A folder has `about.json` and for each scenario `<name>/llmperf/` and, if Tandem measured it too, `<name>/tandem/`. Each
of these has the log of its server, twin.jsonl. The two measurements run in sequence, each on a new server with the same
knobs, so each is compared with the truth of its own requests.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tandem.bench.ground_truth import ServerLogEntry
from tandem.bench.json_file import read_json_lines
from tandem.bench.llmperf import results
from tandem.bench.llmperf.run import LlmperfCall, call_folder, read_calls
from tandem.bench.record import read_records
from tandem.bench.summary import summarize_run
from tandem.errors import InputError

ABOUT, LOG, RECORDS, FOREIGN = "about.json", "twin.jsonl", "records.jsonl", "foreign.json"
ABSENT = "-"
HEADINGS = ("scenario", "figure", "truth", "Tandem", "truth", "llmperf")
ITL, TOKENS, ALL_PER_S = "llmperf_inter_token_latency_ms", "completion_tokens", "system_output_tokens_per_s"
# the heading and digits of a figure; its metric, and its name in the server's log
ROWS = (
    ("TTFT, ms", 1, "ttft_ms", "ttft_ms"),
    ("time per token, ms (llmperf: inter-token latency)", 2, "tpot_ms", "tpot_ms"),
    ("the same by llmperf's definition, ms", 2, ITL, ""),
    ("E2E, ms", 1, "e2e_ms", "e2e_ms"),
    ("longest silence, ms", 1, "longest_gap_ms", "longest_gap_ms"),
    ("output tokens of a request", 0, TOKENS, "tokens"),
    ("output tokens/s of a stream", 1, "output_tokens_per_s", "output_tokens_per_s"),
)
# metric: the field of llmperf's rows, and the field's unit in units of the metric
LLMPERF_FIELDS = {
    "ttft_ms": ("ttft_s", 1000),
    "tpot_ms": ("inter_token_latency_s", 1000),
    ITL: ("inter_token_latency_s", 1000),
    "e2e_ms": ("end_to_end_latency_s", 1000),
    TOKENS: ("number_output_tokens", 1),
    "output_tokens_per_s": ("request_output_throughput_token_per_s", 1),
}


class ServerLogRequest(ServerLogEntry, frozen=True, kw_only=True):
    """One request in the server's log, also one without an answer. Times as in `ServerLogEntry`."""

    ended_s: float = 0.0
    finish_reason: str | None = None

    def figures(self) -> dict[str, float]:
        """Return the request's figures by metric, with the longest time between two bursts."""
        return super().figures() | {"longest_gap_ms": _find_longest_gap_ms(time_s for time_s, _ in self.bursts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorFigures:
    """One generator's part of a scenario.

    Args:
        turns: the server's log for it, by turn: those of an ABBA round, or one call of llmperf.
        figures: medians by metric; a figure that the generator did not give is absent.
        result_count: requests that the generator counts.
        errors: requests that failed, by the generator.
    """

    turns: tuple[tuple[ServerLogRequest, ...], ...]
    figures: Mapping[str, float]
    result_count: int
    errors: int

    @property
    def entries(self) -> list[ServerLogRequest]:
        """Every request of the generator in the server's log."""
        return list(itertools.chain.from_iterable(self.turns))

    @property
    def complete_entries(self) -> list[ServerLogRequest]:
        """Requests with a full answer."""
        return [entry for entry in self.entries if entry.finish_reason is not None]

    @property
    def failure_count(self) -> int:
        """Number of requests without a full answer."""
        return len(self.entries) - len(self.complete_entries)

    def true_median(self, name: str) -> float | None:
        """Return the median over full answers, by the name of the log's figure."""
        values = [
            value for entry in self.complete_entries if math.isfinite(value := entry.figures().get(name, math.nan))
        ]
        return median(values) if values else None

    @property
    def true_per_s(self) -> float | None:
        """Tokens of all answers by the time from the first request to the last end; the median of the turns."""
        rates = []
        for turn in self.turns:
            entries = [entry for entry in turn if entry.finish_reason is not None]
            if entries:
                span_s = max(entry.ended_s for entry in entries) - min(entry.accepted_s for entry in entries)
                rates.append(sum(entry.figures()["tokens"] for entry in entries) / span_s)
        return median(rates) if rates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScenario:
    """One server, measured by both generators."""

    name: str
    title: str
    tandem: GeneratorFigures | None
    llmperf: GeneratorFigures
    calls: tuple[LlmperfCall, ...]


def read_scenarios(folder: Path) -> list[ComparisonScenario]:
    """Read the scenarios of `folder`, in the order of its about.json.

    Raises:
        InputError: a file is missing or has another form.
    """
    scenarios = []
    for name, title in read_about(folder).get("scenarios", {}).items():
        ours, theirs = folder / name / "tandem", folder / name / "llmperf"
        calls, tandem = tuple(read_calls(theirs)), _read_tandem(ours) if ours.is_dir() else None
        llmperf = _read_llmperf(theirs, calls)
        scenarios.append(ComparisonScenario(name=name, title=str(title), tandem=tandem, llmperf=llmperf, calls=calls))
    return scenarios


def read_about(folder: Path) -> dict[str, Any]:
    """Return the facts of the run: scenarios, command, machine, date.

    Raises:
        InputError: about.json cannot be read.
    """
    content: dict[str, Any] = _read_json(folder / ABOUT)
    return content


def format_comparison(folder: Path) -> Iterator[str]:
    """Yield the comparison as a table of Markdown.

    Raises:
        InputError: as for `read_scenarios`.
    """
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{'---|' * 2}{'---:|' * 4}"
    for scenario in read_scenarios(folder):
        title = scenario.title
        for row in _build_rows(scenario):
            yield f"| {title} | {' | '.join(row)} |"
            title = ""


def format_token_counts(folder: Path) -> Iterator[str]:
    """Yield the counts of the same texts by two tokenizers as a table of Markdown.

    Raises:
        InputError: the counts cannot be read.
    """
    yield "| text | tokens of Qwen3 | of Llama 2, as llmperf counts | ratio |"
    yield "|---|---:|---:|---:|"
    for row in _read_json(folder / FOREIGN):
        yield f"| {row['text']} | {row['qwen3']} | {row['llama2']} | {row['llama2'] / row['qwen3']:.2f} |"


def describe_machine(folder: Path) -> Iterator[str]:
    """Yield one sentence on the origin of the figures.

    Raises:
        InputError: as for `read_about`.
    """
    facts = read_about(folder)
    busy = f", load {facts['load_1m']} before it began" if "load_1m" in facts else ""
    yield f"`{facts['command']}`, llmperf {facts['llmperf'][:12]}, {facts['machine']}{busy}, {facts['date']}."


def _build_rows(scenario: ComparisonScenario) -> Iterator[tuple[str, ...]]:
    """Yield rows: figure, truth for Tandem, Tandem's value, truth for llmperf, llmperf's value."""
    theirs, sides = scenario.llmperf, (scenario.tandem, scenario.llmperf)

    def build_row(heading: str, pairs: Iterable[tuple[float | None, float | None]], digits: int) -> tuple[str, ...]:
        return heading, *(_format_number(value, digits) for pair in pairs for value in pair)

    for heading, digits, name, truth in ROWS:
        if any(side and name in side.figures for side in sides):
            pairs = [(side.true_median(truth), side.figures.get(name)) if side else (None, None) for side in sides]
            yield build_row(heading, pairs, digits)
    rates = [(side.true_per_s, side.figures.get(ALL_PER_S)) if side else (None, None) for side in sides]
    yield build_row("output tokens/s in all", rates, 1)
    counts = [(len(side.entries), side.result_count) if side else (None, None) for side in sides]
    yield build_row("requests sent, counted", counts, 0)
    if theirs.failure_count or any(call.how != "done" for call in scenario.calls):
        failures = [(side.failure_count, side.errors) if side else (None, None) for side in sides]
        yield build_row("requests failed, noted as failed", failures, 0)
        ends = ", ".join(f"{call.how} (exit {call.exit_code})" for call in scenario.calls)
        yield ("how llmperf ended", ABSENT, ABSENT, ABSENT, ends)


def _format_number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _read_llmperf(folder: Path, calls: Sequence[LlmperfCall]) -> GeneratorFigures:
    call_results = list(filter(None, (results.read_results(call_folder(folder, c.arm, c.call)) for c in calls)))
    rows = [row for call_result in call_results for row in call_result.rows if row.error_code is None]
    columns = {
        name: [value * factor for row in rows if (value := getattr(row, field)) is not None]
        for name, (field, factor) in LLMPERF_FIELDS.items()
    }
    columns[ALL_PER_S] = list(
        filter(None, (result.totals.results_mean_output_throughput_token_per_s for result in call_results))
    )
    return GeneratorFigures(
        turns=(tuple(_read_log(folder)),),
        figures={name: median(values) for name, values in columns.items() if values},
        result_count=len(rows),
        errors=sum(call_result.errors for call_result in call_results),
    )


def _read_tandem(folder: Path) -> GeneratorFigures:
    records = list(read_records(folder / RECORDS))
    turn_by_request = {record.request_id: (record.round, record.slot) for record in records}
    turns: dict[tuple[int, int], list[ServerLogRequest]] = {}
    for entry in _read_log(folder):
        if entry.request_id in turn_by_request:  # neither probe nor warm-up
            turns.setdefault(turn_by_request[entry.request_id], []).append(entry)
    summary = summarize_run(folder)
    figures = {cell.metric: cell.p50 for cell in summary.cells if cell.class_ == "all"}
    gaps_ms = (_find_longest_gap_ms(chunk.at_s for chunk in record.chunks if chunk.bears_tokens) for record in records)
    return GeneratorFigures(
        turns=tuple(map(tuple, turns.values())),
        figures=figures | {"longest_gap_ms": median(gaps_ms)},
        result_count=sum(counts.succeeded for counts in summary.requests),
        errors=sum(counts.failed for counts in summary.requests),
    )


def _find_longest_gap_ms(times_s: Iterable[float]) -> float:
    return max((after_s - before_s for before_s, after_s in itertools.pairwise(times_s)), default=0.0) * 1000


def _read_log(folder: Path) -> Iterator[ServerLogRequest]:
    """Yield every request of a server's log."""
    change = "restore it from a copy"
    entries = read_json_lines(folder / LOG, ServerLogRequest, label="a server's log", change=change)
    return (entry for entry in entries if entry.request_id)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        problem, change = f"it cannot be read: {error}", "name a folder of `make llmperf`"
        raise InputError(problem, where=str(path), change=change) from error
