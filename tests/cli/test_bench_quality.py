"""`tandem bench quality`: two simulated servers that add numbers, and what the verdict says of
their answers."""

from __future__ import annotations

import json
import random
import re

import msgspec
import pytest
from doubles.simulator_thread import SimulatorThread
from test_bench_report import write_pair
from test_lm_eval_samples import SAMPLE, write_samples

from tandem.bench.records.manifest import read_manifest, write_manifest
from tandem.bench.records.quality_rows import read_quality
from tandem.bench.suites.task_items import MAX_UNANSWERED, OWN_TASK, TaskItem, load_items
from tandem.cli.program import main
from tandem.judge.quality import FEWEST_ITEMS
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

ITEMS = 200


def serve_sums(**settings):
    """A simulated server that answers sums."""
    classes = {"default": PromptClassSettings(form="sum", **settings)}
    return SimulatorThread(
        SimulatorSettings(model="m", step_ms=(1.0,), prefill_base_ms=1, classes=classes)
    )


@pytest.fixture(autouse=True)
def _without_page(monkeypatch):
    """No test but those of the page pay for its charts."""
    monkeypatch.setattr("tandem.report.page.write_report", lambda *_: "report.html")


@pytest.fixture
def run_folder(tmp_path):
    """A run of two arms whose servers are gone."""
    return write_pair(tmp_path / "run")


def point_arms(folder, *servers):
    """Give the arms of a run the addresses of servers."""
    manifest = read_manifest(folder)
    urls = [server.url for server in servers]
    arms = [
        msgspec.structs.replace(arm, url=url) for arm, url in zip(manifest.arms, urls, strict=True)
    ]
    write_manifest(folder, msgspec.structs.replace(manifest, arms=tuple(arms)))


def write_items(path):
    """A task of so many sums."""
    chance = random.Random(1)  # noqa: S311 - repeatable, not secret
    pairs = [(chance.randrange(100, 1000), chance.randrange(100, 1000)) for _ in range(ITEMS)]
    items = [
        TaskItem(item=f"s{n}", prompt=f"What is {a} + {b}?", answer=str(a + b))
        for n, (a, b) in enumerate(pairs)
    ]
    path.write_bytes(b"\n".join(msgspec.json.encode(item) for item in items))
    return path


def judge_quality(folder, *, wrong_every, items):
    """Ask both servers and judge the run; return the verdict's document."""
    with serve_sums() as plain, serve_sums(wrong_every=wrong_every) as variant:
        point_arms(folder, plain, variant)
        assert main(["bench", "quality", str(folder), "--items", str(items)]) == 0
    main(["bench", "report", str(folder)])
    return json.loads((folder / "verdict.json").read_text())


def test_worse_quality_is_another_output(run_folder, tmp_path):
    verdict = judge_quality(run_folder, wrong_every=10, items=write_items(tmp_path / "sums.jsonl"))
    assert verdict["headlines"][0]["output"] == "not the same"


def test_report_names_the_task(run_folder, tmp_path, capsys):
    judge_quality(run_folder, wrong_every=0, items=write_items(tmp_path / "sums.jsonl"))
    capsys.readouterr()
    main(["bench", "report", str(run_folder), "--verbose"])
    assert "quality of spec on sums: same" in capsys.readouterr().out


def test_field_of_lm_eval_needs_its_samples(run_folder, capsys):
    assert main(["bench", "quality", str(run_folder), "--group", "passage"]) == 2
    assert "write `group` into the items, or give samples with --lm-eval" in capsys.readouterr().err


def test_server_without_an_answer_is_an_external_failure(run_folder, capsys):
    with serve_sums() as server:
        point_arms(run_folder, server, server)
    assert main(["bench", "quality", str(run_folder)]) == 3
    assert re.search(
        r"400 of 400 items have no answer; the first: sum-\d+: connect", capsys.readouterr().err
    )


def test_own_task_decides():
    assert (1 - MAX_UNANSWERED) * len(load_items(OWN_TASK)) >= FEWEST_ITEMS


def test_samples_of_lm_eval_are_rows_of_their_arms(run_folder, tmp_path):
    words = []
    for arm in ("base", "spec"):
        (tmp_path / arm).mkdir()
        words += ["--lm-eval", f"{arm}={write_samples(tmp_path / arm, SAMPLE)}"]
    assert main(["bench", "quality", str(run_folder), *words]) == 0
    assert [(row.arm, row.right) for row in read_quality(run_folder)] == [
        ("base", True),
        ("spec", True),
    ]


def test_samples_of_one_arm_alone_are_refused(run_folder, tmp_path, capsys):
    words = ["--lm-eval", f"base={write_samples(tmp_path, SAMPLE)}"]
    assert main(["bench", "quality", str(run_folder), *words]) == 2
    assert "write --lm-eval ARM=DIR for each arm: base, spec" in capsys.readouterr().err
