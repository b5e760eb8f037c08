"""The quality CronJob: declared sets, the servers that the runner names, no credential where
others' code runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from chart_cases import (
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    build_stages,
    stages,
)

from tandem.bench.lm_eval.__main__ import SERVERS_VARIABLE, AskedTask
from tandem.declarations.experiment import QualityTask
from tandem.run import round_steps

Spec = dict[str, Any]
HOME = ENVIRONMENTS["post-us-east-2"]
SHA256 = "0" * 64
TASKS = (
    QualityTask(name="sums"),
    QualityTask(name="letters", sha256=SHA256, items=400, chance=0.25),
)
ASKED = EXPERIMENTS["post"].model_copy(update={"quality": TASKS})


@pytest.fixture
def job():
    """The template of the Job's pod."""
    (body,) = build_stages(HOME, ASKED)["quality"]
    return body["spec"]["jobTemplate"]["spec"]["template"]


@pytest.fixture
def ask(job):
    """The container that asks."""
    return job["spec"]["initContainers"][1]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_it_is_there_where_tasks_are_declared(environment, experiment):
    assert ("quality" in stages(environment, experiment)) is bool(EXPERIMENTS[experiment].quality)


def test_staged_sets_alone_are_fetched(job):
    words = job["spec"]["initContainers"][0]["args"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "--task-set"] == [
        f"letters={SHA256}"
    ]


def test_every_task_is_asked_as_declared(ask):
    asked_tasks = [
        msgspec.json.decode(ask["args"][at + 1], type=AskedTask)
        for at, word in enumerate(ask["args"])
        if word == "--task"
    ]
    assert [(task.name, task.sha256, task.items, task.chance) for task in asked_tasks] == [
        ("sums", None, 400, 0.0),
        ("letters", SHA256, 400, 0.25),
    ]


def test_runner_names_the_servers(ask):
    assert ask["env"] == [{"name": SERVERS_VARIABLE}]
    assert round_steps.SERVERS_VARIABLE == SERVERS_VARIABLE
