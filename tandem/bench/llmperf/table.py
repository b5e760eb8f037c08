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
        turns: what the server did for it, by turn: those of an ABBA round, or one call of llmperf.
        own_token_ms: llmperf's inter-token latency, by its own definition.
    """

    turns: tuple[tuple[Told, ...], ...]
    ttft_ms: float | None = None
    token_ms: float | None = None
    own_token_ms: float | None = None
    e2e_ms: float | None = None
    longest_gap_ms: float | None = None
    tokens: float | None = None
    stream_per_s: float | None = None
    all_per_s: float | None = None
    counted: int = 0
    errors: int = 0

    @property
    def told(self) -> list[Told]:
        """Every request that the server had of it."""
        return [told for turn in self.turns for told in turn]

    @property
    def answered(self) -> list[Told]:
        """What was answered in full."""
        return _answered(self.told)

    def truth(self, of: Callable[[Told], float | None]) -> float | None:
        """Return the median of what was answered."""
        values = [value for told in self.answered if (value := of(told)) is not None]
        return median(values) if values else None

    @property
    def true_per_s(self) -> float | None:
        """Tokens of all answers by the time from the first request to the last end; the median of the turns."""
        rates = []
        for turn in filter(None, map(_answered, self.turns)):
            span = max(told.ended_s for told in turn) - min(told.accepted_s for told in turn)
            rates.append(sum(told.tokens for told in turn) / span)
        return median(rates) if rates else None

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


def machine(folder: Path) -> Iterator[str]:
    """Yield one sentence of how the figures came about.

    Raises:
        BenchError: as `about`.
    """
    found = about(folder)
    busy = f", load {found['load_1m']} before it began" if "load_1m" in found else ""
    yield f"`{found['command']}`, llmperf {found['llmperf'][:12]}, {found['machine']}{busy}, {found['date']}."


def traps(folder: Path) -> Iterator[str]:
    """Yield what llmperf's figures hide, each with the figure that shows it, as a table of Markdown.

    Raises:
        BenchError: as `read`, or a scenario that one of them needs is missing.
    """
    found = {scenario.name: scenario.llmperf for scenario in read(folder)}
    missing = {"plain", "bursts", "stall", "error", "usage"} - set(found)
    if missing:
        raise BenchError(
            f"the scenarios {', '.join(sorted(missing))} are missing",
            where=str(folder),
            change="run `make llmperf` whole",
        )
    plain, bursts, stall = found["plain"], found["bursts"], found["stall"]
    ratios = [row["llama2"] / row["qwen3"] - 1 for row in _json(folder / FOREIGN)]
    true_ms, tokens = bursts.truth(lambda told: told.tpot_ms), plain.truth(lambda told: float(told.tokens))
    silence_ms = stall.truth(lambda told: told.longest_gap_ms)
    yield "| trap | shown by |"
    yield "|---|---|"
    yield (
        "| events are counted as tokens | bursts of 1 to 8: an inter-token latency of "
        f"{_shown(bursts.token_ms, 1)} ms where a token took {_shown(true_ms, 1)} ms: "
        f"{_ratio(bursts.token_ms, true_ms)} times too high |"
    )
    yield (
        f"| tokens are another model's | {_shown(plain.tokens, 0)} counted where {_shown(tokens, 0)} were sent; the "
        f"prompts of suite `real` have {min(ratios):.0%} to {max(ratios):.0%} more by its tokenizer than by Qwen3's, "
        "by class |"
    )
    yield (
        "| its clock starts before its workers | 1 token every 15 ms: "
        f"{_shown(plain.all_per_s, 0)} tokens/s in all, by tokens that it counts too many, where the server gave "
        f"{_shown(plain.true_per_s, 0)} |"
    )
    yield f"| requests are thrown away | {len(plain.told)} sent, {plain.counted} counted: the last ones of each call |"
    usage = found["usage"]
    yield (
        f"| asking for usage crashes it | {len(usage.told)} requests were sent and {len(usage.answered)} answered in "
        f"full: {usage.counted} counted, no file |"
    )
    error = found["error"]
    yield (
        f"| an error ends the thread that met it | {error.failed} of {len(error.told)} requests failed, "
        f"{error.errors} noted; from then on {_at_once(error)} at once instead of {_at_once(plain)} |"
    )
    yield (
        f"| a stall is not seen | each answer was silent for {_shown(silence_ms, 0)} ms once: inter-token latency "
        f"{_shown(stall.token_ms, 1)} ms instead of {_shown(plain.token_ms, 1)}, nothing else |"
    )


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.1f}" if one is not None and other else NONE


def _at_once(side: Side) -> int:
    """Return how many requests the server had at once, at most, after the last failure (or ever)."""
    failures = [told.accepted_s for told in side.told if told.finish_reason is None]
    later = [told for told in side.answered if not failures or told.accepted_s > max(failures)]
    return max(
        (sum(other.accepted_s <= told.accepted_s < other.ended_s for other in later) for told in later), default=0
    )


def _rows(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """Yield figure, Tandem's truth, Tandem's, llmperf's truth, llmperf's."""
    ours, theirs = scenario.tandem, scenario.llmperf
    figures: tuple[tuple[str, int, Callable[[Told], float | None], Callable[[Side], float | None]], ...] = (
        ("TTFT, ms", 1, lambda told: told.ttft_ms, lambda side: side.ttft_ms),
        ("time per token, ms (llmperf: inter-token latency)", 2, lambda told: told.tpot_ms, lambda side: side.token_ms),
        ("the same by llmperf's definition, ms", 2, lambda _: None, lambda side: side.own_token_ms),
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

    latency_ms = middle(lambda row: row.inter_token_latency_s, 1000)
    overall = [each.output_throughput_token_per_s for each in found if each.output_throughput_token_per_s]
    return Side(
        turns=(tuple(_log(folder / LOG)),), ttft_ms=middle(lambda row: row.ttft_s, 1000), token_ms=latency_ms,
        own_token_ms=latency_ms,
        e2e_ms=middle(lambda row: row.end_to_end_latency_s, 1000), tokens=middle(lambda row: row.output_tokens),
        stream_per_s=middle(lambda row: row.request_output_throughput_token_per_s),
        all_per_s=median(overall) if overall else None, counted=len(rows), errors=sum(each.errors for each in found),
    )  # fmt: skip


def _tandem(folder: Path) -> Side:
    records = list(read_records(folder / RECORDS))
    turn_of = {record.request_id: (record.round, record.slot) for record in records}
    turns: dict[tuple[int, int], list[Told]] = {}
    for told in _log(folder / LOG):
        if told.request_id in turn_of:  # neither probe nor warm-up
            turns.setdefault(turn_of[told.request_id], []).append(told)
    summary = summarize(folder)
    return Side(
        turns=tuple(map(tuple, turns.values())), own_token_ms=_cell(summary, "llmperf_inter_token_latency_ms"),
        ttft_ms=_cell(summary, "ttft_ms"), token_ms=_cell(summary, "tpot_ms"), e2e_ms=_cell(summary, "e2e_ms"),
        longest_gap_ms=median(map(_longest_gap_ms, records)), tokens=_cell(summary, "completion_tokens"),
        stream_per_s=_cell(summary, "output_tokens_per_s"), all_per_s=_cell(summary, "system_output_tokens_per_s"),
        counted=sum(one.succeeded for one in summary.requests), errors=sum(one.failed for one in summary.requests),
    )  # fmt: skip


def _answered(told: Sequence[Told]) -> list[Told]:
    return [one for one in told if one.finish_reason is not None]


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
