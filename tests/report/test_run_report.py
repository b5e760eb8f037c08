"""The exit code of a run's figures, and which texts of a run its results show."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
FILES = ("summary.json", "verdict.json", "report.html")
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


class Results(NamedTuple):
    """What a report of a run of two servers, whose texts differ, prints and writes.

    Args:
        lines: on a terminal.
        details: on a terminal, if it is verbose.
        files: texts by name.
    """

    lines: list[str]
    details: list[str]
    files: dict[str, str]

    def holds(self, text: str) -> bool:
        return any(text in part for part in [*self.details, *self.files.values()])


def report_texts(folder: Path, suite: SuiteEntry, *, show_prompts: bool) -> Results:
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
    return Results(
        lines=list(report.format_lines()),
        details=list(report.format_lines(verbose=True)),
        files={name: (folder / name).read_text() for name in FILES},
    )


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """The results of a run of a file of prompts that shows no texts."""
    return report_texts(tmp_path_factory.mktemp("hidden"), OWN_FILE, show_prompts=False)


def test_texts_of_own_prompts_are_hidden_unless_the_run_says_so(hidden):
    assert not any(hidden.holds(text) for text in TEXTS)


@pytest.mark.parametrize(
    ("suite", "show_prompts"), [(OWN_FILE, True), (BUILT_IN, False)], ids=["own", "built in"]
)
def test_texts_that_may_be_shown_are_shown(tmp_path, suite, show_prompts):
    results = report_texts(tmp_path, suite, show_prompts=show_prompts)

    assert all(results.holds(text) for text in TEXTS)


def test_a_report_says_why_it_shows_no_texts(hidden):
    assert "does not set report.show_prompts" in hidden.files["report.html"]


@pytest.mark.parametrize("name", ["verdict.json", "report.html"])
def test_results_name_a_file_of_prompts_and_its_digest(hidden, name):
    assert OWN_FILE.name in hidden.files[name]
    assert DIGEST in hidden.files[name]


def test_a_terminal_names_a_file_of_prompts_and_its_digest(hidden):
    assert any(OWN_FILE.name in line and DIGEST in line for line in hidden.lines)


def test_a_terminal_shows_all_only_if_verbose(hidden):
    assert len(hidden.lines) < len(hidden.details)
