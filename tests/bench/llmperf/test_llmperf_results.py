"""What llmperf writes becomes records that hold what it said and nothing more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measured import compute_record_metrics

from tandem.bench.llmperf import results
from tandem.bench.llmperf.tool import LlmperfLoad
from tandem.bench.records.record import RecordWriter, RequestRecord, read_records
from tandem.errors import InputError

# what takes tokens, chunks or a plan, which the tool's rows lack
ABSENT = {
    "tpot_ms",
    "tpot_exact_ms",
    "tokens_per_chunk",
    "output_tokens_per_s",
    "prompt_tokens",
    "completion_tokens",
    "schedule_delay_ms",
    "llmperf_inter_token_latency_ms",
    "chunk_gap_ms",
}
ROW: dict[str, Any] = {
    "error_code": None,
    "error_msg": "",
    "inter_token_latency_s": 0.0402,
    "ttft_s": 0.0863,
    "end_to_end_latency_s": 1.2071,
    "request_output_throughput_token_per_s": 130.1,
    "number_total_tokens": 221,
    "number_output_tokens": 157,
    "number_input_tokens": 64,
}
LOAD = LlmperfLoad()


def write(folder: Path, *rows: Any, **summary: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m_64_600_individual_responses.json").write_text(json.dumps(list(rows)))
    (folder / "m_64_600_summary.json").write_text(json.dumps(summary))
    return folder


def records(folder: Path) -> list[RequestRecord]:
    calls = results.read_results(folder)
    assert calls is not None
    return results.build_records(calls, LOAD, arm="a", call=2, began_s=100.0)


def test_a_row_becomes_a_record_of_first_token_and_end(tmp_path):
    (record,) = records(write(tmp_path, ROW))
    with RecordWriter(tmp_path / "records.jsonl") as writer:
        writer.write(record)

    place = (record.generator, record.arm, record.round, record.concurrency, record.request_id)
    assert place == ("llmperf", "a", 2, 4, "llmperf-a-2-0")
    figures = compute_record_metrics(record)
    assert (figures["ttft_ms"], figures["e2e_ms"]) == pytest.approx((86.3, 1207.1))
    assert not figures.keys() & ABSENT
    assert (record.completion_tokens, record.finish_reason, record.error) == (None, None, None)
    assert list(read_records(tmp_path / "records.jsonl")) == [record]


@pytest.mark.parametrize(
    ("code", "message", "word", "status"),
    [
        (503, "busy", "status_503", 503),
        (-1, "", "closed", None),
        (0, "said by the stream", "closed", None),
    ],
)
def test_an_error_row_is_counted_and_worded(tmp_path, code, message, word, status):
    folder = write(
        tmp_path,
        ROW,
        {**ROW, "error_code": code, "error_msg": message, "ttft_s": 0, "end_to_end_latency_s": 0},
    )

    good, failed = records(folder)
    calls = results.read_results(folder)

    assert calls is not None
    assert (calls.errors, good.error, failed.error, failed.status) == (1, None, word, status)
    assert failed.error_detail
    assert (failed.chunks, failed.end_s, compute_record_metrics(failed)) == ((), 0.0, {})


@pytest.mark.parametrize(
    ("value", "figure"), [(0.0402, 0.0402), ("157", 157), (None, None), (float("nan"), None)]
)
def test_a_figure_may_be_text_and_a_word_is_unknown(tmp_path, value, figure):
    """Its summaries hold numpy's whole numbers as text."""
    row = {**ROW, "inter_token_latency_s": value}

    calls = results.read_results(
        write(tmp_path, row, results_mean_output_throughput_token_per_s=value)
    )

    assert (
        calls.rows[0].inter_token_latency_s
        == calls.totals.results_mean_output_throughput_token_per_s
        == figure
    )
    assert results.read_results(tmp_path / "empty") is None


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_another_file_is_told_by_its_name(tmp_path, text):
    write(tmp_path)
    (tmp_path / "m_64_600_individual_responses.json").write_text(text)
    with pytest.raises(
        InputError, match=r"m_64_600_individual_responses\.json.*no result of llmperf"
    ):
        results.read_results(tmp_path)
