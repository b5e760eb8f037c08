"""llmperf's figures next to Tandem's and the server's truth, recomputed from their files.

Invariant: this module computes every figure from the files of the folder; none is stored. Truth
comes from the server's own log by the arithmetic of `tandem.bench.figures.ground_truth`. Tandem's
figures come from its records by `summarize_run`, llmperf's from its unchanged result files. All are
medians of requests, in milliseconds and tokens.

A folder has `about.json` and for each scenario `<name>/llmperf/` and `<name>/tandem/`. Each of
these has the log of its server, twin.jsonl. The two measurements run in sequence, each on a new
server with the same knobs, so each is compared with the truth of its own requests.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.figures.ground_truth import LLMPERF_ITL, ServerLogEntry
from tandem.bench.figures.summary import ALL_CLASSES, summarize_run
from tandem.bench.llmperf import results
from tandem.bench.llmperf.run import LlmperfCall, call_folder, read_calls
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.json_file import read_json_lines
from tandem.bench.records.record import RequestRecord, read_records
from tandem.errors import InputError

ABOUT = "about.json"
LOG = "twin.jsonl"
FOREIGN = "foreign.json"
ABSENT = "-"
TOKENS = "completion_tokens"
ALL_PER_S = "system_output_tokens_per_s"
LONGEST_GAP = "longest_gap_ms"
# the heading and digits of a figure; its metric, and its name in the server's log
ROWS = (
    ("TTFT, ms", 1, "ttft_ms", "ttft_ms"),
    ("time per token, ms (llmperf: inter-token latency)", 2, "tpot_ms", "tpot_ms"),
    ("the same by llmperf's definition, ms", 2, LLMPERF_ITL, ""),
    ("E2E, ms", 1, "e2e_ms", "e2e_ms"),
    ("longest silence, ms", 1, LONGEST_GAP, LONGEST_GAP),
    ("output tokens of a request", 0, TOKENS, "tokens"),
    ("output tokens/s of a stream", 1, "output_tokens_per_s", "output_tokens_per_s"),
)
# metric: the field of llmperf's rows, and the field's unit in units of the metric
LLMPERF_FIELDS = {
    "ttft_ms": ("ttft_s", 1000),
    "tpot_ms": ("inter_token_latency_s", 1000),
    LLMPERF_ITL: ("inter_token_latency_s", 1000),
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
        return super().figures() | {
            LONGEST_GAP: find_longest_gap_ms(time_s for time_s, _ in self.bursts)
        }


class GeneratorFigures(NamedTuple):
    """One generator's part of a scenario.

    Args:
        turns: the server's log for it, by turn: those of an ABBA round, or one call of llmperf.
        figures: medians by metric; a figure that the generator did not give is absent.
        result_count: requests that the generator counts.
        errors: requests that failed, by the generator.
    """

    turns: Sequence[Sequence[ServerLogRequest]]
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
        return find_median(entry.figures().get(name) for entry in self.complete_entries)

    @property
    def true_per_s(self) -> float | None:
        """Tokens of all answers by the time from first request to last end; turns' median."""
        rates = []
        for turn in self.turns:
            entries = [entry for entry in turn if entry.finish_reason is not None]
            if entries:
                span_s = max(entry.ended_s for entry in entries) - min(
                    entry.accepted_s for entry in entries
                )
                rates.append(sum(entry.figures()["tokens"] for entry in entries) / span_s)
        return find_median(rates)


class ComparisonScenario(NamedTuple):
    """One server, measured by both generators."""

    name: str
    title: str
    tandem: GeneratorFigures
    llmperf: GeneratorFigures
    calls: Sequence[LlmperfCall]


def read_scenarios(folder: Path) -> Iterator[ComparisonScenario]:
    """Yield the scenarios of `folder`, in the order of its about.json.

    Raises:
        InputError: a file is missing or has another form.
    """
    for name, title in read_about(folder)["scenarios"].items():
        calls = list(read_calls(folder / name / "llmperf"))
        theirs = _read_llmperf(folder / name / "llmperf", calls)
        yield ComparisonScenario(name, title, _read_tandem(folder / name / "tandem"), theirs, calls)


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
    yield "| scenario | figure | truth | Tandem | truth | llmperf |"
    yield f"|{'---|' * 2}{'---:|' * 4}"
    for scenario in read_scenarios(folder):
        title = scenario.title
        for row in _list_rows(scenario):
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
        yield (
            f"| {row['text']} | {row['qwen3']} | {row['llama2']} |"
            f" {row['llama2'] / row['qwen3']:.2f} |"
        )


def describe_machine(folder: Path) -> Iterator[str]:
    """Yield one sentence on the origin of the figures.

    Raises:
        InputError: as for `read_about`.
    """
    facts = read_about(folder)
    busy = f"load {facts['load_1m']} before it began"
    yield (
        f"`{facts['command']}`, llmperf {facts['llmperf'][:12]}, {facts['machine']}, {busy},"
        f" {facts['date']}."
    )


def _list_rows(scenario: ComparisonScenario) -> Iterator[list[str]]:
    """Yield rows: figure, truth for Tandem, Tandem's value, truth for llmperf, llmperf's value."""
    ours = scenario.tandem
    theirs = scenario.llmperf
    for heading, digits, name, truth in ROWS:
        if name in ours.figures or name in theirs.figures:
            values = [ours.true_median(truth), ours.figures.get(name)]
            values += [theirs.true_median(truth), theirs.figures.get(name)]
            yield _format_row(heading, values, digits)

    rates = [
        ours.true_per_s,
        ours.figures.get(ALL_PER_S),
        theirs.true_per_s,
        theirs.figures.get(ALL_PER_S),
    ]
    yield _format_row("output tokens/s in all", rates, 1)
    counts = [len(ours.entries), ours.result_count, len(theirs.entries), theirs.result_count]
    yield _format_row("requests sent, counted", counts, 0)
    if theirs.failure_count or any(call.how != "done" for call in scenario.calls):
        failures = [ours.failure_count, ours.errors, theirs.failure_count, theirs.errors]
        yield _format_row("requests failed, noted as failed", failures, 0)
        ends = ", ".join(f"{call.how} (exit {call.exit_code})" for call in scenario.calls)
        yield ["how llmperf ended", ABSENT, ABSENT, ABSENT, ends]


def _format_row(heading: str, values: Iterable[float | None], digits: int) -> list[str]:
    return [heading, *(ABSENT if value is None else f"{value:.{digits}f}" for value in values)]


def _read_llmperf(folder: Path, calls: Sequence[LlmperfCall]) -> GeneratorFigures:
    parts = [results.read_results(call_folder(folder, call.arm, call.call)) for call in calls]
    call_results = [part for part in parts if part is not None]
    all_rows = itertools.chain.from_iterable(part.rows for part in call_results)
    rows = [row for row in all_rows if row.error_code is None]
    medians = {
        ALL_PER_S: find_median(
            part.totals.results_mean_output_throughput_token_per_s for part in call_results
        )
    }
    for name, (field, factor) in LLMPERF_FIELDS.items():
        middle = find_median(getattr(row, field) for row in rows)
        medians[name] = None if middle is None else middle * factor
    return GeneratorFigures(
        turns=[list(_read_log(folder))],
        figures={name: middle for name, middle in medians.items() if middle is not None},
        result_count=len(rows),
        errors=sum(part.errors for part in call_results),
    )


def _read_tandem(folder: Path) -> GeneratorFigures:
    records = list(read_records(folder / RECORDS_FILE))
    turn_by_request = {record.request_id: (record.round, record.slot) for record in records}
    turns = defaultdict(list)
    for entry in _read_log(folder):
        if entry.request_id in turn_by_request:  # neither probe nor warm-up
            turns[turn_by_request[entry.request_id]].append(entry)
    summary = summarize_run(folder)
    figures = {cell.metric: cell.p50 for cell in summary.cells if cell.class_ == ALL_CLASSES}
    return GeneratorFigures(
        turns=list(turns.values()),
        figures=figures
        | {LONGEST_GAP: float(np.median([find_silence_ms(record) for record in records]))},
        result_count=sum(counts.succeeded for counts in summary.requests),
        errors=sum(counts.failed for counts in summary.requests),
    )


def find_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the finite values; None without any."""
    column = np.array(list(values), float)
    finite = column[np.isfinite(column)]
    return float(np.median(finite)) if len(finite) else None


def find_silence_ms(record: RequestRecord) -> float:
    """Return the longest time between two chunks with tokens."""
    return find_longest_gap_ms(chunk.at_s for chunk in record.chunks if chunk.bears_tokens)


def find_longest_gap_ms(times_s: Iterable[float]) -> float:
    """Return the longest time between two moments."""
    return (
        max((after_s - before_s for before_s, after_s in itertools.pairwise(times_s)), default=0.0)
        * 1000
    )


def _read_log(folder: Path) -> Iterator[ServerLogRequest]:
    """Yield every request of a server's log."""
    change = "restore it from a copy"
    entries = read_json_lines(folder / LOG, ServerLogRequest, label="a server's log", change=change)
    return (entry for entry in entries if entry.request_id)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        problem = f"it cannot be read: {error}"
        raise InputError(
            problem, where=str(path), change="name a folder of `make llmperf`"
        ) from error
