"""The files of prompts that an experiment names, from its bucket.

Invariant: a file is fetched and parsed once for a process, because a stored file never changes.
"""

from __future__ import annotations

from tandem.artifacts.store import ObjectStore
from tandem.artifacts.suite_files import read_suite
from tandem.bench.suites.suite import Suite
from tandem.declarations.experiment import Experiment
from tandem.declarations.suite_file import SuiteFile
from tandem.run.experiment_suites import find_parsed_suite, read_declared_suite


def read_bucket_suite(store: ObjectStore, declared: SuiteFile) -> Suite:
    """Return the suite of a file in the bucket, with all its classes.

    Raises:
        InputError: the bucket lacks the file, or it is not what the experiment states.
        ExternalError: S3 failed.
    """
    parsed_suite = find_parsed_suite(declared)
    if parsed_suite is not None:
        return parsed_suite
    return read_declared_suite(declared, read_suite(store, declared))


def read_bucket_suites(store: ObjectStore, experiment: Experiment) -> dict[str, Suite]:
    """Return the suites of all files that an experiment names, by name.

    Raises:
        InputError: as `read_bucket_suite`.
        ExternalError: S3 failed.
    """
    files = experiment.list_suite_files()
    return {declared.name: read_bucket_suite(store, declared) for declared in files}
