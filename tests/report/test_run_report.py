"""The exit code of a run's figures, and which texts of a run its results show."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import arm, failed, record, write_run

from tandem.bench.records.manifest import PlanTotals, SuiteEntry
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


def report_texts(folder: Path, suite: SuiteEntry, *, show_prompts: bool) -> str:
    """Return all that a report of a run of two servers, whose texts differ, writes and prints."""
    records = []
    for name, text in zip(("base", "spec"), TEXTS, strict=True):
        for number in range(suite.prompts):
            place = {"suite": suite.name, "prompt_id": f"p-{number}", "arm": name}
            answer = {"text": f"Dear {text}", "request_id": f"{name}-{number}"}
            records.append(record(**place, **answer))
        broken = {"error": "api_error", "error_detail": f"cannot go on after {text}"}
        records.append(failed(**place, **broken, request_id=f"{name}-broken"))
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


def test_a_report_says_why_it_shows_no_texts(tmp_path):
    report_texts(tmp_path, OWN_FILE, show_prompts=False)

    assert "does not set report.show_prompts" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["verdict.json", "report.html"])
def test_results_name_a_file_of_prompts_and_its_digest(tmp_path, name):
    report_texts(tmp_path, OWN_FILE, show_prompts=False)

    results = (tmp_path / name).read_text()
    assert OWN_FILE.name in results
    assert DIGEST in results


def test_a_terminal_names_a_file_of_prompts_and_its_digest(tmp_path):
    report_texts(tmp_path, OWN_FILE, show_prompts=False)

    lines = report_run(tmp_path, DEFAULT_OPTIONS).format_lines()
    assert any(OWN_FILE.name in line and DIGEST in line for line in lines)
