"""`tandem bench run` of one server: every figure and a report, and no verdict."""

from __future__ import annotations

import json

import pytest
from independent_server import MODEL
from planned import suite_file

from tandem.cli.program import main

DROPS = '#schedule {"fault": "drop", "fault_at": 1}'
SHORT = ("--concurrency", "2", "--warm-up", "0", "--rounds", "1")


def measure(servers, folder, prompts: dict[str, list[str]], *flags: str) -> int:
    url = f"http://127.0.0.1:{servers.servers[0].port}"
    suite = suite_file(folder, prompts)
    arm = ["--baseline", f"alone={url}", "--suite", str(suite)]
    return main(["bench", "run", *arm, *SHORT, *flags, "--out", str(folder / "out")])


@pytest.fixture(scope="module")
def lone_run(servers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lone")
    assert measure(servers, folder, {"code": ["a", "b"], "chat": ["c"]}, "--ignore-eos") == 0
    return folder / "out"


def test_one_server_gets_a_report_and_no_verdict(lone_run, capsys):
    assert main(["bench", "report", str(lone_run)]) == 0
    *_, reason, page = capsys.readouterr().out.splitlines()
    assert reason.startswith("no verdict: one arm was measured")
    assert page == str(lone_run / "report.html")
    assert not (lone_run / "verdict.json").exists()


def test_the_report_of_one_server_has_every_figure(lone_run):
    page = (lone_run / "report.html").read_text()
    summary = json.loads((lone_run / "summary.json").read_text())
    sections = ("Every figure", "Distributions", "Over time", "Cost per million", "Controls")
    assert [text for text in (MODEL, *sections) if text not in page] == []
    assert page.count(">E2E ms<") == len({cell["class"] for cell in summary["cells"]})
    assert [text for text in ('class="badge', "Speed-up", "Acceptance") if text in page] == []
    assert "of 3 answers of alone ended before their limit" in page


def test_a_server_that_fails_every_request_gets_a_report_too(servers, tmp_path):
    assert measure(servers, tmp_path, {"code": [DROPS, DROPS]}) == 3
    assert "none succeeded" in (tmp_path / "out" / "report.html").read_text()
