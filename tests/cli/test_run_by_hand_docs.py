"""docs/run-by-hand.md says what is so: what its commands name is rendered."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tandem.artifacts.store import ObjectStore
from tandem.run.run_values import TASK_VARIABLE
from tandem.run.task_settings import build_task_settings, read_task

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "run-by-hand.md").read_text()
ENV = "post-us-east-2"
OBJECTS: list[dict[str, Any]] = [
    body
    for path in (ROOT / "manifests" / ENV / "post").rglob("*.yaml")
    for body in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
    if "metadata" in body
]
[TASK_PROGRAM] = re.findall(r"<<'TASK'\n(.*?)^TASK$", PAGE, flags=re.DOTALL | re.MULTILINE)


def named(kind: str) -> set[str]:
    return {body["metadata"]["name"] for body in OBJECTS if body["kind"] == kind}


def test_jobs_are_made_of_the_rendered_cron_jobs():
    jobs = set(re.findall(r"--from=cronjob/(\S+)", PAGE.replace("`", " ")))
    assert jobs == named("CronJob")


def test_a_job_accepts_the_task_of_a_round(monkeypatch):
    number = 4
    output = subprocess.run(
        [sys.executable, "-", str(number)],
        input=TASK_PROGRAM,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.setenv(TASK_VARIABLE, output.stdout.strip())
    task = read_task()

    assert (task.number, task.confirmed) == (
        number,
        tuple((earlier, 1) for earlier in range(number)),
    )
    assert {arm.name for arm in task.arms} == named("Deployment")
    assert build_task_settings(task, ObjectStore("unread", None)).plan().round(number)
