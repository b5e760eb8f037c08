"""Which speculation modes run where, how many tokens they draft and how they are spelt."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Arm, Trial
from tandem.spec.model import Model
from tandem.spec.runtime import ModeSupport, Runtime

LONG_WINDOW = 10  # above it only near-deterministic text gains: (1 - a^k) / (1 - a) over 1 + 0.19 k, arXiv 2211.17192


def _runs(trial: Trial) -> Iterable[tuple[Arm, ModeSupport, Runtime]]:
    """Yield each arm with what its rendered runtime says of its mode."""
    runtime = trial.runtime
    if runtime is not None and runtime.rendered:
        yield from ((arm, arm.support, runtime) for arm in trial.arms if arm.support is not None)


def _family_served(support: ModeSupport, target: Model | None) -> bool:
    return target is None or not support.target_families or target.family.value in support.target_families


def _family_known(runtime: Runtime, target: Model | None) -> bool:
    return target is None or target.family.value in runtime.target_families.value


def _served_modes(runtime: Runtime, target: Model | None) -> list[str]:
    return [
        support.mode
        for support in runtime.modes
        if support.verdict.value == "served" and _family_served(support, target)
    ]


def _mode_served(trial: Trial) -> Iterable[Finding]:
    for arm, support, runtime in _runs(trial):
        served, target = support.verdict.value != "refused", trial.target
        # a family that the runtime serves in no mode at all is refused by target-family
        if served and (_family_served(support, target) or not _family_known(runtime, target)):
            continue
        family = f" with a target of family {target.family.value}" if served and target else ""
        yield Finding(
            path=arm.mode_path, got=f"{support.mode} on runtime {runtime.name}{family}: {support.reason}",
            allowed=listed(_served_modes(runtime, target)), change=f"nearest: {support.nearest}",
            source=runtime.sources[support.verdict.source],
        )  # fmt: skip


def _mode_batch(trial: Trial) -> Iterable[Finding]:
    batch = trial.experiment.serving.max_num_seqs
    for arm, support, runtime in _runs(trial):
        limit = support.max_num_seqs
        if limit is not None and support.verdict.value != "refused" and batch > limit.value:
            yield Finding(
                path="serving.max_num_seqs", got=f"{batch} with mode {arm.variant.mode} on runtime {runtime.name}",
                allowed=f"at most {limit.value}", change=f"write {limit.value}, or: {support.nearest}",
                source=runtime.sources[limit.source],
            )  # fmt: skip


def _unproven(trial: Trial, *, accepted: bool) -> Iterable[Finding]:
    if trial.experiment.accept_unproven != accepted:
        return
    for arm, support, runtime in _runs(trial):
        foreign = bool(support.proven_targets) and trial.experiment.target not in support.proven_targets
        shown = support.verdict.value == "served" and not foreign
        if shown or support.verdict.value == "refused" or not _family_served(support, trial.target):
            continue
        yield Finding(
            path=arm.mode_path,
            got=f"{support.mode} with {trial.experiment.target} on runtime {runtime.name}: {support.reason}",
            allowed=f"{support.mode} with {listed(support.proven_targets)}" if foreign else "a mode that is served",
            change="prove it on one node first" if accepted else f"accept_unproven: true, or: {support.nearest}",
            source=runtime.sources[support.verdict.source],
        )  # fmt: skip


def _refuse_unproven(trial: Trial) -> Iterable[Finding]:
    return _unproven(trial, accepted=False)


def _warn_unproven(trial: Trial) -> Iterable[Finding]:
    return _unproven(trial, accepted=True)


def _tokens_by_mode(trial: Trial) -> Iterable[Finding]:
    for arm in trial.arms:
        mode, tokens = arm.variant.mode, arm.variant.num_speculative_tokens
        if mode == "none" and tokens is not None:
            yield Finding(path=arm.tokens_path, got=str(tokens), allowed="nothing with mode none", change="delete it")
        if mode != "none" and tokens is None:
            yield Finding(
                path=arm.tokens_path, got="nothing", allowed=f"1 to 64 with mode {mode}",
                change="write 7 for a plain draft, 3 for a head: the windows that AWS documents",
            )  # fmt: skip


def _method(trial: Trial) -> Iterable[Finding]:
    for arm, _, runtime in _runs(trial):
        method, mode = arm.variant.method, arm.variant.mode
        methods = runtime.spelling.speculation_methods if runtime.spelling else {}
        if method is None or method == methods.get(mode):
            continue
        read = methods.get(mode)
        why = "" if read or mode == "none" else ", which its loader never reads: what runs is decided by mode"
        label = f"; the post's `eagle` is such a label, {mode} is what ran" if why and method == "eagle" else ""
        yield Finding(
            path=arm.method_path, got=f"{method!r} with mode {mode} on runtime {runtime.name}{why}{label}",
            allowed=f"nothing, or {read}" if read else "nothing", change="delete it",
        )  # fmt: skip


def _gain(trial: Trial) -> Iterable[Finding]:
    for arm, support, runtime in _runs(trial):
        step = runtime.counters.tokens_per_step
        if support.mode != "none" and arm.variant.num_speculative_tokens == 1 and step.value == "k":
            yield Finding(
                path=arm.tokens_path, got="1", allowed=f"2 or more: a step on {runtime.name} commits at most k tokens",
                change="write 2 or more", source=runtime.sources[step.source],
            )  # fmt: skip


def _long_window(trial: Trial) -> Iterable[Finding]:
    for arm in trial.speculating():
        tokens = arm.variant.num_speculative_tokens
        if tokens is not None and tokens > LONG_WINDOW and not arm.swept:
            yield Finding(
                path=arm.tokens_path, got=str(tokens),
                allowed=f"at most {LONG_WINDOW}, unless the text is near-deterministic",
                change="write 5 to 7 for mixed text, or find the best window by `sweep`",
            )  # fmt: skip


def _batch_shown(trial: Trial) -> Iterable[Finding]:
    batch = trial.experiment.serving.max_num_seqs
    shown = {
        support.mode: (support.shown_max_num_seqs, runtime)
        for _, support, runtime in _runs(trial)
        if support.shown_max_num_seqs is not None and batch > support.shown_max_num_seqs.value
    }
    for mode, (limit, runtime) in shown.items():
        yield Finding(
            path="serving.max_num_seqs", got=f"{batch} with mode {mode} on runtime {runtime.name}",
            allowed=f"at most {limit.value} is shown to run",
            change=f"write {limit.value}, or try {batch} on one node first",
            source=runtime.sources[limit.source],
        )  # fmt: skip


_LOADER = "vllm 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py"
_FEATURES = "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, speculative decoding"
_DATA = "tandem/spec/data/runtimes, modes"

RULES: tuple[Rule[Trial], ...] = (
    Rule(
        id="mode-served", of=Trial, severity="refusal", find=_mode_served,
        sentence="the runtime serves the mode for the target's family", source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="mode-batch", of=Trial, severity="refusal", find=_mode_batch,
        sentence="the batch is within what the runtime serves in the mode", source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="mode-unproven", of=Trial, severity="refusal", find=_refuse_unproven,
        sentence="a documented run of mode and target exists, or the experiment says accept_unproven",
        source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="mode-unproven-accepted", of=Trial, severity="warning", find=_warn_unproven,
        sentence="a mode admitted by accept_unproven has no documented run", source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="tokens-by-mode", of=Trial, severity="refusal", find=_tokens_by_mode,
        sentence="every mode but none says num_speculative_tokens, and none does not",
        source=_LOADER, date=date(2026, 11, 21),
    ),
    Rule(
        id="method-read", of=Trial, severity="refusal", find=_method,
        sentence="vLLM's `method` is left out, or is what the runtime itself reads for the mode",
        source=_LOADER, date=date(2026, 11, 21),
    ),
    Rule(
        id="window-gains", of=Trial, severity="warning", find=_gain,
        sentence="a window of 1 gains nothing where a step commits at most k tokens",
        source="aws-neuron/neuronx-distributed-inference models/model_base.py _token_gen_forward",
        date=date(2025, 9, 22),
    ),
    Rule(
        id="window-long", of=Trial, severity="warning", find=_long_window,
        sentence=f"a window above {LONG_WINDOW} is explored by a sweep, not served",
        source="arXiv 2211.17192, expected tokens per step", date=date(2026, 11, 21),
    ),
    Rule(
        id="batch-shown", of=Trial, severity="warning", find=_batch_shown,
        sentence="a documented run shows the mode with so large a batch",
        source="tandem/spec/data/runtimes, modes, shown_max_num_seqs", date=date(2026, 11, 22),
    ),
)  # fmt: skip
