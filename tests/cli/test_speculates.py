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


def test_acceptance_has_no_section_where_nobody_says_so(tmp_path, capsys):
    measure(tmp_path)
    screen = render(tmp_path, capsys)
    assert [text for text in (SECTION, "no acceptance of") if text in screen] == []


def test_the_figures_alone_note_acceptance_where_nobody_says_so(tmp_path, capsys):
    measure(tmp_path)
    screen = " ".join(render(tmp_path, capsys).split())
    assert screen.count("note: a: acceptance_length and target_steps_per_token are absent") == 1


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ({"bursts": "1"}, "1 where a server sends each token by itself"),
        ({"fault": "no_usage"}, "No answer whose tokens the server counted"),
    ],
    ids=["a chunk a token", "no count"],
)
def test_a_note_stands_in_place_of_a_section_without_a_figure(tmp_path, capsys, schedule, reason):
    measure(tmp_path, "--speculates", "b", **schedule)
    screen = " ".join(render(tmp_path, capsys).split())
    assert (SECTION in screen, "no acceptance of b is shown." in screen) == (False, True)
    assert reason in screen
