"""Files of prompts in the bucket, as `tandem doctor` and `tandem run` judge them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import pytest
from artifact_fixtures import aws, bucket, clients, front, store
from committed import environment, experiment, known
from test_prompt_lengths import split_words

from tandem.artifacts.suite_store import store_suite
from tandem.declarations.suite_file import SuiteFile
from tandem.ops.doctor.context import DoctorContext
from tandem.run.bucket_suites import find_bucket_suites
from tandem.run.suite_findings import judge_bucket_suite

__all__ = ["aws", "bucket", "clients", "front", "store"]
pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]
EXPERIMENT = experiment("post")
TARGET = known().models[EXPERIMENT.target]


@pytest.fixture
def support(tmp_path):
    """A file of three prompts, the second of 400 words, and its suite."""
    path = tmp_path / "support.jsonl"
    prompts = ["one", "word " * 400, "three"]
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path, SuiteFile(file="prompts/support.jsonl", sha256=digest)


@pytest.fixture
def judge(store):
    """Judge a suite in the test's bucket."""
    place = environment("post-us-east-2")
    artifacts = place.artifacts.model_copy(update={"existing_bucket": store.bucket})
    context = DoctorContext(
        environment=place.model_copy(update={"artifacts": artifacts}),
        experiments=(EXPERIMENT,),
        catalogue=known(),
        now=datetime.now(tz=UTC),
        resolve_digest=str,
        judge_suite=judge_bucket_suite,
    )
    return lambda suite: judge_bucket_suite(context, EXPERIMENT, suite, store.client)


def stage_tokenizer(store):
    """Store a tokenizer whose tokens are words where the target's is staged."""
    store.create(f"{TARGET.prefix()}/tokenizer.json", split_words())


def test_a_file_that_is_not_stored_fails_with_what_to_do(judge, support):
    _, suite = support
    finding = judge(suite)
    assert finding.level == "fail"
    assert "the bucket has no file of this digest" in finding.message
    assert "tandem artifacts stage-suite prompts/support.jsonl" in finding.action


def test_the_advice_reads_the_file_as_the_experiment_says(judge, support):
    _, suite = support
    fields = {"prompt_column": "the question", "class_field": "team", "sample": 2}
    finding = judge(suite.model_copy(update=fields))
    flags = "--prompt-column 'the question' --class-field team --sample 2"
    assert finding.action.endswith(f"stage-suite prompts/support.jsonl --env NAME {flags}")


def test_a_stored_file_is_not_counted_before_its_target_is_staged(store, judge, support):
    path, suite = support
    store_suite(store, path.name, path.read_bytes())
    finding = judge(suite)
    assert finding.level == "ok"
    assert f"3 prompts, not counted: {TARGET.id} is not staged" in finding.message


def test_the_targets_tokenizer_refuses_a_prompt_that_cannot_fit_and_shows_none(
    store, judge, support
):
    path, suite = support
    store_suite(store, path.name, path.read_bytes())
    stage_tokenizer(store)
    finding = judge(suite)
    assert finding.level == "fail"
    assert "line 2 has 400; max_prompt_tokens is 384" in finding.message
    assert "word" not in finding.message


def test_other_bytes_under_the_digest_fail(store, judge, support):
    path, suite = support
    _, key = store_suite(store, path.name, path.read_bytes())
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"other bytes")
    finding = judge(suite)
    assert finding.level == "fail"
    assert suite.sha256 in finding.message


def test_without_a_bucket_the_file_waits_for_the_deploy(store, judge, support):
    _, suite = support
    store.client.delete_bucket(Bucket=store.bucket)
    assert judge(suite).level == "warn"


def test_a_plan_goes_without_a_file_that_is_not_stored(store, support):
    own_experiment = EXPERIMENT.model_copy(update={"suites": (support[1],)})
    assert find_bucket_suites(store, own_experiment) == {}


def test_a_plan_has_the_prompts_of_a_stored_file(store, support):
    path, suite = support
    own_experiment = EXPERIMENT.model_copy(update={"suites": (suite,)})
    store_suite(store, path.name, path.read_bytes())
    assert len(find_bucket_suites(store, own_experiment)["support.jsonl"].prompts) == 3
