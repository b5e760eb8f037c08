"""What is published of a folder: the summary's own values, at the right minute, round by round."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from measured import chunks, failed, record, run_manifest, write_run
from running import Ran, measure, until

from tandem.bench import datapoints, manifest, summary
from tandem.bench.counters import MetricsScrape
from tandem.bench.datapoints import DatapointRow, RoundDatapoints
from tandem.bench.fault import BenchError
from tandem.bench.manifest import ClockReading, PlanTotals, RunEnd
from tandem.bench.quantiles import compute_spread
from tandem.bench.record import RequestRecord, read_records
from tandem.metrics import list_published_metrics

ROOT = Path(__file__).parent
UTC = 1_795_219_200  # 2026-11-21T00:00:00Z
CLOCK = ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1000.0, utc="2026-11-21T00:00:00Z")
PUBLISHED = {one.name for one in list_published_metrics()}
Cell = tuple[str, str, int | None, float | None, str]


def found(folder: Path) -> list[RoundDatapoints]:
    return list(datapoints.read_rounds(folder))


def rows(folder: Path, metric: str, **wanted: object) -> list[DatapointRow]:
    """All rows of a metric, of one class unless another is wanted."""
    asked = {"class_": "repeat", "all_loads": False} | wanted
    return [
        row
        for one in found(folder)
        for row in one.rows
        if row.metric == metric and all(getattr(row, name) == value for name, value in asked.items())
    ]


def told(found_rows: Sequence[DatapointRow]) -> list[tuple[int, list[float]]]:
    """Minute after the clock's moment, and values."""
    return [((row.at_s - UTC) // 60, row.values.tolist()) for row in found_rows]


def pooled(folder: Path) -> dict[Cell, list[float]]:
    """All values of each cell over all rounds and minutes."""
    values: dict[Cell, list[float]] = defaultdict(list)
    for one in found(folder):
        for row in one.rows:
            if not row.all_loads:
                values[row.arm, row.class_, row.concurrency, row.rate_per_s, row.metric] += row.values.tolist()
    return values


def assert_like_the_summary(folder: Path) -> None:
    """Every published cell has the summary's number of values and quantiles, and there is no other."""
    said, got = summary.summarize_run(folder), pooled(folder)
    cells = {
        (one.arm, one.class_, one.concurrency, one.rate_per_s, one.metric): (one.n, one.p50, one.p90, one.p99)
        for one in said.cells
        if one.metric in PUBLISHED
    }
    across = {
        cell: compute_spread(np.array(values)) for cell, values in got.items() if not cell[-1].endswith("requests")
    }  # fmt: skip
    assert {cell: (one.n, *(round(value, 6) for value in one[1:4])) for cell, one in across.items() if one} == cells
    counts = {
        (one.arm, one.class_, one.concurrency, one.rate_per_s, name): value
        for one in said.requests
        for name, value in (("requests", one.requests), ("failed_requests", one.failed))
    }
    of_classes = {cell: sum(values) for cell, values in got.items() if cell[-1].endswith("requests")}
    assert {cell: value for cell, value in of_classes.items() if cell[1] != "all"} == counts
    for (arm_, class_, *load, name), value in of_classes.items():
        if class_ == "all":
            assert value == sum(of for key, of in counts.items() if (key[0], *key[2:]) == (arm_, *load, name))


# the summary's own values


LIVE = ("generation_tokens", "first_tokens", "decode_steps", "drafts", "draft_tokens", "accepted_tokens")


def drawn_folder(folder: Path, seed: int, **changes: Any) -> Path:
    """Any run: rounds, slots, classes, loads, failures, contradictions and counters as they come."""
    drawn = random.Random(seed)  # noqa: S311 - a draw that can be repeated
    records, scrapes = [], []
    for number in range(drawn.randint(1, 4)):
        for class_ in ("repeat", "chat"):
            for concurrency, rate in drawn.sample([(1, None), (4, None), (None, 2.5)], 2):
                for slot, arm_ in enumerate(drawn.sample(["base", "spec"], 2)):
                    turn = {
                        "arm": arm_, "class_": class_, "concurrency": concurrency, "rate_per_s": rate,
                        "round": number, "slot": slot,
                    }  # fmt: skip
                    records += [drawn_record(drawn, len(records) + n, **turn) for n in range(drawn.randint(1, 5))]
                    scrapes += drawn_scrapes(drawn, **turn)
    if drawn.random() < 0.5:
        drawn.shuffle(records)
    stated = {"clock": CLOCK, "goodput": {"ttft_ms": 250.0} if seed % 2 else None}
    return write_run(folder, records, scrapes, **(stated | changes))


def drawn_record(drawn: random.Random, number: int, **turn: Any) -> RequestRecord:
    stated = {"request_id": f"r-{number}", "start_s": 1000.0 + drawn.uniform(0, 300), **turn}
    first = drawn.uniform(0.05, 0.4)
    later = [first + step * drawn.uniform(0.01, 0.05) for step in range(1, drawn.randint(2, 6))]
    stream = chunks(*((at_s, "text", 2) for at_s in (first, *sorted(later))))
    kind = drawn.random()
    if kind < 0.15:
        return failed(**stated)
    if kind < 0.25:
        return record(**stated, completion_tokens=1)  # fewer than chunks: a suspect
    return record(**stated, chunks=stream, headers_s=0.01, end_s=1.0, completion_tokens=2 * len(stream))


def scraped(**turn: Any) -> list[MetricsScrape]:
    """Counters of one turn of an arm that speculates."""
    stated = {"arm": "spec", "class_": "repeat", "concurrency": 4, "rate_per_s": None, **turn}
    return list(drawn_scrapes(random.Random(1), **stated))  # noqa: S311


def drawn_scrapes(drawn: random.Random, **turn: Any) -> Iterator[MetricsScrape]:
    steps = drawn.randint(10, 90)
    counts = (steps + 40.0, 5.0, float(steps), float(steps), 7.0 * steps, float(drawn.randint(0, 7 * steps)))
    for when, factor in (("before", 0.0), ("after", 1.0)):
        counters = dict(zip(LIVE, (factor * one for one in counts), strict=True))
        yield MetricsScrape(at_s=1000.0, when=when, counters=counters, **turn)


SEEDS = [pytest.param(seed, marks=[] if seed in {0, 1, 6, 11} else [pytest.mark.proof]) for seed in range(12)]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_values_of_a_cell_are_those_of_the_summary(tmp_path: Path, seed: int) -> None:
    assert_like_the_summary(drawn_folder(tmp_path, seed))


RECORDED = sorted(path.parent for path in (ROOT / "llmperf_runs").rglob("records.jsonl"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda path: str(path.relative_to(ROOT / "llmperf_runs")))
def test_a_recorded_run_and_one_of_llmperf_are_published_as_summarized(folder: Path) -> None:
    assert_like_the_summary(folder)


PROMPTS = {"code": ["a", "b", '#schedule {"fault": "drop", "fault_at": 1}', "d"], "chat": ["e", "f"]}


def _interrupted(folder: Path, **asked: Any) -> Ran:
    async def meanwhile(servers, run):
        await until(lambda: any(".r1." in truth["request_id"] for server in servers for truth in server.posted))
        run.stop.request("interrupted", grace_s=0)

    return measure(folder, PROMPTS, rounds=3, meanwhile=meanwhile, **asked)


def _resumed(folder: Path) -> Ran:
    first = _interrupted(folder)
    return measure(folder, PROMPTS, rounds=3, resume=True, at=[server.port for server in first.servers])


RUNS = {
    "interleaved": lambda folder: measure(folder, PROMPTS, rounds=2, concurrency=(1, 2)),
    "simultaneous": lambda folder: measure(folder, PROMPTS, rounds=2, schedule="simultaneous"),
    "mixed": lambda folder: measure(folder, PROMPTS, rounds=2, mixes_classes=True),
    "open loop": lambda folder: measure(folder, PROMPTS, concurrency=None, rate_per_s=80.0),
    "goodput": lambda folder: measure(folder, PROMPTS, rounds=2, goodput={"ttft_ms": 5.0, "tpot_ms": 1.5}),
    "by the clock": lambda folder: measure(folder, PROMPTS, rounds=None, duration_s=0.3),
    "interrupted": _interrupted,
    "resumed": _resumed,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Each kind of run, made once where it is asked for."""
    known: dict[str, Ran] = {}

    def make(kind: str) -> Ran:
        if kind not in known:
            known[kind] = RUNS[kind](tmp_path_factory.mktemp("points"))
        return known[kind]

    return make


@pytest.mark.xdist_group("bench-run")
@pytest.mark.parametrize("kind", RUNS)
def test_a_measured_run_is_published_as_summarized_and_only_a_cut_round_is_not_complete(made, kind) -> None:
    assert_like_the_summary(made(kind).folder)
    *before, last = (one.is_complete for one in found(made(kind).folder))
    assert all(before)
    assert last is (kind != "interrupted")


@pytest.mark.xdist_group("bench-run")
def test_a_run_is_published_at_the_minutes_in_which_it_ran(made) -> None:
    ran = made("interleaved")
    began, ended = (manifest.parse_moment(ran.manifest[key]["utc"]).timestamp() for key in ("clock", "ended"))
    minutes = {row.at_s for one in found(ran.folder) for row in one.rows}
    assert all(minute % 60 == 0 and began - 60 < minute <= ended for minute in minutes)


# classes and loads that are pooled


def test_all_loads_together_count_requests_and_hold_the_acceptance_of_every_turn(tmp_path: Path) -> None:
    drawn_folder(tmp_path, 2)
    asked = [one.arm for one in read_records(tmp_path / "records.jsonl")]
    together = [row for one in found(tmp_path) for row in one.rows if row.all_loads]

    assert {row.metric for row in together} == {"requests", "failed_requests", "acceptance_length"}
    assert {(row.class_, row.concurrency, row.rate_per_s) for row in together} == {("all", None, None)}
    for arm_ in ("base", "spec"):
        assert sum(row.values.sum() for row in together if (row.arm, row.metric) == (arm_, "requests")) == asked.count(
            arm_
        )
    apart = rows(tmp_path, "acceptance_length", class_="all")
    assert sorted(value for row in together if row.metric == "acceptance_length" for value in row.values) == sorted(
        value for row in apart for value in row.values
    )


def test_acceptance_of_a_turn_that_mixes_classes_stands_under_class_all(tmp_path: Path) -> None:
    mixed = [record(arm="spec", start_s=1130.0), record(arm="spec", class_="chat", start_s=1070.0)]
    write_run(tmp_path, mixed, scraped(class_=None), clock=CLOCK, mixed=True)

    stands = [row for one in found(tmp_path) for row in one.rows if row.metric == "acceptance_length"]
    assert [(row.class_, row.concurrency, row.all_loads, (row.at_s - UTC) // 60) for row in stands] == [
        ("all", 4, False, 1), ("all", None, True, 1),
    ]  # fmt: skip
    assert_like_the_summary(tmp_path)


def test_a_cell_counts_its_failures_and_without_an_answer_has_no_latency(tmp_path: Path) -> None:
    write_run(tmp_path / "good", [record(), record(request_id="r-1")], clock=CLOCK)
    write_run(tmp_path / "bad", [failed()], clock=CLOCK)

    assert told(rows(tmp_path / "good", "failed_requests")) == [(0, [0.0])]
    assert told(rows(tmp_path / "good", "requests")) == [(0, [2.0])]
    assert {row.metric: row.values.tolist() for one in found(tmp_path / "bad") for row in one.rows} == {
        "requests": [1.0], "failed_requests": [1.0], "system_output_tokens_per_s": [0.0],
    }  # fmt: skip


def test_what_is_published_is_given_and_finite_and_class_all_has_the_values_of_every_class(tmp_path: Path) -> None:
    drawn_folder(tmp_path, 5)
    every = [row for one in found(tmp_path) for row in one.rows]

    assert {row.metric for row in every} == PUBLISHED - {"unpublished_rounds"}
    assert all(len(row.values) and np.isfinite(row.values).all() for row in every)
    by_class = Counter()
    for row in every:
        by_class[row.class_] += len(row.values) if row.metric == "e2e_ms" else 0
    assert by_class["all"] == by_class["repeat"] + by_class["chat"] > 0


# minutes


def starting(*starts: float, **changes: Any) -> list[RequestRecord]:
    return [record(request_id=f"r-{number}", start_s=at, **changes) for number, at in enumerate(starts)]


def test_a_value_and_its_gaps_stand_in_the_minute_in_which_their_request_began_and_a_turns_at_its_first(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, starting(1059.9, 1000.0, 1060.0, 1130.0), clock=CLOCK)
    assert told(rows(tmp_path, "ttft_ms")) == [(0, [200.0, 200.0]), (1, [200.0]), (2, [200.0])]
    assert [(minute, len(gaps)) for minute, gaps in told(rows(tmp_path, "chunk_gap_ms"))] == [(0, 4), (1, 2), (2, 2)]
    assert [minute for minute, _ in told(rows(tmp_path, "system_output_tokens_per_s"))] == [0]


def test_a_count_stands_in_the_minute_in_which_its_cells_first_request_began(tmp_path: Path) -> None:
    write_run(tmp_path, [*starting(1070.0, 1130.0), record(class_="chat", start_s=1010.0)], clock=CLOCK)
    assert told(rows(tmp_path, "requests")) == [(1, [2.0])]
    assert told(rows(tmp_path, "requests", class_="all")) == [(0, [3.0])]
    assert told(rows(tmp_path, "requests", class_="all", all_loads=True)) == [(0, [3.0])]


def test_acceptance_stands_where_its_turns_first_request_began_or_else_its_counters_were_read(tmp_path: Path) -> None:
    later = [msgspec.structs.replace(one, at_s=1250.0) for one in scraped(round=3)]
    write_run(tmp_path, starting(1190.0, 1130.0, arm="spec"), [*scraped(), *later], clock=CLOCK)
    assert [minute for minute, _ in told(rows(tmp_path, "acceptance_length", arm="spec"))] == [2, 4]
    assert [one.number for one in found(tmp_path)] == [0, 3]


def test_minutes_are_those_of_the_calendar_by_the_clock_that_was_read_last(tmp_path: Path) -> None:
    first, second = (
        ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=at_s, utc=utc)
        for at_s, utc in ((5.0, "2026-11-21T00:00:30.5+00:00"), (100.0, "2026-11-21T02:00:00Z"))
    )
    # the long answer began before the one that ended first, and is no reboot
    before = [*starting(5.0, 34.4, 154.6), record(start_s=34.6, end_s=150.0), *starting(185.6)]

    write_run(tmp_path, [*before, *starting(105.0, 1000.0)], clock=first, resumed=(second,))

    counts = [(minute, len(values)) for minute, values in told(rows(tmp_path, "ttft_ms"))]
    assert counts == [(0, 2), (1, 1), (3, 2), (120, 1), (135, 1)]


# whole rounds


ROUNDS = {"by the clock": {"plan": PlanTotals(requests=None, requests_per_round=2), "duration_s": 60.0}}
ROUNDS["of before"] = {"plan": PlanTotals(requests=4), "rounds": 2}
ROUNDS["llmperf"] = {"plan": PlanTotals(requests=20), "rounds": 2, "generator": "llmperf"}


@pytest.mark.parametrize(
    ("kind", "sizes", "reason", "complete"),
    [
        ("by the clock", (2, 1), None, [True, False]),
        ("by the clock", (2, 1), "interrupted", [True, False]),
        ("by the clock", (2, 1), "duration", [True, True]),
        ("by the clock", (1, 1), "duration", [False, True]),
        ("of before", (2, 1), None, [True, False]),
        ("llmperf", (1, 1), None, [True, False]),
        ("llmperf", (1, 1), "failed", [True, True]),
    ],
)
def test_a_round_is_complete_with_its_last_planned_request_or_once_the_clock_or_llmperf_ended(
    tmp_path: Path, kind: str, sizes: tuple[int, int], reason: Any, complete: list[bool]
) -> None:
    asked = [
        record(request_id=f"r-{number}-{n}", round=number) for number, size in enumerate(sizes) for n in range(size)
    ]
    ended = RunEnd(reason=reason, utc="2026-11-21T01:00:00Z") if reason else None

    write_run(tmp_path, asked, ended=ended, **ROUNDS[kind])

    assert [one.is_complete for one in found(tmp_path)] == complete


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
def test_a_round_is_complete_with_every_request_that_no_interrupt_cut(
    tmp_path: Path, more: list[RequestRecord], complete: bool
) -> None:
    write_run(tmp_path, [record(), *more], plan=PlanTotals(requests=2, requests_per_round=2))
    assert [one.is_complete for one in found(tmp_path)] == [complete]


# the lines of a round


def test_a_round_that_is_not_wanted_is_left_out_and_lines_that_follow_each_other_are_one_range(tmp_path: Path) -> None:
    write_run(tmp_path, [record(round=number // 2, request_id=f"r-{number}") for number in range(6)])
    wanted = list(datapoints.read_rounds(tmp_path, skip_numbers={0}))
    assert [(one.number, len(one.ranges)) for one in wanted] == [(1, 1), (2, 1)]


def test_every_line_belongs_to_one_round(tmp_path: Path) -> None:
    drawn_folder(tmp_path, 6)
    text = (tmp_path / "records.jsonl").read_bytes()

    lines = [
        (one.number, line)
        for one in found(tmp_path)
        for first, end in one.ranges
        for line in text[first:end].splitlines(keepends=True)
    ]

    assert sorted(line for _, line in lines) == sorted(text.splitlines(keepends=True))
    assert all(msgspec.json.decode(line)["round"] == number for number, line in lines)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_torn_last_line_is_in_no_round(tmp_path: Path, cut: int) -> None:
    write_run(tmp_path, starting(1000.0, 1001.0), clock=CLOCK)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])

    assert told(rows(tmp_path, "requests")) == [(0, [1.0])]
    ((first, end),) = found(tmp_path)[0].ranges
    assert path.read_bytes()[first:end].count(b"\n") == 1


def test_a_bad_line_missing_records_and_a_limit_that_no_request_has_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, [record()], goodput={"chunk_gap_ms": 5.0})
    with pytest.raises(BenchError, match="goodput has a limit on chunk_gap_ms"):
        found(tmp_path)

    manifest.write_manifest(tmp_path, run_manifest())
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes() + b"{oh no\n")
    with pytest.raises(BenchError, match=r"records\.jsonl:2"):
        found(tmp_path)

    path.unlink()
    with pytest.raises(BenchError, match="the records cannot be read"):
        found(tmp_path)
