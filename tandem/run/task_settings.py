"""Task of a run's Job, from its variable: read, refused at the border, made the bench's settings.

Invariant: everything comes from the task; a Job reads no declared file.
"""

from __future__ import annotations

import os

import msgspec
from pydantic import ValidationError

from tandem.artifacts.store import ObjectStore
from tandem.bench.plan.run_size import SIZES
from tandem.bench.plan.settings import RunSettings, build_settings
from tandem.bench.records.json_file import DECODE_ERRORS, require_schema
from tandem.bench.records.manifest import Timeouts
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError
from tandem.run.bucket_suites import read_bucket_suite
from tandem.run.experiment_suites import select_suites
from tandem.run.run_keys import find_run_id_fault
from tandem.run.run_values import SCHEMA, TASK_VARIABLE, BenchTask

_TASK_CHANGE = (
    "the runner writes it into the Job that it makes; the Job's image must be the runner's own"
)
_MANIFEST_FIELDS = (  # that a task has under the manifest's names
    *("run", "environment", "experiment", "instance_type", "schedule"),
    *("arms", "seed", "rounds", "control_rounds", "goodput", "show_prompts"),
)


def read_task() -> BenchTask:
    """Return the task of this process.

    Raises:
        InputError: there is no task, it is none of this version, or its run has no usable id.
    """
    text = os.environ.get(TASK_VARIABLE, "")
    require_schema(text, SCHEMA, label="the task", where=TASK_VARIABLE, change=_TASK_CHANGE)
    try:
        task = msgspec.json.decode(text, type=BenchTask)
        _list_suites(task)
    except (*DECODE_ERRORS, ValidationError) as error:
        raise InputError(
            f"this is no task: {error}", where=TASK_VARIABLE, change=_TASK_CHANGE
        ) from error
    fault = find_run_id_fault(task.run)
    rounds = [number for number, _ in task.confirmed]
    if len(set(rounds)) < len(rounds):
        fault = fault or "a round is confirmed twice"
    if fault:
        raise InputError(fault, where=TASK_VARIABLE, change=_TASK_CHANGE)
    return task


def _list_suites(task: BenchTask) -> list[str | SuiteFile]:
    """Return the suites of a task, as an experiment declares them.

    Raises:
        ValidationError: a file is not as an experiment may declare it.
    """
    return [
        suite if isinstance(suite, str) else SuiteFile.model_validate(suite)
        for suite in task.suites
    ]


def build_task_settings(task: BenchTask, store: ObjectStore) -> RunSettings:
    """Return the settings of the run to which a task belongs: the same for each of its rounds.

    Args:
        task: of a Job.
        store: the bucket, which has the files of prompts.

    Raises:
        InputError: the bucket lacks a file of prompts, or it is not what the experiment states.
        ExternalError: S3 failed.
    """
    size = SIZES[task.size]
    entries = [
        suite if isinstance(suite, str) else read_bucket_suite(store, suite)
        for suite in select_suites(size, _list_suites(task))
    ]
    suites = size.load_suites(entries)
    fields = {name: getattr(task, name) for name in _MANIFEST_FIELDS}
    fields |= {"api": "chat", "time_outs": Timeouts(), "price_usd_per_hour": task.usd_per_hour}
    return build_settings(
        size, suites, fields, most_tokens=task.most_tokens, concurrency=task.concurrency or None
    )
