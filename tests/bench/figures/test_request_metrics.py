"""Figures of records, by hand and by the definitions one record at a time."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from measured import chunks, compute_record_metrics, failed, record

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.record import Chunk, RequestRecord
from tandem.metrics import CATALOGUE

compute = compute_record_metrics
TIMES_ALONE = {
    "ttft_ms",
    "e2e_ms",
    "prompt_tokens",
    "llmperf_inter_token_latency_ms",
    "chunk_gap_ms",
}
LLMPERF = "llmperf_inter_token_latency_ms"


def suspects(request: RequestRecord) -> set[str]:
    return {word for word, mask in RequestMetrics([request]).suspects.items() if mask[0]}


def test_a_stream_of_bursts_has_the_figures_by_hand():
    assert compute(record(due_s=999.998)) == pytest.approx(
        {
            "ttft_ms": 200.0,
            "e2e_ms": 290.0,
            "tpot_ms": 90 / 7,
            "tpot_exact_ms": 90 / 7,
            "chunk_gap_ms": 45.0,
            "tokens_per_chunk": 8 / 3,
            "output_tokens_per_s": 8 / 0.29,
            "prompt_tokens": 64.0,
            "completion_tokens": 8.0,
            "schedule_delay_ms": 2.0,
            "llmperf_inter_token_latency_ms": 290 / 5,
        }
    )


STREAMS = {
    # chunks, completion tokens, figures
    "a first burst biases tpot, not its exact form": (
        chunks((0.2, "text", 5), (0.24, "text", 5)),
        10,
        {"tpot_ms": 40 / 9, "tpot_exact_ms": 40 / 5},
    ),
    "llmperf counts role, end and reasoning, and takes the time of text": (
        chunks((0.05, "role"), (0.1, "reasoning"), (0.2, "text"), (0.3, "end"), (0.31, "usage")),
        8,
        {LLMPERF: 200 / 4},
    ),
    "reasoning is output for ours": (
        chunks((0.1, "reasoning"), (0.2, "text")),
        2,
        {"ttft_ms": 100.0, "tpot_ms": 100.0},
    ),
    "calls of tools are output": (
        chunks((0.1, "role"), (0.2, "tool"), (0.3, "tool"), (0.4, "end")),
        2,
        {"ttft_ms": 200.0},
    ),
    "a stop token in the last chunk is a token": (
        chunks((0.2, "text", 1), (0.3, "text", 4), (0.3, "end", 1)),
        6,
        {"tokens_per_chunk": 2.0, "tpot_exact_ms": 100 / 5},
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_has_the_figures_computed_by_hand(case):
    stream, tokens, expected = STREAMS[case]
    figures = compute(record(chunks=stream, completion_tokens=tokens, end_s=0.61))
    assert {name: figures.get(name) for name in expected} == pytest.approx(expected)


def test_a_record_has_only_the_figures_that_it_can_carry():
    silent = record(chunks=chunks((0.2, "text"), (0.3, "text")), completion_tokens=None)
    ends = chunks((0.2, "text"), (0.9, "end"))
    llmperf = record(generator="llmperf", chunks=ends, end_s=1.0, completion_tokens=None)

    assert compute(silent).keys() == compute(record(completion_tokens=20)).keys() == TIMES_ALONE
    assert compute(failed()) == compute(record(error="gap_timeout")) == {}
    assert compute(llmperf) == pytest.approx(
        {"ttft_ms": 200.0, "e2e_ms": 900.0, "prompt_tokens": 64}
    )


def test_every_figure_is_in_the_catalogue():
    assert RequestMetrics([]).by_name().keys() <= CATALOGUE.keys()


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("time_runs_backwards", {"end_s": -0.1}),
        ("time_runs_backwards", {"chunks": chunks((0.2, "text", 4), (0.1, "text", 4))}),
        ("time_runs_backwards", {"chunks": chunks((-0.2, "text", 4), (0.1, "text", 4))}),
        ("time_runs_backwards", {"headers_s": 0.15}),
        ("time_runs_backwards", {"headers_s": -0.15}),
        ("chunk_after_end", {"end_s": 0.2}),
        (
            "usage_below_chunks",
            {"completion_tokens": 2, "chunks": chunks((0.1, "text"), (0.2, "text"), (0.3, "text"))},
        ),
        ("running_usage_fell", {"chunks": chunks((0.1, "text", 9), (0.2, "text", -1))}),
        ("usage_differs_from_chunks", {"completion_tokens": 20}),
        ("usage_differs_from_chunks", {"completion_tokens": 7}),
        (
            "usage_contradicts_stream",
            {"error_detail": "usage says 9 output tokens, the stream held 8 token ids"},
        ),
        ("tokens_without_chunks", {"chunks": chunks((0.1, "role"), (0.2, "end"))}),
        ("usage_above_max_tokens", {"max_tokens": 7}),
        ("max_tokens_ignored", {"max_tokens": 3, "text": "four words of text"}),
        ("end_without_reason", {"finish_reason": None}),
    ],
)
def test_a_contradiction_is_named(word, changes):
    assert word in suspects(record(**changes))


def test_a_count_above_max_tokens_is_no_count():
    assert compute(record(max_tokens=7)).keys() == TIMES_ALONE


@pytest.mark.parametrize(
    "changes", [{"max_tokens": 8}, {"max_tokens": 7, "counted_by": "token_ids"}]
)
def test_a_count_within_max_tokens_or_by_token_ids_counts(changes):
    assert compute(record(**changes)) == compute(record())


def test_an_answer_that_ignores_the_limit_keeps_its_count():
    ignoring_record = record(max_tokens=3, text="four words of text")
    assert compute(ignoring_record) == compute(record())
    assert suspects(ignoring_record) == {"max_tokens_ignored"}


def test_an_end_without_a_reason_leaves_no_figure_out():
    assert compute(record(finish_reason=None)) == compute(record())


def test_a_record_without_a_contradiction_is_not_suspect():
    stop_token = record(completion_tokens=9)  # counted and never sent
    assert suspects(record()) == suspects(stop_token) == set()
    assert suspects(failed(chunks=chunks((0.3, "text"), (0.2, "text")))) == set()


def test_a_clock_that_runs_backwards_voids_every_figure():
    backwards = RequestMetrics([record(chunks=chunks((0.2, "text", 4), (0.1, "text", 4)))])
    assert all(math.isnan(values[0]) for values in backwards.by_name().values())
    assert len(backwards.list_gaps()[0]) == 0


@pytest.mark.parametrize(("counted_by", "is_used"), [("usage", False), ("token_ids", True)])
def test_contradicted_usage_is_used_where_ids_were_counted(counted_by, is_used):
    assert (
        "tpot_ms" in compute(record(error_detail="usage says otherwise", counted_by=counted_by))
    ) is is_used


# An oracle that shares nothing with the vectors: the definitions, one record at a time.


def oracle(request: RequestRecord) -> dict[str, float]:
    if request.error is not None:
        return {}
    bearing = [chunk for chunk in request.chunks if chunk.bears_tokens]
    sizes = [chunk.tokens for chunk in bearing]
    metrics = times(request, bearing)
    return (
        metrics
        if wrong_count(request, len(bearing), sizes)
        else metrics | counts(request, bearing, sizes)
    )


def times(request: RequestRecord, bearing: list[Chunk]) -> dict[str, float]:
    choices = [chunk.at_s for chunk in request.chunks if chunk.kind != "usage"]
    texts = [chunk.at_s for chunk in request.chunks if chunk.kind == "text"]
    gaps = [(after.at_s - before.at_s) * 1000 for before, after in pairwise(bearing)]
    metrics = {
        "prompt_tokens": request.prompt_tokens,
        "schedule_delay_ms": (
            None if request.due_s is None else (request.start_s - request.due_s) * 1000
        ),
        "e2e_ms": choices[-1] * 1000 if choices else None,
        "llmperf_inter_token_latency_ms": texts[-1] * 1000 / len(choices) if texts else None,
        "ttft_ms": bearing[0].at_s * 1000 if bearing else None,
        "chunk_gap_ms": sum(gaps) / len(gaps) if gaps else None,
    }
    return {name: value for name, value in metrics.items() if value is not None}


def counts(
    request: RequestRecord, bearing: list[Chunk], sizes: list[int | None]
) -> dict[str, float]:
    last_s = max((chunk.at_s for chunk in request.chunks if chunk.kind != "usage"), default=None)
    count = request.completion_tokens
    metrics = {}
    if count is not None:
        metrics["completion_tokens"] = count
        metrics |= {"tokens_per_chunk": count / len(bearing)} if bearing else {}
        metrics |= {"output_tokens_per_s": count / last_s} if last_s else {}
        if bearing and count > 1:
            metrics["tpot_ms"] = (last_s - bearing[0].at_s) * 1000 / (count - 1)
    if bearing and None not in sizes and sum(sizes[1:]) > 0:
        metrics["tpot_exact_ms"] = (bearing[-1].at_s - bearing[0].at_s) * 1000 / sum(sizes[1:])
    return metrics


def wrong_count(request: RequestRecord, bearing: int, sizes: list[int | None]) -> bool:
    if any(chunk.tokens is not None and chunk.tokens < 0 for chunk in request.chunks):
        return True
    if request.completion_tokens is None:
        return False
    if None not in sizes and sum(sizes) not in {
        request.completion_tokens,
        request.completion_tokens - 1,
    }:
        return True
    return bearing > request.completion_tokens or (bearing == 0 and request.completion_tokens > 1)


def drawn(rng: random.Random) -> RequestRecord:
    """A record with any mixture of kinds, counts that may be missing or wrong, and times in
    order."""
    stream = []
    at_s = rng.random()
    for _ in range(rng.choice([0, 1, 2, 5, 12])):
        at_s += rng.choice([0.0, 0.001, 0.04])
        kind = rng.choice(["role", "text", "text", "text", "reasoning", "empty", "end", "usage"])
        stream.append(Chunk(at_s, kind, rng.choice([None, 0, 1, 1, 2, 8])))
    count = sum(chunk.tokens or (chunk.tokens is None) for chunk in stream if chunk.bears_tokens)
    return record(
        chunks=tuple(stream),
        headers_s=None,
        end_s=at_s + 0.001,
        prompt_tokens=rng.choice([None, 7]),
        completion_tokens=rng.choice(
            [None, 0, 1, count, count, count + 1, count + 5, max(0, count - 1)]
        ),
        due_s=rng.choice([None, 999.5]),
        error=rng.choice([None, None, None, "closed"]),
    )


def test_many_records_at_once_agree_with_the_definitions():
    rng = random.Random(7)  # noqa: S311 - repeatable
    records = [drawn(rng) for _ in range(3000)]

    metrics = RequestMetrics(records)
    columns = metrics.by_name()
    gaps_ms, gap_owners = metrics.list_gaps()

    for index, request in enumerate(records):
        figures = {name: values[index] for name, values in columns.items()}
        figures = {name: value for name, value in figures.items() if not math.isnan(value)}
        gaps = gaps_ms[gap_owners == index]
        figures |= {"chunk_gap_ms": np.mean(gaps)} if len(gaps) else {}
        assert figures == pytest.approx(oracle(request)), request
