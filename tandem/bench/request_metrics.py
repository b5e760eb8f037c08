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
from numpy.typing import NDArray

from tandem.bench.columns import (
    KIND_CODES,
    BoolArray,
    ChunkColumns,
    IntArray,
    RecordFields,
    convert_chunks,
    split_fields,
)
from tandem.bench.quantiles import Values
from tandem.bench.record import MetricRecord

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


def compute_record_metrics(record: MetricRecord) -> dict[str, float]:
    """Return the figures of one record by metric, without those it cannot have; chunk_gap_ms is their mean."""
    metrics = compute_request_metrics([record])
    values_by_metric = {name: float(values[0]) for name, values in metrics.values.items() if np.isfinite(values[0])}
    return values_by_metric | ({"chunk_gap_ms": float(np.mean(metrics.gaps_ms))} if len(metrics.gaps_ms) else {})


def compute_request_metrics(records: Sequence[MetricRecord]) -> RequestMetrics:
    """Return the figures of `records`."""
    record_fields = split_fields(records)
    return compute_column_metrics(record_fields, convert_chunks(record_fields["chunks"]))


def compute_column_metrics(record_fields: RecordFields, columns: ChunkColumns) -> RequestMetrics:
    """Return the figures of records whose fields and chunks are columns."""
    chunks = _index_chunks(columns)
    tokens = _float_column(record_fields, "completion_tokens")
    token_chunks = _find_token_chunks(chunks)
    failure_mask = np.array([error is not None for error in record_fields["error"]], bool)
    suspects = {
        word: mask & ~failure_mask for word, mask in _find_suspects(record_fields, chunks, token_chunks, tokens).items()
    }
    values = _compute_values(record_fields, chunks, token_chunks, tokens)
    invalid_times = failure_mask | suspects[TIME_BACKWARDS] | suspects[CHUNK_AFTER_END]
    by_ids = np.array([counted_by == "token_ids" for counted_by in record_fields["counted_by"]], bool)
    invalid_counts = (
        suspects[USAGE_BELOW_CHUNKS]
        | suspects[RUNNING_USAGE_FELL]
        | suspects[USAGE_DIFFERS]
        | suspects[TOKENS_WITHOUT_CHUNKS]
        | (suspects[USAGE_CONTRADICTION] & ~by_ids)
    )
    is_llmperf = np.array([generator == "llmperf" for generator in record_fields["generator"]], bool)
    for name, metric_values in values.items():
        metric_values[invalid_times] = np.nan
        if name in _TOKEN_METRICS:
            metric_values[invalid_counts] = np.nan
        if name not in _LLMPERF_METRICS:
            metric_values[is_llmperf] = np.nan
    gaps_ms, owners = _compute_gaps(chunks, token_chunks)
    is_valid = ~(invalid_times | is_llmperf)[owners]
    return RequestMetrics(values, gaps_ms[is_valid], owners[is_valid], suspects, failure_mask, tokens)


class _ChunkTable(NamedTuple):
    """All chunks of all records, end to end: whose, when (s), what, and tokens (NaN: the server did not say).

    `first` and `last` are the places of each record's own first and last chunk; -1 where it has none.
    """

    first: IntArray
    last: IntArray
    owner: IntArray
    at_s: Values
    kind: NDArray[np.int8]
    tokens: Values
    records: int


class _TokenChunks(NamedTuple):
    """Token-bearing chunks: their places, number and tokens by record, and each record's first and last (-1: none)."""

    places: IntArray
    number: IntArray
    tokens: Values
    first: IntArray
    last: IntArray


def _index_chunks(columns: ChunkColumns) -> _ChunkTable:
    numbers, ends = columns.numbers, np.cumsum(columns.numbers)
    return _ChunkTable(
        first=np.where(numbers > 0, ends - numbers, -1),
        last=np.where(numbers > 0, ends - 1, -1),
        owner=np.repeat(np.arange(len(numbers)), numbers),
        at_s=columns.at_s,
        kind=columns.kind,
        tokens=columns.tokens,
        records=len(numbers),
    )


def _find_token_chunks(chunks: _ChunkTable) -> _TokenChunks:
    by_kind = (chunks.kind == KIND_CODES["text"]) | (chunks.kind == KIND_CODES["reasoning"])
    by_count = (chunks.tokens >= 1) & (chunks.kind != KIND_CODES["usage"])
    places = np.flatnonzero(np.where(np.isnan(chunks.tokens), by_kind, by_count))
    first, last = _find_ends(places, chunks)
    owners = chunks.owner[places]
    tokens: Values = np.zeros(chunks.records)
    tokens += np.bincount(owners, chunks.tokens[places], minlength=chunks.records)  # NaN as soon as one is not known
    return _TokenChunks(places, np.bincount(owners, minlength=chunks.records), tokens, first, last)


def _find_ends(places: IntArray, chunks: _ChunkTable) -> tuple[IntArray, IntArray]:
    """Return each record's first and last of `places`; -1 where it has none."""
    first, last = np.full(chunks.records, -1), np.full(chunks.records, -1)
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


def _float_column(record_fields: RecordFields, name: str) -> Values:
    return np.array(record_fields[name], dtype=float)


def _divide_where(mask: BoolArray, numerator: Values, denominator: Values) -> Values:
    """Return above / below where `mask` holds, else NaN."""
    result = np.full(len(mask), np.nan)
    np.divide(numerator, denominator, out=result, where=mask)
    return result


def _compute_values(
    record_fields: RecordFields, chunks: _ChunkTable, token_chunks: _TokenChunks, tokens: Values
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
        "prompt_tokens": _float_column(record_fields, "prompt_tokens"),
        "completion_tokens": tokens.copy(),
        "schedule_delay_ms": 1e3 * (_float_column(record_fields, "start_s") - _float_column(record_fields, "due_s")),
        "llmperf_inter_token_latency_ms": _compute_llmperf_ms(chunks),
    }


def _compute_exact_ms(chunks: _ChunkTable, token_chunks: _TokenChunks) -> Values:
    later_tokens = token_chunks.tokens - _pick_values(chunks.tokens, token_chunks.first)
    span_ms = 1e3 * (_pick_values(chunks.at_s, token_chunks.last) - _pick_values(chunks.at_s, token_chunks.first))
    return _divide_where(later_tokens > 0, span_ms, later_tokens)


def _compute_llmperf_ms(chunks: _ChunkTable) -> Values:
    """Its sum of TTFT and gaps is the arrival of the last chunk with text; its tokens are chunks; it asks no usage."""
    last_text = _find_ends(np.flatnonzero(chunks.kind == KIND_CODES["text"]), chunks)[1]
    chunk_counts = np.bincount(chunks.owner[chunks.kind != KIND_CODES["usage"]], minlength=chunks.records).astype(float)
    return _divide_where(last_text >= 0, 1e3 * _pick_values(chunks.at_s, last_text), chunk_counts)


def _compute_gaps(chunks: _ChunkTable, token_chunks: _TokenChunks) -> tuple[Values, IntArray]:
    owners = chunks.owner[token_chunks.places]
    has_same_owner = owners[1:] == owners[:-1]
    return 1e3 * np.diff(chunks.at_s[token_chunks.places])[has_same_owner], owners[1:][has_same_owner]


def _find_suspects(
    record_fields: RecordFields, chunks: _ChunkTable, token_chunks: _TokenChunks, tokens: Values
) -> dict[str, BoolArray]:
    end_s, headers_s = _float_column(record_fields, "end_s"), _float_column(record_fields, "headers_s")
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
        USAGE_CONTRADICTION: np.array([detail is not None for detail in record_fields["error_detail"]], bool),
    }


def _mark_owners(owners: IntArray, chunks: _ChunkTable) -> BoolArray:
    return np.bincount(owners, minlength=chunks.records) > 0
