"""What each variant is told: declared tuning, and no default left to speculation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from committed import EXPERIMENTS, experiment, known

from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.server_command import ServerCommand, build_server_command
from tandem.declarations.variant_key import compute_artifact_key


def told(experiment_: Experiment, variant: Variant) -> ServerCommand:
    return build_server_command(experiment_, variant, known())


def flags(arguments: tuple[str, ...]) -> dict[str, str]:
    """Read a flat argument list as flag to value; a flag without value, and the model, map to an
    empty text."""
    pairs: dict[str, str] = {}
    for part in arguments:
        if part.startswith("--") or not pairs:
            pairs[part] = ""
        else:
            pairs[next(reversed(pairs))] = part
    return pairs


def test_runtimes_data_may_name_a_method_and_keep_the_artifact():
    post = experiment("post")
    runtime = known().runtimes["nxdi-v0"]
    assert runtime.spelling is not None
    spelling = runtime.spelling.model_copy(
        update={"speculation_methods": {"fused": "eagle", "eagle": None}}
    )
    catalogue = replace(
        known(), runtimes={"nxdi-v0": runtime.model_copy(update={"spelling": spelling})}
    )
    variant_ = post.variants[1]

    config = json.loads(
        flags(build_server_command(post, variant_, catalogue).arguments)["--speculative-config"]
    )

    assert config["method"] == "eagle"
    assert compute_artifact_key(post, variant_, catalogue) == compute_artifact_key(
        post, variant_, known()
    )


def settings(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Return the Neuron settings that a server on nxdi-v0 is told."""
    told_settings: dict[str, Any] = json.loads(flags(arguments)["--override-neuron-config"])
    return told_settings


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if experiment(name).runtime == "nxdi-v0"]
)
def test_no_nxdi_variant_leaves_a_default_to_speculation(name):
    keys = {
        "on_device_sampling_config",
        "save_sharded_checkpoint",
        "async_mode",
        "sequence_parallel_enabled",
    }

    for variant in experiment(name).all_variants():
        config = settings(told(experiment(name), variant).arguments)
        assert keys <= set(config)
        # NxD Inference reads global_topk from the mapping that replaces the artifact's object, at
        # every request
        assert config["on_device_sampling_config"]["global_topk"] == 256


def changed(name: str, *, tuning: dict[str, Any] | None, **serving: Any) -> Experiment:
    """Return an experiment after changes of its serving settings and their tuning."""
    old = experiment(name).serving
    update = {**serving, "tuning": old.tuning.model_copy(update=tuning or {})}
    return experiment(name).model_copy(update={"serving": old.model_copy(update=update)})


@pytest.mark.parametrize("setting", ["fused_qkv", "sequence_parallel_enabled"])
def test_declared_tuning_is_written_for_every_variant(setting):
    declaration = changed("post", tuning={setting: True})
    assert [
        settings(told(declaration, variant_).arguments)[setting]
        for variant_ in declaration.all_variants()
    ] == [
        True,
        True,
    ]


def test_optimization_level_is_a_flag_and_no_neuron_setting():
    declaration = changed("llama-eagle3", tuning={"optimization_level": 2})
    pairs = flags(told(declaration, declaration.variants[0]).arguments)
    assert pairs["--optimization-level"] == "2"
    assert "optimization_level" not in pairs["--additional-config"]


def test_vllm_0_9_is_told_to_keep_prompts_out_of_its_log():
    post = experiment("post")

    arguments = [told(post, variant).arguments for variant in post.all_variants()]

    assert ["--disable-log-requests" in words for words in arguments] == [True, True]
