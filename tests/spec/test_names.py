"""Names are computed, distinct where two would meet, and within the limits of what they name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from committed import ENVIRONMENTS, EXPERIMENTS, environment, experiment, known

from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.names import model_slug
from tandem.spec.variant_key import compute_artifact_key


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environments_names_are_within_their_limits(name: str) -> None:
    assert [each for each in names.environment_names(environment(name)) if len(each.value) > each.limit] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_names_are_within_their_limits(name: str) -> None:
    assert [each for each in names.experiment_names(experiment(name)) if len(each.value) > each.limit] == []


def test_the_bucket_is_unique_by_account() -> None:
    assert names.bucket_name(environment("post-us-east-2")) == "tandem-post-us-east-2-111122223333"


def test_an_existing_bucket_keeps_its_name() -> None:
    mine = environment("post-us-east-2")
    artifacts = mine.artifacts.model_copy(update={"existing_bucket": "mine"})

    assert names.bucket_name(mine.model_copy(update={"artifacts": artifacts})) == "mine"


def test_no_log_bucket_is_named_beside_an_existing_one() -> None:
    mine = environment("post-us-east-2")
    artifacts = mine.artifacts.model_copy(update={"existing_bucket": "mine"})

    whats = {each.resource_type for each in names.environment_names(mine.model_copy(update={"artifacts": artifacts}))}

    assert "S3 log bucket" not in whats


def test_two_artifacts_of_one_experiment_have_two_volumes() -> None:
    declared = experiment("post-drafts-windows")
    volumes = {
        names.artifact_volume_name(
            environment("post-us-east-2"), declared, compute_artifact_key(declared, variant, known())
        )
        for variant in declared.all_variants()
    }

    assert len(volumes) == len(declared.all_variants())


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(EXPERIMENTS, 2)))
def test_two_experiments_share_no_namespace(one: str, other: str) -> None:
    assert names.experiment_namespace(experiment(one)) != names.experiment_namespace(experiment(other))


def test_a_raise_names_its_variant() -> None:
    assert names.raise_label(experiment("post").variants[1]) == "raise.tandem/qwen-sd-vllm"


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ("Qwen/Qwen3-1.7B", "qwen3-1-7b"),
        ("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "llama-3-1-8b-instruct-speculator-eagle3"),
        ("a/_x_", "x"),
    ],
)
def test_a_models_name_becomes_a_label(id_: str, expected: str) -> None:
    assert model_slug(id_) == expected


def test_a_sweep_is_every_draft_at_every_window() -> None:
    swept = experiment("post-drafts-windows").all_variants()[1:]

    assert [variant.name for variant in swept] == [
        f"qwen-sd-qwen3-{draft}-k{window}" for draft in ("0-6b", "1-7b") for window in (5, 7, 10, 15)
    ]


def test_a_swept_name_that_is_too_long_is_a_name_still() -> None:
    declared = experiment("post-drafts-windows")
    assert declared.sweep is not None
    long = declared.sweep.model_copy(update={"prefix": "p" * 63})

    assert {len(variant.name) for variant in long.variants()} == {
        63 + len("-qwen3-0-6b-k5"),
        63 + len("-qwen3-0-6b-k10"),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (names.cluster_name, "tandem-post-us-east-2"),
        (names.log_bucket_name, "tandem-post-us-east-2-111122223333-logs"),
        (names.node_group_name, "post-us-east-2-trn2"),
    ],
)
def test_an_environments_names_are_made_of_its_own(name: Callable[[Environment], str], expected: str) -> None:
    assert name(environment("post-us-east-2")) == expected


def test_a_stack_is_named_by_environment_and_kind() -> None:
    assert names.stack_name(environment("post-us-east-2"), "Cluster") == "post-us-east-2-Cluster"


def test_a_volume_of_models_is_named_by_its_experiment() -> None:
    assert names.models_volume_name(environment("post-us-east-2"), experiment("post")) == "post-models"


def test_a_volume_on_another_bucket_has_another_name() -> None:
    mine = environment("post-us-east-2")
    buckets = (
        mine.model_copy(update={"artifacts": mine.artifacts.model_copy(update={"existing_bucket": bucket})})
        for bucket in (None, "one", "other")
    )

    volumes = {names.models_volume_name(environment_, experiment("post")) for environment_ in buckets}

    assert len(volumes) == 3


@pytest.mark.parametrize("model", known().models)
def test_the_job_that_stages_a_model_has_a_legal_name(model: str) -> None:
    name = names.stage_job_name(known().models[model])

    assert re.fullmatch(r"stage-[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{7}", name)
    assert len(name) <= 52


def test_no_two_models_are_staged_by_one_job() -> None:
    assert len({names.stage_job_name(model) for model in known().models.values()}) == len(known().models)


def test_two_unpinned_models_of_one_long_name_are_staged_apart() -> None:
    model = known().models["Qwen/Qwen3-32B"]
    unpinned = model.model_copy(update={"revision": model.revision.model_copy(update={"value": None})})
    one, other = (unpinned.model_copy(update={"id": f"{start}/{'a' * 60}"}) for start in ("first", "second"))

    assert names.stage_job_name(one) != names.stage_job_name(other)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_job_that_compiles_an_artifact_has_a_legal_name(name: str) -> None:
    declared = experiment(name)
    jobs = [
        names.compile_job_name(compute_artifact_key(declared, variant, known())) for variant in declared.all_variants()
    ]

    assert all(re.fullmatch(r"compile-[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{12}", job) for job in jobs)
    assert max(len(job) for job in jobs) <= 52


def test_a_compile_is_named_by_target_mode_window_and_key() -> None:
    declared = experiment("post")
    key = compute_artifact_key(declared, declared.variants[1], known())

    assert names.compile_job_name(key) == f"compile-qwen3-32b-fused-k7-{key.digest}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_label_of_a_variant_admits_a_compile_job(name: str) -> None:
    label, value = names.compile_label(experiment(name))

    assert label not in {names.raise_label(variant) for variant in experiment(name).all_variants()}
    assert value == name


def test_a_job_is_started_by_one_command() -> None:
    assert names.start_command("tandem-post", "stage-x") == (
        "kubectl -n tandem-post create job --from=cronjob/stage-x stage-x-1"
    )


def test_what_is_watched_is_named_after_its_environment() -> None:
    mine = environment("post-us-east-2")

    assert names.bench_namespace(mine) == "Tandem/post-us-east-2"
    assert names.guard_namespace(mine) == "Tandem/Guard/post-us-east-2"
    assert names.simulation_namespace(mine) == "Tandem/Simulated/post-us-east-2"
    assert names.dashboard_name(mine, "machine") == "tandem-post-us-east-2-machine"
    assert names.alarm_name(mine, "errors", "post", "qwen-vllm") == "post-us-east-2-errors-post-qwen-vllm"
    assert names.topic_name(mine) == "tandem-post-us-east-2-alarms"


def test_container_logs_are_named_as_the_agent_names_them() -> None:
    """AmazonCloudWatch user guide, Container Insights: /aws/containerinsights/<cluster>/<kind>."""
    mine = environment("post-us-east-2")

    assert [names.container_log_group_name(mine, kind) for kind in names.CONTAINER_LOG_KINDS] == [
        f"/aws/containerinsights/tandem-post-us-east-2/{kind}"
        for kind in ("application", "dataplane", "host", "performance", "prometheus")
    ]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_dashboard_and_topic_is_a_name_that_aws_takes(name: str) -> None:
    """PutDashboard and CreateTopic: letters, digits, dash and underscore."""
    mine = environment(name)
    made = [
        names.topic_name(mine),
        *(names.dashboard_name(mine, part) for part in (*mine.experiments, "machine", "money")),
    ]

    assert [each for each in made if not re.fullmatch(r"[A-Za-z0-9_-]{1,255}", each)] == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_experiments_namespace_has_the_prefix_that_rights_are_given_to(name: str) -> None:
    declared = [experiment(each) for each in environment(name).experiments]

    assert all(names.experiment_namespace(each).startswith(names.NAMESPACE_PREFIX) for each in declared)
