"""The walks of docs/architecture.md: each function that a walk names is called, in that order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import example_verdict
import pytest
from doubles.simulator_thread import SimulatorThread
from guard_handler import load_handler
from guard_world import GUARDED, LABEL, World
from shipped import load_shipped

from charts.tree import render_files
from stacks.guard_functions import function_variables
from tandem.bench import RunOptions, measure_servers, read_request_table
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.workspace import load_workspace
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.judge import judge_run
from tandem.rules.check import check_workspace
from tandem.simulator.settings import SimulatorSettings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/architecture.md").read_text()
MODEL = "Qwen/Qwen3-32B"
ENVIRONMENT = "post-us-east-2"
EXPERIMENT = "post"


def list_steps(heading: str) -> list[tuple[str, str]]:
    """Return path and function of each step of a walk."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\| `([\w/]+\.py):(\w+)` \|", section, re.MULTILINE)
    return [(str(ROOT / file), function) for file, function in steps]


REQUEST_STEPS = list_steps("A request, from its prompt to a sentence")
DECLARATION_STEPS = list_steps("A line of YAML, from its file to a server's argument")
STOP_STEPS = list_steps("A line of YAML, from its file to a stop")


@contextmanager
def record_calls(steps: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Record the calls of these functions in every thread, in their order."""
    calls: list[tuple[str, str]] = []

    def note_call(frame: FrameType, event: str, _argument: object) -> None:
        call = (frame.f_code.co_filename, frame.f_code.co_name)
        if event == "call" and call in steps:
            calls.append(call)

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def find_missing_step(calls: list[tuple[str, str]], steps: list[tuple[str, str]]) -> str:
    """Return the first step that does not follow the one before it; empty if all do."""
    later_calls = iter(calls)
    for step in steps:
        if step not in later_calls:
            return ":".join(step)
    return ""


def measure_and_judge(folder: Path, whole_run: Path) -> None:
    settings = SimulatorSettings(
        model=MODEL, step_ms=(0.4,), prefill_base_ms=2.0, prefill_ms_per_token=0.0
    )
    with SimulatorThread(settings) as plain, SimulatorThread(settings.scale_time(2)) as draft:
        options = RunOptions(
            servers={"plain": plain.url, "draft": draft.url},
            model=MODEL,
            classes=("chat",),
            prompts_per_class=4,
            max_tokens=8,
            rounds=1,
            control_rounds=0,
        )
        measure_servers(options, folder)

    judge_run(read_request_table(whole_run))


def load_and_render() -> dict[Path, str]:
    catalogue = load_catalogue()
    folders = (ROOT / "environments", ROOT / "experiments")
    workspace = load_workspace(*folders, (ENVIRONMENT,))
    check_workspace(workspace, catalogue)
    environment = workspace.environments[ENVIRONMENT].record
    return render_files(environment, [workspace.experiments[EXPERIMENT].record], catalogue)


def let_lease_idle() -> World:
    """Return an account whose run has not been heard of for longer than it may be."""
    world = World()
    request = RaiseRequest(
        run="r1",
        hours=8.0,
        experiment="first",
        nodes=1,
        node_labels=LABEL,
        who="anna",
        beats=True,
    )
    raise_fleet(world.clients, GUARDED, request, world.now)
    world.advance(int(GUARDED.idle_minutes) + 1)
    return world


def test_a_request_takes_the_steps_of_its_walk(tmp_path):
    # what is judged is a run that a busy machine cannot make void
    whole_run = example_verdict.run(tmp_path / "whole", classes={"chat": 2.0})

    with record_calls(REQUEST_STEPS) as calls:
        measure_and_judge(tmp_path / "short", whole_run)

    assert find_missing_step(calls, REQUEST_STEPS) == ""


def test_a_declaration_takes_the_steps_of_its_walk():
    with record_calls(DECLARATION_STEPS) as calls:
        files = load_and_render()

    assert find_missing_step(calls, DECLARATION_STEPS) == ""
    servers = files[Path(ENVIRONMENT, EXPERIMENT, "serve/serve.yaml")]
    assert '"num_speculative_tokens": 7' in servers


def test_a_stop_takes_the_steps_of_its_walk(monkeypatch):
    environment = load_shipped().environments[ENVIRONMENT].record
    reaper = load_handler("reap", let_lease_idle(), monkeypatch)

    with record_calls(STOP_STEPS) as calls:
        function_variables(environment)
        reaper.handler(None, None)

    assert find_missing_step(calls, STOP_STEPS) == ""


@pytest.mark.parametrize("steps", [REQUEST_STEPS, DECLARATION_STEPS, STOP_STEPS])
def test_a_walk_is_one_screen(steps):
    assert 8 <= len(steps) <= 24
