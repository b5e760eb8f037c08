"""The verdict of a run by the library: that of the command line, or a refusal that says why."""

from __future__ import annotations

import example_verdict
import pytest
from measured import arm, record, write_run

from tandem.bench import read_request_table
from tandem.bench.figures.summary import summarize_table
from tandem.errors import InputError
from tandem.judge import JudgeOptions, compare_tables, judge_run
from tandem.report.run_report import report_run


def test_the_verdict_is_that_of_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr("tandem.report.page.write_report", lambda *_: "report.html")
    folder = example_verdict.run(tmp_path / "run", classes={"repeat": 3.1})
    options = JudgeOptions(margin=0.1, usd_per_hour=25.0)
    verdict = judge_run(read_request_table(folder), options)
    assert verdict.notes
    assert verdict == report_run(folder, options).verdict


def test_a_given_summary_keeps_which_notes_are_about_acceptance(tmp_path):
    folder = example_verdict.run(tmp_path / "run", classes={"repeat": 3.1}, prompts=2)
    table = read_request_table(folder)
    run_summary = summarize_table(table)
    assert run_summary.acceptance_notes
    verdict = judge_run(table, JudgeOptions(), run_summary)
    assert verdict.acceptance_notes == run_summary.acceptance_notes


def test_a_run_of_one_arm_is_refused(tmp_path):
    folder = write_run(tmp_path / "run", [record(arm="base")], arms=(arm("base", role="baseline"),))
    with pytest.raises(
        InputError, match=r"no verdict: one arm was measured.*; judge a run of two servers or more"
    ):
        judge_run(read_request_table(folder))


@pytest.mark.parametrize("margin", [0, -0.05, 1.5, float("nan")])
def test_a_margin_by_which_nothing_can_be_judged_is_refused(margin, tmp_path):
    table = read_request_table(
        example_verdict.run(tmp_path / "run", classes={"repeat": 3.1}, prompts=2)
    )
    with pytest.raises(InputError, match="allowed: above 0, at most 1"):
        JudgeOptions(margin=margin)
    with pytest.raises(InputError, match="allowed: above 0, at most 1"):
        compare_tables(table, table, margin=margin)
