"""What each variant is told: literally for the documented pairs, and nothing but speculation apart for all."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from committed import EXPERIMENTS, experiment, known

from tandem.spec.experiment import Experiment, Variant
from tandem.spec.server_command import ServerCommand, build_server_command
from tandem.spec.variant_key import compute_artifact_key

QWEN = "/models/Qwen/Qwen3-32B/9216db5781bf21249d130ec9da846c4624c16137"
DRAFT = "/models/Qwen/Qwen3-1.7B/70d244cc86ccca08cf5af4e1e306ecf908b1ad5e"
LLAMA = "/models/meta-llama/Llama-3.1-8B-Instruct/0e9e39f249a16976918f6564b8830bc894c89659"
HEAD = "/models/RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3/f4fa34a8f803a0ba75d048d6b3dbc1ad5149e9ac"

LISTENING = ("--host", "0.0.0.0", "--port", "8000")  # noqa: S104  # inside the pod


def told(experiment_: Experiment, variant: Variant) -> ServerCommand:
    return build_server_command(experiment_, variant, known())


def named(name: str, variant: str) -> ServerCommand:
    declared = experiment(name)
    return told(declared, next(each for each in declared.all_variants() if each.name == variant))


def flags(arguments: tuple[str, ...]) -> dict[str, str]:
    """Read a flat argument list as flag to value; a flag without value, and the model, map to an empty text."""
    pairs: dict[str, str] = {}
    for part in arguments:
        if part.startswith("--") or not pairs:
            pairs[part] = ""
        else:
            pairs[next(reversed(pairs))] = part
    return pairs


def test_the_posts_baseline_is_told_exactly_this() -> None:
    assert named("post", "qwen-vllm").arguments == (
        QWEN,
        "--served-model-name", "Qwen/Qwen3-32B",
        *LISTENING,
        "--tensor-parallel-size", "32",
        "--max-num-seqs", "4",
        "--max-model-len", "1024",
        "--dtype", "bfloat16",
        "--override-neuron-config",
        (
            '{"save_sharded_checkpoint": true, "on_device_sampling_config": {"do_sample": false, "dynamic": false, '
            '"global_topk": 256, "top_k": 1}, "async_mode": false, "sequence_parallel_enabled": false}'
        ),
    )  # fmt: skip


def test_the_posts_speculating_server_is_told_exactly_this() -> None:
    assert named("post", "qwen-sd-vllm").arguments == (
        QWEN,
        "--served-model-name", "Qwen/Qwen3-32B",
        *LISTENING,
        "--tensor-parallel-size", "32",
        "--max-num-seqs", "4",
        "--max-model-len", "1024",
        "--dtype", "bfloat16",
        "--override-neuron-config",
        (
            '{"save_sharded_checkpoint": true, "on_device_sampling_config": {"do_sample": false, "dynamic": false, '
            '"global_topk": 256, "top_k": 1}, "async_mode": false, "sequence_parallel_enabled": false, '
            '"enable_fused_speculation": true}'
        ),
        "--speculative-config", f'{{"model": "{DRAFT}", "num_speculative_tokens": 7, "max_model_len": 1024}}',
    )  # fmt: skip


def test_the_native_baseline_is_told_exactly_this() -> None:
    assert named("llama-eagle3", "llama-native").arguments == (
        LLAMA,
        "--served-model-name", "meta-llama/Llama-3.1-8B-Instruct",
        *LISTENING,
        "--tensor-parallel-size", "8",
        "--max-num-seqs", "2",
        "--max-model-len", "2048",
        "--dtype", "bfloat16",
        "--additional-config", '{"neuron_config": {"on_device_sampling_config": {"all_greedy": true}}}',
        "--no-enable-prefix-caching",
        "--no-async-scheduling",
    )  # fmt: skip


def test_the_native_eagle3_server_is_told_exactly_this() -> None:
    assert named("llama-eagle3", "llama-eagle3").arguments == (
        LLAMA,
        "--served-model-name", "meta-llama/Llama-3.1-8B-Instruct",
        *LISTENING,
        "--tensor-parallel-size", "8",
        "--max-num-seqs", "2",
        "--max-model-len", "2048",
        "--dtype", "bfloat16",
        "--additional-config", '{"neuron_config": {"on_device_sampling_config": {"all_greedy": true}}}',
        "--speculative-config", f'{{"method": "eagle3", "model": "{HEAD}", "num_speculative_tokens": 3}}',
        "--no-enable-prefix-caching",
        "--no-async-scheduling",
    )  # fmt: skip


def test_the_runtimes_data_may_name_a_method_and_keep_the_artifact() -> None:
    post, runtime = experiment("post"), known().runtimes["nxdi-v0"]
    assert runtime.spelling is not None
    spelling = runtime.spelling.model_copy(update={"speculation_methods": {"fused": "eagle", "eagle": None}})
    changed = replace(known(), runtimes={"nxdi-v0": runtime.model_copy(update={"spelling": spelling})})
    fused = post.variants[1]

    config = json.loads(flags(build_server_command(post, fused, changed).arguments)["--speculative-config"])

    assert config["method"] == "eagle"
    assert compute_artifact_key(post, fused, changed) == compute_artifact_key(post, fused, known())


@pytest.mark.parametrize(("name", "variant"), [("post", "qwen-vllm"), ("llama-eagle3", "llama-native")])
def test_every_runtime_is_started_by_the_documented_program(name: str, variant: str) -> None:
    assert named(name, variant).command == ("vllm", "serve")


def test_the_posts_runtime_gets_its_variables() -> None:
    assert named("post", "qwen-vllm").environment == {
        "VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference",
        "VLLM_USE_V1": "0",
        "VLLM_RPC_TIMEOUT": "100000",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "NEURON_LOGICAL_NC_CONFIG": "2",
        "NEURON_COMPILED_ARTIFACTS": "/artifact/current",
    }


def test_the_native_runtime_gets_its_variables() -> None:
    assert named("llama-eagle3", "llama-eagle3").environment == {
        "VLLM_NEURON_BACKEND": "neuron_native",
        "VLLM_NEURON_DISABLE_WARMUP_COMPILE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "NEURON_SKIP_EFA_AFFINITY": "1",
        "NEURON_LOGICAL_NC_CONFIG": "2",
        "VLLM_CACHE_ROOT": "/artifact/current",
    }


def test_the_native_runtime_fails_rather_than_compiles() -> None:
    assert named("llama-eagle3", "llama-eagle3").environment["VLLM_NEURON_DISABLE_WARMUP_COMPILE"] == "1"


PAIRS = [
    (name, first, second)
    for name in EXPERIMENTS
    for first, second in itertools.combinations(experiment(name).all_variants(), 2)
]


@pytest.mark.parametrize(
    ("name", "first", "second"), PAIRS, ids=[f"{name} {first.name} {second.name}" for name, first, second in PAIRS]
)
def test_two_variants_differ_in_speculation_only(name: str, first: Variant, second: Variant) -> None:
    declared, catalogue = experiment(name), known()
    spelling = catalogue.runtimes[declared.runtime].spelling
    assert spelling is not None
    one, other = (build_server_command(declared, variant, catalogue) for variant in (first, second))

    def plain(told_: ServerCommand) -> dict[str, Any]:
        pairs = flags(told_.arguments)
        config = json.loads(pairs.pop(spelling.neuron_config_flag))
        settings = config.get(spelling.neuron_config_key, config)
        for key in {key for keys in spelling.speculation_neuron_config.values() for key in keys}:
            settings.pop(key, None)
        pairs.pop("--speculative-config", None)
        return {"command": told_.command, "flags": pairs, "neuron": config, "variables": told_.environment}

    assert plain(one) == plain(other)


NXDI = [
    (name, variant) for name in EXPERIMENTS if experiment(name).runtime == "nxdi-v0"
    for variant in experiment(name).all_variants()
]  # fmt: skip


@pytest.mark.parametrize(
    "key", ["on_device_sampling_config", "save_sharded_checkpoint", "async_mode", "sequence_parallel_enabled"]
)
@pytest.mark.parametrize(("name", "variant"), NXDI, ids=[f"{name} {variant.name}" for name, variant in NXDI])
def test_no_nxdi_variant_leaves_a_default_to_speculation(name: str, variant: Variant, key: str) -> None:
    config = json.loads(flags(told(experiment(name), variant).arguments)["--override-neuron-config"])

    assert key in config


NATIVE = [
    (name, variant) for name in EXPERIMENTS if experiment(name).runtime == "native"
    for variant in experiment(name).all_variants()
]  # fmt: skip


@pytest.mark.parametrize(("name", "variant"), NATIVE, ids=[f"{name} {variant.name}" for name, variant in NATIVE])
def test_every_native_variant_samples_greedily_and_schedules_synchronously(name: str, variant: Variant) -> None:
    pairs = flags(told(experiment(name), variant).arguments)

    assert json.loads(pairs["--additional-config"])["neuron_config"]["on_device_sampling_config"] == {
        "all_greedy": True
    }
    assert "--no-async-scheduling" in pairs


def test_tuning_is_written_for_every_variant() -> None:
    post = experiment("post")
    serving = post.serving.model_copy(update={"tuning": post.serving.tuning.model_copy(update={"fused_qkv": True})})
    tuned = post.model_copy(update={"serving": serving})

    configs = [
        json.loads(flags(told(tuned, variant).arguments)["--override-neuron-config"])
        for variant in tuned.all_variants()
    ]

    assert [config["fused_qkv"] for config in configs] == [True, True]


def test_a_tuned_setting_takes_the_place_of_the_value_that_is_told_unasked() -> None:
    post = experiment("post")
    tuning = post.serving.tuning.model_copy(update={"sequence_parallel_enabled": True})
    tuned = post.model_copy(update={"serving": post.serving.model_copy(update={"tuning": tuning})})

    configs = [
        json.loads(flags(told(tuned, variant).arguments)["--override-neuron-config"])
        for variant in tuned.all_variants()
    ]

    assert [config["sequence_parallel_enabled"] for config in configs] == [True, True]


def test_every_request_can_read_the_sampling_that_the_loader_puts_in_place() -> None:
    """NxD Inference reads global_topk from the mapping that replaces the artifact's object, at every request."""
    config = json.loads(flags(named("post", "qwen-vllm").arguments)["--override-neuron-config"])

    assert config["on_device_sampling_config"]["global_topk"] == 256


def test_asynchronous_execution_is_said_by_the_runtimes_own_key() -> None:
    post = experiment("post")
    faster = post.model_copy(update={"serving": post.serving.model_copy(update={"async_mode": True})})

    config = json.loads(flags(told(faster, faster.variants[0]).arguments)["--override-neuron-config"])

    assert config["async_mode"] is True


def test_an_optimization_level_is_a_flag_of_its_own() -> None:
    tuning = experiment("llama-eagle3").serving.tuning.model_copy(update={"optimization_level": 2})
    serving = experiment("llama-eagle3").serving.model_copy(update={"tuning": tuning})
    declared = experiment("llama-eagle3").model_copy(update={"serving": serving})

    assert flags(told(declared, declared.variants[0]).arguments)["--optimization-level"] == "2"


def test_an_optimization_level_is_no_neuron_setting() -> None:
    tuning = experiment("llama-eagle3").serving.tuning.model_copy(update={"optimization_level": 2})
    serving = experiment("llama-eagle3").serving.model_copy(update={"tuning": tuning})
    declared = experiment("llama-eagle3").model_copy(update={"serving": serving})

    assert "optimization_level" not in flags(told(declared, declared.variants[0]).arguments)["--additional-config"]
