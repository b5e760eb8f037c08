"""Keys of a run in the bucket: one id names its lease, its journal and its results.

Keys of requests, journal and runner come after `guard.config.prefix`, as those of leases do.
Results are where the bench publishes them.
"""

from __future__ import annotations

import hashlib
import re

from tandem.guard.lease import RUN_NAME_PATTERN

RUN_ID_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
# our folders next to those of runs: results/EXPERIMENT/llmperf/ and quality/ hold the files of
# these Jobs
RESERVED_RUN_IDS = frozenset({"llmperf", "quality"})
REQUESTS_PREFIX = "requests/"
# engineers may write here, and the runner only stages for them
STAGE_REQUESTS_PREFIX = "stage-requests/"
RUNS_PREFIX = "runs/"
RUNNER_KEY = "runner.json"
MAX_REQUEST_BYTES = 64 * 1024


def find_run_id_fault(run: str) -> str:
    """Return why a text is no valid run id; empty if it is one."""
    if not RUN_ID_PATTERN.fullmatch(run) or not RUN_NAME_PATTERN.fullmatch(run):
        return (
            f"{run!r} names no run: 1 to 40 lower-case letters, digits and '-', a letter or digit"
            " at both ends"
        )
    if run in RESERVED_RUN_IDS:
        return f"{run!r} is a folder of Tandem's own beside the runs' results"
    return ""


def request_key(user_id: str, stem: str, *, is_stage: bool = False) -> str:
    """Return the key of a request; IAM lets a person write only below their own `aws:userid`.

    Args:
        user_id: `aws:userid` of the person.
        stem: the run's id; for a cancel or a resume the id and a suffix.
        is_stage: whether the request is about a run that only stages.
    """
    prefix = STAGE_REQUESTS_PREFIX if is_stage else REQUESTS_PREFIX
    return f"{prefix}{user_id}/{stem}.json"


def answer_key(key: str) -> str:
    """Return the key of the runner's answer to the request at `key`."""
    return f"{key.removesuffix('.json')}.answer.json"


def run_record_key(run: str) -> str:
    """Return the key of the object with the owner and the state of a run."""
    return f"{RUNS_PREFIX}{run}/run.json"


def step_key(run: str, index: int, step: str) -> str:
    """Return the key of one step's object in the journal."""
    return f"{RUNS_PREFIX}{run}/steps/{index:03}-{step}.json"


def steps_prefix(run: str) -> str:
    """Return the prefix of a run's journal."""
    return f"{RUNS_PREFIX}{run}/steps/"


def log_key(run: str, job: str) -> str:
    """Return the key of the tail of a Job's log, stored at its step's end."""
    return f"{RUNS_PREFIX}{run}/logs/{job}.txt"


def mark_jobs(run: str) -> str:
    """Return the common part of the names of all Jobs and pods of a run."""
    return f"-{hashlib.sha256(run.encode()).hexdigest()[:6]}-"


def lease_run(run: str, number: int) -> str:
    """Return the name of a run's lease: the run's id; from the second lease on also its number."""
    return run if number == 1 else f"{run}.{number}"


def pair_run(run: str, pair: int) -> str:
    """Return the run id of a pair's results: a sweep has one folder of results for each pair."""
    return f"{run}-p{pair:02}" if pair else run


def pair_step(pair: int, step: str) -> str:
    """Return the name of a pair's step in the journal of its sweep."""
    return f"{PAIR_STEP}{pair:02}-{step}" if pair else step


def strip_pair(step: str) -> str:
    """Return the name of a step without its pair, if it has one."""
    if step.startswith(PAIR_STEP):
        return step.split("-", 2)[-1]
    return step


def results_prefix(experiment: str, run: str) -> str:
    """Return the prefix of a run's results; as for the bench, no environment precedes it."""
    return f"results/{experiment}/{run}/"


def job_prefix(experiment: str, folder: str, job: str) -> str:
    """Return the prefix of what our Job stored, in a folder next to the runs'; its uid follows."""
    return f"{results_prefix(experiment, folder)}{job}"


def round_prefix(experiment: str, run: str, number: int, attempt: int) -> str:
    """Return the prefix of one measure Job's records; its `round.json` is stored last."""
    return f"{results_prefix(experiment, run)}rounds/{number:05}/{attempt}/"


ROUND_STEP = "round-"  # plus its number in five digits: the name of a round's step
# of a pair: its rounds are judged, so that only a candidate that leads is asked the tasks
RANK_STEP = "rank"
PAIR_STEP = "pair-"  # plus the pair's number in two digits and the name of the step
DECISION_FILE = "decision.json"
ROUND_FILE = "round.json"
JUDGMENT_FILE = "judgment.json"
