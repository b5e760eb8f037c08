"""The figures of a run as CSV."""

from __future__ import annotations

import csv

import pytest
from measured import failed, record, write_run

from tandem.bench.figures.summary import summarize_run
from tandem.bench.figures.summary_csv import write_csv
from tandem.errors import InputError


def read_rows(folder, *records, **changes):
    path = folder / "figures.csv"
    write_csv(summarize_run(write_run(folder, list(records), **changes)), path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_has_the_quantiles_of_its_cells(tmp_path):
    rows = read_rows(tmp_path, record(), goodput={"ttft_ms": 500.0})
    summary = summarize_run(tmp_path)
    cells = {cell.metric: cell for cell in summary.cells if cell.class_ == "repeat"}
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms", "goodput_per_s"):
        for quantile in ("p50", "p90", "p99"):
            assert float(rows[0][f"{metric}_{quantile}"]) == getattr(cells[metric], quantile)


def test_several_classes_have_a_row_of_all(tmp_path):
    rows = read_rows(tmp_path, record(), record(class_="chat"), failed(class_="chat"))
    places = [(row["class"], row["arm"], row["requests"], row["failed"]) for row in rows]
    assert places == [
        ("repeat", "base", "1", "0"),
        ("chat", "base", "2", "1"),
        ("all", "base", "3", "1"),
    ]


def test_an_absent_figure_is_an_empty_cell(tmp_path):
    (row,) = read_rows(tmp_path, failed())
    assert (row["ttft_ms_p50"], row["rate_per_s"], row["concurrency"]) == ("", "", "4")


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    summary = summarize_run(write_run(tmp_path, [record()]))
    with pytest.raises(InputError, match="figures cannot be written"):
        write_csv(summary, tmp_path / "absent" / "figures.csv")
