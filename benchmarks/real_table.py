"""Tandem's figures from the streams of real servers, next to those servers' own counts.

Invariant: all figures are recomputed from the folder of a run (records and scrapes); nothing here
queries a server.

A turn of the run is one to three requests, one at a time, so only these change the counters over
the turn.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records import counters, manifest
from tandem.bench.records.counters import CounterChange
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import OUTPUT_KINDS, RequestRecord, read_records
from tandem.errors import InputError

ALL = "all"
_MS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One arm's requests between two scrapes of its counters."""

    arm: str
    class_: str
    records: tuple[RequestRecord, ...]
    change: CounterChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One folder of `tandem bench run`.

    Args:
        manifest: of the run.
        windows: num_speculative_tokens of each arm, 0 without speculation.
        turns: those whose counters could be read before and after, without a failed request.
        failed: requests that failed.
        notes: why a turn is missing.
    """

    manifest: manifest.Manifest
    windows: Mapping[str, int]
    turns: tuple[Turn, ...]
    failed: int
    notes: tuple[str, ...]

    @property
    def arms(self) -> tuple[str, str]:
        """The baseline and its one variant."""
        first, second = (arm.name for arm in self.manifest.arms)
        return first, second

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the suite's order."""
        return tuple(itertools.chain.from_iterable(suite.classes for suite in self.manifest.suites))

    def of(self, arm: str, class_: str = ALL) -> tuple[Turn, ...]:
        """Return the turns of one arm, of one class or of all."""
        return tuple(
            turn for turn in self.turns if turn.arm == arm and class_ in {turn.class_, ALL}
        )


def read(folder: Path, windows: Mapping[str, int]) -> Run:
    """Read a run.

    Args:
        folder: as `tandem bench run --out` wrote it.
        windows: num_speculative_tokens of each arm, 0 without speculation.

    Raises:
        InputError: the folder has no such run, or its servers gave no running usage.
    """
    run = manifest.read_manifest(folder)
    # the baseline against itself: the verdict's noise floor, no figure here
    controls = manifest.control_round_numbers(run)
    records_by_turn: dict[counters.TurnKey, list[RequestRecord]] = defaultdict(list)
    for record in read_records(folder / RECORDS_FILE):
        if record.round not in controls:
            turn = (
                record.arm,
                record.class_,
                record.concurrency,
                record.rate_per_s,
                record.round,
                record.slot,
            )
            records_by_turn[turn].append(record)
    scrapes = (
        scrape
        for scrape in counters.read_scrapes(folder / counters.FILE)
        if scrape.round not in controls
    )
    changes, notes = counters.pair_scrapes(scrapes)
    turns = []
    for key, change in changes:
        records = tuple(records_by_turn[key])
        if records and not count_failures(records):
            turns.append(Turn(arm=key[0], class_=key[1] or ALL, records=records, change=change))
    if not turns or any(map(_is_uncounted, list_records(turns))):
        raise InputError(
            "no turn has both counters and running usage",
            where=str(folder),
            change=(
                "measure servers that take stream_options.continuous_usage_stats and answer"
                " /metrics, as vLLM does"
            ),
        )
    failed = sum(map(count_failures, records_by_turn.values()))
    return Run(manifest=run, windows=windows, turns=tuple(turns), failed=failed, notes=tuple(notes))


def count_failures(records: Sequence[RequestRecord]) -> int:
    """Return how many requests failed."""
    return sum(record.error is not None for record in records)


def list_records(turns: Sequence[Turn]) -> list[RequestRecord]:
    """Return the records of turns."""
    return list(itertools.chain.from_iterable(turn.records for turn in turns))


def _is_uncounted(record: RequestRecord) -> bool:
    return any(chunk.tokens is None and chunk.kind in OUTPUT_KINDS for chunk in record.chunks)


def _count_texts(record: RequestRecord) -> int:
    return sum(chunk.kind in OUTPUT_KINDS for chunk in record.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The same work by the streams and by the server's counters; times are means in ms.

    Args:
        requests: how many.
        tokens: the servers' usage, summed.
        text_chunks: chunks with text; a client without running usage can count only these.
        bursts: chunks with tokens, by running usage.
        accepted: tokens minus bursts.
        accepted_counted: the server's counter; None without speculation.
        accepted_off: the largest difference of the two in one turn.
        steps: bursts after each answer's first.
        steps_counted: engine steps after each answer's first, by the server.
        drafts, drafted: steps that had a draft, and its tokens, by the server.
        tpot_ms, tpot_counted_ms: mean time per output token, by each.
        ttft_ms, ttft_counted_ms: mean time to the first token, by each.
        llmperf_ms: mean inter-token latency by llmperf's definition.
    """

    requests: int
    tokens: int
    text_chunks: int
    bursts: int
    accepted: int
    accepted_counted: int | None
    accepted_off: int
    steps: int
    steps_counted: int
    drafts: int
    drafted: int
    tpot_ms: float
    tpot_counted_ms: float
    ttft_ms: float
    ttft_counted_ms: float
    llmperf_ms: float

    @property
    def joined(self) -> int:
        """Steps whose tokens came in one chunk with the next step's: the client had to wait."""
        return self.steps_counted - self.steps

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a speculative step committed: 1 + accepted / drafts, by the server."""
        return 1 + (self.accepted_counted or 0) / self.drafts if self.drafts else None

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the drafted tokens that the target accepted, by the server."""
        return (self.accepted_counted or 0) / self.drafted if self.drafted else None

    @property
    def burst(self) -> float:
        """Mean tokens of a chunk that held any, by running usage."""
        return self.tokens / self.bursts

    @property
    def burst_by_chunks(self) -> float:
        """Mean tokens of a chunk with text, for a client that can count only text."""
        return self.tokens / self.text_chunks


def seen(turns: Sequence[Turn]) -> Seen:
    """Sum turns of one arm."""
    records = list_records(turns)
    change = sum((turn.change for turn in turns[1:]), turns[0].change).counts
    figures = RequestMetrics(records)
    counted = change.get("accepted_tokens")
    return Seen(
        requests=len(records),
        tokens=sum(record.completion_tokens or 0 for record in records),
        text_chunks=sum(map(_count_texts, records)),
        bursts=sum(map(bursts, records)),
        accepted=sum(map(accepted, records)),
        accepted_counted=None if counted is None else round(counted),
        accepted_off=max(abs(off(turn)) for turn in turns),
        steps=sum(bursts(record) - 1 for record in records),
        steps_counted=round(change["decode_steps"]),
        drafts=round(change.get("drafts", 0)),
        drafted=round(change.get("draft_tokens", 0)),
        tpot_ms=_mean(figures.tpot_ms),
        tpot_counted_ms=_MS * change["tpot_seconds"] / change["tpot_count"],
        ttft_ms=_mean(figures.ttft_ms),
        ttft_counted_ms=_MS * change["first_token_seconds"] / change["first_tokens"],
        llmperf_ms=_mean(figures.llmperf_inter_token_latency_ms),
    )


def _mean(values: Iterable[float]) -> float:
    return float(np.nanmean(np.fromiter(values, float)))


def bursts(record: RequestRecord) -> int:
    """Return the number of chunks of one answer that had tokens."""
    return sum(chunk.bears_tokens for chunk in record.chunks)


def accepted(record: RequestRecord) -> int:
    """Return one answer's number of tokens from drafts: a step without a draft gives one."""
    return (record.completion_tokens or 0) - bursts(record)


def off(turn: Turn) -> int:
    """Return a turn's accepted tokens by stream minus by counter; 0 for a server without one."""
    return round(sum(map(accepted, turn.records)) - turn.change.counts.get("accepted_tokens", 0.0))


def steps_joined(turn: Turn) -> int:
    """Return the number of steps whose tokens came in the next step's chunk: a late reader."""
    return round(turn.change.counts["decode_steps"]) - sum(
        bursts(record) - 1 for record in turn.records
    )


def contradictions(run: Run) -> list[str]:
    """Say where streams and counters cannot both be right; empty if they agree."""
    said = [f"{run.failed} requests failed"] if run.failed else []
    for turn in run.turns:
        window = run.windows[turn.arm]
        joined = steps_joined(turn)
        # the server may cut accepted tokens past the end of each answer
        most = window * len(turn.records)
        # a step that came in the next one's chunk looks like one accepted token
        difference = off(turn) - joined
        who = f"{turn.arm}, {turn.records[0].request_id}"
        if not -most <= difference <= most:
            said.append(
                f"{who}: {difference:+d} accepted tokens by the stream beside the counter's, more"
                f" than the window of {window} for each of {len(turn.records)} requests; {joined}"
                " steps that were joined with another in one chunk are not in it"
            )
        if turn.change.counts.get("prefix_cache_hits"):
            said.append(
                f"{who}: the server took part of the prompt from its prefix cache, so its TTFT is"
                " no prefill"
            )
        if (
            window
            and not turn.change.counts.get("drafts")
            and turn.change.counts.get("accepted_tokens")
        ):
            said.append(f"{who}: tokens were accepted without a draft")
    for arm in run.arms:
        drafts = sum(turn.change.counts.get("drafts", 0) for turn in run.of(arm))
        if bool(drafts) != bool(run.windows[arm]):
            said.append(
                f"{arm}: its window is {run.windows[arm]}, and it counted {drafts:.0f} drafts"
            )
    return said


def effect_table(run: Run) -> list[str]:
    """Return the effect of speculation, class by class, in Markdown lines."""
    base, variant = run.arms
    lines = [
        (
            f"| class | requests of each | tokens | chunks {base} / {variant} | TPOT ms {base} /"
            f" {variant} | **TPOT ratio** | llmperf's definition, ms {base} / {variant} | its"
            " ratio |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for class_ in (*run.classes, ALL):
        if not (run.of(base, class_) and run.of(variant, class_)):
            continue
        ours = seen(run.of(base, class_))
        theirs = seen(run.of(variant, class_))
        lines.append(
            f"| {class_} | {ours.requests} | {ours.tokens} | {ours.bursts} / {theirs.bursts} |"
            f" {ours.tpot_ms:.1f} / {theirs.tpot_ms:.1f} | **{ours.tpot_ms / theirs.tpot_ms:.2f}**"
            f" | {ours.llmperf_ms:.1f} / {theirs.llmperf_ms:.1f} |"
            f" {ours.llmperf_ms / theirs.llmperf_ms:.2f} |"
        )
    return lines


def counters_table(run: Run) -> list[str]:
    """Return Tandem's figures next to the servers' counts by arm and class, in Markdown."""
    lines = [
        (
            "| arm | class | tokens per burst: from chunks, by running usage | accepted: streams,"
            " counter | most off in a turn | steps: streams, counter | acceptance length by"
            " counters | mean TPOT ms: Tandem, server | off | mean TTFT ms: Tandem, server |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, class_ in itertools.product(run.arms, (*run.classes, ALL)):
        turns = run.of(arm, class_)
        if turns:
            lines.append(f"| {arm} | {class_} | {_counted(seen(turns))} |")
    return lines


def _counted(both: Seen) -> str:
    counter = "none" if both.accepted_counted is None else str(both.accepted_counted)
    length = "-" if both.acceptance_length is None else f"{both.acceptance_length:.2f}"
    apart = (both.tpot_ms - both.tpot_counted_ms) / both.tpot_counted_ms
    return (
        f"{both.burst_by_chunks:.2f}, {both.burst:.2f} | {both.accepted}, {counter} |"
        f" {both.accepted_off} | {both.steps}, {both.steps_counted} | {length} |"
        f" {both.tpot_ms:.2f}, {both.tpot_counted_ms:.2f} | {apart:+.2%} | {both.ttft_ms:.1f},"
        f" {both.ttft_counted_ms:.1f}"
    )
