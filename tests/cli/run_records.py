"""Runs as a runner would leave them in the bucket, and a runner of a few lines that answers what is
asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from bucket_specs import folders, store_needs
from fleet_world import Fleet

from tandem.artifacts.needs import BucketNeed, list_needs, merge_needs
from tandem.artifacts.store import ObjectStore
from tandem.cli.program import main
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.declarations.workspace import load_workspace
from tandem.run.run_keys import (
    REQUESTS_PREFIX,
    RUNNER_KEY,
    STAGE_REQUESTS_PREFIX,
    answer_key,
    run_record_key,
    step_key,
)
from tandem.run.run_values import (
    LeaseSpan,
    RequestAnswer,
    RunnerBeat,
    RunRecord,
    RunRequest,
    StepRecord,
    parse_request,
)

RUN = "post-20261122-101500"
START = datetime(2026, 11, 22, 10, 15, tzinfo=UTC)
STEPS = (
    "preflight",
    "stage",
    "raise",
    "node",
    "compile",
    "label",
    "serve",
    "ready",
    "check",
    "round-00000",
)
VERDICT = "qwen-sd-vllm is faster (restarts not tested)"


def moment(minutes: float) -> str:
    """So many minutes after the run's start."""
    return (START + timedelta(minutes=minutes)).isoformat()


def make_request(**fields: Any) -> RunRequest:
    """A request of the default size."""
    names = {
        "kind": "run",
        "run": RUN,
        "environment": "e",
        "experiment": "post",
        "at": moment(0),
        "hours": 6,
    }
    return RunRequest(**{**names, **fields})


def make_record(fleet: Fleet, run: str = RUN, **fields: Any) -> RunRecord:
    """A run of this environment."""
    lease = LeaseSpan(name=run, deadline=moment(360), raised_at=moment(40), empty_at=moment(100))
    return RunRecord(
        **{
            "run": run,
            "environment": fleet.name,
            "experiment": "post",
            "who": "AIDAEXAMPLE",
            "started_at": moment(0),
            "request": make_request(run=run, environment=fleet.name),
            "leases": (lease,),
            "rounds_total": 5,
            "node_s": 3600.0,
            "used_node_s": 3132.0,
            **fields,
        }
    )


def make_step(
    index: int, step: str, state: str = "done", run: str = RUN, **fields: Any
) -> StepRecord:
    """A step of ten minutes."""
    end = None if state == "running" else moment(10 * index + 10)
    names = {
        "run": run,
        "step": step,
        "state": state,
        "started_at": moment(10 * index),
        "ended_at": end,
    }
    return StepRecord(**{**names, **fields})


def put_value(fleet: Fleet, key: str, value: Any) -> None:
    """Write a value as the runner does."""
    body = msgspec.json.encode(value) if isinstance(value, msgspec.Struct) else value
    fleet.client("s3").put_object(Bucket=fleet.guarded.bucket, Key=key, Body=body)


def put_run(fleet: Fleet, record: RunRecord, steps: tuple[StepRecord, ...] = ()) -> None:
    """Write a run and its journal."""
    put_value(fleet, run_record_key(record.run), record)
    for index, step in enumerate(steps):
        put_value(fleet, step_key(record.run, index, step.step), step)


def compute_digest(fleet: Fleet) -> str:
    """Of the environment with the experiment `post`."""
    place = fleet.specs / "environments", fleet.specs / "experiments"
    experiment = load_workspace(*place, (fleet.name,)).experiments["post"].record
    return compute_spec_digest(fleet.environment, experiment, load_catalogue())


def put_beat(fleet: Fleet, age: timedelta = timedelta(), **fields: Any) -> None:
    """Let the runner have written so long ago."""
    digests = fields.pop("spec_digests", None) or {"post": compute_digest(fleet)}
    at = (datetime.now(UTC) - age).isoformat()
    put_value(fleet, RUNNER_KEY, RunnerBeat(at=at, writer="uid", spec_digests=digests, **fields))


def list_post_needs(fleet: Fleet) -> tuple[BucketNeed, ...]:
    """Models and artifacts of the experiment `post`."""
    place = fleet.specs / "environments", fleet.specs / "experiments"
    experiment = load_workspace(*place, (fleet.name,)).experiments["post"].record
    return merge_needs(list_needs(fleet.name, [experiment], load_catalogue()))


def fill_bucket(fleet: Fleet) -> None:
    """Store every model and artifact."""
    store_needs(ObjectStore(fleet.guarded.bucket, fleet.client("s3")), list_post_needs(fleet))


def list_keys(fleet: Fleet, prefix: str) -> list[str]:
    """Every key below a prefix."""
    rows = (
        fleet.client("s3")
        .list_objects_v2(Bucket=fleet.guarded.bucket, Prefix=prefix)
        .get("Contents", [])
    )
    return [row["Key"] for row in rows]


def list_requests(fleet: Fleet) -> list[str]:
    """Every request's key, without the answers."""
    keys = [*list_keys(fleet, REQUESTS_PREFIX), *list_keys(fleet, STAGE_REQUESTS_PREFIX)]
    return [key for key in keys if not key.endswith(".answer.json")]


def read_request(fleet: Fleet) -> tuple[str, RunRequest]:
    """The only request, and its key."""
    (key,) = list_requests(fleet)
    body = fleet.client("s3").get_object(Bucket=fleet.guarded.bucket, Key=key)["Body"].read()
    return key, parse_request(body, key)


def tandem(fleet: Fleet, command: str, *more: str) -> int:
    """Run a command of several words."""
    return main([*command.split(), "--env", fleet.name, *folders(fleet.specs), *more])


@contextmanager
def answering(
    fleet: Fleet, act: Callable[[RunRequest], None] = lambda _: None, **answer: Any
) -> Iterator[list[RunRequest]]:
    """Answer every request: accept it, or as `answer` says, once `act` has written what it does."""
    stop = threading.Event()
    requests = list[RunRequest]()
    answer_body = RequestAnswer(**{"is_accepted": True, "at": moment(0), **answer})

    def answer_requests() -> None:
        seen: set[str] = set()
        while not stop.is_set():
            for key in list_requests(fleet):
                if key in seen:
                    continue
                seen.add(key)
                body = (
                    fleet.client("s3")
                    .get_object(Bucket=fleet.guarded.bucket, Key=key)["Body"]
                    .read()
                )
                request = parse_request(body, key)
                requests.append(request)
                act(request)
                put_value(fleet, answer_key(key), answer_body)
            time.sleep(0.01)

    thread = threading.Thread(target=answer_requests, daemon=True)
    thread.start()
    try:
        yield requests
    finally:
        stop.set()
        thread.join(5)
