"""Which speculation modes run where, how many tokens they draft and how they are spelt."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ArmContext, ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.model import ModelConfig
from tandem.spec.runtime import ModeSupport, Runtime

LONG_WINDOW = 10  # above it only near-deterministic text gains: (1 - a^k) / (1 - a) over 1 + 0.19 k, arXiv 2211.17192

_LOADER = "vllm 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py"
_DATA = "tandem/spec/data/runtimes, modes"
RULES = RuleList()


def _yield_arm_support(context: ExperimentContext) -> Iterable[tuple[ArmContext, ModeSupport, Runtime]]:
    """Yield each arm with what its rendered runtime says of its mode."""
    runtime = context.runtime
    if runtime is not None and runtime.rendered:
        yield from ((arm, arm.support, runtime) for arm in context.arms if arm.support is not None)


def _is_family_served(support: ModeSupport, target: ModelConfig | None) -> bool:
    return target is None or not support.target_families or target.family.value in support.target_families


def _is_family_known(runtime: Runtime, target: ModelConfig | None) -> bool:
    return target is None or target.family.value in runtime.target_families.value


def _list_served_modes(runtime: Runtime, target: ModelConfig | None) -> list[str]:
    return [
        support.mode
        for support in runtime.modes
        if support.verdict.value == "served" and _is_family_served(support, target)
    ]


@RULES.refuse("mode-served", _DATA, "2026-11-21")
def _find_refused_mode(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime serves the mode for the target's family."""
    for arm, support, runtime in _yield_arm_support(context):
        can_serve, target = support.verdict.value != "refused", context.target
        # a family that the runtime serves in no mode at all is refused by target-family
        if can_serve and (_is_family_served(support, target) or not _is_family_known(runtime, target)):
            continue
        family = f" with a target of family {target.family.value}" if can_serve and target else ""
        yield RuleFinding(
            path=arm.mode_path, got=f"{support.mode} on runtime {runtime.name}{family}: {support.reason}",
            allowed=join_values(_list_served_modes(runtime, target)), change=f"nearest: {support.nearest}",
            source=runtime.sources[support.verdict.source],
        )  # fmt: skip


@RULES.refuse("mode-batch", _DATA, "2026-11-21")
def _find_large_batch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The batch is within what the runtime serves in the mode."""
    batch = context.experiment.serving.max_num_seqs
    for arm, support, runtime in _yield_arm_support(context):
        limit = support.max_num_seqs
        if limit is not None and support.verdict.value != "refused" and batch > limit.value:
            yield RuleFinding(
                path="serving.max_num_seqs", got=f"{batch} with mode {arm.variant.mode} on runtime {runtime.name}",
                allowed=f"at most {limit.value}", change=f"write {limit.value}, or: {support.nearest}",
                source=runtime.sources[limit.source],
            )  # fmt: skip


def _find_unproven_mode(context: ExperimentContext, *, accepts_unproven: bool) -> Iterable[RuleFinding]:
    if context.experiment.accept_unproven != accepts_unproven:
        return
    for arm, support, runtime in _yield_arm_support(context):
        is_foreign_target = bool(support.proven_targets) and context.experiment.target not in support.proven_targets
        is_shown = support.verdict.value == "served" and not is_foreign_target
        if is_shown or support.verdict.value == "refused" or not _is_family_served(support, context.target):
            continue
        yield RuleFinding(
            path=arm.mode_path,
            got=f"{support.mode} with {context.experiment.target} on runtime {runtime.name}: {support.reason}",
            allowed=f"{support.mode} with {join_values(support.proven_targets)}"
            if is_foreign_target
            else "a mode that is served",
            change="prove it on one node first"
            if accepts_unproven
            else f"accept_unproven: true, or: {support.nearest}",
            source=runtime.sources[support.verdict.source],
        )


@RULES.refuse("mode-unproven", _DATA, "2026-11-21")
def _refuse_unproven(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A documented run of mode and target exists, or the experiment says accept_unproven."""
    return _find_unproven_mode(context, accepts_unproven=False)


@RULES.warn("mode-unproven-accepted", _DATA, "2026-11-21")
def _warn_unproven(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A mode admitted by accept_unproven has no documented run."""
    return _find_unproven_mode(context, accepts_unproven=True)


@RULES.refuse("tokens-by-mode", _LOADER, "2026-11-21")
def _find_token_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every mode but none says num_speculative_tokens, and none does not."""
    for arm in context.arms:
        mode, tokens = arm.variant.mode, arm.variant.num_speculative_tokens
        if mode == "none" and tokens is not None:
            yield RuleFinding(
                path=arm.tokens_path, got=str(tokens), allowed="nothing with mode none", change="delete it"
            )
        if mode != "none" and tokens is None:
            yield RuleFinding(
                path=arm.tokens_path, got="nothing", allowed=f"1 to 64 with mode {mode}",
                change="write 7 for a plain draft, 3 for a head: the windows that AWS documents",
            )  # fmt: skip


@RULES.refuse("method-read", _LOADER, "2026-11-21")
def _find_unread_method(context: ExperimentContext) -> Iterable[RuleFinding]:
    """VLLM's `method` is left out, or is what the runtime itself reads for the mode."""
    for arm, _, runtime in _yield_arm_support(context):
        method, mode = arm.variant.method, arm.variant.mode
        methods = runtime.spelling.speculation_methods if runtime.spelling else {}
        if method is None or method == methods.get(mode):
            continue
        read_method = methods.get(mode)
        reason = "" if read_method or mode == "none" else ", which its loader never reads: what runs is decided by mode"
        label_note = f"; the post's `eagle` is such a label, {mode} is what ran" if reason and method == "eagle" else ""
        yield RuleFinding(
            path=arm.method_path, got=f"{method!r} with mode {mode} on runtime {runtime.name}{reason}{label_note}",
            allowed=f"nothing, or {read_method}" if read_method else "nothing", change="delete it",
        )  # fmt: skip


@RULES.warn(
    "window-gains", "aws-neuron/neuronx-distributed-inference models/model_base.py _token_gen_forward", "2025-09-22"
)
def _find_useless_window(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A window of 1 gains nothing where a step commits at most k tokens."""
    for arm, support, runtime in _yield_arm_support(context):
        step = runtime.counters.tokens_per_step
        if support.mode != "none" and arm.variant.num_speculative_tokens == 1 and step.value == "k":
            yield RuleFinding(
                path=arm.tokens_path, got="1", allowed=f"2 or more: a step on {runtime.name} commits at most k tokens",
                change="write 2 or more", source=runtime.sources[step.source],
            )  # fmt: skip


@RULES.warn(
    "window-long",
    "arXiv 2211.17192, expected tokens per step",
    "2026-11-21",
    sentence=f"A window above {LONG_WINDOW} is explored by a sweep, not served.",
)
def _find_long_window(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm in context.speculative_arms():
        tokens = arm.variant.num_speculative_tokens
        if tokens is not None and tokens > LONG_WINDOW and not arm.is_swept:
            yield RuleFinding(
                path=arm.tokens_path, got=str(tokens),
                allowed=f"at most {LONG_WINDOW}, unless the text is near-deterministic",
                change="write 5 to 7 for mixed text, or find the best window by `sweep`",
            )  # fmt: skip


@RULES.warn("batch-shown", "tandem/spec/data/runtimes, modes, shown_max_num_seqs", "2026-11-22")
def _find_unshown_batch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A documented run shows the mode with so large a batch."""
    batch = context.experiment.serving.max_num_seqs
    limits_by_mode = {
        support.mode: (support.shown_max_num_seqs, runtime)
        for _, support, runtime in _yield_arm_support(context)
        if support.shown_max_num_seqs is not None and batch > support.shown_max_num_seqs.value
    }
    for mode, (limit, runtime) in limits_by_mode.items():
        yield RuleFinding(
            path="serving.max_num_seqs", got=f"{batch} with mode {mode} on runtime {runtime.name}",
            allowed=f"at most {limit.value} is shown to run",
            change=f"write {limit.value}, or try {batch} on one node first",
            source=runtime.sources[limit.source],
        )  # fmt: skip


_FEATURES = "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, speculative decoding"
