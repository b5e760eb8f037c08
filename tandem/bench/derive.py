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

from tandem.bench.columns import KIND, Chunks, Fields, Mask, Whole, fields_of, of_objects
from tandem.bench.quantiles import Values
from tandem.bench.record import Measured

_ROUNDING_S = 1e-6  # a generator may round its times to a microsecond

CLOCK = "time_runs_backwards"
AFTER_END = "chunk_after_end"
FEW = "usage_below_chunks"
FELL = "running_usage_fell"
DIFFERS = "usage_differs_from_chunks"
NOTHING = "tokens_without_chunks"
DOUBTED = "usage_contradicts_stream"
SUSPECTS = {
    CLOCK: "a chunk, the headers or the end came before what they follow",
    AFTER_END: "a chunk arrived after the request had ended",
    FEW: "the server counted fewer tokens than chunks that carried some",
    FELL: "the server's running count of tokens fell",
    DIFFERS: "the tokens of the chunks do not add up to the server's count",
    NOTHING: "the server counted tokens, and no chunk carried any",
    DOUBTED: "the server's usage contradicts its stream, so no count but one by token ids is used",
}
"""What can contradict itself in a record. The first two void every figure, the others those that count tokens."""

_COUNTED = ("tpot_ms", "tpot_exact_ms", "tokens_per_chunk", "output_tokens_per_s", "completion_tokens")
_ENDS_ONLY = ("ttft_ms", "e2e_ms", "prompt_tokens", "completion_tokens")  # what a record of llmperf can carry


@dataclass(frozen=True)
class Figures:
    """Figures of a sequence of records, in its order.

    Args:
        values: by metric, one value a record; NaN where it has none.
        gaps_ms: every gap between token-bearing chunks of the records that may be used.
        gap_owners: for each gap, the place of its record.
        suspects: by word of SUSPECTS, which records contradict themselves so.
        failed: which records have an error.
        counted: completion tokens as the record has them, contradicted or not; NaN where it has none.
    """

    values: dict[str, Values]
    gaps_ms: Values
    gap_owners: Whole
    suspects: dict[str, Mask]
    failed: Mask
    counted: Values


def of(record: Measured) -> dict[str, float]:
    """Return the figures of one record by metric, without those it cannot have; chunk_gap_ms is their mean."""
    found = derive([record])
    single = {name: float(values[0]) for name, values in found.values.items() if np.isfinite(values[0])}
    return single | ({"chunk_gap_ms": float(np.mean(found.gaps_ms))} if len(found.gaps_ms) else {})


def derive(records: Sequence[Measured]) -> Figures:
    """Return the figures of `records`."""
    told = fields_of(records)
    return figures(told, of_objects(told["chunks"]))


def figures(told: Fields, columns: Chunks) -> Figures:
    """Return the figures of records whose fields and chunks are columns."""
    chunks = _chunks(columns)
    tokens = _column(told, "completion_tokens")
    bearing = _bearing(chunks)
    failed = np.array([error is not None for error in told["error"]], bool)
    suspects = {word: mask & ~failed for word, mask in _suspects(told, chunks, bearing, tokens).items()}
    values = _values(told, chunks, bearing, tokens)
    untimed = failed | suspects[CLOCK] | suspects[AFTER_END]
    by_ids = np.array([counted_by == "token_ids" for counted_by in told["counted_by"]], bool)
    uncounted = suspects[FEW] | suspects[FELL] | suspects[DIFFERS] | suspects[NOTHING] | (suspects[DOUBTED] & ~by_ids)
    ends_only = np.array([generator == "llmperf" for generator in told["generator"]], bool)
    for name, figure in values.items():
        figure[untimed] = np.nan
        if name in _COUNTED:
            figure[uncounted] = np.nan
        if name not in _ENDS_ONLY:
            figure[ends_only] = np.nan
    gaps, owners = _gaps(chunks, bearing)
    kept = ~(untimed | ends_only)[owners]
    return Figures(values, gaps[kept], owners[kept], suspects, failed, tokens)


class _Chunks(NamedTuple):
    """All chunks of all records, end to end: whose, when (s), what, and tokens (NaN: the server did not say).

    `first` and `last` are the places of each record's own first and last chunk; -1 where it has none.
    """

    first: Whole
    last: Whole
    owner: Whole
    at: Values
    kind: NDArray[np.int8]
    tokens: Values
    records: int


class _Bearing(NamedTuple):
    """Token-bearing chunks: their places, number and tokens by record, and each record's first and last (-1: none)."""

    places: Whole
    number: Whole
    tokens: Values
    first: Whole
    last: Whole


def _chunks(columns: Chunks) -> _Chunks:
    numbers, ends = columns.numbers, np.cumsum(columns.numbers)
    return _Chunks(
        first=np.where(numbers > 0, ends - numbers, -1),
        last=np.where(numbers > 0, ends - 1, -1),
        owner=np.repeat(np.arange(len(numbers)), numbers),
        at=columns.at_s,
        kind=columns.kind,
        tokens=columns.tokens,
        records=len(numbers),
    )


def _bearing(chunks: _Chunks) -> _Bearing:
    by_kind = (chunks.kind == KIND["text"]) | (chunks.kind == KIND["reasoning"])
    by_count = (chunks.tokens >= 1) & (chunks.kind != KIND["usage"])
    places = np.flatnonzero(np.where(np.isnan(chunks.tokens), by_kind, by_count))
    first, last = _ends(places, chunks)
    owners = chunks.owner[places]
    held: Values = np.zeros(chunks.records)
    held += np.bincount(owners, chunks.tokens[places], minlength=chunks.records)  # NaN as soon as one is not known
    return _Bearing(places, np.bincount(owners, minlength=chunks.records), held, first, last)


def _ends(places: Whole, chunks: _Chunks) -> tuple[Whole, Whole]:
    """Return each record's first and last of `places`; -1 where it has none."""
    first, last = np.full(chunks.records, -1), np.full(chunks.records, -1)
    if len(places):
        owners = chunks.owner[places]
        new = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        first[owners[new]] = places[new]
        last[owners[new]] = places[np.append(new[1:], len(places)) - 1]
    return first, last


def _pick(values: Values, places: Whole) -> Values:
    """Return the values at `places`, NaN at -1."""
    picked: Values = np.append(values, np.nan)[places]
    return picked


def _column(told: Fields, name: str) -> Values:
    return np.array(told[name], dtype=float)


def _where(mask: Mask, above: Values, below: Values) -> Values:
    """Return above / below where `mask` holds, else NaN."""
    result = np.full(len(mask), np.nan)
    np.divide(above, below, out=result, where=mask)
    return result


def _values(told: Fields, chunks: _Chunks, bearing: _Bearing, tokens: Values) -> dict[str, Values]:
    ttft_ms = 1e3 * _pick(chunks.at, bearing.first)
    e2e_ms = 1e3 * _pick(chunks.at, _ends(np.flatnonzero(chunks.kind != KIND["usage"]), chunks)[1])
    return {
        "ttft_ms": ttft_ms,
        "tpot_ms": _where(tokens > 1, e2e_ms - ttft_ms, tokens - 1),
        "tpot_exact_ms": _exact_ms(chunks, bearing),
        "e2e_ms": e2e_ms,
        "tokens_per_chunk": _where(bearing.number > 0, tokens, bearing.number.astype(float)),
        "output_tokens_per_s": _where(e2e_ms > 0, tokens, e2e_ms / 1e3),
        "prompt_tokens": _column(told, "prompt_tokens"),
        "completion_tokens": tokens.copy(),
        "schedule_delay_ms": 1e3 * (_column(told, "start_s") - _column(told, "due_s")),
        "llmperf_inter_token_latency_ms": _llmperf_ms(chunks),
    }


def _exact_ms(chunks: _Chunks, bearing: _Bearing) -> Values:
    later = bearing.tokens - _pick(chunks.tokens, bearing.first)
    span_ms = 1e3 * (_pick(chunks.at, bearing.last) - _pick(chunks.at, bearing.first))
    return _where(later > 0, span_ms, later)


def _llmperf_ms(chunks: _Chunks) -> Values:
    """Its sum of TTFT and gaps is the arrival of the last chunk with text; its tokens are chunks; it asks no usage."""
    last_text = _ends(np.flatnonzero(chunks.kind == KIND["text"]), chunks)[1]
    received = np.bincount(chunks.owner[chunks.kind != KIND["usage"]], minlength=chunks.records).astype(float)
    return _where(last_text >= 0, 1e3 * _pick(chunks.at, last_text), received)


def _gaps(chunks: _Chunks, bearing: _Bearing) -> tuple[Values, Whole]:
    owners = chunks.owner[bearing.places]
    same = owners[1:] == owners[:-1]
    return 1e3 * np.diff(chunks.at[bearing.places])[same], owners[1:][same]


def _suspects(told: Fields, chunks: _Chunks, bearing: _Bearing, tokens: Values) -> dict[str, Mask]:
    end_s, headers_s = _column(told, "end_s"), _column(told, "headers_s")
    earliest, latest = _pick(chunks.at, chunks.first), _pick(chunks.at, chunks.last)
    back = (chunks.owner[1:] == chunks.owner[:-1]) & (np.diff(chunks.at) < 0)
    return {
        CLOCK: (end_s < 0)
        | (earliest < 0)
        | (headers_s < 0)
        | (headers_s > earliest + _ROUNDING_S)
        | _any(chunks.owner[1:][back], chunks),
        AFTER_END: latest > end_s + _ROUNDING_S,  # of the last chunk; an earlier one that is later is CLOCK's
        FEW: bearing.number > tokens,
        FELL: _any(chunks.owner[chunks.tokens < 0], chunks),
        # one less is a stop token that was counted and never sent
        DIFFERS: (bearing.tokens > tokens) | (bearing.tokens < tokens - 1),
        NOTHING: (bearing.number == 0) & (tokens > 1),
        DOUBTED: np.array([detail is not None for detail in told["error_detail"]], bool),
    }


def _any(owners: Whole, chunks: _Chunks) -> Mask:
    return np.bincount(owners, minlength=chunks.records) > 0
