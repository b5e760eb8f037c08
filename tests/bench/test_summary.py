"""From records and counters to cells, counts and notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from measured import arm, chunks, failed, record, run_manifest, write_run

from tandem.bench import manifest, summary
from tandem.bench.counters import MetricsScrape
from tandem.bench.manifest import PlanTotals, RunEnd, Speculation
from tandem.bench.record import RequestRecord
from tandem.bench.summary import RecordSummary, SummaryCell
from tandem.errors import InputError

SYSTEM = "system_output_tokens_per_s"
Records = list[RequestRecord]


def summarized(
    folder: Path, records: Records, scrapes: list[MetricsScrape] | None = None, **changes: Any
) -> RecordSummary:
    return summary.summarize_run(write_run(folder, records, scrapes, **changes))


def cell(found: RecordSummary, metric: str, arm_: str = "base", class_: str = "repeat") -> SummaryCell | None:
    cells = [one for one in found.cells if (one.metric, one.arm, one.class_) == (metric, arm_, class_)]
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


def test_a_cell_has_the_quantiles_of_its_requests(tmp_path: Path) -> None:
    found = cell(summarized(tmp_path, [lasting(seconds) for seconds in (0.1, 0.2, 0.4, 0.8)]), "ttft_ms")

    assert found == SummaryCell(
        class_="repeat", concurrency=4, rate_per_s=None, metric="ttft_ms", arm="base", n=4,
        p50=300.0, p90=680.0, p99=788.0, mean=375.0, unit="ms",
    )  # fmt: skip


def test_arms_classes_and_loads_are_apart_and_class_all_pools_the_classes(tmp_path: Path) -> None:
    other = lasting(0.4, concurrency=None, rate_per_s=2.5, due_s=999.99)
    records = [lasting(0.1), lasting(0.3, class_="chat"), lasting(0.3, arm="spec"), lasting(0.5, concurrency=1), other]

    found = summarized(tmp_path, records)

    cells = {
        (one.arm, one.class_, one.concurrency, one.rate_per_s): one for one in found.cells if one.metric == "e2e_ms"
    }
    assert {place: (one.n, one.p50) for place, one in cells.items() if place[1] == "all"} == {
        ("base", "all", 4, None): (2, 200.0),
        ("spec", "all", 4, None): (1, 300.0),
        ("base", "all", 1, None): (1, 500.0),
        ("base", "all", None, 2.5): (1, 400.0),
    }
    assert cells["base", "chat", 4, None].n == 1
    assert cell(found, "schedule_delay_ms").p50 == 10.0


def test_gaps_are_pooled_over_the_chunks_of_all_requests(tmp_path: Path) -> None:
    quick = record(chunks=chunks((0.1, "text", 1), (0.11, "text", 1)), completion_tokens=2)
    slow = record(chunks=chunks((0.1, "text", 1), (0.13, "text", 1), (0.19, "text", 1)), completion_tokens=3)
    found = cell(summarized(tmp_path, [quick, slow]), "chunk_gap_ms")
    assert (found.n, found.p50, found.mean) == (3, 30.0, pytest.approx(100 / 3, abs=1e-6))


def test_failed_requests_are_counted_and_in_no_latency(tmp_path: Path) -> None:
    found = summarized(tmp_path, [lasting(0.1), failed(end_s=9.0), failed(error="status_503", class_="chat")])

    assert {one.n for one in found.cells if one.metric == "e2e_ms"} == {1}
    counts = [(one.class_, one.requests, one.succeeded, one.failed) for one in found.requests]
    assert counts == [("repeat", 2, 1, 1), ("chat", 1, 0, 1)]
    assert [(one.class_, one.word, one.n) for one in found.errors] == [
        ("repeat", "closed", 1),
        ("chat", "status_503", 1),
    ]


def test_words_of_the_content_check_and_retries_are_counted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(attempts=3), record(content="loop"), record(content="loop"), failed()])
    assert [(one.word, one.n) for one in found.content] == [("loop", 2), ("ok", 1)]
    assert [one.retried for one in found.requests] == [1]


def test_a_suspect_record_is_named_and_its_figures_are_left_out(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(completion_tokens=800), record(end_s=-1.0)])
    assert (cell(found, "tpot_ms").n, cell(found, "ttft_ms").n) == (1, 2)
    words = ("usage_differs_from_chunks", "time_runs_backwards", "chunk_after_end")
    assert {(one.word, one.n) for one in found.suspects} == {(word, 1) for word in words}


def test_answers_without_usage_lack_what_needs_it(tmp_path: Path) -> None:
    found = summarized(tmp_path, [SILENT, SILENT])
    assert cell(found, "ttft_ms").n == 2
    assert {cell(found, name) for name in ("tpot_ms", "output_tokens_per_s", SYSTEM, "tpot_exact_ms")} == {None}


# records, changes of the manifest, what a note says
NOTES: dict[str, tuple[Records, dict[str, Any], str]] = {
    "failed": ([record(), failed()], {}, "base: failed with closed: 1 of 2 requests; in no latency"),
    "content": ([record(), record(content="loop")], {}, "base: content is loop: 1 of 2 answers; their times are"),
    "retries": ([record(), record(attempts=3)], {}, "base: asked more than once: 1 of 2 requests"),
    "suspect": ([record(completion_tokens=800)], {}, "suspect, usage_differs_from_chunks: 1 of 1 records; the tokens"),
    "above max_tokens": (
        [record(), record(max_tokens=7)],
        {},
        "base: suspect, usage_above_max_tokens: 1 of 2 records; the server counted more tokens than the request",
    ),
    "no reason": (
        [record(), record(finish_reason=None)],
        {},
        "base: suspect, end_without_reason: 1 of 2 records; the stream ended with [DONE] and without a finish_reason",
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
    "no usage": ([SILENT, SILENT], {}, "base: without usage: 2 of 2 answers"),
    "no exact TPOT": ([record(chunks=SILENT.chunks)], {}, "its chunks do not say how many tokens they hold"),
    "one token": ([record(), SHORT], {}, "base: fewer than 2 tokens, and so no TPOT: 1 of 2 answers"),
    "unknown length": (
        [at(1.0, 1.0), at(2.0, 1.0, completion_tokens=None)],
        {},
        "turns in which a request has no usable figure (turns: 1)",
    ),
    "no limits": ([record()], {}, "goodput_per_s is absent: no limits were stated"),
    "early end": ([record()], {"ended": RunEnd(reason="interrupted", utc="2026")}, "the run ended early: interrupted"),
    "no end": ([record()], {"ended": None}, "the run has not ended"),
    "missing requests": ([record()], {"plan": PlanTotals(requests=8)}, "1 of 8 planned requests are recorded"),
    "own notes": ([record()], {"notes": ("the host was busy",)}, "the host was busy"),
    "stranger": ([record(arm="stranger")], {}, "the manifest names no arm stranger"),
    "twice": ([record(), record(), record(request_id="r-1")], {}, "records that repeat a request_id: 1;"),
    "llmperf": ([record(generator="llmperf", completion_tokens=None)], {}, "records of llmperf: 1;"),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_a_reader_must_know_is_noted(tmp_path: Path, case: str) -> None:
    records, changes, note = NOTES[case]
    assert any(note in line for line in summarized(tmp_path, records, **changes).notes)


# records, changes of the manifest; n, median and mean of the throughput of `base`
BUSY: dict[str, tuple[Records, tuple[int, float, float]]] = {
    "overlapping, and after a pause": ([at(100.0, 2.0), at(101.0, 2.0), at(500.0, 1.0)], (1, 7.5, 7.5)),
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
def test_system_throughput_is_all_tokens_over_the_time_in_which_a_request_ran(tmp_path: Path, case: str) -> None:
    records, figures = BUSY[case]

    found = summarized(tmp_path, [*records, at(100.0, 2.0, arm="pair"), at(100.0, 2.0, arm="pair", class_="chat")])

    cells = [cell(found, SYSTEM), cell(found, SYSTEM, "pair"), cell(found, SYSTEM, "pair", "all")]
    assert (cells[0].n, cells[0].p50, cells[0].mean) == figures
    assert [one.mean for one in cells[1:]] == [5.0, 10.0]  # of all classes: by the turn's time, not their sum


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
def test_goodput_counts_requests_within_every_limit(
    tmp_path: Path, records: Records, limits: dict[str, float] | None, mean: float | None
) -> None:
    found = cell(summarized(tmp_path, records, goodput=limits), "goodput_per_s")
    assert (found and found.mean) == mean


def test_a_limit_on_what_is_no_figure_of_a_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="limit on chunk_gap_ms, which is no figure of a request; limit one of e2e_ms"):
        summarized(tmp_path, [record()], goodput={"chunk_gap_ms": 30.0})


FLAT = {"generation_tokens": 100.0, "first_tokens": 10.0, "decode_steps": 30.0, "drafts": 0.0}
LONGER = FLAT | {"generation_tokens": 310.0, "decode_steps": 60.0}
SPEC = record(arm="spec")


def turn(counters: dict[str, float], **changes: Any) -> list[MetricsScrape]:
    stated = {"at_s": 1.0, "arm": "spec", "class_": "repeat", "concurrency": 4, **changes}
    zero = dict.fromkeys(counters, 0.0)
    pair = (("before", zero), ("after", counters))
    return [MetricsScrape(**stated, when=when, counters=page) for when, page in pair]


def test_acceptance_spreads_over_turns_and_its_mean_is_the_ratio_of_the_sums(tmp_path: Path) -> None:
    found = summarized(tmp_path, [SPEC], [*turn(FLAT), *turn(LONGER, round=1)])
    length = cell(found, "acceptance_length", "spec")
    assert (length.n, length.p50, length.mean) == (2, (3 + 5) / 2, pytest.approx(390 / 90, abs=1e-6))
    assert "spec: acceptance_length is derived from its steps, because it counts no drafts (turns: 2)" in found.notes


@pytest.mark.parametrize("class_", ["chat", None])
def test_acceptance_of_all_classes_is_the_ratio_over_all_turns(tmp_path: Path, class_: str | None) -> None:
    found = summarized(tmp_path, [SPEC], [*turn(FLAT, class_=class_), *turn(LONGER, class_=class_, round=1)])
    assert cell(found, "acceptance_length", "spec", "all").mean == pytest.approx(390 / 90, abs=1e-6)
    classes = {one.class_ for one in found.cells if one.metric == "acceptance_length"}
    assert classes == {class_ or "all", "all"}


def test_an_arm_known_to_be_plain_has_one_step_a_token_and_no_acceptance(tmp_path: Path) -> None:
    plain = {"generation_tokens": 100.0, "first_tokens": 10.0, "decode_steps": 90.0}
    arms = (arm("base", speculation=Speculation(method=None)),)

    found = summarized(tmp_path, [record()], turn(plain, arm="base"), arms=arms)

    assert cell(found, "target_steps_per_token").p50 == 1.0
    assert cell(found, "acceptance_length") is None
    assert "base: acceptance_length is absent: it does not speculate (turns: 1)" in found.notes


def test_a_turn_in_which_the_server_restarted_is_named_and_dropped(tmp_path: Path) -> None:
    before, after = turn(FLAT)
    fallen = [msgspec.structs.replace(before, counters=FLAT), msgspec.structs.replace(after, counters=before.counters)]

    found = summarized(tmp_path, [SPEC], fallen)

    assert cell(found, "acceptance_length", "spec") is None
    assert any("the server restarted between the two scrapes" in note for note in found.notes)


@pytest.mark.parametrize(
    ("records", "tokens", "note"),
    [
        ([SPEC], 100.0, "its counters hold more tokens than the records: another client"),
        ([SPEC], 7.0, "its usage counts too many"),
        ([SPEC], 8.0, ""),
        ([SPEC, record(arm="spec", completion_tokens=None)], 100.0, ""),
        ([record(), SPEC], 8.0, "base: acceptance_length and target_steps_per_token are absent: no turn has its"),
    ],
    ids=["another client", "too much usage", "alike", "an answer without usage", "no counters"],
)
def test_counters_are_held_against_the_records(tmp_path: Path, records: Records, tokens: float, note: str) -> None:
    found = summarized(tmp_path, records, turn(FLAT | {"generation_tokens": tokens, "decode_steps": 2.0}))
    assert [note in line for line in found.notes if "counters" in line or "usage counts" in line] == [True] * bool(note)


def test_every_metric_with_a_cell_is_defined_and_no_other(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), SPEC], turn(FLAT))
    assert [one.name for one in found.metrics] == list(dict.fromkeys(one.name for one in found.metrics))
    assert {one.name for one in found.metrics} == {one.metric for one in found.cells}
    assert all(one.definition and one.unit for one in found.metrics)


def test_cells_follow_the_manifest_class_then_load_then_metric_with_arms_side_by_side(tmp_path: Path) -> None:
    records = [record(arm=arm_, class_=class_) for class_ in ("chat", "repeat") for arm_ in ("spec", "base")]

    found = summarized(tmp_path, [*records, record(class_="new"), record(arm="stranger")])

    assert list(dict.fromkeys(one.class_ for one in found.cells)) == ["repeat", "chat", "new", "all"]
    assert [one.arm for one in found.cells[:4]] == ["base", "spec", "stranger", "base"]
    assert [one.metric for one in found.cells[:4:3]] == ["e2e_ms", "tpot_ms"]
    assert found.arms == ("base", "spec", "stranger")


def test_the_summary_is_written_and_recomputed_never_read(tmp_path: Path) -> None:
    written = summary.write_summary(write_run(tmp_path, [record()]))
    on_disk = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text("{}")

    assert on_disk == json.loads(msgspec.json.encode(written))
    assert set(on_disk["cells"][0]) == {
        *("class", "concurrency", "rate_per_s", "metric", "arm", "n", "p50", "p90", "p99", "mean", "unit")
    }
    assert summary.write_summary(tmp_path) == written


def test_records_of_llmperf_give_their_ends_and_a_run_without_records_gives_nothing(tmp_path: Path) -> None:
    theirs = record(generator="llmperf", completion_tokens=None, chunks=chunks((0.2, "text")))
    found, empty = summarized(tmp_path / "llmperf", [theirs]), summarized(tmp_path / "empty", [])
    assert {one.metric for one in found.cells} == {"ttft_ms", "e2e_ms", "prompt_tokens"}
    assert (empty.cells, empty.requests, empty.records) == ((), (), 0)


@pytest.mark.parametrize("cut", [1, 9])
def test_a_torn_last_line_is_a_note(tmp_path: Path, cut: int) -> None:
    path = write_run(tmp_path, [record(), record(request_id="r-1")]) / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])

    found = summary.summarize_run(tmp_path)

    assert found.records == 1
    assert any(note.startswith("records.jsonl:2: the last line is torn after ") for note in found.notes)


@pytest.mark.parametrize("missing", ["manifest.json", "records.jsonl"])
def test_a_folder_without_a_file_is_refused_by_the_files_name(tmp_path: Path, missing: str) -> None:
    (write_run(tmp_path, [record()]) / missing).unlink()
    with pytest.raises(InputError, match=missing):
        summary.summarize_run(tmp_path)


@pytest.mark.parametrize("schema", [1, 9])
def test_a_manifest_of_another_schema_is_refused(tmp_path: Path, schema: int) -> None:
    manifest.write_manifest(tmp_path, run_manifest(schema=schema))
    with pytest.raises(InputError, match=f"schema {schema}; this version of Tandem reads schema 2; use the version"):
        manifest.read_manifest(tmp_path)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    entries = {"base": manifest.WarmUpEntry(requests=3)}
    written = run_manifest(goodput={"ttft_ms": 500.0}, thinking=False, warm_up=entries)
    manifest.write_manifest(tmp_path, written)
    assert manifest.read_manifest(tmp_path) == written
