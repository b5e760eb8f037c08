"""From records and counters to cells, counts and notes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from measured import chunks, failed, record, write_run

from tandem.bench.figures import summary
from tandem.bench.figures.summary import RecordSummary, SummaryCell
from tandem.bench.records.counters import MetricsScrape
from tandem.bench.records.manifest import PlanTotals
from tandem.bench.records.record import RequestRecord
from tandem.errors import InputError

SYSTEM = "system_output_tokens_per_s"
Records = list[RequestRecord]


def summarized(
    folder: Path, records: Records, scrapes: list[MetricsScrape] | None = None, **changes: Any
) -> RecordSummary:
    return summary.summarize_run(write_run(folder, records, scrapes, **changes))


def cell(
    result: RecordSummary, metric: str, arm_: str = "base", class_: str = "repeat"
) -> SummaryCell | None:
    cells = [
        entry
        for entry in result.cells
        if (entry.metric, entry.arm, entry.class_) == (metric, arm_, class_)
    ]
    assert len(cells) <= 1
    return cells[0] if cells else None


def lasting(seconds: float, **changes: Any) -> RequestRecord:
    """A request whose first and only chunk comes after so long, with 10 tokens."""
    stream = chunks((seconds, "text", 10))
    return record(**{"chunks": stream, "end_s": seconds, "completion_tokens": 10, **changes})


def at(start_s: float, seconds: float, **changes: Any) -> RequestRecord:
    return lasting(seconds, start_s=start_s, **changes)


SILENT = record(chunks=chunks((0.1, "text"), (0.2, "text")), completion_tokens=None)  # no usage
SHORT = record(chunks=chunks((0.2, "text", 1)), completion_tokens=1, end_s=0.5)


def test_a_cell_has_the_quantiles_of_its_requests(tmp_path):
    result = cell(
        summarized(tmp_path, [lasting(seconds) for seconds in (0.1, 0.2, 0.4, 0.8)]), "ttft_ms"
    )

    assert result == SummaryCell(
        class_="repeat",
        concurrency=4,
        rate_per_s=None,
        metric="ttft_ms",
        arm="base",
        n=4,
        p50=300.0,
        p90=680.0,
        p99=788.0,
        mean=375.0,
        unit="ms",
    )


def test_cells_are_apart_and_class_all_pools_them(tmp_path):
    second = lasting(0.4, concurrency=None, rate_per_s=2.5, due_s=999.99)
    records = [
        lasting(0.1),
        lasting(0.3, class_="chat"),
        lasting(0.3, arm="spec"),
        lasting(0.5, concurrency=1),
        second,
    ]

    run_summary = summarized(tmp_path, records)

    cells = {
        (entry.arm, entry.class_, entry.concurrency, entry.rate_per_s): entry
        for entry in run_summary.cells
        if entry.metric == "e2e_ms"
    }
    assert {place: (item.n, item.p50) for place, item in cells.items() if place[1] == "all"} == {
        ("base", "all", 4, None): (2, 200.0),
        ("spec", "all", 4, None): (1, 300.0),
        ("base", "all", 1, None): (1, 500.0),
        ("base", "all", None, 2.5): (1, 400.0),
    }
    assert cells["base", "chat", 4, None].n == 1
    assert cell(run_summary, "schedule_delay_ms").p50 == 10.0


def test_gaps_are_pooled_over_the_chunks_of_all_requests(tmp_path):
    quick = record(chunks=chunks((0.1, "text", 1), (0.11, "text", 1)), completion_tokens=2)
    slow = record(
        chunks=chunks((0.1, "text", 1), (0.13, "text", 1), (0.19, "text", 1)), completion_tokens=3
    )
    result = cell(summarized(tmp_path, [quick, slow]), "chunk_gap_ms")
    assert (result.n, result.p50, result.mean) == (3, 30.0, pytest.approx(100 / 3, abs=1e-6))


def test_failed_requests_are_counted_and_in_no_latency(tmp_path):
    run_summary = summarized(
        tmp_path, [lasting(0.1), failed(end_s=9.0), failed(error="status_503", class_="chat")]
    )

    assert {entry.n for entry in run_summary.cells if entry.metric == "e2e_ms"} == {1}
    counts = [
        (request.class_, request.requests, request.succeeded, request.failed)
        for request in run_summary.requests
    ]
    assert counts == [("repeat", 2, 1, 1), ("chat", 1, 0, 1)]
    assert [(error.class_, error.word, error.n) for error in run_summary.errors] == [
        ("repeat", "closed", 1),
        ("chat", "status_503", 1),
    ]


def test_words_of_the_content_check_and_retries_are_counted(tmp_path):
    run_summary = summarized(
        tmp_path, [record(attempts=3), record(content="loop"), record(content="loop"), failed()]
    )
    assert [(entry.word, entry.n) for entry in run_summary.content] == [("loop", 2), ("ok", 1)]
    assert [request.retried for request in run_summary.requests] == [1]


# records, changes of the manifest, what a note says
NOTES: dict[str, tuple[Records, dict[str, Any], str]] = {
    "failed": (
        [record(), failed()],
        {},
        "base: failed with closed: 1 of 2 requests; in no latency",
    ),
    "suspect": (
        [record(completion_tokens=800)],
        {},
        "suspect, usage_differs_from_chunks: 1 of 1 records; the tokens",
    ),
    "broken off": (
        [record(), failed(error="api_error", error_detail="no memory"), failed(error="api_error")],
        {},
        "base: of 2 answers that it broke off, it said of the first: no memory",
    ),
    "unknown part": (
        [record(unknown_parts=("delta.musing",)), record(unknown_parts=("delta.musing",))],
        {},
        "base: delta.musing holds text that Tandem does not read, so it has no time: 2 answers",
    ),
    "no exact TPOT": (
        [record(chunks=SILENT.chunks)],
        {},
        "its chunks do not say how many tokens they hold",
    ),
    "one token": (
        [record(), SHORT],
        {},
        "base: fewer than 2 tokens, and so no TPOT: 1 of 2 answers",
    ),
    "unknown length": (
        [at(1.0, 1.0), at(2.0, 1.0, completion_tokens=None)],
        {},
        "turns in which a request has no usable figure (turns: 1)",
    ),
    "missing requests": (
        [record()],
        {"plan": PlanTotals(requests=8)},
        "1 of 8 planned requests are recorded",
    ),
    "stranger": ([record(arm="stranger")], {}, "the manifest names no arm stranger"),
    "twice": (
        [record(), record(), record(request_id="r-1")],
        {},
        "records that repeat a request_id: 1;",
    ),
    "llmperf": (
        [record(generator="llmperf", completion_tokens=None)],
        {},
        "records of llmperf: 1;",
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_a_reader_must_know_is_noted(tmp_path, case):
    records, changes, note = NOTES[case]
    assert any(note in line for line in summarized(tmp_path, records, **changes).notes)


# records, changes of the manifest; n, median and mean of the throughput of `base`
BUSY: dict[str, tuple[Records, tuple[int, float, float]]] = {
    "beside turns of the other arm": (
        [at(100.0, 1.0, slot=0), at(101.0, 4.0, arm="spec", slot=1), at(109.0, 1.0, slot=3)],
        (2, 10.0, 10.0),
    ),
    "over turns": ([at(100.0, 1.0, round=0), at(200.0, 4.0, round=1)], (2, (10 + 2.5) / 2, 20 / 5)),
    "with a failed request": ([at(100.0, 1.0), failed(start_s=101.0, end_s=4.0)], (1, 2.0, 2.0)),
    "without a turn of unknown length": (
        [at(100.0, 1.0), at(200.0, 1.0, round=1), at(201.0, 1.0, round=1, completion_tokens=None)],
        (1, 10.0, 10.0),
    ),
}


@pytest.mark.parametrize("case", BUSY)
def test_system_throughput_is_tokens_over_busy_time(tmp_path, case):
    records, figures = BUSY[case]

    run_summary = summarized(
        tmp_path, [*records, at(100.0, 2.0, arm="pair"), at(100.0, 2.0, arm="pair", class_="chat")]
    )

    cells = [
        cell(run_summary, SYSTEM),
        cell(run_summary, SYSTEM, "pair"),
        cell(run_summary, SYSTEM, "pair", "all"),
    ]
    assert (cells[0].n, cells[0].p50, cells[0].mean) == figures
    # of all classes: by the turn's time, not their sum
    assert [entry.mean for entry in cells[1:]] == [5.0, 10.0]


@pytest.mark.parametrize(
    ("records", "limits", "mean"),
    [
        (
            [at(100.0, 1.0), at(100.0, 2.0), at(100.0, 4.0), failed(start_s=100.0, end_s=4.0)],
            {"e2e_ms": 2000.0, "output_tokens_per_s": 5.0},
            2 / 4,
        ),
        ([SHORT], {"tpot_ms": 30.0}, 2.0),
        ([SILENT], {"tpot_ms": 30.0}, None),
        ([record()], None, None),
    ],
    ids=["within every limit", "one token meets a limit of TPOT", "no usage", "no limits"],
)
def test_goodput_counts_requests_within_every_limit(tmp_path, records, limits, mean):
    result = cell(summarized(tmp_path, records, goodput=limits), "goodput_per_s")
    assert (result and result.mean) == mean


def test_a_limit_on_no_figure_of_requests_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no manifest: .*ttft_ms.* at `key` in `\$.goodput`"):
        summarized(tmp_path, [record()], goodput={"chunk_gap_ms": 30.0})


FLAT = {"generation_tokens": 100.0, "first_tokens": 10.0, "decode_steps": 30.0, "drafts": 0.0}
LONGER = FLAT | {"generation_tokens": 310.0, "decode_steps": 60.0}
SPEC = record(arm="spec")


def turn(counters: dict[str, float], **changes: Any) -> list[MetricsScrape]:
    fields = {"at_s": 1.0, "arm": "spec", "class_": "repeat", "concurrency": 4, **changes}
    zero = dict.fromkeys(counters, 0.0)
    pair = (("before", zero), ("after", counters))
    return [MetricsScrape(**fields, when=when, counters=page) for when, page in pair]


def test_mean_acceptance_is_the_ratio_of_the_sums(tmp_path):
    run_summary = summarized(tmp_path, [SPEC], [*turn(FLAT), *turn(LONGER, round=1)])
    length = cell(run_summary, "acceptance_length", "spec")
    assert (length.n, length.p50, length.mean) == (
        2,
        (3 + 5) / 2,
        pytest.approx(390 / 90, abs=1e-6),
    )
    assert (
        "spec: acceptance_length is derived from its steps, because it counts no drafts (turns: 2)"
        in run_summary.notes
    )


@pytest.mark.parametrize("class_", ["chat", None])
def test_acceptance_of_all_classes_is_the_ratio_over_all_turns(tmp_path, class_):
    run_summary = summarized(
        tmp_path, [SPEC], [*turn(FLAT, class_=class_), *turn(LONGER, class_=class_, round=1)]
    )
    assert cell(run_summary, "acceptance_length", "spec", "all").mean == pytest.approx(
        390 / 90, abs=1e-6
    )
    classes = {entry.class_ for entry in run_summary.cells if entry.metric == "acceptance_length"}
    assert classes == {class_ or "all", "all"}


@pytest.mark.parametrize(
    ("records", "tokens", "note"),
    [
        ([SPEC], 100.0, "its counters hold more tokens than the records: another client"),
        ([SPEC], 7.0, "its usage counts too many"),
        ([SPEC], 8.0, ""),
        ([SPEC, record(arm="spec", completion_tokens=None)], 100.0, ""),
    ],
    ids=["another client", "too much usage", "alike", "an answer without usage"],
)
def test_counters_are_held_against_the_records(tmp_path, records, tokens, note):
    run_summary = summarized(
        tmp_path, records, turn(FLAT | {"generation_tokens": tokens, "decode_steps": 2.0})
    )
    assert [
        note in line for line in run_summary.notes if "counters" in line or "usage counts" in line
    ] == [True] * bool(note)


def test_every_metric_with_a_cell_is_defined_and_no_other(tmp_path):
    run_summary = summarized(tmp_path, [record(), SPEC], turn(FLAT))
    assert [metric.name for metric in run_summary.metrics] == list(
        dict.fromkeys(one.name for one in run_summary.metrics)
    )
    assert {entry.name for entry in run_summary.metrics} == {
        item.metric for item in run_summary.cells
    }
    assert all(element.definition and element.unit for element in run_summary.metrics)


def test_cells_follow_the_manifest_with_arms_side_by_side(tmp_path):
    records = [
        record(arm=arm_, class_=class_)
        for class_, arm_ in itertools.product(("chat", "repeat"), ("spec", "base"))
    ]

    run_summary = summarized(tmp_path, [*records, record(class_="new"), record(arm="stranger")])

    assert list(dict.fromkeys(element.class_ for element in run_summary.cells)) == [
        "repeat",
        "chat",
        "new",
        "all",
    ]
    assert [entry.arm for entry in run_summary.cells[:4]] == ["base", "spec", "stranger", "base"]
    assert [item.metric for item in run_summary.cells[:4:3]] == ["e2e_ms", "tpot_ms"]
    assert run_summary.arms == ("base", "spec", "stranger")


def test_a_run_without_a_record_has_an_empty_summary(tmp_path):
    empty = summarized(tmp_path, [])
    assert (empty.cells, empty.requests, empty.records) == ((), (), 0)
