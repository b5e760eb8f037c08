"""`--speculates NAME[=K]`: what is reported of a server without counters that speculates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_cli import Pair, without_page
from independent_server import Schedule

from tandem.cli.program import main

SECTION = "acceptance: class"


def measure(folder: Path, *flags: str, **schedule) -> dict:
    """Run against two servers that give three tokens a chunk; return the verdict's document."""
    pair = Pair(Schedule(**{"ttft_ms": 1, "step_ms": 1, "tokens": 13, "bursts": "3", **schedule}))
    with without_page():
        main([*pair.flags(folder, {"code": ["a", "b"]}, *flags), "--out", str(folder / "out")])
    pair.end()
    return json.loads((folder / "out" / "verdict.json").read_text())


def render(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    with without_page():
        main(["bench", "report", str(folder / "out"), "--verbose"])
    return capsys.readouterr().out


def test_a_server_that_is_said_to_speculate_has_its_acceptance(tmp_path, capsys):
    verdict = measure(tmp_path, "--speculates", "b=3")
    assert (verdict["speculating"], verdict["headlines"][0]["speculates"]) == (["b"], True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["arms"][1]["speculation"]["num_speculative_tokens"] == 3
    assert SECTION in render(tmp_path, capsys)


def test_acceptance_of_one_token_a_step_is_shown_too(tmp_path, capsys):
    measure(tmp_path, "--speculates", "b", bursts="1")
    rows = render(tmp_path, capsys).partition(SECTION)[2].splitlines()
    assert rows[1].split()[:4] == ["all", "b", "1.00", "1.00"]


@pytest.mark.parametrize(
    ("flags", "schedule"),
    [((), {}), (("--speculates", "b"), {"fault": "no_usage"})],
    ids=["nobody says so", "no figure"],
)
def test_no_section_stands_without_a_figure(tmp_path, capsys, flags, schedule):
    measure(tmp_path, *flags, **schedule)
    assert "acceptance:" not in render(tmp_path, capsys)
