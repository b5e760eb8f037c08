"""The artifact key: equal exactly when one variant may serve the other's artifact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest
from committed import environment, experiment, known

from tandem.declarations.artifact_key import ArtifactKey, compare_key_fields
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.figure import DataFigure, FigureSource
from tandem.declarations.images import apply_mirror, list_image_uses, pull_name
from tandem.declarations.variant_key import compute_artifact_key

POST = experiment("post")
FAST = POST.variants[1]
FIELDS = [field.name for field in fields(ArtifactKey)]


def key(
    declaration: Experiment = POST, catalogue: Catalogue | None = None, **variant: Any
) -> ArtifactKey:
    return compute_artifact_key(declaration, FAST.model_copy(update=variant), catalogue or known())


def serving(**update: Any) -> Experiment:
    return POST.model_copy(update={"serving": POST.serving.model_copy(update=update)})


def runtime(**update: Any) -> Catalogue:
    old = known().runtimes["nxdi-v0"]
    return replace(known(), runtimes={**known().runtimes, "nxdi-v0": old.model_copy(update=update)})


def versions(**update: Any) -> Catalogue:
    old = known().runtimes["nxdi-v0"].versions
    figures = {
        name: getattr(old, name).model_copy(update={"value": value})
        for name, value in update.items()
    }
    return runtime(versions=old.model_copy(update=figures))


def spelling(**update: Any) -> Catalogue:
    old = known().runtimes["nxdi-v0"].spelling
    assert old is not None
    return runtime(spelling=old.model_copy(update=update))


def image(**update: Any) -> Catalogue:
    return runtime(image=known().runtimes["nxdi-v0"].image.model_copy(update=update))


def digest() -> Catalogue:
    reference = known().runtimes["nxdi-v0"].image.reference
    digests = {
        reference: DataFigure[str](
            value=f"sha256:{'1' * 64}", source=FigureSource(where="s", date=date(2026, 11, 21))
        )
    }
    return replace(known(), digests=known().digests.model_copy(update={"digests": digests}))


def revision(id_: str) -> Catalogue:
    old = known().models[id_]
    new_model = old.model_copy(
        update={"revision": old.revision.model_copy(update={"value": "f" * 40})}
    )
    return replace(known(), models={**known().models, id_: new_model})


def differences(own: ArtifactKey, other_key: ArtifactKey) -> dict[str, tuple[object, object]]:
    return compare_key_fields(own.as_fields(), other_key.as_fields())


CHANGES: dict[str, Callable[[], ArtifactKey]] = {
    "runtime": lambda: key(catalogue=runtime(name="nxdi-v0b")),
    "image_repository": lambda: key(catalogue=image(repository="public.ecr.aws/neuron/other")),
    "image_tag": lambda: key(catalogue=image(tag="other")),
    "image_digest": lambda: key(catalogue=digest()),
    "sdk": lambda: key(catalogue=versions(sdk="2.27.0")),
    "neuronx_cc": lambda: key(catalogue=versions(neuronx_cc="2.22")),
    "nxdi": lambda: key(catalogue=versions(nxdi="0.7")),
    "plugin": lambda: key(catalogue=versions(plugin="0.2")),
    "platform_target": lambda: key(catalogue=runtime(platform_target="trn3")),
    "target": lambda: key(catalogue=revision("Qwen/Qwen3-32B")),
    "draft": lambda: key(catalogue=revision("Qwen/Qwen3-1.7B")),
    "mode": lambda: key(mode="vanilla"),
    "num_speculative_tokens": lambda: key(num_speculative_tokens=5),
    "tensor_parallel_size": lambda: key(serving(tensor_parallel_size=16)),
    "logical_neuron_core": lambda: key(serving(logical_neuron_core=1)),
    "max_num_seqs": lambda: key(serving(max_num_seqs=1)),
    "max_model_len": lambda: key(serving(max_model_len=2048)),
    "dtype": lambda: key(serving(dtype="float16")),
    "async_mode": lambda: key(serving(async_mode=True)),
    "sampling": lambda: key(catalogue=spelling(greedy_sampling={"do_sample": False})),
    "tuning": lambda: key(
        serving(tuning=POST.serving.tuning.model_copy(update={"fused_qkv": True}))
    ),
    "neuron_config": lambda: key(catalogue=spelling(constant_neuron_config={})),
    "environment": lambda: key(catalogue=spelling(compile_environment={"VLLM_USE_V1": "1"})),
}
# rendered alike in every variant: no declared setting changes them yet; the draft's degree follows
# the target's
CONSTANT = {"quantization", "kv_cache_quantization", "prefix_caching", "draft_tensor_parallel_size"}


def test_every_field_has_a_change_or_is_constant():
    assert sorted({*CHANGES, *CONSTANT}) == sorted(FIELDS)


@pytest.mark.parametrize("field", CHANGES)
def test_change_of_one_setting_changes_its_field_and_the_digest(field):
    before = key()
    after = CHANGES[field]()
    followers = {"tensor_parallel_size": {"draft_tensor_parallel_size"}, "mode": {"neuron_config"}}
    assert {name.partition(".")[0] for name in differences(before, after)} == {
        field,
        *followers.get(field, set()),
    }
    assert before.digest != after.digest


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_part_of_the_digest(field):
    assert replace(key(), **{field: "something else"}).digest != key().digest


def test_run_time_variable_is_no_part_of_the_key():
    assert (
        key(catalogue=spelling(environment={"VLLM_LOGGING_LEVEL": "DEBUG"})).digest == key().digest
    )


def test_names_and_pod_settings_are_no_part_of_the_key():
    updates = (
        {"cpu": 10},
        {"memory_gib": 100},
        {"shm_gib": 1},
        {"device_group": 16},
        {"copy_artifact": True},
    )
    keys = [key(serving(**update)) for update in updates]
    assert {artifact_key.digest for artifact_key in keys} == {key().digest}
    assert key(POST.model_copy(update={"name": "other"}), name="another").digest == key().digest


def test_unread_setting_is_no_part_of_the_key():
    experiment_ = serving(tuning=POST.serving.tuning.model_copy(update={"optimization_level": 3}))
    assert key(experiment_).digest == key().digest


def test_a_mismatch_names_the_field_or_the_entry_inside_it():
    other_key = key(catalogue=spelling(constant_neuron_config={}))
    assert differences(key(), key(num_speculative_tokens=15)) == {"num_speculative_tokens": (7, 15)}
    assert differences(key(), other_key) == {"neuron_config.save_sharded_checkpoint": (True, None)}


def test_missing_or_unknown_field_is_refused_by_name():
    fields_ = key().as_fields()

    with pytest.raises(ValueError, match="mode"):
        ArtifactKey.from_fields({name: value for name, value in fields_.items() if name != "mode"})
    with pytest.raises(ValueError, match="colour"):
        ArtifactKey.from_fields(fields_ | {"colour": "blue"})


@pytest.mark.parametrize(
    ("name", "mirrors", "expected"),
    [
        ("public.ecr.aws/neuron/x:1", {}, "public.ecr.aws/neuron/x:1"),
        (
            "public.ecr.aws/neuron/x:1",
            {"public.ecr.aws": "short", "public.ecr.aws/neuron": "long"},
            "long/x:1",
        ),
        ("public.ecr.aws.evil.dev/x:1", {"public.ecr.aws": "m"}, "public.ecr.aws.evil.dev/x:1"),
        ("public.ecr.aws", {"public.ecr.aws": "m"}, "m"),
    ],
)
def test_the_longest_mirror_replaces_whole_parts_of_a_name(name, mirrors, expected):
    assert apply_mirror(name, mirrors) == expected


@pytest.mark.parametrize(("digest_", "expected"), [(None, "m/x:1"), ("sha256:1", "m/x:1@sha256:1")])
def test_a_pod_pulls_by_digest_once_one_is_known(digest_, expected):
    assert pull_name("public.ecr.aws/x:1", digest_, {"public.ecr.aws": "m"}) == expected


def test_an_image_that_two_experiments_share_is_listed_once():
    uses = list_image_uses(
        environment("post-us-east-2"), [POST, experiment("post-drafts-windows")], known()
    )
    assert uses[0].used_by == ("post", "post-drafts-windows")
    assert len({use.reference for use in uses}) == len(uses)
