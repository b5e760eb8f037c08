"""Rules on sequence lengths, on compiled lengths, and on settings that all variants share."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext
from tandem.rules.rule import DATA, NEURON_SDK, NXDI, RuleFinding, RuleList, join_values

# NxDI tiles the KV cache only at multiples of 128; neuronx-distributed-inference models/config.py
TILE = 128
# kernels with buckets up to this length may fail with status 1003; trn2-llama3.3-70b tutorial
KERNEL_LENGTH = 1024

_CONFIG = f"{NXDI} models/config.py"
_BUCKETS = f"{_CONFIG}; {NEURON_SDK} vllm-neuron/docs/guides/reference-configuration.md"
_LONGEST = "vllm 0.9.1 vllm/config.py _maybe_override_draft_max_model_len"
_KERNELS = f"{NEURON_SDK} libraries/nxd-inference/tutorials/trn2-llama3.3-70b-tutorial.rst"
_EAGLE3 = f"{NEURON_SDK} vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)"
_ASYNC = f"{NEURON_SDK} libraries/nxd-inference/developer_guides/feature-guide.rst, async runtime"
_SEQUENCE = f"{NXDI} tag v0.6.10598 models/model_base.py, validate_sequence_parallel"
_EAGLE_SEQUENCE = (
    f"{NXDI} tag v0.6.10598 inference_demo.py; vllm 0.9.1 model_loader/neuronx_distributed.py"
)
_PARALLEL = "serving.tuning.sequence_parallel_enabled"
RULES = RuleList()


@RULES.refuse(
    "length-holds",
    f"{NXDI} models/model_base.py: positions near the end are not clipped",
    "2025-09-22",
)
def _find_short_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The max_model_len holds the longest prompt, the longest output and the largest window."""
    experiment = context.experiment
    length = context.experiment.serving.max_model_len
    prompt = experiment.max_prompt_tokens
    output = experiment.max_output_tokens
    arms = (arm.variant for arm in context.arms if arm.variant.mode != "none")
    window = max((variant.num_speculative_tokens or 0 for variant in arms), default=0)
    missing = prompt + output + window - length
    if missing > 0:
        legal = (
            f"at least {length + missing}: prompt {prompt},"
            f" output {output}, largest window {window}"
        )
        change = f"write {-(-(length + missing) // TILE) * TILE}, or a lower max_output_tokens"
        yield RuleFinding("serving.max_model_len", str(length), legal, change)


@RULES.refuse("length-made-for", _LONGEST, "2026-11-21")
def _find_long_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Target and draft are made for sequences of max_model_len."""
    length = context.experiment.serving.max_model_len
    for model in context.models().values():
        limit = model.max_position_embeddings
        if limit.value is not None and length > limit.value:
            got = f"{length} with {model.id}"
            change = f"write {limit.value} or less, or name another model"
            yield RuleFinding("serving.max_model_len", got, f"at most {limit.value}", change, limit)


@RULES.warn("length-tiled", _CONFIG, "2026-07-28")
def _find_untiled_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    """With NxD Inference max_model_len is a multiple of {TILE}."""
    length = context.experiment.serving.max_model_len
    if context.runtime.versions.nxdi.value is not None and length % TILE:
        change = f"write {-(-length // TILE) * TILE}"
        yield RuleFinding("serving.max_model_len", str(length), f"a multiple of {TILE}", change)


@RULES.refuse("buckets-ascend", _CONFIG, "2026-07-28")
def _find_unsorted_buckets(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Buckets are ascending and distinct."""
    for name, value in context.experiment.serving.tuning:
        if isinstance(value, tuple) and list(value) != sorted(set(value)):
            change = f"write {sorted(set(value))}"
            yield RuleFinding(
                f"serving.tuning.{name}", str(list(value)), "ascending values, each once", change
            )


@RULES.refuse("buckets-complete", _BUCKETS, "2026-08-21")
def _find_incomplete_buckets(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The largest bucket is max_model_len, or max_num_seqs for batches."""
    serving = context.experiment.serving
    largest = {
        "context_encoding_buckets": "max_model_len",
        "token_generation_buckets": "max_model_len",
    }
    for name, setting in {**largest, "num_seqs_buckets": "max_num_seqs"}.items():
        buckets = getattr(serving.tuning, name)
        limit = getattr(serving, setting)
        if buckets and max(buckets) != limit:
            got = f"{list(buckets)}, largest {max(buckets)}"
            legal = f"{setting}, {limit}, as the largest"
            change = f"write {sorted({bucket for bucket in buckets if bucket < limit} | {limit})}"
            yield RuleFinding(f"serving.tuning.{name}", got, legal, change)


@RULES.warn("kernels-short", _KERNELS, "2026-08-21")
def _find_short_kernels(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Kernels are on only above a length of {KERNEL_LENGTH}."""
    serving = context.experiment.serving
    for name in ("qkv_kernel_enabled", "attn_kernel_enabled", "mlp_kernel_enabled"):
        if getattr(serving.tuning, name) and serving.max_model_len <= KERNEL_LENGTH:
            got = f"true at max_model_len {serving.max_model_len}"
            legal = f"a max_model_len above {KERNEL_LENGTH}"
            change = "leave it out, or write max_model_len: 2048"
            yield RuleFinding(f"serving.tuning.{name}", got, legal, change)


@RULES.refuse("tuning-read", f"{DATA}/runtimes, tuning_keys", "2026-11-21")
def _find_unread_settings(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every setting of serving.tuning is one that the runtime reads."""
    keys = context.spelling.tuning_keys
    for name, value in context.experiment.serving.tuning:
        if value not in (None, ()) and name not in keys:
            text = str(list(value)) if isinstance(value, tuple) else str(value).lower()
            got = f"{text} on runtime {context.runtime.name}, which does not read it"
            yield RuleFinding(f"serving.tuning.{name}", got, join_values(keys), "delete it")


@RULES.refuse("async-alike", _EAGLE3, "2026-08-21")
def _find_async_speculation(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Asynchronous execution is off where speculation turns it off, so all variants run alike."""
    speculates = any(arm.variant.mode != "none" for arm in context.arms)
    if (
        context.experiment.serving.async_mode
        and context.spelling.async_off_arguments
        and speculates
    ):
        got = f"true on runtime {context.runtime.name}, which turns it off for speculating variants"
        change = "write false: arms that differ in it cannot be compared"
        yield RuleFinding(
            "serving.async_mode", got, "false, which is then written for every variant", change
        )


@RULES.warn("async-plain", _ASYNC, "2026-08-21")
def _find_async_baseline(context: ExperimentContext) -> Iterable[RuleFinding]:
    """No source shows asynchronous plain decoding: the guide needs fused speculation for it."""
    plain = [arm.variant.name for arm in context.arms if arm.variant.mode == "none"]
    if context.spelling.async_key and context.experiment.serving.async_mode and plain:
        legal = "false, until the plain variant is seen to run asynchronously"
        change = (
            "write false, or look into the plain server's log:"
            " if it stays synchronous, it cannot be compared"
        )
        yield RuleFinding(
            "serving.async_mode", f"true with the plain variant {plain[0]}", legal, change
        )


@RULES.refuse("sequence-divides", _SEQUENCE, "2026-11-21")
def _find_indivisible_prefill(context: ExperimentContext) -> Iterable[RuleFinding]:
    """With sequence parallelism the TP degree divides every prefill length that is compiled."""
    serving = context.experiment.serving
    tuning = context.experiment.serving.tuning
    # the smallest length that the library compiles by itself
    shortest = min(128, serving.max_model_len)
    lengths = tuning.context_encoding_buckets or (shortest, serving.max_model_len)
    indivisible = [length for length in lengths if length % serving.tensor_parallel_size]
    if tuning.sequence_parallel_enabled and indivisible:
        got = (
            f"true with a prefill of {indivisible[0]} tokens"
            f" over {serving.tensor_parallel_size} ranks"
        )
        legal = "prefill lengths that the TP degree divides"
        yield RuleFinding(_PARALLEL, got, legal, "write false, or other lengths")


@RULES.refuse("eagle-sequence", _EAGLE_SEQUENCE, "2026-11-21")
def _find_eagle_sequence_parallel(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Mode eagle has sequence parallelism off: only the compiler would give it to the draft."""
    heads = [arm.variant.name for arm in context.arms if arm.variant.mode == "eagle"]
    if heads and context.experiment.serving.tuning.sequence_parallel_enabled:
        got = f"true with mode eagle of {heads[0]}"
        yield RuleFinding(_PARALLEL, got, "false with mode eagle", "write false, or leave it out")
