"""Names are computed, distinct where two would meet, and within the limits of what they name."""

from __future__ import annotations

import re

import pytest
from committed import EXPERIMENTS, environment, experiment, known

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.variant_key import compute_artifact_key

HOME = environment("post-us-east-2")
POST = experiment("post")
KEYS = {
    name: [
        compute_artifact_key(experiment(name), variant, known())
        for variant in experiment(name).all_variants()
    ]
    for name in EXPERIMENTS
}


def with_bucket(bucket: str | None) -> Environment:
    """Return an environment on a bucket of somebody else's, or on its own."""
    return HOME.model_copy(
        update={"artifacts": HOME.artifacts.model_copy(update={"existing_bucket": bucket})}
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (names.bucket_name(with_bucket("mine")), "mine"),
        (names.simulation_namespace(HOME), "Tandem/Simulated/post-us-east-2"),
        # AmazonCloudWatch user guide, Container Insights: /aws/containerinsights/<cluster>/<kind>
        (
            names.container_log_group_name(HOME, "host"),
            "/aws/containerinsights/tandem-post-us-east-2/host",
        ),
        (names.model_slug("Qwen/Qwen3-1.7B"), "qwen3-1-7b"),
        (
            names.model_slug("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"),
            "llama-3-1-8b-instruct-speculator-eagle3",
        ),
        (names.model_slug("a/_x_"), "x"),
    ],
)
def test_a_name_is_made_of_what_it_names(name, expected):
    assert name == expected


def test_a_volume_on_another_bucket_has_another_name():
    assert (
        len(
            {
                names.models_volume_name(with_bucket(bucket), POST)
                for bucket in (None, "one", "other")
            }
        )
        == 3
    )


def test_every_model_has_a_staging_job_of_its_own():
    jobs = {names.stage_job_name(model) for model in known().models.values()}
    assert len(jobs) == len(known().models)
    assert all(
        re.fullmatch(r"stage-[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{7}", job) for job in jobs
    )
    assert max(map(len, jobs)) <= names.CRON_JOB_CHARACTERS


@pytest.mark.parametrize(
    "key", [key for keys in KEYS.values() for key in keys], ids=lambda key: key.name
)
def test_the_job_that_compiles_an_artifact_has_a_legal_name(key):
    job = names.compile_job_name(key)
    assert re.fullmatch(r"compile-[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{12}", job)
    assert len(job) <= names.CRON_JOB_CHARACTERS


def test_a_compile_is_named_by_target_mode_window_and_key():
    key = KEYS["post"][1]
    assert names.compile_job_name(key) == f"compile-qwen3-32b-fused-k7-{key.digest}"
