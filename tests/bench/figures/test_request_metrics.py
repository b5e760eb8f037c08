"""Figures of records, by hand and by the definitions one record at a time."""

from __future__ import annotations

import math

import pytest
from measured import chunks, compute_record_metrics, failed, record

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records.record import RequestRecord
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
    figures = compute(llmperf)
    assert (figures["ttft_ms"], figures["e2e_ms"]) == pytest.approx((200.0, 900.0))
    assert figures["prompt_tokens"] == 64
    assert figures.keys() <= TIMES_ALONE - {LLMPERF, "chunk_gap_ms"}


def test_every_figure_is_in_the_catalogue():
    assert RequestMetrics([]).by_name().keys() <= CATALOGUE.keys()


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("time_runs_backwards", {"end_s": -0.1}),
        ("time_runs_backwards", {"chunks": chunks((-0.2, "text", 4), (0.1, "text", 4))}),
        ("time_runs_backwards", {"headers_s": 0.15}),
        ("chunk_after_end", {"end_s": 0.2}),
        (
            "usage_below_chunks",
            {"completion_tokens": 2, "chunks": chunks((0.1, "text"), (0.2, "text"), (0.3, "text"))},
        ),
        ("running_usage_fell", {"chunks": chunks((0.1, "text", 9), (0.2, "text", -1))}),
        ("usage_differs_from_chunks", {"completion_tokens": 20}),
        (
            "usage_contradicts_stream",
            {"error_detail": "usage says 9 output tokens, the stream held 8 token ids"},
        ),
        ("tokens_without_chunks", {"chunks": chunks((0.1, "role"), (0.2, "end"))}),
        ("usage_above_max_tokens", {"max_tokens": 7}),
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
