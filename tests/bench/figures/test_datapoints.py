"""What is published of a folder: the summary's own values, at the right minute, round by round."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from measured import failed, record, write_run

from tandem.bench.figures import summary
from tandem.bench.figures.datapoints import read_rounds
from tandem.bench.figures.quantiles import compute_spread
from tandem.bench.records.counters import MetricsScrape
from tandem.bench.records.manifest import ClockReading, PlanTotals, RunEnd
from tandem.bench.records.record import RequestRecord
from tandem.cloudwatch_metrics import RoundFigures
from tandem.metrics import list_published_metrics

UTC = 1_795_219_200  # 2026-11-21T00:00:00Z
CLOCK = ClockReading(
    source="monotonic", resolution_s=1e-9, monotonic_s=1000.0, utc="2026-11-21T00:00:00Z"
)
LENGTH = "acceptance_length"
PUBLISHED = {entry.name for entry in list_published_metrics()}
ALL = ("all", "all")


def found(folder: Path) -> list[RoundFigures]:
    return list(read_rounds(folder, "post"))


def rows(folder: Path) -> list[tuple[tuple[str, ...], int, list[float]]]:
    """Arm, class, load and metric of each row, the minute after the clock's moment, and values."""
    return [
        (
            (*(value for _, value in key.dimensions[1:]), key.metric),
            (key.at_s - UTC) // 60,
            values.tolist(),
        )
        for figures in found(folder)
        for key, values in figures.values.items()
    ]


def told(
    folder: Path, metric: str, arm: str = "base", load: tuple[str, str] = ("repeat", "4")
) -> Any:
    """Minutes and values of one cell."""
    return [(minute, values) for key, minute, values in rows(folder) if key == (arm, *load, metric)]


def named(entry: Any) -> tuple[str, str, str]:
    """Arm, class and load of a row of the summary."""
    return (
        entry.arm,
        entry.class_,
        str(entry.concurrency) if entry.concurrency else f"rate-{entry.rate_per_s:g}",
    )


def assert_like_the_summary(folder: Path) -> None:
    """Every published cell has the summary's number of values and quantiles, and there is no
    other."""
    run_summary = summary.summarize_run(folder)
    got = defaultdict(list)
    for key, _, values in rows(folder):
        if key[1:3] != ALL:
            got[key] += values
    cells = {
        (*named(item), item.metric): (item.n, item.p50, item.p90, item.p99)
        for item in run_summary.cells
    }
    across = {
        cell: compute_spread(np.array(values))
        for cell, values in got.items()
        if "requests" not in cell[-1]
    }
    assert {
        cell: (element.n, *(round(value, 6) for value in element[1:4]))
        for cell, element in across.items()
        if element
    } == {cell: spread for cell, spread in cells.items() if cell[-1] in PUBLISHED}
    counts = Counter()
    for request in run_summary.requests:
        for class_ in (request.class_, "all"):
            arm_, _, load = named(request)
            counts[arm_, class_, load, "requests"] += request.requests
            counts[arm_, class_, load, "failed_requests"] += request.failed
    assert {cell: sum(values) for cell, values in got.items() if "requests" in cell[-1]} == counts


# the summary's own values


LIVE = (
    "generation_tokens",
    "first_tokens",
    "decode_steps",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
)


def scraped(**turn: Any) -> list[MetricsScrape]:
    """Counters of one turn of an arm that speculates."""
    fields = {"arm": "spec", "class_": "repeat", "concurrency": 4, "rate_per_s": None, **turn}
    return list(drawn_scrapes(random.Random(1), **fields))  # noqa: S311


def drawn_scrapes(generator: random.Random, **turn: Any) -> Iterator[MetricsScrape]:
    steps = generator.randint(10, 90)
    counts = (
        steps + 40.0,
        5.0,
        float(steps),
        float(steps),
        7.0 * steps,
        float(generator.randint(0, 7 * steps)),
    )
    for when, factor in (("before", 0.0), ("after", 1.0)):
        counters = dict(zip(LIVE, (factor * count for count in counts), strict=True))
        yield MetricsScrape(at_s=1000.0, when=when, counters=counters, **turn)


RECORDED = ("monitoring/measured/run", "benchmarks/real_run/ngram")


@pytest.mark.parametrize("name", RECORDED)
def test_all_values_of_a_cell_are_those_of_the_summary(name):
    assert_like_the_summary(Path(__file__).parents[2] / name)


# classes and loads that are pooled


def test_acceptance_of_mixed_classes_is_of_class_all(tmp_path):
    mixed = [record(arm="spec", start_s=1130.0), record(arm="spec", class_="chat", start_s=1070.0)]
    write_run(tmp_path, mixed, scraped(class_=None), clock=CLOCK, mixed=True)

    stands = [(key[:3], minute) for key, minute, _ in rows(tmp_path) if key[-1] == LENGTH]
    assert stands == [(("spec", "all", "4"), 1), (("spec", *ALL), 1)]
    assert_like_the_summary(tmp_path)


def test_a_cell_without_an_answer_has_no_latency(tmp_path):
    write_run(tmp_path / "good", [record(), record(request_id="r-1")], clock=CLOCK)
    write_run(tmp_path / "bad", [failed()], clock=CLOCK)

    assert told(tmp_path / "good", "failed_requests") == [(0, [0.0])]
    assert told(tmp_path / "good", "requests") == [(0, [2.0])]
    assert {key[-1]: values for key, _, values in rows(tmp_path / "bad")} == {
        "requests": [1.0],
        "failed_requests": [1.0],
        "system_output_tokens_per_s": [0.0],
    }


# minutes


def starting(*starts: float, **changes: Any) -> list[RequestRecord]:
    return [
        record(request_id=f"r-{number}", start_s=at, **changes) for number, at in enumerate(starts)
    ]


def test_values_stand_in_the_minute_of_their_request(
    tmp_path,
):
    write_run(tmp_path, starting(1059.9, 1000.0, 1060.0, 1130.0), clock=CLOCK)
    assert told(tmp_path, "ttft_ms") == [(0, [200.0, 200.0]), (1, [200.0]), (2, [200.0])]
    assert [(minute, len(gaps)) for minute, gaps in told(tmp_path, "chunk_gap_ms")] == [
        (0, 4),
        (1, 2),
        (2, 2),
    ]
    assert [minute for minute, _ in told(tmp_path, "system_output_tokens_per_s")] == [0]


def test_a_count_stands_in_the_first_minute_of_its_cell(tmp_path):
    write_run(
        tmp_path, [*starting(1070.0, 1130.0), record(class_="chat", start_s=1010.0)], clock=CLOCK
    )
    assert told(tmp_path, "requests") == [(1, [2.0])]
    assert (
        told(tmp_path, "requests", load=("all", "4"))
        == told(tmp_path, "requests", load=ALL)
        == [(0, [3.0])]
    )


def test_acceptance_stands_in_the_first_minute_of_its_turn(tmp_path):
    later = [msgspec.structs.replace(item, at_s=1250.0) for item in scraped(round=3)]
    write_run(tmp_path, starting(1190.0, 1130.0, arm="spec"), [*scraped(), *later], clock=CLOCK)
    assert [minute for minute, _ in told(tmp_path, LENGTH, "spec")] == [2, 4]
    assert [figures.number for figures in found(tmp_path)] == [0, 3]


# whole rounds


ROUNDS = {
    "by the clock": {"plan": PlanTotals(requests=None, requests_per_round=2), "duration_s": 60.0}
}
ROUNDS["llmperf"] = {"plan": PlanTotals(requests=20), "rounds": 2, "generator": "llmperf"}
ROUNDS["no count of a round"] = {"plan": PlanTotals(requests=4), "rounds": 2}
ROUNDS["no count at all"] = {"plan": PlanTotals(requests=None), "rounds": 0, "duration_s": 60.0}


@pytest.mark.parametrize(
    ("kind", "sizes", "reason", "complete"),
    [
        ("by the clock", (2, 1), None, [True, False]),
        ("by the clock", (2, 1), "duration", [True, True]),
        ("by the clock", (1, 1), "duration", [False, True]),
        ("llmperf", (1, 1), None, [True, False]),
        ("no count of a round", (1, 2), "done", [False, True]),
        ("no count at all", (1, 1), "interrupted", [True, False]),
    ],
)
def test_a_round_is_complete_with_its_last_planned_request(tmp_path, kind, sizes, reason, complete):
    records = [
        record(request_id=f"r-{number}-{n}", round=number)
        for number, size in enumerate(sizes)
        for n in range(size)
    ]
    end = RunEnd(reason=reason, utc="2026-11-21T01:00:00Z") if reason else None

    write_run(tmp_path, records, ended=end, **ROUNDS[kind])

    assert [figures.is_complete for figures in found(tmp_path)] == complete


CUT = failed(request_id="r-1", error="interrupted")


@pytest.mark.parametrize(
    ("more", "complete"),
    [
        ([CUT], False),
        ([CUT, record(request_id="r-1~2", attempts=2)], True),
        ([failed(request_id="r-1")], True),
        ([record()], False),
    ],
    ids=["cut", "asked again", "failed", "twice"],
)
def test_a_round_is_complete_without_interrupted_requests(tmp_path, more, complete):
    write_run(tmp_path, [record(), *more], plan=PlanTotals(requests=2, requests_per_round=2))
    assert [figures.is_complete for figures in found(tmp_path)] == [complete]


# the lines of a round


def test_every_line_belongs_to_one_round(tmp_path):
    numbers = [0, 1, 1, 0, 2, 1]
    write_run(tmp_path, [record(request_id=f"r-{n}", round=n) for n in numbers])
    text = (tmp_path / "records.jsonl").read_bytes()

    lines = [
        (figures.number, line)
        for figures in found(tmp_path)
        for first, end in figures.ranges
        for line in text[first:end].splitlines(keepends=True)
    ]

    assert sorted(line for _, line in lines) == sorted(text.splitlines(keepends=True))
    assert all(msgspec.json.decode(line)["round"] == number for number, line in lines)
