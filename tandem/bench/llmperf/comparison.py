"""llmperf's figures beside Tandem's and the truth of the server that both measured, recomputed from their files.

Invariant: every figure is computed here from what is in the folder; none is stored. Truth comes from the server's own
log by the arithmetic of `tandem.bench.ground_truth`, Tandem's figures from its records by `summarize_run`, llmperf's
from its
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

from tandem.bench.fault import BenchError
from tandem.bench.ground_truth import ServerLogEntry
from tandem.bench.json_file import read_json_lines
from tandem.bench.llmperf import results
from tandem.bench.llmperf.run import LlmperfCall, call_folder, read_calls
from tandem.bench.record import RequestRecord, read_records
from tandem.bench.summary import RecordSummary, summarize_run

ABOUT, LOG, RECORDS, FOREIGN = "about.json", "twin.jsonl", "records.jsonl", "foreign.json"
ABSENT = "-"
HEADINGS = ("scenario", "figure", "truth", "Tandem", "truth", "llmperf")


class ServerLogRequest(ServerLogEntry, frozen=True, kw_only=True):
    """One request as the server logged it, those without an answer included. Times as in `ServerLogEntry`."""

    ended_s: float = 0.0
    status: int = 200
    completion_tokens: int = 0
    finish_reason: str | None = None

    @property
    def longest_gap_ms(self) -> float:
        """The longest time between two bursts."""
        times_s = [time_s for time_s, _ in self.bursts]
        return max((after - before for before, after in itertools.pairwise(times_s)), default=0.0) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorFigures:
    """One generator's part of a scenario; what it did not give is None.

    Args:
        turns: what the server did for it, by turn: those of an ABBA round, or one call of llmperf.
        own_token_ms: llmperf's inter-token latency, by its own definition.
    """

    turns: tuple[tuple[ServerLogRequest, ...], ...]
    ttft_ms: float | None = None
    token_ms: float | None = None
    own_token_ms: float | None = None
    e2e_ms: float | None = None
    longest_gap_ms: float | None = None
    tokens: float | None = None
    stream_per_s: float | None = None
    all_per_s: float | None = None
    result_count: int = 0
    errors: int = 0

    @property
    def entries(self) -> list[ServerLogRequest]:
        """Every request that the server had of it."""
        return [entry for turn in self.turns for entry in turn]

    @property
    def complete_entries(self) -> list[ServerLogRequest]:
        """What was answered in full."""
        return _select_complete(self.entries)

    def true_median(self, read_value: Callable[[ServerLogRequest], float | None]) -> float | None:
        """Return the median of what was answered."""
        values = [value for entry in self.complete_entries if (value := read_value(entry)) is not None]
        return median(values) if values else None

    @property
    def true_per_s(self) -> float | None:
        """Tokens of all answers by the time from the first request to the last end; the median of the turns."""
        rates = []
        for turn in filter(None, map(_select_complete, self.turns)):
            span = max(entry.ended_s for entry in turn) - min(entry.accepted_s for entry in turn)
            rates.append(sum(entry.tokens for entry in turn) / span)
        return median(rates) if rates else None

    @property
    def failure_count(self) -> int:
        """How many requests the server did not answer in full."""
        return len(self.entries) - len(self.complete_entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScenario:
    """One server, measured by both."""

    name: str
    title: str
    tandem: GeneratorFigures | None
    llmperf: GeneratorFigures
    calls: tuple[LlmperfCall, ...]


def read_scenarios(folder: Path) -> list[ComparisonScenario]:
    """Read the scenarios of `folder`, in the order of its about.json.

    Raises:
        BenchError: a file is missing, or is not what it must be.
    """
    return [
        _read_scenario(folder / name, name, str(title))
        for name, title in read_about(folder).get("scenarios", {}).items()
    ]


def read_about(folder: Path) -> dict[str, Any]:
    """Return what is known of the run: scenarios, command, machine, date.

    Raises:
        BenchError: it cannot be read.
    """
    content: dict[str, Any] = _read_json(folder / ABOUT)
    return content


def format_comparison(folder: Path) -> Iterator[str]:
    """Yield the comparison as a table of Markdown.

    Raises:
        BenchError: as `read_scenarios`.
    """
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{'---|' * 2}{'---:|' * 4}"
    for scenario in read_scenarios(folder):
        title = scenario.title
        for figure, *cells in _build_rows(scenario):
            yield f"| {title} | {figure} | {' | '.join(cells)} |"
            title = ""


def format_token_counts(folder: Path) -> Iterator[str]:
    """Yield the counts of the same texts by two tokenizers as a table of Markdown.

    Raises:
        BenchError: they cannot be read.
    """
    yield "| text | tokens of Qwen3 | of Llama 2, as llmperf counts | ratio |"
    yield "|---|---:|---:|---:|"
    for row in _read_json(folder / FOREIGN):
        yield f"| {row['text']} | {row['qwen3']} | {row['llama2']} | {row['llama2'] / row['qwen3']:.2f} |"


def describe_machine(folder: Path) -> Iterator[str]:
    """Yield one sentence of how the figures came about.

    Raises:
        BenchError: as `read_about`.
    """
    facts = read_about(folder)
    busy = f", load {facts['load_1m']} before it began" if "load_1m" in facts else ""
    yield f"`{facts['command']}`, llmperf {facts['llmperf'][:12]}, {facts['machine']}{busy}, {facts['date']}."


def format_traps(folder: Path) -> Iterator[str]:
    """Yield what llmperf's figures hide, each with the figure that shows it, as a table of Markdown.

    Raises:
        BenchError: as `read_scenarios`, or a scenario that one of them needs is missing.
    """
    sides = {scenario.name: scenario.llmperf for scenario in read_scenarios(folder)}
    missing = {"plain", "bursts", "stall", "error", "usage"} - set(sides)
    if missing:
        raise BenchError(
            f"the scenarios {', '.join(sorted(missing))} are missing",
            where=str(folder),
            change="run `make llmperf` whole",
        )
    plain, bursts, stall = sides["plain"], sides["bursts"], sides["stall"]
    ratios = [row["llama2"] / row["qwen3"] - 1 for row in _read_json(folder / FOREIGN)]
    true_ms, tokens = (
        bursts.true_median(lambda entry: entry.tpot_ms),
        plain.true_median(lambda entry: float(entry.tokens)),
    )
    silence_ms = stall.true_median(lambda entry: entry.longest_gap_ms)
    yield "| trap | shown by |"
    yield "|---|---|"
    yield (
        "| events are counted as tokens | bursts of 1 to 8: an inter-token latency of "
        f"{_format_number(bursts.token_ms, 1)} ms where a token took {_format_number(true_ms, 1)} ms: "
        f"{_format_ratio(bursts.token_ms, true_ms)} times too high |"
    )
    yield (
        f"| tokens are another model's | {_format_number(plain.tokens, 0)} counted where "
        f"{_format_number(tokens, 0)} were sent; the "
        f"prompts of suite `real` have {min(ratios):.0%} to {max(ratios):.0%} more by its tokenizer than by Qwen3's, "
        "by class |"
    )
    yield (
        "| its clock starts before its workers | 1 token every 15 ms: "
        f"{_format_number(plain.all_per_s, 0)} tokens/s in all, by tokens that it counts too many, where the "
        f"server gave {_format_number(plain.true_per_s, 0)} |"
    )
    yield (
        f"| requests are thrown away | {len(plain.entries)} sent, {plain.result_count} counted: the last ones "
        "of each call |"
    )
    usage = sides["usage"]
    yield (
        f"| asking for usage crashes it | {len(usage.entries)} requests were sent and "
        f"{len(usage.complete_entries)} answered in full: {usage.result_count} counted, no file |"
    )
    error = sides["error"]
    yield (
        f"| an error ends the thread that met it | {error.failure_count} of {len(error.entries)} requests failed, "
        f"{error.errors} noted; from then on {_count_concurrent(error)} at once instead of {_count_concurrent(plain)} |"
    )
    yield (
        f"| a stall is not seen | each answer was silent for {_format_number(silence_ms, 0)} ms once: "
        "inter-token latency "
        f"{_format_number(stall.token_ms, 1)} ms instead of {_format_number(plain.token_ms, 1)}, nothing else |"
    )


def _format_ratio(numerator: float | None, denominator: float | None) -> str:
    return f"{numerator / denominator:.1f}" if numerator is not None and denominator else ABSENT


def _count_concurrent(side: GeneratorFigures) -> int:
    """Return how many requests the server had at once, at most, after the last failure (or ever)."""
    failures = [entry.accepted_s for entry in side.entries if entry.finish_reason is None]
    later = [entry for entry in side.complete_entries if not failures or entry.accepted_s > max(failures)]
    return max(
        (sum(neighbor.accepted_s <= entry.accepted_s < neighbor.ended_s for neighbor in later) for entry in later),
        default=0,
    )


def _build_rows(scenario: ComparisonScenario) -> Iterator[tuple[str, ...]]:
    """Yield figure, Tandem's truth, Tandem's, llmperf's truth, llmperf's."""
    ours, theirs = scenario.tandem, scenario.llmperf
    figures: tuple[
        tuple[str, int, Callable[[ServerLogRequest], float | None], Callable[[GeneratorFigures], float | None]], ...
    ] = (
        ("TTFT, ms", 1, lambda entry: entry.ttft_ms, lambda side: side.ttft_ms),
        (
            "time per token, ms (llmperf: inter-token latency)",
            2,
            lambda entry: entry.tpot_ms,
            lambda side: side.token_ms,
        ),
        ("the same by llmperf's definition, ms", 2, lambda _: None, lambda side: side.own_token_ms),
        ("E2E, ms", 1, lambda entry: entry.e2e_ms, lambda side: side.e2e_ms),
        ("longest silence, ms", 1, lambda entry: entry.longest_gap_ms, lambda side: side.longest_gap_ms),
        ("output tokens of a request", 0, lambda entry: float(entry.tokens), lambda side: side.tokens),
        ("output tokens/s of a stream", 1, lambda entry: entry.output_tokens_per_s, lambda side: side.stream_per_s),
    )
    for figure, digits, read_truth, read_figure in figures:
        if read_figure(theirs) is not None or (ours and read_figure(ours) is not None):
            yield (
                figure,
                *(
                    (_format_number(ours.true_median(read_truth), digits), _format_number(read_figure(ours), digits))
                    if ours
                    else (ABSENT, ABSENT)
                ),
                _format_number(theirs.true_median(read_truth), digits),
                _format_number(read_figure(theirs), digits),
            )
    yield (
        "output tokens/s in all",
        *((_format_number(ours.true_per_s, 1), _format_number(ours.all_per_s, 1)) if ours else (ABSENT, ABSENT)),
        _format_number(theirs.true_per_s, 1), _format_number(theirs.all_per_s, 1),
    )  # fmt: skip
    yield (
        "requests sent, counted",
        *((str(len(ours.entries)), str(ours.result_count)) if ours else (ABSENT, ABSENT)),
        str(len(theirs.entries)), str(theirs.result_count),
    )  # fmt: skip
    if theirs.failure_count or any(call.how != "done" for call in scenario.calls):
        yield (
            "requests failed, noted as failed",
            *((str(ours.failure_count), str(ours.errors)) if ours else (ABSENT, ABSENT)),
            str(theirs.failure_count), str(theirs.errors),
        )  # fmt: skip
        ends = ", ".join(f"{call.how} (exit {call.exit_code})" for call in scenario.calls)
        yield ("how llmperf ended", ABSENT, ABSENT, ABSENT, ends)


def _format_number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _read_scenario(folder: Path, name: str, title: str) -> ComparisonScenario:
    calls = tuple(read_calls(folder / "llmperf"))
    ours = folder / "tandem"
    return ComparisonScenario(
        name=name, title=title, tandem=_read_tandem(ours) if ours.is_dir() else None,
        llmperf=_read_llmperf(folder / "llmperf", calls), calls=calls,
    )  # fmt: skip


def _read_llmperf(folder: Path, calls: Sequence[LlmperfCall]) -> GeneratorFigures:
    call_results = [
        call_result for call in calls if (call_result := results.read_results(call_folder(folder, call.arm, call.call)))
    ]
    rows = [row for call_result in call_results for row in call_result.rows if not row.has_failed]

    def compute_median(
        read_value: Callable[[results.LlmperfRequest], float | None], factor: float = 1.0
    ) -> float | None:
        values = [value * factor for row in rows if (value := read_value(row)) is not None]
        return median(values) if values else None

    latency_ms = compute_median(lambda row: row.inter_token_latency_s, 1000)
    overall = [
        call_result.output_throughput_token_per_s
        for call_result in call_results
        if call_result.output_throughput_token_per_s
    ]
    return GeneratorFigures(
        turns=(tuple(_read_log(folder / LOG)),),
        ttft_ms=compute_median(lambda row: row.ttft_s, 1000),
        token_ms=latency_ms,
        own_token_ms=latency_ms,
        e2e_ms=compute_median(lambda row: row.end_to_end_latency_s, 1000),
        tokens=compute_median(lambda row: row.output_tokens),
        stream_per_s=compute_median(lambda row: row.request_output_throughput_token_per_s),
        all_per_s=median(overall) if overall else None,
        result_count=len(rows),
        errors=sum(call_result.errors for call_result in call_results),
    )


def _read_tandem(folder: Path) -> GeneratorFigures:
    records = list(read_records(folder / RECORDS))
    turn_by_request = {record.request_id: (record.round, record.slot) for record in records}
    turns: dict[tuple[int, int], list[ServerLogRequest]] = {}
    for entry in _read_log(folder / LOG):
        if entry.request_id in turn_by_request:  # neither probe nor warm-up
            turns.setdefault(turn_by_request[entry.request_id], []).append(entry)
    summary = summarize_run(folder)
    return GeneratorFigures(
        turns=tuple(map(tuple, turns.values())),
        own_token_ms=_read_median(summary, "llmperf_inter_token_latency_ms"),
        ttft_ms=_read_median(summary, "ttft_ms"),
        token_ms=_read_median(summary, "tpot_ms"),
        e2e_ms=_read_median(summary, "e2e_ms"),
        longest_gap_ms=median(map(_compute_longest_gap_ms, records)),
        tokens=_read_median(summary, "completion_tokens"),
        stream_per_s=_read_median(summary, "output_tokens_per_s"),
        all_per_s=_read_median(summary, "system_output_tokens_per_s"),
        result_count=sum(row.succeeded for row in summary.requests),
        errors=sum(row.failed for row in summary.requests),
    )


def _select_complete(entries: Sequence[ServerLogRequest]) -> list[ServerLogRequest]:
    return [entry for entry in entries if entry.finish_reason is not None]


def _read_median(summary: RecordSummary, metric: str) -> float | None:
    """Return the median over all classes."""
    medians = [cell.p50 for cell in summary.cells if (cell.metric, cell.class_) == (metric, "all")]
    return medians[0] if medians else None


def _compute_longest_gap_ms(record: RequestRecord) -> float:
    times = [chunk.at_s for chunk in record.chunks if chunk.bears_tokens]
    return max((after - before for before, after in itertools.pairwise(times)), default=0.0) * 1000


def _read_log(path: Path) -> Iterator[ServerLogRequest]:
    """Yield every request of a server's log."""
    entries = read_json_lines(path, ServerLogRequest, label="a server's log", change="restore it from a copy")
    return (entry for entry in entries if entry.request_id)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchError(
            f"it cannot be read: {error}", where=str(path), change="name a folder of `make llmperf`"
        ) from error
