"""The answered items of a run, task by task."""

from __future__ import annotations

import pytest

from tandem.bench.records.quality_rows import (
    QUALITY_FILE,
    QualityRow,
    read_quality,
    write_quality,
)
from tandem.errors import InputError


def answer(task: str, *, right: bool = True, fault: str = "") -> QualityRow:
    return QualityRow(task=task, item="1", arm="base", right=right, fault=fault)


def test_rows_of_a_task_replace_its_earlier_ones(tmp_path):
    write_quality(tmp_path, [answer("sums"), answer("letters"), answer("words", fault="gone")])
    write_quality(tmp_path, [answer("sums", right=False)])
    assert read_quality(tmp_path) == (answer("letters"), answer("sums", right=False))


def test_a_run_that_was_asked_no_task_has_no_rows(tmp_path):
    assert read_quality(tmp_path) == ()


def test_a_malformed_row_is_refused_by_its_line(tmp_path):
    (tmp_path / QUALITY_FILE).write_text('{"task": "sums"}\n')
    with pytest.raises(InputError, match=r"quality\.jsonl:1: not a line of an answered item"):
        read_quality(tmp_path)
