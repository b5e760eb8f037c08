"""The Job of one round: it rebuilds the earlier rounds' folder, measures a round, and stores it.

Invariant: nothing of an earlier attempt of the round is read. A cut round is not stored. A failure
to publish confirmed rounds loses no round, because the judge publishes again.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import uvloop

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.store import open_store
from tandem.bench.load.run import MeasurementRun
from tandem.errors import ExitCode, InputError
from tandem.run.publication import publish_confirmed
from tandem.run.round_records import rebuild_folder, store_round
from tandem.run.run_values import TASK_VARIABLE, BenchTask
from tandem.run.task_settings import build_task_settings

PUBLISH_LIMIT_S = 60.0  # servers and their nodes wait meanwhile


def measure_round(task: BenchTask, folder: Path) -> int:
    """Measure the round of a task and store it; return 0, or 3 if SIGTERM came first.

    Args:
        task: of the Job.
        folder: this process's own; its content is deleted.

    Raises:
        InputError: the task contradicts itself, a server or the bucket differs from the task, or a
            confirmed round is not stored whole.
        SilentServerError: a server does not answer.
        ExternalError: a server or the disk failed, or S3 failed for longer than the retries last.
    """
    if task.number in dict(task.confirmed):
        raise InputError(
            f"round {task.number} is confirmed already",
            where=TASK_VARIABLE,
            change="take it out of `confirmed`, or measure another round",
        )
    store = open_store(task.bucket)
    settings = build_task_settings(task, store)
    shutil.rmtree(folder, ignore_errors=True)
    sizes = rebuild_folder(store, task.experiment, task.run, task.confirmed, folder)
    for sentence in publish_confirmed(task, folder, end_s=time.monotonic() + PUBLISH_LIMIT_S):
        log_event("not published yet", level="warning", reason=sentence)
    start_s = time.monotonic()
    run = MeasurementRun(
        settings=settings, folder=folder, resume=bool(task.confirmed), only_round=task.number
    )
    outcome = uvloop.run(run.run())
    if outcome.fault is not None:
        raise outcome.fault
    if outcome.reason == "interrupted":
        log_event(
            "told to stop: nothing of the round is stored", level="warning", round=task.number
        )
        return ExitCode.EXTERNAL_FAILURE
    result = store_round(store, task, folder, sizes, time.monotonic() - start_s)
    log_event(
        "measured",
        round=task.number,
        attempt=task.attempt,
        requests=result.requests,
        failed=result.failed,
    )
    return ExitCode.DONE
