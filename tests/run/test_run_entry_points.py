"""`python -m tandem.run`: which tasks are refused at the border, and what each command's exit code
is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tandem.artifacts.store import ObjectStore
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import ExternalError, InputError, SilentServerError
from tandem.run import measure_job
from tandem.run.__main__ import main
from tandem.run.run_values import BenchTask
from tandem.run.runner import POLL_VARIABLE, _pause
from tandem.run.task_settings import build_task_settings

ROOT = Path(__file__).resolve().parents[2]
ARMS = tuple(
    ManifestArm(name=name, role=role, url=f"http://{name}:8000", model="m")  # type: ignore[arg-type]
    for name, role in (("base", "baseline"), ("spec", "variant"))
)
TASK: dict[str, Any] = json.loads(
    msgspec.json.encode(
        BenchTask(
            run="fall-1",
            environment="post-us-east-2",
            experiment="post",
            account="111122223333",
            region="us-east-2",
            bucket="results-of-nobody",
            number=1,
            attempt=2,
            confirmed=((0, 1),),
            arms=ARMS,
            suites=("post", "real"),
            most_tokens=600,
            size="quick",
            rounds=FEWEST_ROUNDS,
            control_rounds=1,
            seed=3,
            schedule="simultaneous",
            instance_type="trn2.48xlarge",
            usd_per_hour=44.5,
        )
    )
)


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "this is no task: Input data was truncated"),
        (json.dumps(TASK | {"nodes": 3}), "Object contains unknown field `nodes`"),
        (
            json.dumps(TASK | {"schema": 2}),
            "the task has schema 2; this version of Tandem reads schema 1",
        ),
        (json.dumps(TASK | {"run": "../other"}), "'../other' names no run"),
        (json.dumps(TASK | {"confirmed": [[0, 1], [0, 2]]}), "a round is confirmed twice"),
        (json.dumps(TASK | {"suites": [{"file": "../own.jsonl", "sha256": "0" * 64}]}), "file"),
    ],
)
def test_what_is_no_task_is_refused_with_2(text, problem, monkeypatch, capsys):
    monkeypatch.setenv("TANDEM_TASK", text)
    assert main(["measure"]) == main(["judge"]) == 2
    line = last_line(capsys)
    assert problem in line["event"]
    assert (line["level"], line["where"], line["exit_code"]) == ("error", "TANDEM_TASK", 2)
    assert line["change"].startswith("the runner writes it")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (InputError("bad", change="c"), 2),
        (ExternalError("down", where="s3", change="wait"), 3),
        (SilentServerError("nothing answers", where="http://base:8000", change="start it"), 5),
    ],
)
def test_fault_of_a_job_is_its_last_line(fault, code, tmp_path, monkeypatch, capsys):
    def fail(_task: BenchTask, _folder: Path) -> int:
        raise fault

    monkeypatch.setenv("TANDEM_TASK", json.dumps(TASK))
    monkeypatch.setattr(measure_job, "measure_round", fail)
    assert main(["measure", "--folder", str(tmp_path)]) == code
    assert last_line(capsys)["exit_code"] == code


def test_a_job_gets_its_task_its_folder_and_a_region(monkeypatch):
    calls: list[tuple[BenchTask, Path]] = []
    monkeypatch.setenv("TANDEM_TASK", json.dumps(TASK))
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setattr(
        measure_job, "measure_round", lambda *arguments: calls.append(arguments) or 0
    )
    assert main(["measure"]) == 0
    assert [(task.number, task.attempt, task.confirmed, folder) for task, folder in calls] == [
        (1, 2, ((0, 1),), Path("/work/run"))
    ]
    assert os.environ["AWS_DEFAULT_REGION"] == "us-east-2"


@pytest.mark.parametrize(("poll_s", "paused_s"), [(None, 10.0), ("0.5", 1.0)])
def test_a_rehearsal_shortens_the_runner_s_pauses(monkeypatch, poll_s, paused_s):
    (
        monkeypatch.setenv(POLL_VARIABLE, poll_s)
        if poll_s
        else monkeypatch.delenv(POLL_VARIABLE, raising=False)
    )
    waits = list[float]()
    _pause(SimpleNamespace(wait=waits.append), 10)  # type: ignore[arg-type]
    assert waits == [paused_s]


def test_a_job_that_measures_loads_neither_judge_nor_cluster():
    """Its pod has one processor, and what it loads it must hold."""
    code = "import sys, tandem.run.__main__, tandem.run.measure_job; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True
    )
    modules = set(output.stdout.split())
    assert {"aiohttp", "boto3"} <= modules
    assert modules.isdisjoint(
        {"scipy", "vl_convert", "lightkube", "cyclopts", "tandem.run.runner", "tandem.cli"}
    )


@pytest.mark.parametrize(
    ("size", "most_tokens", "expected"),
    [
        ("quick", 600, 192),
        ("quick", 100, 100),
        ("default", None, 560),
        ("full", None, None),
    ],
)
def test_an_answer_is_as_long_as_size_and_server_allow(size, most_tokens, expected):
    task = msgspec.convert(TASK | {"size": size, "most_tokens": most_tokens}, BenchTask)
    settings = build_task_settings(task, ObjectStore("unread", None))
    assert settings.manifest.max_tokens == expected
