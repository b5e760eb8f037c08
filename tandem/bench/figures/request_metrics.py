"""Request metrics: one value of each metric for each record.

Invariant: a failed request has no figure; a figure that a record cannot give is absent (NaN), never
0; a record that contradicts itself is named, and the affected figures are absent. `tandem.metrics`
has the definitions. The module computes many records at once, because a run may have a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

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
from tandem.bench.records.record import RequestRecord

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
    "max_tokens_ignored": (
        "the answer has more words than max_tokens allowed tokens, so the server ignores max_tokens"
    ),
    "end_without_reason": (
        "the stream ended with [DONE] and without a finish_reason, so a cut answer looks the same"
    ),
}
COMPLETE_SUSPECTS = frozenset({"end_without_reason", "max_tokens_ignored"})
"""Suspects whose figures all count."""

_TIME_SUSPECTS = ("time_runs_backwards", "chunk_after_end")
_COUNT_SUSPECTS = (
    "usage_below_chunks",
    "running_usage_fell",
    "usage_differs_from_chunks",
    "tokens_without_chunks",
    "usage_above_max_tokens",
)
REQUEST_METRICS = (
    "ttft_ms",
    "tpot_ms",
    "tpot_exact_ms",
    "e2e_ms",
    "tokens_per_chunk",
    "output_tokens_per_s",
    "prompt_tokens",
    "completion_tokens",
    "schedule_delay_ms",
    "llmperf_inter_token_latency_ms",
)
"""Metrics of which a request has one value; each is a property of `RequestMetrics`."""


class RequestMetrics:
    """Figures of a sequence of records; a column has one value a record, in their order.

    The void records are masked in what the figures are computed from, so that each formula is the
    definition alone. llmperf reports two chunks without their tokens: its records have no count,
    hence no figure that needs one.

    Attributes:
        by_llmperf: mask of the records of llmperf.
        failed: mask of the records with an error.
        suspects: by word of SUSPECTS, the mask of the records with this contradiction.
        raw_tokens: completion tokens of the records, contradicted or not; NaN if a record has none.
    """

    def __init__(self, records: Sequence[RequestRecord]) -> None:
        self._records = records
        self._chunks = collect_chunks(records)
        generators = [record.generator == "llmperf" for record in records]
        self.by_llmperf: BoolArray = np.array(generators, bool)
        self.failed: BoolArray = np.array([record.error is not None for record in records], bool)
        self.raw_tokens: Values = collect_column(records, "completion_tokens")
        suspects = _find_suspects(records, self._chunks, self.raw_tokens)
        self.suspects = {word: mask & ~self.failed for word, mask in suspects.items()}

        by_ids = np.array([record.counted_by == "token_ids" for record in records], bool)
        self._void_times = np.any(
            [self.failed, *(self.suspects[word] for word in _TIME_SUSPECTS)], axis=0
        )
        self._void_counts = np.any(
            [
                self._void_times,
                self.suspects["usage_contradicts_stream"] & ~by_ids,
                *(self.suspects[word] for word in _COUNT_SUSPECTS),
            ],
            axis=0,
        )

    def by_name(self) -> dict[str, Values]:
        """Return each figure by its metric."""
        return {name: getattr(self, name) for name in REQUEST_METRICS}

    @cached_property
    def ttft_ms(self) -> Values:
        """Arrival of the first chunk with tokens."""
        return 1e3 * self._token_times_s[0]

    @cached_property
    def e2e_ms(self) -> Values:
        """Arrival of the last chunk with a choice."""
        last_s = self._chunks.find_end_times_s(self._chunks.is_choice)[1]
        return 1e3 * np.where(self._void_times, np.nan, last_s)

    @cached_property
    def completion_tokens(self) -> Values:
        """Tokens of the answer."""
        return np.where(self._void_counts, np.nan, self.raw_tokens)

    @cached_property
    def prompt_tokens(self) -> Values:
        """Tokens of the prompt."""
        return np.where(self._void_times, np.nan, collect_column(self._records, "prompt_tokens"))

    @property
    def tpot_ms(self) -> Values:
        """Time per output token after the first chunk, by the server's count."""
        later_tokens = self.completion_tokens - 1
        return _divide_where(later_tokens > 0, self.e2e_ms - self.ttft_ms, later_tokens)

    @property
    def tpot_exact_ms(self) -> Values:
        """Time per output token after the first chunk, by the counts of the chunks."""
        bears_tokens = self._chunks.bears_tokens
        first = self._chunks.find_ends(bears_tokens)[0]
        first_tokens = np.append(self._chunks.tokens, np.nan)[first]
        later_tokens = self._chunks.sum_by_record(bears_tokens, self._chunks.tokens) - first_tokens
        first_s, last_s = self._token_times_s
        is_usable = (later_tokens > 0) & ~self._void_counts
        return _divide_where(is_usable, 1e3 * (last_s - first_s), later_tokens)

    @property
    def tokens_per_chunk(self) -> Values:
        """Tokens of the answer for each chunk with tokens."""
        chunk_count = self._chunks.sum_by_record(self._chunks.bears_tokens)
        return _divide_where(chunk_count > 0, self.completion_tokens, chunk_count)

    @property
    def output_tokens_per_s(self) -> Values:
        """Tokens of the answer for each second of the request."""
        return _divide_where(self.e2e_ms > 0, self.completion_tokens, self.e2e_ms / 1e3)

    @property
    def schedule_delay_ms(self) -> Values:
        """Delay of an open loop's request after its planned start."""
        delay_s = collect_column(self._records, "start_s") - collect_column(self._records, "due_s")
        return 1e3 * np.where(self._void_times, np.nan, delay_s)

    @property
    def llmperf_inter_token_latency_ms(self) -> Values:
        """What llmperf would call the latency; not of its own records, which lack chunks.

        llmperf's sum of TTFT and gaps is the arrival of the last chunk with text; its tokens are
        chunks, without usage.
        """
        last_text_s = self._chunks.find_end_times_s(self._chunks.kind == KIND_CODES["text"])[1]
        is_usable = ~(np.isnan(last_text_s) | self.by_llmperf | self._void_times)
        choice_count = self._chunks.sum_by_record(self._chunks.is_choice)
        return _divide_where(is_usable, 1e3 * last_text_s, choice_count)

    def list_gaps(self) -> tuple[Values, IntArray]:
        """Return every gap between chunks with tokens, in ms, and the index of its record."""
        bears_tokens = self._chunks.bears_tokens
        owners = self._chunks.owner[bears_tokens]
        is_gap = (owners[1:] == owners[:-1]) & ~self._void_times[owners[1:]]
        gaps_ms = 1e3 * np.diff(self._chunks.at_s[bears_tokens])
        return gaps_ms[is_gap], owners[1:][is_gap]

    @cached_property
    def _token_times_s(self) -> tuple[Values, Values]:
        """The time of each record's first and last chunk with tokens."""
        first_s, last_s = self._chunks.find_end_times_s(self._chunks.bears_tokens)
        is_void = self._void_times
        return np.where(is_void, np.nan, first_s), np.where(is_void, np.nan, last_s)


def _divide_where(mask: BoolArray, numerator: Values, denominator: Values) -> Values:
    """Return the quotient for each true element of `mask`, else NaN."""
    result = np.full(len(mask), np.nan)
    np.divide(numerator, denominator, out=result, where=mask)
    return result


def _find_suspects(
    records: Sequence[RequestRecord], chunks: ChunkTable, tokens: Values
) -> dict[str, BoolArray]:
    end_s = collect_column(records, "end_s")
    headers_s = collect_column(records, "headers_s")
    earliest_s, latest_s = chunks.find_end_times_s(np.full(len(chunks.kind), fill_value=True))
    is_early = (end_s < 0) | (earliest_s < 0) | (headers_s < 0)
    is_early |= headers_s > earliest_s + _ROUNDING_S
    is_backwards = np.zeros(len(chunks.at_s), bool)
    is_backwards[1:] = (chunks.owner[1:] == chunks.owner[:-1]) & (np.diff(chunks.at_s) < 0)

    chunk_count = chunks.sum_by_record(chunks.bears_tokens)
    chunk_tokens = chunks.sum_by_record(chunks.bears_tokens, chunks.tokens)
    max_tokens = collect_column(records, "max_tokens")
    by_usage = np.array([record.counted_by == "usage" for record in records], bool)
    is_above = by_usage & (tokens > max_tokens)
    is_ignored = _exceed_limit(records, is_above | (chunk_count > max_tokens))
    lacks_reason = [
        record.finish_reason is None and record.generator == "tandem" for record in records
    ]
    has_detail = [record.error_detail is not None for record in records]

    return {
        "time_runs_backwards": is_early | (chunks.sum_by_record(is_backwards) > 0),
        # of the last chunk; an earlier chunk counts as backwards
        "chunk_after_end": latest_s > end_s + _ROUNDING_S,
        "usage_below_chunks": chunk_count > tokens,
        "running_usage_fell": chunks.sum_by_record(chunks.tokens < 0) > 0,
        # one token fewer is a stop token that was counted and never sent
        "usage_differs_from_chunks": (chunk_tokens > tokens) | (chunk_tokens < tokens - 1),
        "tokens_without_chunks": (chunk_count == 0) & (tokens > 1),
        "usage_contradicts_stream": np.array(has_detail, bool),
        "usage_above_max_tokens": is_above & ~is_ignored,
        "max_tokens_ignored": is_ignored,
        "end_without_reason": np.array(lacks_reason, bool),
    }


def _exceed_limit(records: Sequence[RequestRecord], may_exceed: BoolArray) -> BoolArray:
    """Return the mask of answers with more words than max_tokens; a word is at least one token.

    Args:
        records: of the answers.
        may_exceed: answers whose words are to be counted.
    """
    mask = np.zeros(len(records), bool)
    for place, record in enumerate(records):
        if may_exceed[place] and record.max_tokens is not None:
            word_count = len(f"{record.text} {record.reasoning or ''}".split())
            mask[place] = word_count > record.max_tokens
    return mask
