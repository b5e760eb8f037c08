"""docs/run-by-hand.md says what is so: what its commands name is rendered."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.artifacts.store import ObjectStore
from tandem.declarations import names
from tandem.declarations.workspace import load_workspace
from tandem.ops.people.cluster_rights import RUNNER_NAMESPACE
from tandem.run.run_values import TASK_VARIABLE
from tandem.run.task_settings import build_task_settings, read_task

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "run-by-hand.md").read_text()
ENV = "post-us-east-2"
NAMESPACE = "tandem-post"
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
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


def test_deployments_and_namespaces_are_rendered():
    commands = " ".join(BLOCKS)
    assert set(re.findall(rf"-n {NAMESPACE} .*?deploy[ /]([\w-]+)", commands)) == named(
        "Deployment"
    )
    assert set(re.findall(r"kubectl -n ([\w-]+)", PAGE)) == {NAMESPACE, RUNNER_NAMESPACE}


def test_labels_by_hand_are_those_that_a_raise_sets():
    workspace = load_workspace(ROOT / "environments", ROOT / "experiments", (ENV,))
    experiment = workspace.experiments["post"].record
    assert experiment is not None
    admits = {
        f"{names.raise_label(variant)}={experiment.name}" for variant in experiment.all_variants()
    }

    assert set(re.findall(r"raise\.tandem/[\w-]+=\w+", PAGE)) == admits
    assert "=".join(names.compile_label(experiment)) in PAGE


@pytest.mark.parametrize("number", [4])
def test_a_job_accepts_the_task_of_a_round(number, monkeypatch):
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
