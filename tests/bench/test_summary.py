from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from measured import arm, chunks, failed, record, run_manifest, write_run

from tandem.bench import manifest, summary
from tandem.bench.counters import MetricsScrape
from tandem.bench.fault import BenchError
from tandem.bench.manifest import PlanTotals, RunEnd, Speculation
from tandem.bench.record import RequestRecord
from tandem.bench.summary import RecordSummary, SummaryCell


def summarized(
    folder: Path, records: list[RequestRecord], scrapes: list[MetricsScrape] | None = None, **changes: object
) -> RecordSummary:
    return summary.summarize_run(write_run(folder, records, scrapes, **changes))


def cell(found: RecordSummary, metric: str, arm_: str = "base", class_: str = "repeat") -> SummaryCell | None:
    cells = [one for one in found.cells if (one.metric, one.arm, one.class_) == (metric, arm_, class_)]
    assert len(cells) <= 1
    return cells[0] if cells else None


def lasting(seconds: float, **changes: object) -> RequestRecord:
    """A request whose first and only chunk comes after so long, with 10 tokens."""
    stream = chunks((seconds, "text", 10))
    return record(**{"chunks": stream, "end_s": seconds, "completion_tokens": 10, **changes})


def at(start_s: float, seconds: float, **changes: object) -> RequestRecord:
    return lasting(seconds, start_s=start_s, **changes)


def test_a_cell_has_the_quantiles_of_its_requests(tmp_path: Path) -> None:
    found = cell(summarized(tmp_path, [lasting(seconds) for seconds in (0.1, 0.2, 0.4, 0.8)]), "ttft_ms")

    assert found == SummaryCell(
        class_="repeat", concurrency=4, rate_per_s=None, metric="ttft_ms", arm="base", n=4,
        p50=300.0, p90=680.0, p99=788.0, mean=375.0, unit="ms",
    )  # fmt: skip


def test_class_all_pools_the_requests_of_every_class(tmp_path: Path) -> None:
    found = summarized(tmp_path, [lasting(0.1), lasting(0.3), lasting(0.2, class_="chat")])

    assert cell(found, "e2e_ms", class_="all").p50 == 200.0
    assert (cell(found, "e2e_ms").n, cell(found, "e2e_ms", class_="chat").n) == (2, 1)


def test_arms_and_concurrencies_are_never_mixed(tmp_path: Path) -> None:
    found = summarized(tmp_path, [lasting(0.1), lasting(0.3, arm="spec"), lasting(0.5, concurrency=1)])

    cells = {
        (one.arm, one.concurrency): one.p50 for one in found.cells if (one.class_, one.metric) == ("all", "e2e_ms")
    }
    assert cells == {("base", 4): 100.0, ("spec", 4): 300.0, ("base", 1): 500.0}


def test_gaps_are_pooled_over_the_chunks_of_all_requests(tmp_path: Path) -> None:
    quick = chunks((0.1, "text", 1), (0.11, "text", 1))
    slow = chunks((0.1, "text", 1), (0.13, "text", 1), (0.19, "text", 1))

    found = cell(
        summarized(tmp_path, [record(chunks=quick, completion_tokens=2), record(chunks=slow, completion_tokens=3)]),
        "chunk_gap_ms",
    )

    assert (found.n, found.p50, found.mean) == (3, 30.0, pytest.approx(100 / 3, abs=1e-6))


def test_failed_requests_are_counted_and_in_no_latency(tmp_path: Path) -> None:
    found = summarized(tmp_path, [lasting(0.1), failed(end_s=9.0), failed(error="status_503", class_="chat")])

    assert {one.n for one in found.cells if one.metric == "e2e_ms"} == {1}
    assert [(one.class_, one.requests, one.succeeded, one.failed) for one in found.requests] == [
        ("repeat", 2, 1, 1), ("chat", 1, 0, 1),
    ]  # fmt: skip
    assert [(one.class_, one.word, one.n) for one in found.errors] == [
        ("repeat", "closed", 1),
        ("chat", "status_503", 1),
    ]
    assert "base: failed with closed: 1 of 3 requests; in no latency" in found.notes


def test_words_of_the_content_check_are_counted_and_those_that_are_not_ok_are_noted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(content="loop"), record(content="loop"), failed()])

    assert [(one.word, one.n) for one in found.content] == [("loop", 2), ("ok", 1)]
    assert [note for note in found.notes if "content is" in note] == [
        "base: content is loop: 2 of 4 answers; their times are counted"
    ]


def test_retries_are_counted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(attempts=3)])

    assert [one.retried for one in found.requests] == [1]
    assert "base: asked more than once: 1 of 2 requests" in found.notes


def test_a_suspect_record_is_named_and_its_figures_are_left_out(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(completion_tokens=800), record(end_s=-1.0)])

    assert (cell(found, "tpot_ms").n, cell(found, "ttft_ms").n) == (1, 2)
    assert {(one.word, one.n) for one in found.suspects} == {
        ("usage_differs_from_chunks", 1), ("time_runs_backwards", 1), ("chunk_after_end", 1),
    }  # fmt: skip
    assert any(
        "suspect, usage_differs_from_chunks: 1 of 3 records; the tokens of the chunks" in note for note in found.notes
    )


def test_answers_without_usage_lack_what_needs_it_and_a_note_says_so(tmp_path: Path) -> None:
    silent = record(chunks=chunks((0.1, "text"), (0.2, "text")), completion_tokens=None)

    found = summarized(tmp_path, [silent, silent])

    assert cell(found, "ttft_ms").n == 2
    assert [cell(found, name) for name in ("tpot_ms", "output_tokens_per_s", "system_output_tokens_per_s")] == [
        None
    ] * 3
    assert any("base: without usage: 2 of 2 answers" in note for note in found.notes)


def test_an_absent_exact_tpot_is_explained(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(chunks=chunks((0.1, "text"), (0.2, "text")))])

    assert cell(found, "tpot_exact_ms") is None
    assert any("its chunks do not say how many tokens they hold" in note for note in found.notes)


def test_answers_of_one_token_are_noted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(chunks=chunks((0.2, "text", 1)), completion_tokens=1)])

    assert cell(found, "tpot_ms").n == 1
    assert "base: fewer than 2 tokens, and so no TPOT: 1 of 2 answers" in found.notes


def test_system_throughput_is_over_the_time_in_which_a_request_ran(tmp_path: Path) -> None:
    overlapping = [at(100.0, 2.0), at(101.0, 2.0)]  # 20 tokens in 3 s
    after_a_pause = [at(500.0, 1.0)]  # 10 tokens in 1 s

    found = cell(summarized(tmp_path, overlapping + after_a_pause), "system_output_tokens_per_s")

    assert (found.n, found.p50, found.mean) == (1, 7.5, 7.5)


def test_a_turn_of_the_other_arm_is_not_in_the_busy_time(tmp_path: Path) -> None:
    mine = [at(100.0, 1.0, slot=0), at(109.0, 1.0, slot=3)]
    theirs = [at(101.0, 4.0, arm="spec", slot=1), at(105.0, 4.0, arm="spec", slot=2)]

    found = summarized(tmp_path, mine + theirs)

    assert cell(found, "system_output_tokens_per_s").mean == 10.0
    assert cell(found, "system_output_tokens_per_s", "spec").mean == 2.5


def test_system_throughput_spreads_over_turns_and_its_mean_is_all_tokens_over_all_time(tmp_path: Path) -> None:
    found = cell(summarized(tmp_path, [at(100.0, 1.0, round=0), at(200.0, 4.0, round=1)]), "system_output_tokens_per_s")

    assert (found.n, found.p50, found.mean) == (2, (10 + 2.5) / 2, 20 / 5)


def test_the_busy_time_of_all_classes_is_that_of_the_turn_not_their_sum(tmp_path: Path) -> None:
    found = summarized(tmp_path, [at(100.0, 2.0), at(100.0, 2.0, class_="chat")])

    assert cell(found, "system_output_tokens_per_s", class_="chat").mean == 5.0
    assert cell(found, "system_output_tokens_per_s", class_="all").mean == 10.0


def test_the_time_of_failed_requests_counts_and_their_tokens_do_not(tmp_path: Path) -> None:
    found = cell(summarized(tmp_path, [at(100.0, 1.0), failed(start_s=101.0, end_s=4.0)]), "system_output_tokens_per_s")

    assert found.mean == 2.0


def test_a_turn_with_an_answer_of_unknown_length_is_left_out_of_the_throughput(tmp_path: Path) -> None:
    found = summarized(
        tmp_path, [at(100.0, 1.0), at(200.0, 1.0, round=1), at(201.0, 1.0, round=1, completion_tokens=None)]
    )

    assert (cell(found, "system_output_tokens_per_s").n, cell(found, "system_output_tokens_per_s").mean) == (1, 10.0)
    assert any("leaves out turns in which a request has no usable figure (1 turn)" in note for note in found.notes)


def test_goodput_counts_requests_within_every_limit(tmp_path: Path) -> None:
    records = [at(100.0, 1.0), at(100.0, 2.0), at(100.0, 4.0), failed(start_s=100.0, end_s=4.0)]

    found = summarized(tmp_path, records, goodput={"e2e_ms": 2000.0, "output_tokens_per_s": 5.0})

    assert cell(found, "goodput_per_s").mean == 2 / 4


def test_goodput_is_absent_without_limits_and_a_note_says_so(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record()])

    assert cell(found, "goodput_per_s") is None
    assert "goodput_per_s is absent: no limits were stated" in found.notes


def test_a_limit_on_a_figure_that_one_token_cannot_have_is_met(tmp_path: Path) -> None:
    single = record(chunks=chunks((0.2, "text", 1)), completion_tokens=1, end_s=0.5)

    assert cell(summarized(tmp_path, [single], goodput={"tpot_ms": 30.0}), "goodput_per_s").mean == 2.0


def test_goodput_is_absent_where_a_limit_needs_usage_and_there_is_none(tmp_path: Path) -> None:
    silent = record(chunks=chunks((0.1, "text"), (0.2, "text")), completion_tokens=None)

    assert cell(summarized(tmp_path, [silent], goodput={"tpot_ms": 30.0}), "goodput_per_s") is None


def test_a_limit_on_what_is_no_figure_of_a_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="limit on chunk_gap_ms, which is no figure of a request; limit one of e2e_ms"):
        summarized(tmp_path, [record()], goodput={"chunk_gap_ms": 30.0})


FLAT = {"generation_tokens": 100.0, "first_tokens": 10.0, "decode_steps": 30.0, "drafts": 0.0}


def turn(counters: dict[str, float], **changes: object) -> list[MetricsScrape]:
    stated = {"at_s": 1.0, "arm": "spec", "class_": "repeat", "concurrency": 4, **changes}
    zero = dict.fromkeys(counters, 0.0)
    return [
        MetricsScrape(**stated, when="before", counters=zero),
        MetricsScrape(**stated, when="after", counters=counters),
    ]


def test_acceptance_spreads_over_turns_and_its_mean_is_the_ratio_of_the_sums(tmp_path: Path) -> None:
    longer = {"generation_tokens": 310.0, "first_tokens": 10.0, "decode_steps": 60.0, "drafts": 0.0}

    found = summarized(tmp_path, [record(arm="spec")], [*turn(FLAT), *turn(longer, round=1)])

    length = cell(found, "acceptance_length", "spec")
    assert (length.n, length.p50, length.mean) == (2, (3 + 5) / 2, pytest.approx(390 / 90, abs=1e-6))
    assert "spec: acceptance_length is derived from its steps, because it counts no drafts (2 turns)" in found.notes


def test_acceptance_of_all_classes_is_the_ratio_over_all_turns(tmp_path: Path) -> None:
    other = {"generation_tokens": 310.0, "first_tokens": 10.0, "decode_steps": 60.0, "drafts": 0.0}

    found = summarized(tmp_path, [record(arm="spec")], [*turn(FLAT), *turn(other, class_="chat")])

    assert cell(found, "acceptance_length", "spec", "all").mean == pytest.approx(390 / 90, abs=1e-6)


def test_counters_of_a_turn_that_mixed_classes_stand_under_all(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(arm="spec")], turn(FLAT, class_=None))

    assert {one.class_ for one in found.cells if one.metric == "acceptance_length"} == {"all"}


def test_an_arm_known_to_be_plain_has_one_step_a_token_and_no_acceptance(tmp_path: Path) -> None:
    plain = {"generation_tokens": 100.0, "first_tokens": 10.0, "decode_steps": 90.0}

    found = summarized(
        tmp_path, [record()], turn(plain, arm="base"), arms=(arm("base", speculation=Speculation(method=None)),)
    )

    assert cell(found, "target_steps_per_token").p50 == 1.0
    assert cell(found, "acceptance_length") is None
    assert "base: acceptance_length is absent: it does not speculate (1 turn)" in found.notes


def test_a_turn_in_which_the_server_restarted_is_named_and_dropped(tmp_path: Path) -> None:
    before, after = turn(FLAT)
    fallen = [msgspec.structs.replace(before, counters=FLAT), msgspec.structs.replace(after, counters=before.counters)]

    found = summarized(tmp_path, [record(arm="spec")], fallen)

    assert cell(found, "acceptance_length", "spec") is None
    assert any("the server restarted between the two scrapes" in note for note in found.notes)


def test_another_client_of_the_server_is_noticed(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(arm="spec")], turn(FLAT))

    assert any("its counters hold more tokens than the records: another client" in note for note in found.notes)


def test_usage_that_counts_more_than_the_servers_own_counters_is_noticed(tmp_path: Path) -> None:
    fewer = {"generation_tokens": 7.0, "first_tokens": 1.0, "decode_steps": 2.0}

    found = summarized(tmp_path, [record(arm="spec")], turn(fewer))

    assert any("its usage counts too many" in note for note in found.notes)


def test_counters_that_agree_with_the_records_need_no_note(tmp_path: Path) -> None:
    alike = {"generation_tokens": 8.0, "first_tokens": 1.0, "decode_steps": 2.0}

    found = summarized(tmp_path, [record(arm="spec")], turn(alike))

    assert not any("counters" in note for note in found.notes)


def test_an_answer_without_usage_is_not_taken_for_another_client(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(arm="spec"), record(arm="spec", completion_tokens=None)], turn(FLAT))

    assert not any("another client" in note for note in found.notes)


def test_an_arm_without_counters_has_a_note_that_says_what_is_absent(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(arm="spec")], turn(FLAT))

    assert [note for note in found.notes if "are absent" in note] == [
        "base: acceptance_length and target_steps_per_token are absent: no turn has its counters"
    ]


def test_every_metric_with_a_cell_is_defined_and_no_other(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(arm="spec")], turn(FLAT))

    assert [one.name for one in found.metrics] == list(dict.fromkeys(one.name for one in found.metrics))
    assert {one.name for one in found.metrics} == {one.metric for one in found.cells}
    assert all(one.definition and one.source and one.unit for one in found.metrics)


def test_cells_follow_the_manifest_class_then_load_then_metric_with_arms_side_by_side(tmp_path: Path) -> None:
    records = [
        record(arm="spec", class_="chat"),
        record(arm="spec"),
        record(class_="chat"),
        record(),
        record(class_="new"),
    ]

    found = summarized(tmp_path, records)

    assert list(dict.fromkeys(one.class_ for one in found.cells)) == ["repeat", "chat", "new", "all"]
    assert [one.arm for one in found.cells[:4]] == ["base", "spec", "base", "spec"]
    assert [one.metric for one in found.cells[:3:2]] == ["ttft_ms", "tpot_ms"]


def test_the_summary_of_the_file_is_the_one_returned(tmp_path: Path) -> None:
    written = summary.write_summary(write_run(tmp_path, [record()]))

    on_disk = json.loads((tmp_path / "summary.json").read_text())
    assert on_disk == json.loads(msgspec.json.encode(written))
    assert {"class", "concurrency", "metric", "arm", "n", "p50", "p90", "p99", "unit", "mean"} <= on_disk["cells"][
        0
    ].keys()


def test_the_summary_is_recomputed_and_never_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record()])
    first = summary.write_summary(folder)
    (folder / "summary.json").write_text("{}")

    assert summary.write_summary(folder) == first


def test_the_end_of_the_run_and_what_is_missing_of_the_plan_are_noted(tmp_path: Path) -> None:
    early = summarized(
        tmp_path, [record()], plan=PlanTotals(requests=8), ended=RunEnd(reason="interrupted", utc="2026")
    )

    assert "the run ended early: interrupted" in early.notes
    assert "1 of 8 planned requests are recorded" in early.notes


def test_a_run_without_an_end_is_noted(tmp_path: Path) -> None:
    assert any(note.startswith("the run has not ended") for note in summarized(tmp_path, [record()], ended=None).notes)


def test_what_the_run_itself_noted_is_kept(tmp_path: Path) -> None:
    assert "the host was busy" in summarized(tmp_path, [record()], notes=("the host was busy",)).notes


def test_an_arm_that_the_manifest_does_not_name_is_kept_and_noted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(arm="stranger")])

    assert found.arms == ("base", "spec", "stranger")
    assert any("the manifest names no arm stranger" in note for note in found.notes)


def test_a_request_id_that_stands_twice_is_noted(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(), record(), record(request_id="r-1")])

    assert any(note.startswith("records that repeat a request_id: 1;") for note in found.notes)


def test_records_of_llmperf_give_their_ends_and_a_note(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(generator="llmperf", completion_tokens=None, chunks=chunks((0.2, "text")))])

    assert {one.metric for one in found.cells} == {"ttft_ms", "e2e_ms", "prompt_tokens"}
    assert any(note.startswith("records of llmperf: 1;") for note in found.notes)


def test_an_open_loop_has_cells_by_rate_and_says_how_late_it_was(tmp_path: Path) -> None:
    found = summarized(tmp_path, [record(concurrency=None, rate_per_s=2.5, due_s=999.99)])

    late = cell(found, "schedule_delay_ms")
    assert (late.concurrency, late.rate_per_s, late.p50) == (None, 2.5, 10.0)


def test_a_run_without_records_has_no_cells(tmp_path: Path) -> None:
    found = summarized(tmp_path, [])

    assert (found.cells, found.requests, found.records) == ((), (), 0)


@pytest.mark.parametrize("cut", [1, 9])
def test_a_torn_last_line_is_a_note(tmp_path: Path, cut: int) -> None:
    folder = write_run(tmp_path, [record(), record(request_id="r-1")])
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])

    found = summary.summarize_run(folder)

    assert found.records == 1
    assert any(note.startswith("records.jsonl:2: the last line is torn after ") for note in found.notes)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{}", "this is no record"),
        (b'{"schema":3}', "schema 3"),
        (b"", "this is no record"),
        (b"\xff", "this is no record"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_wherever_it_stands(tmp_path: Path, line: bytes, problem: str) -> None:
    folder = write_run(tmp_path, [record(request_id=f"r-{number}") for number in range(50)])
    path = folder / "records.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:31], line, *lines[31:], b""]))

    with pytest.raises(BenchError, match=problem) as refused:
        summary.summarize_run(folder)

    assert refused.value.where == f"{path}:32"


def various() -> list[RequestRecord]:
    return [
        record(
            request_id=f"r-{number}", arm=("base", "spec")[number // 7 % 2], class_=("chat", "repeat")[number % 2],
            round=number // 40, slot=number // 7 % 4, start_s=1000.0 + number / 7, completion_tokens=7 + number % 3,
        )
        for number in range(400)
    ]  # fmt: skip


def test_records_that_another_program_spelled_give_the_same_bytes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, various())
    path = folder / "records.jsonl"
    summary.write_summary(folder)
    ours = (folder / "summary.json").read_bytes()

    path.write_text("".join(json.dumps(json.loads(line)) + "\n" for line in path.read_text().splitlines()))

    assert b'"chunk_s": [0.1, 0.2,' in path.read_bytes()
    summary.write_summary(folder)
    assert (folder / "summary.json").read_bytes() == ours


@pytest.mark.parametrize("missing", ["manifest.json", "records.jsonl"])
def test_a_folder_without_a_file_is_refused_by_the_files_name(tmp_path: Path, missing: str) -> None:
    folder = write_run(tmp_path, [record()])
    (folder / missing).unlink()

    with pytest.raises(BenchError, match=missing):
        summary.summarize_run(folder)


def test_a_manifest_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record()], schema=3)

    with pytest.raises(BenchError, match="the manifest has schema 3"):
        summary.summarize_run(folder)


def test_a_manifest_of_a_newer_schema_is_named_where_the_rest_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 9, "version": "7.1.0", "arms": "elsewhere"}')

    with pytest.raises(BenchError, match=r"schema 9, and this Tandem knows up to 2; read it with Tandem 7\.1\.0"):
        manifest.read_manifest(tmp_path)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = run_manifest(
        goodput={"ttft_ms": 500.0}, thinking=False, warm_up={"base": manifest.WarmUpEntry(requests=3)}
    )
    manifest.write_manifest(tmp_path, written)

    assert manifest.read_manifest(tmp_path) == written
