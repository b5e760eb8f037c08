"""What a compile is told, held field by field against what the server's own loader would compile
with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from committed import EXPERIMENTS, experiment, known

from charts.serve import STARTUP_FAILURES, STARTUP_PERIOD_S
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
    found = dict[str, Any]()
    while words:
        flag = words.pop(0)
        if flag == "run":  # the one word between the parser's own flags and those of its command
            continue
        name, behind = DEMO[flag] if flag in DEMO else (flag, OTHERS[flag])
        if behind in {"nothing", "no"}:
            found[name] = behind == "nothing"
        elif behind == "numbers":
            found[name] = []
            while words and not words[0].startswith("--"):
                found[name].append(int(words.pop(0)))
        else:
            value = words.pop(0)
            found[name] = int(value) if behind == "number" else value
    return found


def compiled(how: CompileCommand) -> Settings:
    """The NeuronConfig that the compile makes, as far as any setting of ours reaches."""
    flags = {name: value for name, value in from_flags(how.arguments).items() if name not in OTHERS}
    sampling = {name: flags.pop(name, default) for name, default in SAMPLING.items()}
    on = {"on_device_sampling_config": sampling} if flags.pop("on_device_sampling", False) else {}
    return {**NEURON_CONFIG, **flags, **on}


def loaded(told: ServerCommand) -> Settings:
    """The NeuronConfig that the server's loader makes, with the same reach.

    Source: vllm 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py,
    _get_default_neuron_config, _get_default_speculation_config and
    _get_neuron_config_after_override; trace_tokengen_model and lora_serving_config are no fields of
    this NeuronConfig. The LNC comes from the variable (models/config.py).
    """
    arguments = told.arguments
    given = {arguments[at]: arguments[at + 1] for at in range(1, len(arguments) - 1, 2)}
    override = json.loads(given["--override-neuron-config"])
    length = int(given["--max-model-len"])
    batch = int(given["--max-num-seqs"])
    shared = {
        "tp_degree": int(given["--tensor-parallel-size"]),
        "ctx_batch_size": 1,
        "batch_size": batch,
        "max_context_length": length,
        "seq_len": length,
        "enable_bucketing": True,
        "is_continuous_batching": True,
        "quantized": False,
        "torch_dtype": given["--dtype"],
        "logical_nc_config": int(told.environment["NEURON_LOGICAL_NC_CONFIG"]),
    }
    if "--speculative-config" in given:
        window = json.loads(given["--speculative-config"])["num_speculative_tokens"]
        own = {"speculation_length": window, "enable_fused_speculation": True}
    else:
        own = {"padding_side": "right", "sequence_parallel_enabled": True}
    made = {**NEURON_CONFIG, **shared, **own, **override}
    return {**made, "on_device_sampling_config": {**SAMPLING, **made["on_device_sampling_config"]}}


def tuned(declared: Experiment, **tuning: Any) -> Experiment:
    changed = declared.serving.tuning.model_copy(update=tuning)
    return declared.model_copy(
        update={"serving": declared.serving.model_copy(update={"tuning": changed})}
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
    pytest.param(tuned(declared, **tuning), variant, id=f"{declared.target}-{variant.name}-{name}")
    for declared in NXDI
    for variant in declared.all_variants()
    for name, tuning in TUNINGS.items()
]


@pytest.mark.parametrize(("declared", "variant"), CASES)
def test_the_compile_makes_the_config_that_the_servers_loader_makes(
    declared: Experiment, variant: Variant
) -> None:
    assert compiled(build_compile_command(declared, variant, known())) == loaded(
        build_server_command(declared, variant, known())
    )


@pytest.mark.parametrize("asynchronous", [True, False])
def test_asynchronous_execution_is_compiled_as_it_is_served(*, asynchronous: bool) -> None:
    post = experiment("post")
    serving = post.serving.model_copy(update={"async_mode": asynchronous})
    declared = post.model_copy(update={"serving": serving})
    assert (
        compiled(build_compile_command(declared, declared.variants[1], known()))["async_mode"]
        is asynchronous
    )


@pytest.mark.parametrize("declared", NXDI, ids=lambda each: each.target)
def test_two_variants_are_compiled_alike_but_for_speculation(declared: Experiment) -> None:
    settings = [
        compiled(build_compile_command(declared, variant, known()))
        for variant in declared.all_variants()
    ]
    own = {"speculation_length", "enable_fused_speculation", "enable_eagle_speculation"}
    left = [{name: value for name, value in each.items() if name not in own} for each in settings]
    assert all(each == left[0] for each in left)


def test_the_posts_speculating_artifact_is_made_by_exactly_this() -> None:
    post = experiment("post")
    how = build_compile_command(post, post.variants[1], known())

    assert how.command + how.arguments == (
        "inference_demo",
        "--model-type",
        "qwen3",
        "--task-type",
        "causal-lm",
        "run",
        "--model-path",
        "/models/Qwen/Qwen3-32B/9216db5781bf21249d130ec9da846c4624c16137",
        "--draft-model-path",
        "/models/Qwen/Qwen3-1.7B/70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
        "--compiled-model-path",
        "/artifact/current",
        "--tp-degree",
        "32",
        "--batch-size",
        "4",
        "--max-context-length",
        "1024",
        "--seq-len",
        "1024",
        "--torch-dtype",
        "bfloat16",
        "--logical-nc-config",
        "2",
        "--ctx-batch-size",
        "1",
        "--enable-bucketing",
        "--is-continuous-batching",
        "--padding-side",
        "right",
        "--speculation-length",
        "7",
        "--save-sharded-checkpoint",
        "--on-device-sampling",
        "--global-topk",
        "256",
        "--top-k",
        "1",
        "--enable-fused-speculation",
        "--prompt",
        "compile only",
        "--compile-only",
    )


NATIVE = [
    pytest.param(experiment(name), variant, id=f"{name}-{variant.name}")
    for name in EXPERIMENTS
    if experiment(name).runtime == "native"
    for variant in experiment(name).all_variants()
]


@pytest.mark.parametrize(("declared", "variant"), NATIVE)
def test_a_native_artifact_is_made_by_the_servers_own_command_with_more_patience(
    declared: Experiment, variant: Variant
) -> None:
    how = build_compile_command(declared, variant, known())
    told = build_server_command(declared, variant, known())
    shared = told.environment.keys() & how.environment.keys()
    changed = {name for name in shared if how.environment[name] != told.environment[name]}
    more = set(how.environment) - set(told.environment)

    assert (how.command, how.arguments) == (told.command, told.arguments)
    assert how.health_url == "http://127.0.0.1:8000/health"
    # it forbids it
    assert set(told.environment) - set(how.environment) == {"VLLM_NEURON_DISABLE_WARMUP_COMPILE"}
    assert changed == {"VLLM_ENGINE_READY_TIMEOUT_S"}
    assert all(name.endswith(("_TIMEOUT", "_TIMEOUT_S", "_TIMEOUT_SECONDS")) for name in more)
    assert len(more) == 3


@pytest.mark.parametrize(("declared", "variant"), NATIVE)
def test_an_engine_may_start_for_as_long_as_any_compile(
    declared: Experiment, variant: Variant
) -> None:
    longest = CompileSettings.model_json_schema()["properties"]["deadline_hours"]["maximum"]
    how = build_compile_command(declared, variant, known())
    assert int(how.environment["VLLM_ENGINE_READY_TIMEOUT_S"]) == longest * 3600


@pytest.mark.parametrize(("declared", "variant"), NATIVE)
def test_an_engine_that_serves_may_start_for_as_long_as_its_pod(
    declared: Experiment, variant: Variant
) -> None:
    command = build_server_command(declared, variant, known())
    assert (
        int(command.environment["VLLM_ENGINE_READY_TIMEOUT_S"])
        >= STARTUP_PERIOD_S * STARTUP_FAILURES
    )


def without_devices(name: str) -> Experiment:
    return experiment(name).model_copy(update={"compile": CompileSettings(where="cpu")})


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("post", {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}),
        (
            "llama-eagle3",
            {"VLLM_NEURON_CPU_COMPILE": "1", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"},
        ),
    ],
)
def test_a_compile_without_devices_is_told_so_and_nothing_else(
    name: str, added: dict[str, str]
) -> None:
    with_, without = (
        build_compile_command(declared, declared.variants[0], known())
        for declared in (experiment(name), without_devices(name))
    )

    assert without.arguments == with_.arguments
    assert without.environment == {**with_.environment, **added}


@pytest.mark.parametrize(("name", "sentences"), [("post", 0), ("llama-eagle3", 1)])
def test_what_no_source_shows_is_said(name: str, sentences: int) -> None:
    unproven = [
        build_compile_command(declared, declared.variants[0], known()).unproven
        for declared in (experiment(name), without_devices(name))
    ]

    assert [len(each) for each in unproven] == [sentences, sentences + 1]
