"""Request metrics: one value of each metric for each record.

Invariant: a failed request has no figure; a figure that a record cannot give is absent (NaN), never
0; a record that contradicts itself is named, and the affected figures are absent. `tandem.metrics`
has the definitions. The module computes many records at once, because a run may have a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tandem.bench.figures.columns import (
    KIND_CODES,
    BoolArray,
    ChunkTable,
    IntArray,
    collect_chunks,
    collect_column,
)
from tandem.bench.figures.quantiles import Values
from tandem.bench.records.record import OUTPUT_KINDS, RequestRecord

_ROUNDING_S = 1e-6  # a generator may round its times to a microsecond

# contradictions in a record: the first two void every figure, the last none, the others the figures
# that count tokens
SUSPECTS = {
    "time_runs_backwards": "a chunk, the headers or the end came before what they follow",
    "chunk_after_end": "a chunk arrived after the request had ended",
    "usage_below_chunks": "the server counted fewer tokens than chunks that carried some",
    "running_usage_fell": "the server's running count of tokens fell",
    "usage_differs_from_chunks": "the tokens of the chunks do not add up to the server's count",
    "tokens_without_chunks": "the server counted tokens, and no chunk carried any",
    "usage_contradicts_stream": (
        "the server's usage contradicts its stream, so no count but one by token ids is used"
    ),
    "usage_above_max_tokens": (
        "the server counted more tokens than the request allowed, so its count is none"
    ),
    "end_without_reason": (
        "the stream ended with [DONE] and without a finish_reason, so a cut answer looks the same"
    ),
}
COMPLETE_SUSPECTS = frozenset({"end_without_reason"})
"""Suspects whose figures all count."""

_COUNT_SUSPECTS = (
    "usage_below_chunks",
    "running_usage_fell",
    "usage_differs_from_chunks",
    "tokens_without_chunks",
    "usage_above_max_tokens",
)
_TOKEN_METRICS = (
    "tpot_ms",
    "tpot_exact_ms",
    "tokens_per_chunk",
    "output_tokens_per_s",
    "completion_tokens",
)
# possible in a record of llmperf
_LLMPERF_METRICS = ("ttft_ms", "e2e_ms", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class RequestMetrics:
    """Figures of a sequence of records, in its order.

    Args:
        values: by metric, one value a record; NaN if it has none.
        gaps_ms: every gap between token-bearing chunks of the usable records.
        gap_owners: for each gap, the index of its record.
        suspects: by word of SUSPECTS, the mask of the records with this contradiction.
        failure_mask: records with an error.
        raw_completion_tokens: completion tokens of the record, contradicted or not; NaN if it has
            none.
    """

    values: dict[str, Values]
    gaps_ms: Values
    gap_owners: IntArray
    suspects: dict[str, BoolArray]
    failure_mask: BoolArray
    raw_completion_tokens: Values


def compute_request_metrics(records: Sequence[RequestRecord]) -> RequestMetrics:
    """Return the figures of `records`."""
    chunks = collect_chunks(records)
    tokens = collect_column(records, "completion_tokens")
    is_text = np.isin(chunks.kind, [KIND_CODES[kind] for kind in sorted(OUTPUT_KINDS)])
    is_counted = (chunks.tokens >= 1) & (chunks.kind != KIND_CODES["usage"])
    bears_tokens = np.where(np.isnan(chunks.tokens), is_text, is_counted)
    failure_mask = np.array([record.error is not None for record in records], bool)
    suspects = {
        word: mask & ~failure_mask
        for word, mask in _find_suspects(records, chunks, bears_tokens, tokens).items()
    }
    invalid_times = failure_mask | suspects["time_runs_backwards"] | suspects["chunk_after_end"]
    by_ids = np.array([record.counted_by == "token_ids" for record in records], bool)
    invalid_counts = np.any([suspects[word] for word in _COUNT_SUSPECTS], axis=0)
    invalid_counts |= suspects["usage_contradicts_stream"] & ~by_ids
    is_llmperf = np.array([record.generator == "llmperf" for record in records], bool)
    values = _compute_values(records, chunks, bears_tokens, tokens)
    for name, metric_values in values.items():
        metric_values[invalid_times] = np.nan
        if name in _TOKEN_METRICS:
            metric_values[invalid_counts] = np.nan
        if name not in _LLMPERF_METRICS:
            metric_values[is_llmperf] = np.nan
    owners = chunks.owner[bears_tokens]
    is_gap = (owners[1:] == owners[:-1]) & ~(invalid_times | is_llmperf)[owners[1:]]
    gaps_ms = 1e3 * np.diff(chunks.at_s[bears_tokens])[is_gap]
    return RequestMetrics(values, gaps_ms, owners[1:][is_gap], suspects, failure_mask, tokens)


def _compute_values(
    records: Sequence[RequestRecord], chunks: ChunkTable, bears_tokens: BoolArray, tokens: Values
) -> dict[str, Values]:
    is_choice = chunks.kind != KIND_CODES["usage"]
    first, (first_s, last_s) = (
        chunks.find_ends(bears_tokens)[0],
        chunks.find_end_times_s(bears_tokens),
    )
    ttft_ms = 1e3 * first_s
    e2e_ms = 1e3 * chunks.find_end_times_s(is_choice)[1]
    later_tokens = (
        chunks.sum_by_record(bears_tokens, chunks.tokens) - np.append(chunks.tokens, np.nan)[first]
    )
    # llmperf's sum of TTFT and gaps is the arrival of the last chunk with text; its tokens are
    # chunks, without usage
    last_text_s = chunks.find_end_times_s(chunks.kind == KIND_CODES["text"])[1]
    return {
        "ttft_ms": ttft_ms,
        "tpot_ms": _divide_where(tokens > 1, e2e_ms - ttft_ms, tokens - 1),
        "tpot_exact_ms": _divide_where(later_tokens > 0, 1e3 * (last_s - first_s), later_tokens),
        "e2e_ms": e2e_ms,
        "tokens_per_chunk": _divide_where(first >= 0, tokens, chunks.sum_by_record(bears_tokens)),
        "output_tokens_per_s": _divide_where(e2e_ms > 0, tokens, e2e_ms / 1e3),
        "prompt_tokens": collect_column(records, "prompt_tokens"),
        "completion_tokens": tokens.copy(),
        "schedule_delay_ms": (
            1e3 * (collect_column(records, "start_s") - collect_column(records, "due_s"))
        ),
        "llmperf_inter_token_latency_ms": _divide_where(
            ~np.isnan(last_text_s), 1e3 * last_text_s, chunks.sum_by_record(is_choice)
        ),
    }


def _divide_where(mask: BoolArray, numerator: Values, denominator: Values) -> Values:
    """Return the quotient for each true element of `mask`, else NaN."""
    result = np.full(len(mask), np.nan)
    np.divide(numerator, denominator, out=result, where=mask)
    return result


def _find_suspects(
    records: Sequence[RequestRecord], chunks: ChunkTable, bears_tokens: BoolArray, tokens: Values
) -> dict[str, BoolArray]:
    end_s = collect_column(records, "end_s")
    headers_s = collect_column(records, "headers_s")
    earliest_s, latest_s = chunks.find_end_times_s(np.full(len(chunks.kind), fill_value=True))
    is_backwards = np.zeros(len(chunks.at_s), bool)
    is_backwards[1:] = (chunks.owner[1:] == chunks.owner[:-1]) & (np.diff(chunks.at_s) < 0)
    chunk_count = chunks.sum_by_record(bears_tokens)
    chunk_tokens = chunks.sum_by_record(bears_tokens, chunks.tokens)
    is_early = (
        (end_s < 0) | (earliest_s < 0) | (headers_s < 0) | (headers_s > earliest_s + _ROUNDING_S)
    )
    max_tokens = collect_column(records, "max_tokens")
    by_usage = np.array([record.counted_by == "usage" for record in records], bool)
    lacks_reason = np.array(
        [record.finish_reason is None and record.generator == "tandem" for record in records], bool
    )
    return {
        "time_runs_backwards": is_early | (chunks.sum_by_record(is_backwards) > 0),
        # of the last chunk; an earlier chunk counts as backwards
        "chunk_after_end": latest_s > end_s + _ROUNDING_S,
        "usage_below_chunks": chunk_count > tokens,
        "running_usage_fell": chunks.sum_by_record(chunks.tokens < 0) > 0,
        # one token fewer is a stop token that was counted and never sent
        "usage_differs_from_chunks": (chunk_tokens > tokens) | (chunk_tokens < tokens - 1),
        "tokens_without_chunks": (chunk_count == 0) & (tokens > 1),
        "usage_contradicts_stream": np.array(
            [record.error_detail is not None for record in records], bool
        ),
        "usage_above_max_tokens": by_usage & (tokens > max_tokens),
        "end_without_reason": lacks_reason,
    }
