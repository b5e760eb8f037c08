"""The exit code of a run's figures, and which texts of a run its results show."""

from __future__ import annotations

import pytest
from measured import arm, failed, record, write_run

from tandem.bench.records.manifest import PlanTotals, RunEnd, SuiteEntry
from tandem.errors import ExitCode
from tandem.judge.verdict import DEFAULT_OPTIONS
from tandem.report.run_report import report_run

DIGEST = "5e" * 32
OWN_FILE = SuiteEntry(
    name="support.jsonl", sha256="0" * 64, prompts=12, classes=("repeat",), file_sha256=DIGEST
)
BUILT_IN = SuiteEntry(name="real", sha256="0" * 64, prompts=12, classes=("repeat",))
TEXTS = ("Frau-Lehmann", "Herr-Weber")
"""Each arm's answer; the server that breaks off repeats its own."""


@pytest.mark.parametrize(
    ("records", "planned", "code"),
    [
        ([record()], 1, ExitCode.DONE),
        ([record()], 2, ExitCode.STALE),
        ([record(), failed()], 2, ExitCode.STALE),
        ([record(), failed(error="interrupted")], 2, ExitCode.DONE),
        ([failed()], 1, ExitCode.EXTERNAL_FAILURE),
    ],
    ids=["all", "one missing", "one failed", "one cut", "none answered"],
)
def test_the_exit_code_says_what_is_missing(tmp_path, records, planned, code):
    folder = write_run(tmp_path, records, plan=PlanTotals(requests=planned))
    assert report_run(folder, None).exit_code == code


@pytest.mark.parametrize(
    ("ended", "code"),
    [(RunEnd(reason="duration", utc=""), ExitCode.DONE), (None, ExitCode.STALE)],
)
def test_a_cut_request_counts_unless_the_run_ended(tmp_path, ended, code):
    records = [record(), failed(error="interrupted")]
    folder = write_run(tmp_path, records, plan=PlanTotals(requests=2), ended=ended)
    assert report_run(folder, None).exit_code == code


def report_texts(folder, suite, *, show_prompts):
    """Return all that a report of a run of two servers, whose texts differ, writes and prints."""
    records = []
    for name, text in zip(("base", "spec"), TEXTS, strict=True):
        for number in range(suite.prompts):
            place = {"suite": suite.name, "prompt_id": f"p-{number}", "arm": name}
            records.append(record(**place, text=f"Dear {text}", request_id=f"{name}-{number}"))
        broken = failed(
            **place, error="api_error", error_detail=f"cannot go on after {text}", request_id=name
        )
        records.append(broken)
    write_run(
        folder,
        records,
        arms=(arm("base", role="baseline"), arm("spec")),
        suites=(suite,),
        show_prompts=show_prompts,
    )
    report = report_run(folder, DEFAULT_OPTIONS)
    lines = "".join(report.format_lines(verbose=True))
    names = ("summary.json", "verdict.json", "report.html")
    return lines + "".join((folder / name).read_text() for name in names)


@pytest.mark.parametrize(
    ("suite", "show_prompts", "shows_texts"),
    [(OWN_FILE, False, False), (OWN_FILE, True, True), (BUILT_IN, False, True)],
    ids=["hidden", "shown", "built in"],
)
def test_texts_of_own_prompts_are_shown_only_if_the_run_says_so(
    tmp_path, suite, show_prompts, shows_texts
):
    written = report_texts(tmp_path, suite, show_prompts=show_prompts)

    assert [text in written for text in TEXTS] == [shows_texts] * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of a file of prompts that shows no texts, and its results."""
    place = tmp_path_factory.mktemp("own")
    report_texts(place, OWN_FILE, show_prompts=False)
    return place


def test_a_report_says_why_it_shows_no_texts(folder):
    assert "does not set report.show_prompts" in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["verdict.json", "report.html"])
def test_results_name_a_file_of_prompts_and_its_digest(folder, name):
    results = (folder / name).read_text()
    assert OWN_FILE.name in results
    assert DIGEST in results


def test_a_terminal_names_a_file_of_prompts_and_its_digest(folder):
    lines = report_run(folder, DEFAULT_OPTIONS).format_lines()
    assert any(OWN_FILE.name in line and DIGEST in line for line in lines)


def test_a_terminal_shows_all_only_if_verbose(folder):
    report = report_run(folder, DEFAULT_OPTIONS)
    assert len([*report.format_lines()]) < len([*report.format_lines(verbose=True)])
