"""What a compile is told, held field by field against what the server's own loader would compile
with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from committed import EXPERIMENTS, experiment, known

from tandem.declarations.compile_command import CompileCommand, build_compile_command
from tandem.declarations.experiment import CompileSettings, Experiment, Variant
from tandem.declarations.server_command import ServerCommand, build_server_command

Settings = dict[str, Any]

# inference_demo's flags that a compile may carry: flag -> (field of NeuronConfig, what stands
# behind it) aws-neuron/neuronx-distributed-inference tag v0.6.10598
# src/neuronx_distributed_inference/inference_demo.py
DEMO: dict[str, tuple[str, str]] = {
    f"--{word}": (word.replace("-", "_"), behind)
    for behind, words in {
        "text": "torch-dtype padding-side",
        "number": (
            "batch-size ctx-batch-size seq-len max-context-length tp-degree logical-nc-config top-k"
            " global-topk cc-pipeline-tiling-factor speculation-length"
        ),
        "numbers": "context-encoding-buckets token-generation-buckets",
        "nothing": (
            "is-continuous-batching enable-bucketing quantized save-sharded-checkpoint async-mode"
            " do-sample on-device-sampling dynamic fused-qkv sequence-parallel-enabled"
            " qkv-kernel-enabled attn-kernel-enabled mlp-kernel-enabled enable-fused-speculation"
            " enable-eagle-speculation"
        ),
    }.items()
    for word in words.split()
} | {"--no-attn-kernel-enabled": ("attn_kernel_enabled", "no")}
# flags that are no setting; --prompt is required by the parser even where nothing is generated
OTHERS = {
    "--model-type": "text",
    "--task-type": "text",
    "--model-path": "text",
    "--draft-model-path": "text",
    "--compiled-model-path": "text",
    "--prompt": "text",
    "--compile-only": "nothing",
}
# what NeuronConfig and OnDeviceSamplingConfig take where nobody says otherwise (same tag,
# models/config.py)
NEURON_CONFIG: Settings = {
    "padding_side": "right",
    "quantized": False,
    "fused_qkv": False,
    "sequence_parallel_enabled": False,
    "qkv_kernel_enabled": False,
    "attn_kernel_enabled": None,
    "mlp_kernel_enabled": False,
    "cc_pipeline_tiling_factor": 2,
    "context_encoding_buckets": None,
    "token_generation_buckets": None,
    "save_sharded_checkpoint": False,
    "async_mode": False,
    "speculation_length": 0,
    "enable_fused_speculation": False,
    "enable_eagle_speculation": False,
}
SAMPLING: Settings = {"do_sample": False, "dynamic": False, "top_k": 1, "global_topk": 256}


def from_flags(arguments: tuple[str, ...]) -> Settings:
    """Read a command line as inference_demo's parser does; a flag or word it has not is a
    KeyError."""
    words = list(arguments)
    settings = dict[str, Any]()
    while words:
        flag = words.pop(0)
        if flag == "run":  # the one word between the parser's own flags and those of its command
            continue
        name, behind = DEMO[flag] if flag in DEMO else (flag, OTHERS[flag])
        if behind in {"nothing", "no"}:
            settings[name] = behind == "nothing"
        elif behind == "numbers":
            settings[name] = []
            while words and not words[0].startswith("--"):
                settings[name].append(int(words.pop(0)))
        else:
            value = words.pop(0)
            settings[name] = int(value) if behind == "number" else value
    return settings


def compiled(how: CompileCommand) -> Settings:
    """The NeuronConfig that the compile makes, as far as any setting of ours reaches."""
    flags = {name: value for name, value in from_flags(how.arguments).items() if name not in OTHERS}
    sampling = {name: flags.pop(name, default) for name, default in SAMPLING.items()}
    on = {"on_device_sampling_config": sampling} if flags.pop("on_device_sampling", False) else {}
    return {**NEURON_CONFIG, **flags, **on}


def loaded(server: ServerCommand) -> Settings:
    """The NeuronConfig that the server's loader makes, with the same reach.

    Source: vllm 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py,
    _get_default_neuron_config, _get_default_speculation_config and
    _get_neuron_config_after_override; trace_tokengen_model and lora_serving_config are no fields of
    this NeuronConfig. The LNC comes from the variable (models/config.py).
    """
    arguments = server.arguments
    flags = {arguments[at]: arguments[at + 1] for at in range(1, len(arguments) - 1, 2)}
    override = json.loads(flags["--override-neuron-config"])
    length = int(flags["--max-model-len"])
    batch = int(flags["--max-num-seqs"])
    shared = {
        "tp_degree": int(flags["--tensor-parallel-size"]),
        "ctx_batch_size": 1,
        "batch_size": batch,
        "max_context_length": length,
        "seq_len": length,
        "enable_bucketing": True,
        "is_continuous_batching": True,
        "quantized": False,
        "torch_dtype": flags["--dtype"],
        "logical_nc_config": int(server.environment["NEURON_LOGICAL_NC_CONFIG"]),
    }
    if "--speculative-config" in flags:
        window = json.loads(flags["--speculative-config"])["num_speculative_tokens"]
        own = {"speculation_length": window, "enable_fused_speculation": True}
    else:
        own = {"padding_side": "right", "sequence_parallel_enabled": True}
    config = {**NEURON_CONFIG, **shared, **own, **override}
    return {
        **config,
        "on_device_sampling_config": {**SAMPLING, **config["on_device_sampling_config"]},
    }


def tuned(declaration: Experiment, **tuning: Any) -> Experiment:
    tuning_ = declaration.serving.tuning.model_copy(update=tuning)
    return declaration.model_copy(
        update={"serving": declaration.serving.model_copy(update={"tuning": tuning_})}
    )


def eagle() -> Experiment:
    """An EAGLE pair on nxdi-v0; no committed experiment has one."""
    head = "yuhuili/EAGLE-LLaMA3.1-Instruct-8B"
    assert head in known().models
    variants = (
        Variant(name="plain", mode="none"),
        Variant(name="fast", mode="eagle", draft=head, num_speculative_tokens=4),
    )
    update = {"target": "meta-llama/Llama-3.1-8B-Instruct", "variants": variants}
    return experiment("post").model_copy(update=update)


TUNINGS: dict[str, Settings] = {
    "untuned": {},
    "fused-qkv": {"fused_qkv": True},
    "fused-qkv-off": {"fused_qkv": False},
    "sequence-parallel": {"sequence_parallel_enabled": True},
    "sequence-parallel-off": {"sequence_parallel_enabled": False},
    "qkv-kernel": {"qkv_kernel_enabled": True},
    "attention-kernel": {"attn_kernel_enabled": True},
    "attention-kernel-off": {"attn_kernel_enabled": False},
    "mlp-kernel": {"mlp_kernel_enabled": True},
    "tiling": {"cc_pipeline_tiling_factor": 1},
    "context-buckets": {"context_encoding_buckets": (256, 512, 1024)},
    "decode-buckets": {"token_generation_buckets": (512, 1024)},
}
NXDI = [experiment(name) for name in EXPERIMENTS if experiment(name).runtime == "nxdi-v0"] + [
    eagle()
]
CASES = [
    pytest.param(
        tuned(declaration, **tuning), variant, id=f"{declaration.target}-{variant.name}-{name}"
    )
    for declaration in NXDI
    for variant in declaration.all_variants()
    for name, tuning in TUNINGS.items()
]


@pytest.mark.parametrize(("declaration", "variant"), CASES)
def test_the_compile_makes_the_config_that_the_servers_loader_makes(declaration, variant):
    assert compiled(build_compile_command(declaration, variant, known())) == loaded(
        build_server_command(declaration, variant, known())
    )


@pytest.mark.parametrize("asynchronous", [True, False])
def test_asynchronous_execution_is_compiled_as_it_is_served(*, asynchronous):
    post = experiment("post")
    serving = post.serving.model_copy(update={"async_mode": asynchronous})
    declaration = post.model_copy(update={"serving": serving})
    assert (
        compiled(build_compile_command(declaration, declaration.variants[1], known()))["async_mode"]
        is asynchronous
    )


NATIVE = [
    pytest.param(experiment(name), variant, id=f"{name}-{variant.name}")
    for name in EXPERIMENTS
    if experiment(name).runtime == "native"
    for variant in experiment(name).all_variants()
]


@pytest.mark.parametrize(("declaration", "variant"), NATIVE)
def test_native_compile_is_the_servers_command_with_longer_timeouts(declaration, variant):
    how = build_compile_command(declaration, variant, known())
    server = build_server_command(declaration, variant, known())
    shared = server.environment.keys() & how.environment.keys()
    tuning_ = {name for name in shared if how.environment[name] != server.environment[name]}
    more = set(how.environment) - set(server.environment)

    assert (how.command, how.arguments) == (server.command, server.arguments)
    assert how.health_url == "http://127.0.0.1:8000/health"
    # it forbids it
    assert set(server.environment) - set(how.environment) == {"VLLM_NEURON_DISABLE_WARMUP_COMPILE"}
    assert tuning_ == {"VLLM_ENGINE_READY_TIMEOUT_S"}
    assert all(name.endswith(("_TIMEOUT", "_TIMEOUT_S", "_TIMEOUT_SECONDS")) for name in more)
    assert len(more) == 3


@pytest.mark.parametrize(("declaration", "variant"), NATIVE)
def test_an_engine_may_start_for_as_long_as_any_compile(declaration, variant):
    longest = CompileSettings.model_json_schema()["properties"]["deadline_hours"]["maximum"]
    how = build_compile_command(declaration, variant, known())
    assert int(how.environment["VLLM_ENGINE_READY_TIMEOUT_S"]) == longest * 3600


def without_devices(name: str) -> Experiment:
    return experiment(name).model_copy(update={"compile": CompileSettings(where="cpu")})


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("post", {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}),
        (
            "llama-eagle3",
            {"VLLM_NEURON_CPU_COMPILE": "1", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"},
        ),
    ],
)
def test_a_compile_without_devices_is_told_so_and_nothing_else(name, variables):
    with_, without = (
        build_compile_command(declaration, declaration.variants[0], known())
        for declaration in (experiment(name), without_devices(name))
    )

    assert without.arguments == with_.arguments
    assert without.environment == {**with_.environment, **variables}


@pytest.mark.parametrize(("name", "sentences"), [("post", 0), ("llama-eagle3", 1)])
def test_what_no_source_shows_is_said(name, sentences):
    unproven = [
        build_compile_command(declaration, declaration.variants[0], known()).unproven
        for declaration in (experiment(name), without_devices(name))
    ]

    assert [len(entry) for entry in unproven] == [sentences, sentences + 1]
