"""docs/suites.md shows files of prompts, and commands that measure with them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from doubles.simulator_thread import SimulatorThread

from tandem.bench.records.record import read_records
from tandem.cli.program import main
from tandem.simulator.settings import SimulatorSettings

PAGE = (Path(__file__).parents[2] / "docs" / "suites.md").read_text()
FILES = dict(re.findall(r"`(\w+\.\w+)`:\n\n```\n(.*?)```", PAGE, flags=re.DOTALL))
COMMANDS = re.findall(r"^tandem (bench run .*)$", PAGE, flags=re.MULTILINE)
SMALL = "--rounds 1 --control-rounds 0 --warm-up 0 --max-tokens 2"
# the folder of each run, its prompts and their classes
RUNS = {
    "tickets": (4, ["support", "extract", "chat"]),
    "requests": (2, ["support", "billing"]),
    "questions": (2, ["prompts"]),
    "list": (3, ["prompts"]),
    "sharegpt": (2, ["prompts"]),
    "csv": (2, ["support", "billing"]),
    "text": (2, ["prompts"]),
    "synthetic": (24, ["synthetic"]),
}


@pytest.fixture(scope="module")
def urls():
    """The addresses of two simulated servers."""
    settings = SimulatorSettings(
        model="Qwen/Qwen3-32B", step_ms=(0.4,), prefill_base_ms=1.0, prefill_ms_per_token=0.0
    )
    with SimulatorThread(settings) as baseline, SimulatorThread(settings) as variant:
        yield baseline.url, variant.url


def list_runs() -> dict[str, list[str]]:
    """Return the words of the command that leaves each folder."""
    commands = map(shlex.split, COMMANDS)
    return {words[words.index("--out") + 1].removeprefix("runs/"): words for words in commands}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("no_page")
def test_a_command_of_the_page_measures_with_its_file(name, urls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file_name, content in FILES.items():
        Path(file_name).write_text(content)
    words = list_runs()[name]
    words[words.index("--baseline") + 1] = urls[0]
    words[words.index("--variant") + 1] = urls[1]

    main([*words, *shlex.split(SMALL)])

    folder = tmp_path / "runs" / name
    (suite,) = json.loads((folder / "manifest.json").read_text())["suites"]
    assert (suite["prompts"], suite["classes"]) == RUNS[name]
    records = list(read_records(folder / "records.jsonl"))
    assert len(records) == 2 * suite["prompts"]
    assert {record.error for record in records} == {None}


def test_every_command_of_the_page_is_run():
    assert list(list_runs()) == list(RUNS)
