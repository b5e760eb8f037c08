"""Notes on a run, from records that a test states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measured import failed, record, run_manifest, write_run
from msgspec.structs import replace

from tandem.bench.figures.notes import collect_notes, note_absent_counters
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.records.record import RequestRecord


def read_table(folder: Path, records: list[RequestRecord], **changes: Any) -> RequestTable:
    return read_request_table(write_run(folder, records, **changes))


def test_counters_are_missed_of_asked_arms_alone(tmp_path):
    records = [record(), record(arm="spec", request_id="r-1")]
    arms = run_manifest().arms
    unasked_arm = replace(arms[1], name="other")
    table = read_table(tmp_path, records, arms=(*arms, unasked_arm))
    (note,) = note_absent_counters(table, {"base"})
    assert note.startswith("spec: acceptance_length")


def test_a_servers_words_on_hidden_prompts_are_not_repeated(tmp_path):
    broken_record = failed(error="api_error", error_detail="cannot answer: my secret")
    hidden_suite = replace(run_manifest().suites[0], file_sha256="1" * 64)
    table = read_table(tmp_path, [broken_record], suites=(hidden_suite,), show_prompts=False)
    text = " ".join(collect_notes(table, table, ()))
    assert "it said of the first: see error_detail of request r-0" in text
    assert "secret" not in text
