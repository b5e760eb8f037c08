"""From records to figures: one value a request of each metric that one request can have.

Invariant: a failed request has no figure; a figure that a record cannot carry is absent (NaN), never 0; a record that
contradicts itself is named, and the figures that its contradiction touches are absent. The definitions are those of
`tandem.metrics`. Computed for many records at once, because a run has a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import KIND_CODES, BoolArray, ChunkTable, IntArray, collect_chunks
from tandem.bench.quantiles import Values
from tandem.bench.record import RequestRecord

_ROUNDING_S = 1e-6  # a generator may round its times to a microsecond

TIME_BACKWARDS = "time_runs_backwards"
CHUNK_AFTER_END = "chunk_after_end"
USAGE_BELOW_CHUNKS = "usage_below_chunks"
RUNNING_USAGE_FELL = "running_usage_fell"
USAGE_DIFFERS = "usage_differs_from_chunks"
TOKENS_WITHOUT_CHUNKS = "tokens_without_chunks"
USAGE_CONTRADICTION = "usage_contradicts_stream"
SUSPECTS = {
    TIME_BACKWARDS: "a chunk, the headers or the end came before what they follow",
    CHUNK_AFTER_END: "a chunk arrived after the request had ended",
    USAGE_BELOW_CHUNKS: "the server counted fewer tokens than chunks that carried some",
    RUNNING_USAGE_FELL: "the server's running count of tokens fell",
    USAGE_DIFFERS: "the tokens of the chunks do not add up to the server's count",
    TOKENS_WITHOUT_CHUNKS: "the server counted tokens, and no chunk carried any",
    USAGE_CONTRADICTION: "the server's usage contradicts its stream, so no count but one by token ids is used",
}
"""What can contradict itself in a record. The first two void every figure, the others those that count tokens."""

_TOKEN_METRICS = ("tpot_ms", "tpot_exact_ms", "tokens_per_chunk", "output_tokens_per_s", "completion_tokens")
_LLMPERF_METRICS = ("ttft_ms", "e2e_ms", "prompt_tokens", "completion_tokens")  # what a record of llmperf can carry


@dataclass(frozen=True)
class RequestMetrics:
    """Figures of a sequence of records, in its order.

    Args:
        values: by metric, one value a record; NaN where it has none.
        gaps_ms: every gap between token-bearing chunks of the records that may be used.
        gap_owners: for each gap, the place of its record.
        suspects: by word of SUSPECTS, which records contradict themselves so.
        failure_mask: which records have an error.
        raw_completion_tokens: completion tokens as the record has them, contradicted or not; NaN where it has none.
    """

    values: dict[str, Values]
    gaps_ms: Values
    gap_owners: IntArray
    suspects: dict[str, BoolArray]
    failure_mask: BoolArray
    raw_completion_tokens: Values


def compute_record_metrics(record: RequestRecord) -> dict[str, float]:
    """Return the figures of one record by metric, without those it cannot have; chunk_gap_ms is their mean."""
    metrics = compute_request_metrics([record])
    values_by_metric = {name: float(values[0]) for name, values in metrics.values.items() if np.isfinite(values[0])}
    return values_by_metric | ({"chunk_gap_ms": float(np.mean(metrics.gaps_ms))} if len(metrics.gaps_ms) else {})


def compute_request_metrics(records: Sequence[RequestRecord]) -> RequestMetrics:
    """Return the figures of `records`."""
    chunks = collect_chunks(records)
    tokens = _float_column([record.completion_tokens for record in records])
    token_chunks = _find_token_chunks(chunks)
    failure_mask = np.array([record.error is not None for record in records], bool)
    suspects = {
        word: mask & ~failure_mask for word, mask in _find_suspects(records, chunks, token_chunks, tokens).items()
    }
    values = _compute_values(records, chunks, token_chunks, tokens)
    invalid_times = failure_mask | suspects[TIME_BACKWARDS] | suspects[CHUNK_AFTER_END]
    by_ids = np.array([record.counted_by == "token_ids" for record in records], bool)
    invalid_counts = (
        suspects[USAGE_BELOW_CHUNKS]
        | suspects[RUNNING_USAGE_FELL]
        | suspects[USAGE_DIFFERS]
        | suspects[TOKENS_WITHOUT_CHUNKS]
        | (suspects[USAGE_CONTRADICTION] & ~by_ids)
    )
    is_llmperf = np.array([record.generator == "llmperf" for record in records], bool)
    for name, metric_values in values.items():
        metric_values[invalid_times] = np.nan
        if name in _TOKEN_METRICS:
            metric_values[invalid_counts] = np.nan
        if name not in _LLMPERF_METRICS:
            metric_values[is_llmperf] = np.nan
    gaps_ms, owners = _compute_gaps(chunks, token_chunks)
    is_valid = ~(invalid_times | is_llmperf)[owners]
    return RequestMetrics(values, gaps_ms[is_valid], owners[is_valid], suspects, failure_mask, tokens)


class _TokenChunks(NamedTuple):
    """Token-bearing chunks: their places, number and tokens by record, and each record's first and last (-1: none)."""

    places: IntArray
    number: IntArray
    tokens: Values
    first: IntArray
    last: IntArray


def _find_token_chunks(chunks: ChunkTable) -> _TokenChunks:
    by_kind = (chunks.kind == KIND_CODES["text"]) | (chunks.kind == KIND_CODES["reasoning"])
    by_count = (chunks.tokens >= 1) & (chunks.kind != KIND_CODES["usage"])
    places = np.flatnonzero(np.where(np.isnan(chunks.tokens), by_kind, by_count))
    first, last = _find_ends(places, chunks)
    owners = chunks.owner[places]
    tokens: Values = np.zeros(chunks.record_count)
    tokens += np.bincount(
        owners, chunks.tokens[places], minlength=chunks.record_count
    )  # NaN as soon as one is not known
    return _TokenChunks(places, np.bincount(owners, minlength=chunks.record_count), tokens, first, last)


def _find_ends(places: IntArray, chunks: ChunkTable) -> tuple[IntArray, IntArray]:
    """Return each record's first and last of `places`; -1 where it has none."""
    first, last = np.full(chunks.record_count, -1), np.full(chunks.record_count, -1)
    if len(places):
        owners = chunks.owner[places]
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        first[owners[starts]] = places[starts]
        last[owners[starts]] = places[np.append(starts[1:], len(places)) - 1]
    return first, last


def _pick_values(values: Values, places: IntArray) -> Values:
    """Return the values at `places`, NaN at -1."""
    picks: Values = np.append(values, np.nan)[places]
    return picks


def _float_column(numbers: Sequence[float | None]) -> Values:
    """Return numbers as a column; NaN for None."""
    return np.array(numbers, dtype=float)


def _divide_where(mask: BoolArray, numerator: Values, denominator: Values) -> Values:
    """Return above / below where `mask` holds, else NaN."""
    result = np.full(len(mask), np.nan)
    np.divide(numerator, denominator, out=result, where=mask)
    return result


def _compute_values(
    records: Sequence[RequestRecord], chunks: ChunkTable, token_chunks: _TokenChunks, tokens: Values
) -> dict[str, Values]:
    ttft_ms = 1e3 * _pick_values(chunks.at_s, token_chunks.first)
    e2e_ms = 1e3 * _pick_values(chunks.at_s, _find_ends(np.flatnonzero(chunks.kind != KIND_CODES["usage"]), chunks)[1])
    return {
        "ttft_ms": ttft_ms,
        "tpot_ms": _divide_where(tokens > 1, e2e_ms - ttft_ms, tokens - 1),
        "tpot_exact_ms": _compute_exact_ms(chunks, token_chunks),
        "e2e_ms": e2e_ms,
        "tokens_per_chunk": _divide_where(token_chunks.number > 0, tokens, token_chunks.number.astype(float)),
        "output_tokens_per_s": _divide_where(e2e_ms > 0, tokens, e2e_ms / 1e3),
        "prompt_tokens": _float_column([record.prompt_tokens for record in records]),
        "completion_tokens": tokens.copy(),
        "schedule_delay_ms": 1e3
        * (_float_column([record.start_s for record in records]) - _float_column([record.due_s for record in records])),
        "llmperf_inter_token_latency_ms": _compute_llmperf_ms(chunks),
    }


def _compute_exact_ms(chunks: ChunkTable, token_chunks: _TokenChunks) -> Values:
    later_tokens = token_chunks.tokens - _pick_values(chunks.tokens, token_chunks.first)
    span_ms = 1e3 * (_pick_values(chunks.at_s, token_chunks.last) - _pick_values(chunks.at_s, token_chunks.first))
    return _divide_where(later_tokens > 0, span_ms, later_tokens)


def _compute_llmperf_ms(chunks: ChunkTable) -> Values:
    """Its sum of TTFT and gaps is the arrival of the last chunk with text; its tokens are chunks; it asks no usage."""
    last_text = _find_ends(np.flatnonzero(chunks.kind == KIND_CODES["text"]), chunks)[1]
    chunk_counts = np.bincount(chunks.owner[chunks.kind != KIND_CODES["usage"]], minlength=chunks.record_count).astype(
        float
    )
    return _divide_where(last_text >= 0, 1e3 * _pick_values(chunks.at_s, last_text), chunk_counts)


def _compute_gaps(chunks: ChunkTable, token_chunks: _TokenChunks) -> tuple[Values, IntArray]:
    owners = chunks.owner[token_chunks.places]
    has_same_owner = owners[1:] == owners[:-1]
    return 1e3 * np.diff(chunks.at_s[token_chunks.places])[has_same_owner], owners[1:][has_same_owner]


def _find_suspects(
    records: Sequence[RequestRecord], chunks: ChunkTable, token_chunks: _TokenChunks, tokens: Values
) -> dict[str, BoolArray]:
    end_s, headers_s = (
        _float_column([record.end_s for record in records]),
        _float_column([record.headers_s for record in records]),
    )
    earliest, latest = _pick_values(chunks.at_s, chunks.first), _pick_values(chunks.at_s, chunks.last)
    is_backwards = (chunks.owner[1:] == chunks.owner[:-1]) & (np.diff(chunks.at_s) < 0)
    return {
        TIME_BACKWARDS: (end_s < 0)
        | (earliest < 0)
        | (headers_s < 0)
        | (headers_s > earliest + _ROUNDING_S)
        | _mark_owners(chunks.owner[1:][is_backwards], chunks),
        CHUNK_AFTER_END: latest > end_s + _ROUNDING_S,  # of the last chunk; an earlier one that is later is CLOCK's
        USAGE_BELOW_CHUNKS: token_chunks.number > tokens,
        RUNNING_USAGE_FELL: _mark_owners(chunks.owner[chunks.tokens < 0], chunks),
        # one less is a stop token that was counted and never sent
        USAGE_DIFFERS: (token_chunks.tokens > tokens) | (token_chunks.tokens < tokens - 1),
        TOKENS_WITHOUT_CHUNKS: (token_chunks.number == 0) & (tokens > 1),
        USAGE_CONTRADICTION: np.array([record.error_detail is not None for record in records], bool),
    }


def _mark_owners(owners: IntArray, chunks: ChunkTable) -> BoolArray:
    return np.bincount(owners, minlength=chunks.record_count) > 0
