"""`keep`: store a folder of results below a run's prefix, and return the exit code of that run.

Invariant: every file of the folder is in the bucket, whole, before this ends well; no run writes
another's objects.

The container before this one has no credentials and always ends with 0 (`--defer`), so that the
results of a failed run are stored too; outcome.json has the run's real exit code, which this
command returns.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.job_env import add_bucket_argument, read_holder
from tandem.artifacts.manifest import validate_path
from tandem.artifacts.retry import add_retry_argument, retry_upload
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import open_store
from tandem.errors import InputError

OUTCOME = "outcome.json"
RESULTS = "results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    parser.add_argument("--folder", type=Path, required=True, help="what to keep")
    parser.add_argument(
        "--below", required=True, help=f"prefix below {RESULTS}/, such as EXPERIMENT/llmperf"
    )
    add_retry_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Store the folder; return the exit code of its run, 0 if the run left none.

    Raises:
        InputError: the folder is empty or has a file that cannot be stored, or a variable or the
            outcome is malformed.
        ExternalError: S3 failed for longer than the patience.
    """
    try:
        prefix = f"{RESULTS}/{validate_path(options.below)}/{read_holder()}"
    except ValueError as error:
        raise InputError(f"--below: {error}", change=f"name a prefix below {RESULTS}/") from None
    files = LocalFiles(options.folder)
    files.hash_all()  # before any call to S3: refuse unreadable files
    exit_code = 0
    problem = ""
    outcome_path = options.folder / OUTCOME
    if outcome_path.exists():
        try:
            outcome = json.loads(outcome_path.read_text())
            exit_code = int(outcome["exit_code"])
            problem = outcome.get("problem", "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"it has no exit code: {error}",
                where=str(outcome_path),
                change="see what the container before this one logged",
            ) from None
    store = open_store(options.bucket)
    retry_upload(lambda: upload_files(store, files, prefix), options.patience_s)
    log_event("kept", object=store.url(f"{prefix}/"), files=len(files.sizes), exit_code=exit_code)
    if problem:  # the last line is what the runner and `kubectl describe` show
        log_event(problem, level="error", exit_code=exit_code)
    return exit_code
