"""The files of prompts that an experiment names, from its bucket.

Invariant: a runner, which looks again and again, fetches and parses a file once. A person's command
fetches it each time. A fault shows nothing that a file's rows hold.
"""

from __future__ import annotations

import contextlib

from tandem.artifacts.store import ObjectStore
from tandem.artifacts.suite_store import read_suite_bytes
from tandem.bench.suites.suite import Suite
from tandem.declarations.experiment import Experiment
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import TandemError
from tandem.run.experiment_suites import read_declared_suite

_parsed_suites: dict[SuiteFile, Suite] = {}


def fetch_bucket_suite(store: ObjectStore, suite_file: SuiteFile) -> Suite:
    """Return the suite of a file in the bucket as it is now, with all its classes.

    Raises:
        InputError: the bucket lacks the file, or it is not what the experiment states.
        ExternalError: S3 failed.
    """
    content, sha256 = read_suite_bytes(store, suite_file)
    return read_declared_suite(suite_file, content, sha256, is_logged=True)


def read_bucket_suite(store: ObjectStore, suite_file: SuiteFile) -> Suite:
    """Return the same; a file that this process has parsed is not fetched again.

    Raises:
        InputError: as `fetch_bucket_suite`.
        ExternalError: S3 failed.
    """
    if suite_file not in _parsed_suites:
        _parsed_suites[suite_file] = fetch_bucket_suite(store, suite_file)
    return _parsed_suites[suite_file]


def forget_bucket_suites() -> None:
    """Forget what this process parsed: a runner lives longer than its requests."""
    _parsed_suites.clear()


def find_bucket_suites(store: ObjectStore, experiment: Experiment) -> dict[str, Suite]:
    """Return the suites of the bucket that can be read, by name; a plan goes without the others."""
    suites = {}
    for suite_file in experiment.list_suite_files():
        with contextlib.suppress(TandemError):
            suites[suite_file.name] = fetch_bucket_suite(store, suite_file)
    return suites
