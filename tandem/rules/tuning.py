"""Which compile and execution settings a runtime reads, and reads alike in every variant."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values

RULES = RuleList()


@RULES.refuse("tuning-read", "tandem/spec/data/runtimes, tuning_keys", "2026-11-21")
def _find_unread_settings(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every setting of serving.tuning is one that the runtime reads."""
    runtime = context.runtime
    if runtime is None or runtime.spelling is None:
        return
    keys = runtime.spelling.tuning_keys
    for name, value in context.experiment.serving.tuning:
        if value in (None, ()) or name in keys:
            continue
        readers = [
            other_runtime.name
            for other_runtime in context.catalogue.runtimes.values()
            if other_runtime.spelling is not None and name in other_runtime.spelling.tuning_keys
        ]
        value_text = str(list(value)) if isinstance(value, tuple) else str(value).lower()
        yield RuleFinding(
            path=f"serving.tuning.{name}", got=f"{value_text} on runtime {runtime.name}, which does not read it",
            allowed=join_values(keys), change=f"delete it; it is read by runtime {join_values(readers)}",
        )  # fmt: skip


@RULES.refuse(
    "async-alike",
    "aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)",
    "2026-08-21",
)
def _find_async_speculation(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Asynchronous execution is off where speculation turns it off, so that all variants run alike."""
    runtime = context.runtime
    if runtime is None or runtime.spelling is None or not context.experiment.serving.async_mode:
        return
    if runtime.spelling.async_off_arguments and any(True for _ in context.speculative_arms()):
        yield RuleFinding(
            path="serving.async_mode",
            got=f"true on runtime {runtime.name}, which turns it off for speculating variants",
            allowed="false, which is then written for every variant",
            change="write false: arms that differ in it are no control",
        )  # fmt: skip


@RULES.warn(
    "async-plain",
    "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, async runtime",
    "2026-08-21",
)
def _find_async_baseline(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Asynchronous execution of plain decoding is shown by no source: the guide asks for fused speculation."""
    runtime = context.runtime
    if runtime is None or runtime.spelling is None or not context.experiment.serving.async_mode:
        return
    plain = [variant.name for variant in context.experiment.all_variants() if variant.mode == "none"]
    if runtime.spelling.async_key and plain:
        yield RuleFinding(
            path="serving.async_mode",
            got=f"true with the plain variant {plain[0]}",
            allowed="false, until the plain variant is seen to run asynchronously",
            change="write false, or look into the plain server's log: if it stays synchronous it is no control",
        )  # fmt: skip
