"""How long a sequence may be, and the lengths that are compiled."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList

TILE = 128  # NxDI tiles the KV cache only at multiples of it; neuronx-distributed-inference models/config.py
KERNEL_LENGTH = 1024  # kernels with buckets up to it may fail with status 1003; trn2-llama3.3-70b tutorial

_CONFIG = "aws-neuron/neuronx-distributed-inference models/config.py"
RULES = RuleList()


@RULES.refuse(
    "length-holds",
    "aws-neuron/neuronx-distributed-inference models/model_base.py: positions near the end are not clipped",
    "2025-09-22",
)
def _find_short_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The max_model_len holds the longest prompt, the longest output and the largest window."""
    experiment = context.experiment
    windows = [arm.variant.num_speculative_tokens or 0 for arm in context.speculative_arms()]
    window = max(windows, default=0)
    needed_tokens = experiment.max_prompt_tokens + experiment.max_output_tokens + window
    length = experiment.serving.max_model_len
    if needed_tokens > length:
        output = experiment.max_output_tokens - (needed_tokens - length)
        output_hint = f", or max_output_tokens: {output}" if output > 0 else ""
        yield RuleFinding(
            path="serving.max_model_len",
            got=str(length),
            allowed=f"at least {needed_tokens}: prompt {experiment.max_prompt_tokens}, output "
            f"{experiment.max_output_tokens}, "
            f"largest window {window}",
            change=f"write {-(-needed_tokens // TILE) * TILE}{output_hint}",
        )


@RULES.refuse("length-made-for", "vllm 0.9.1 vllm/config.py _maybe_override_draft_max_model_len", "2026-11-21")
def _find_long_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Target and draft are made for sequences of max_model_len."""
    length = context.experiment.serving.max_model_len
    for path, model in context.models():
        limit = model.max_position_embeddings
        if limit.value is not None and length > limit.value:
            draft_hint = "" if path == "target" else ", or name a draft made for longer sequences"
            yield RuleFinding(
                path="serving.max_model_len", got=f"{length} with {model.id}", allowed=f"at most {limit.value}",
                change=f"write {limit.value} or less{draft_hint}", source=model.sources[limit.source],
            )  # fmt: skip


@RULES.warn(
    "length-tiled", _CONFIG, "2026-07-28", sentence=f"With NxD Inference max_model_len is a multiple of {TILE}."
)
def _find_untiled_length(context: ExperimentContext) -> Iterable[RuleFinding]:
    length, runtime = context.experiment.serving.max_model_len, context.runtime
    if runtime is not None and runtime.versions.nxdi.value is not None and length % TILE:
        yield RuleFinding(
            path="serving.max_model_len", got=str(length), allowed=f"a multiple of {TILE}",
            change=f"write {-(-length // TILE) * TILE}",
        )  # fmt: skip


@RULES.refuse("buckets-ascend", _CONFIG, "2026-07-28")
def _find_unsorted_buckets(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Buckets are ascending and distinct."""
    for name, value in context.experiment.serving.tuning:
        if isinstance(value, tuple) and list(value) != sorted(set(value)):
            yield RuleFinding(
                path=f"serving.tuning.{name}", got=str(list(value)), allowed="ascending values, each once",
                change=f"write {sorted(set(value))}",
            )  # fmt: skip


@RULES.refuse(
    "buckets-complete",
    f"{_CONFIG}; aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/reference-configuration.md",
    "2026-08-21",
)
def _find_incomplete_buckets(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The largest bucket is max_model_len, or max_num_seqs for batches."""
    serving = context.experiment.serving
    largest = {
        "context_encoding_buckets": ("max_model_len", serving.max_model_len),
        "token_generation_buckets": ("max_model_len", serving.max_model_len),
        "num_seqs_buckets": ("max_num_seqs", serving.max_num_seqs),
    }
    for name, (setting, limit) in largest.items():
        buckets: tuple[int, ...] = getattr(serving.tuning, name)
        if buckets and max(buckets) != limit:
            complete_buckets = sorted({bucket for bucket in buckets if bucket < limit} | {limit})
            yield RuleFinding(
                path=f"serving.tuning.{name}", got=f"{list(buckets)}, largest {max(buckets)}",
                allowed=f"{setting}, {limit}, as the largest", change=f"write {complete_buckets}",
            )  # fmt: skip


@RULES.warn(
    "kernels-short",
    "aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn2-llama3.3-70b-tutorial.rst",
    "2026-08-21",
    sentence=f"Kernels are on only above a length of {KERNEL_LENGTH}.",
)
def _find_short_kernels(context: ExperimentContext) -> Iterable[RuleFinding]:
    serving = context.experiment.serving
    for name in ("qkv_kernel_enabled", "attn_kernel_enabled", "mlp_kernel_enabled"):
        if getattr(serving.tuning, name) and serving.max_model_len <= KERNEL_LENGTH:
            yield RuleFinding(
                path=f"serving.tuning.{name}", got=f"true at max_model_len {serving.max_model_len}",
                allowed=f"kernels at a max_model_len above {KERNEL_LENGTH}",
                change="leave it out, or write max_model_len: 2048",
            )  # fmt: skip
