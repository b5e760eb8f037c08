"""A verdict in a terminal: what decides first, no wider than asked whatever the records hold."""

from __future__ import annotations

import unicodedata
from typing import Any

import example_verdict as example
import msgspec
import pytest

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.judge import text_format
from tandem.judge.schema import (
    RunControls,
    Verdict,
)
from tandem.report.terminal import WIDTH, render_lines


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    return example.verdict(
        read_request_table(example.run(tmp_path_factory.mktemp("run") / "run", prompts=4))
    )


def test_the_verdict_is_the_first_line(verdict):
    assert (
        next(render_lines(verdict))
        == "qwen-sd-vllm against qwen-vllm: FASTER (restarts not tested)"
    )


def test_a_verdict_on_simulated_servers_says_so_first(verdict):
    assert next(render_lines(msgspec.structs.replace(verdict, simulated=True))) == SIMULATED_BAND


def test_a_void_run_says_so_first(verdict):
    void = msgspec.structs.replace(
        verdict, controls=RunControls(void=("the baseline differs from itself",))
    )
    assert list(render_lines(void))[:2] == [
        "VOID: this run does not support a verdict",
        "- the baseline differs from itself",
    ]


@pytest.mark.parametrize("width", [60, 80, WIDTH])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(verdict, width, verbose):
    notes = ("\u6ce8" * 300, "x" * 300)
    wide = msgspec.structs.replace(example.evil(verdict), baseline="\u57fa" * 90, notes=notes)
    assert max(map(columns, render_lines(wide, width=width, verbose=verbose))) <= width


def test_all_prompts_come_first_with_a_word_of_e2e_alone(verdict):
    lines = list(render_lines(verdict))
    place = next(number for number, line in enumerate(lines) if line.startswith("class "))
    (load,) = verdict.overall
    assert load.deciding.speed_up is not None
    times = text_format.format_times(load.deciding.speed_up.value)
    interval = text_format.format_interval(load.deciding.speed_up).replace(" to ", "\u2013")
    assert lines[place + 1].split()[:7] == [
        "all",
        "prompts",
        *map(text_format.format_number, (load.deciding.baseline, load.deciding.measured)),
        times,
        interval,
        "faster",
    ]
    assert [line.split()[0] for line in lines[place + 2 : place + 5]] == [
        text_format.format_metric(figure.metric).split()[0] for figure in load.beside
    ]


def test_attainment_is_shown_where_limits_were_asked_for(verdict):
    arms = tuple(msgspec.structs.replace(figures, within_limits=71) for figures in verdict.arms)
    changed_verdict = msgspec.structs.replace(
        verdict, goodput={"ttft_ms": 500.0, "tpot_ms": 30.0}, arms=arms
    )
    screen = "\n".join(render_lines(changed_verdict))
    assert f"71 of {arms[0].requests}" in screen
    assert "in limits: requests within every --goodput limit (TTFT 500 ms, TPOT 30 ms)" in screen
    assert "in limits" not in "\n".join(render_lines(verdict))


def test_answers_of_other_lengths_have_no_e2e_row(verdict):
    headline = msgspec.structs.replace(verdict.headlines[0], metric="tpot_ms")
    lines = list(render_lines(msgspec.structs.replace(verdict, headlines=(headline,))))
    place = next(number for number, line in enumerate(lines) if line.startswith("class "))
    assert lines[place].split()[-5:] == ["by", "TPOT", "ms", "TTFT", "tokens/s"]
    assert "not tested" in lines[place + 1]
    assert not any("E2E" in line for line in lines[place : place + 5])


def test_controls_outputs_and_notes_stand_behind_verbose(verdict):
    brief = list(render_lines(verdict))
    verbose = list(render_lines(verdict, verbose=True))
    details = (
        "controls",
        "output of qwen-sd-vllm: the same",
        "note: this machine was busy before the run began",
    )
    assert [detail for detail in details if detail in brief] == []
    assert [detail for detail in details if detail not in verbose] == []


def render_routing(verdict: Verdict, **changes: Any) -> str:
    rows = tuple(msgspec.structs.replace(row, **changes) for row in verdict.routing)
    lines = "\n".join(render_lines(msgspec.structs.replace(verdict, routing=rows), verbose=True))
    return lines[lines.index("routing between") :]


def test_routing_says_that_its_word_is_of_one_start(verdict):
    assert "Differences between server starts are not covered" in render_routing(verdict)


def test_routing_says_why_no_saving_is_judged(verdict):
    assert "no saving is judged: fewer than 4 rounds" in render_routing(
        verdict, why="fewer than 4 rounds"
    )


def test_nothing_of_a_record_reaches_the_terminal_as_a_command(verdict):
    screen = "\n".join(render_lines(example.evil(verdict), verbose=True))
    assert [
        sign for sign in screen if unicodedata.category(sign) in {"Cc", "Cf"} and sign != "\n"
    ] == []


def test_of_thousands_of_classes_a_few_are_shown(verdict):
    lines = list(render_lines(msgspec.structs.replace(verdict, cells=example.classes(3000))))
    rows = [line for line in lines if line.startswith("class-")]
    assert len(rows) == 48
    assert {line.split()[5] for line in rows} == {"faster", "slower"}
    assert any(line.startswith("… 2,952 more cells") for line in lines)
