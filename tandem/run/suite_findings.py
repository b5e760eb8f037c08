"""Files of prompts in the bucket, as an experiment names them: there, whole, and short enough.

Invariant: nothing is written, and no finding shows a prompt's text.
"""

from __future__ import annotations

from typing import Any

from tandem.artifacts.store import ObjectStore
from tandem.declarations import names
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.run.bucket_suites import fetch_bucket_suite
from tandem.run.prompt_lengths import (
    COUNTED,
    CountTokens,
    build_counter,
    describe_long_prompts,
    measure_prompts,
)
from tandem.shell_command import build_tandem_command

TOKENIZER_FILE = "tokenizer.json"
LONG_ADVICE = "shorten them, or raise max_prompt_tokens, which compiles again"


def load_target_counter(store: ObjectStore, target: ModelConfig) -> CountTokens | None:
    """Return what counts tokens as the target does; None while its tokenizer is not staged.

    Raises:
        InputError: the staged file is no tokenizer.
        ExternalError: S3 failed.
    """
    key = f"{target.prefix()}/{TOKENIZER_FILE}"
    content = store.read(key)
    return None if content is None else build_counter(content.body, store.url(key))


def judge_bucket_suite(
    context: DoctorContext, experiment: Experiment, suite: SuiteFile, s3_client: Any
) -> Finding:
    """Return whether the bucket has a suite of an experiment, and whether its prompts fit.

    Raises:
        ExternalError: S3 failed.
    """
    environment = context.environment
    target = context.catalogue.models[experiment.target]
    store = ObjectStore(names.bucket_name(environment), s3_client)
    subject = f"{suite.name} of {experiment.name}"
    verb = f"artifacts stage-suite {suite.file}"
    stage = build_tandem_command(verb, environment.name, *suite.list_flags())
    try:
        bucket_suite = fetch_bucket_suite(store, suite)
        count_tokens = load_target_counter(store, target)
    except InputError as error:
        if not _has_bucket(store):
            return Finding("warn", f"{subject}: no bucket yet", "deploy, then store it", stage)
        return Finding("fail", f"{subject}: {error.problem} ({error.where})", error.change)
    prompts = f"{len(bucket_suite.prompts)} prompts"
    if count_tokens is None:
        message = f"{subject}: {prompts}, not counted: {target.id} is not staged"
        return Finding("ok", message)
    limit = experiment.max_prompt_tokens
    long_text = describe_long_prompts(measure_prompts(bucket_suite, count_tokens), limit)
    if long_text:
        return Finding("fail", f"{subject}: {long_text} ({COUNTED})", LONG_ADVICE)
    return Finding("ok", f"{subject}: {prompts}, none above {limit} tokens ({COUNTED})")


def _has_bucket(store: ObjectStore) -> bool:
    """Return whether the bucket is there: a missing one and a missing object have one answer."""
    try:
        next(store.list("suites/"), None)
    except InputError:
        return False
    return True
