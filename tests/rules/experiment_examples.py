"""For every rule of an experiment, or of its hosting, one example that it finds and one close by that it does not."""

from __future__ import annotations

from example import (
    LLAMA,
    PLAIN,
    SERVING,
    SWEEP,
    TUNING,
    VARIANT,
    Example,
    cited,
    disk,
    eagle,
    mode,
    native,
    of_model,
    runtime,
    small,
    vulnerable,
)
from known import DELETE, fig

EXPERIMENT_EXAMPLES: dict[str, Example] = {
    "runtime-known": Example(path="runtime", found={"experiment.runtime": "nxdi-v9"}),
    "runtime-rendered": Example(path="runtime", found={"experiment.runtime": "nxdi-v1"}),
    "target-family": Example(
        path="target",
        found={"experiment.target": "made-up/moe"},
        also=("draft-family",),
        passed=eagle("made-up/eagle-whole"),
    ),
    "target-unproven": Example(
        path="target",
        found={**PLAIN, "experiment.target": "made-up/llama-9B"},
        passed=native(),
    ),
    "target-unproven-accepted": Example(
        path="target",
        found={**PLAIN, "experiment.target": "made-up/llama-9B", "experiment.accept_unproven": True},
        passed={**native(), "experiment.accept_unproven": True},
    ),
    "image-vulnerable": Example(path="runtime", vary=runtime("nxdi-v0", vulnerable)),
    "target-known": Example(path="target", found={"experiment.target": "Qwen/Qwen3-23B"}),
    "target-kind": Example(path="target", found={"experiment.target": "made-up/medusa"}),
    "draft-known": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "Qwen/Qwen3-1.6B"}),
    "draft-by-mode": Example(path="variants[1].draft", found={f"{VARIANT}.draft": None}),
    "draft-kind": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/eagle3-qwen"}),
    "model-unpinned": Example(path="variants[1].draft", vary=of_model("Qwen/Qwen3-1.7B", revision=fig(None))),
    "model-gated": Example(
        path="target", vary=of_model("Qwen/Qwen3-32B", gated=fig(True)),
        found={"environment.hub": {"token_secret": "tandem/hub"}},
    ),
    "mode-served": Example(
        path="variants[1].mode", found={f"{VARIANT}.mode": "vanilla"}, passed=eagle("made-up/eagle-whole")
    ),
    "mode-batch": Example(
        path="serving.max_num_seqs",
        vary=mode("nxdi-v0", "fused", max_num_seqs=cited(2, "features")),
        vary_passed=mode("nxdi-v0", "fused", max_num_seqs=cited(4, "features")),
    ),
    "mode-unproven": Example(
        path="variants[1].mode",
        found={
            "experiment.runtime": "native", f"{VARIANT}.mode": "eagle3", f"{VARIANT}.draft": "made-up/eagle3-qwen",
            f"{SERVING}.max_num_seqs": 2,
        },
        passed=native(),
    ),
    "mode-unproven-accepted": Example(
        path="variants[1].mode",
        found={"experiment.accept_unproven": True},
        vary=mode("nxdi-v0", "fused", verdict=cited("unproven", "loader")),
    ),
    "tokens-by-mode": Example(
        path="variants[1].num_speculative_tokens", found={f"{VARIANT}.num_speculative_tokens": None}
    ),
    "method-read": Example(
        path="variants[1].method", found={f"{VARIANT}.method": "eagle"}, passed=native(method="eagle3")
    ),
    "window-gains": Example(
        path="variants[1].num_speculative_tokens",
        found={f"{VARIANT}.num_speculative_tokens": 1},
        passed=native(num_speculative_tokens=1),
    ),
    "window-long": Example(
        path="variants[1].num_speculative_tokens",
        found={f"{VARIANT}.num_speculative_tokens": 11},
        passed={"experiment.sweep": SWEEP},
    ),
    "batch-shown": Example(
        path="serving.max_num_seqs", found={f"{SERVING}.max_num_seqs": 8}, passed={f"{SERVING}.max_num_seqs": 4}
    ),
    "baseline": Example(
        path="variants",
        found={
            "experiment.variants[0]": {
                "name": "plain", "mode": "fused", "draft": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5,
            },
        },
        passed={"experiment.variants[1]": {"name": "control", "mode": "none"}},
    ),
    "two-variants": Example(path="variants", found={"experiment.variants": [{"name": "plain", "mode": "none"}]}),
    "variant-once": Example(path="variants[1].name", found={f"{VARIANT}.name": "plain"}),
    "suite-once": Example(
        path="suites[2]",
        found={"experiment.suites": ["post", "real", "post"]},
        passed={"experiment.suites": ["post", "real"]},
    ),
    "tokenizer-equal": Example(
        path="variants[1].draft",
        found={"experiment.target": LLAMA, f"{VARIANT}.draft": "Qwen/Qwen3-1.7B"},
        passed={"experiment.target": LLAMA, f"{VARIANT}.draft": "meta-llama/Llama-3.2-1B"},
        also=("draft-family",),
    ),
    "vocabulary-equal": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/other-rows"}),
    "draft-family": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/other-family"}),
    "draft-smaller": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "Qwen/Qwen3-32B"}),
    "head-of-target": Example(
        path="variants[1].draft", found=native(draft="made-up/eagle3-qwen"), passed=native()
    ),
    "head-hidden-size": Example(
        path="variants[1].draft", found=native(draft="made-up/eagle3-narrow"), passed=native()
    ),
    "head-vocabulary": Example(
        path="variants[1].draft", found=eagle("made-up/eagle"), passed=eagle("made-up/eagle-whole"),
        also=("head-output",),
    ),
    "head-output": Example(path="variants[1].draft", found=eagle("made-up/eagle-whole"), passed=native()),
    "length-holds": Example(
        path="serving.max_model_len",
        found={"experiment.max_prompt_tokens": 418},
        passed={"experiment.max_prompt_tokens": 417},
    ),
    "length-made-for": Example(path="serving.max_model_len", found={f"{VARIANT}.draft": "made-up/short"}),
    "length-tiled": Example(
        path="serving.max_model_len",
        found={f"{SERVING}.max_model_len": 1025},
        passed={**native(), f"{SERVING}.max_model_len": 1025},
    ),
    "buckets-ascend": Example(
        path="serving.tuning.context_encoding_buckets",
        found={f"{TUNING}.context_encoding_buckets": [512, 256, 1024]},
        passed={f"{TUNING}.context_encoding_buckets": [256, 512, 1024]},
    ),
    "buckets-complete": Example(
        path="serving.tuning.num_seqs_buckets",
        found={**native(), f"{TUNING}.num_seqs_buckets": [1]},
        passed={**native(), f"{TUNING}.num_seqs_buckets": [1, 2]},
    ),
    "kernels-short": Example(
        path="serving.tuning.mlp_kernel_enabled",
        found={f"{TUNING}.mlp_kernel_enabled": True},
        passed={f"{TUNING}.mlp_kernel_enabled": True, f"{SERVING}.max_model_len": 2048},
    ),
    "tuning-read": Example(
        path="serving.tuning.optimization_level",
        found={f"{TUNING}.optimization_level": 2},
        passed={**native(), f"{TUNING}.optimization_level": 2},
    ),
    "async-alike": Example(
        path="serving.async_mode",
        found={**native(), f"{SERVING}.async_mode": True},
        passed=native(),
    ),
    "async-plain": Example(path="serving.async_mode", found={f"{SERVING}.async_mode": True}),
    "compile-mode": Example(
        path="compile.where",
        found={**native(), "experiment.compile.where": "cpu", "experiment.accept_unproven": True},
        passed={"experiment.compile.where": "cpu", "experiment.accept_unproven": True},
        also=("compile-unproven-accepted",),
    ),
    "compile-unproven": Example(
        path="compile.where", found={"experiment.compile.where": "cpu"},
        passed={"experiment.compile.where": "device"},
    ),
    "compile-unproven-accepted": Example(
        path="compile.where", found={"experiment.compile.where": "cpu", "experiment.accept_unproven": True}
    ),
    "compile-shm": Example(
        path="compile.memory_gib",
        found={"experiment.compile.memory_gib": 16},
        passed={"experiment.compile.memory_gib": 17},
        also=("compile-memory",),
    ),
    "compile-fits": Example(
        path="experiments[0]",
        found={"experiment.compile.cpu": 191},
        passed={"experiment.compile": {"cpu": 190, "memory_gib": 1891}},
    ),
    "compile-memory": Example(
        path="compile.memory_gib",
        found={"experiment.compile.memory_gib": 699},
        passed={**native(), "experiment.compile.memory_gib": DELETE},
    ),
    "compiles-side-by-side": Example(
        path="experiments[0]",
        found={"experiment.compile.memory_gib": 946},
        passed={"experiment.compile.memory_gib": 945},
    ),
    "disk-fits": Example(
        path="experiments[0]",
        found=small(tensor_parallel_size=4),
        vary=disk(370),
        passed=small(tensor_parallel_size=4),
        vary_passed=disk(380),
        also=("compile-memory",),
    ),
    "compile-before-guard": Example(
        path="experiments[0]",
        found={"experiment.compile.deadline_hours": 8},
        passed={"experiment.compile.deadline_hours": 7},
    ),
    "sequence-divides": Example(
        path="serving.tuning.sequence_parallel_enabled",
        found={f"{TUNING}.sequence_parallel_enabled": True, f"{TUNING}.context_encoding_buckets": [72, 1024]},
        passed={f"{TUNING}.sequence_parallel_enabled": True},
    ),
    "eagle-sequence": Example(
        path="serving.tuning.sequence_parallel_enabled",
        found=eagle("made-up/eagle-whole", **{f"{TUNING}.sequence_parallel_enabled": True}),
        passed={f"{TUNING}.sequence_parallel_enabled": True},
        also=("head-output",),
    ),
    "hub-token": Example(
        path="experiments[0]",
        vary=of_model("Qwen/Qwen3-32B", gated=fig(True)),
        passed={"environment.hub": {"token_secret": "tandem/hub"}},
        vary_passed=of_model("Qwen/Qwen3-32B", gated=fig(True)),
        also=("model-gated",),
    ),
    "cores-present": Example(
        path="serving.tensor_parallel_size",
        found={f"{SERVING}.tensor_parallel_size": 64},
        passed={f"{SERVING}.tensor_parallel_size": 64, f"{SERVING}.logical_neuron_core": 1},
    ),
    "cores-idle": Example(
        path="serving.tensor_parallel_size",
        found={f"{SERVING}.tensor_parallel_size": 16},
        passed={f"{SERVING}.tensor_parallel_size": 16, f"{SERVING}.devices": 4, f"{SERVING}.cpu": 45},
    ),
    "degree-divides": Example(
        path="serving.tensor_parallel_size", found={f"{VARIANT}.draft": "made-up/odd-width"}
    ),
    "degree-pads": Example(
        path="serving.tensor_parallel_size", vary=of_model("Qwen/Qwen3-32B", attention_heads=fig(40))
    ),
    "group-holds": Example(path="serving.device_group", found={f"{SERVING}.device_group": 4}),
    "device-count": Example(
        path="experiments[0]",
        found={
            f"{SERVING}.devices": 2, f"{SERVING}.tensor_parallel_size": 8, f"{SERVING}.cpu": 20,
            f"{SERVING}.memory_gib": 200,
        },
        passed={f"{SERVING}.devices": 4, f"{SERVING}.tensor_parallel_size": 16, f"{SERVING}.cpu": 45},
    ),
    "cores-bound": Example(
        path="experiments[0]",
        found=small(devices=4, tensor_parallel_size=16),
        passed=small(),
        also=("device-count", "compile-memory"),
    ),
    "group-published": Example(
        path="experiments[0]", found=small(device_group=4), passed=small(), also=("compile-memory",)
    ),
    "group-named": Example(path="experiments[0]", found={f"{SERVING}.device_group": 16}),
    "shm-in-memory": Example(
        path="serving.shm_gib", found={f"{SERVING}.shm_gib": 256}, passed={f"{SERVING}.shm_gib": 255}
    ),
    "cpu-fits": Example(
        path="experiments[0]", found={f"{SERVING}.cpu": 96}, passed={f"{SERVING}.cpu": 95},
        also=("compiles-side-by-side",),
    ),
    "memory-fits": Example(
        path="experiments[0]", found={f"{SERVING}.memory_gib": 947}, passed={f"{SERVING}.memory_gib": 945}
    ),
    "device-memory": Example(
        path="experiments[0]",
        vary=of_model("Qwen/Qwen3-32B", bytes=fig(900_000_000_000)),
        vary_passed=of_model("Qwen/Qwen3-32B", bytes=fig(700_000_000_000)),
    ),
    "arms-at-once": Example(
        path="experiments[0]",
        found={"experiment.schedule": "simultaneous", "experiment.sweep": SWEEP},
        passed={"experiment.schedule": "simultaneous"},
    ),
}  # fmt: skip
