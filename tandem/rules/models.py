"""Which models are known, what each can serve as, and what its files need."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed, nearest
from tandem.rules.subjects import Trial
from tandem.spec.catalogue import Catalogue

DRAFT_KINDS = {"vanilla": "causal-lm", "fused": "causal-lm", "eagle": "eagle-head", "eagle3": "eagle3-head"}


A_KIND = {"causal-lm": "a causal-lm", "eagle-head": "an eagle-head", "eagle3-head": "an eagle3-head"}
HOW_TO_ADD = "or add its figures to tandem/spec/data/models"


def _of_kind(catalogue: Catalogue, kind: str) -> list[str]:
    return sorted(model.id for model in catalogue.models.values() if model.kind.value == kind)


def _fitting(trial: Trial, kind: str) -> list[str]:
    """Return the drafts of a kind that fit the target: heads made for it, smaller models with its tokenizer."""
    target = trial.target
    return sorted(
        model.id
        for model in trial.catalogue.models.values()
        if model.kind.value == kind
        and model.head_of in (None, trial.experiment.target)
        and (target is None or model.head_of is not None or model.layers.value < target.layers.value)
        and (target is None or model.tokenizer.value == target.tokenizer.value)
    )


def _runs(trial: Trial, mode: str) -> bool:
    return trial.runtime is None or trial.runtime.mode(mode).verdict.value != "refused"


def _target_known(trial: Trial) -> Iterable[Finding]:
    known = _of_kind(trial.catalogue, "causal-lm")
    if trial.target is None:
        name = trial.experiment.target
        change = f"{nearest(name, known)}, {HOW_TO_ADD}"
        yield Finding(path="target", got=repr(name), allowed=listed(known), change=change)


def _target_kind(trial: Trial) -> Iterable[Finding]:
    target = trial.target
    if target is not None and target.kind.value != "causal-lm":
        change = f"write {target.head_of}" if target.head_of else "write a causal-lm"
        yield Finding(
            path="target", got=f"{target.id}, of kind {target.kind.value}",
            allowed=listed(_of_kind(trial.catalogue, "causal-lm")), change=change,
        )  # fmt: skip


def _draft_known(trial: Trial) -> Iterable[Finding]:
    for arm in trial.arms:
        name, kind = arm.variant.draft, DRAFT_KINDS.get(arm.variant.mode)
        if name is None or arm.draft is not None or kind is None:
            continue
        known = _fitting(trial, kind)
        change = f"{nearest(name, known)}, {HOW_TO_ADD}"
        yield Finding(path=arm.draft_path, got=repr(name), allowed=listed(known), change=change)


def _draft_wanted(trial: Trial) -> Iterable[Finding]:
    for arm in trial.arms:
        mode, name = arm.variant.mode, arm.variant.draft
        kind = DRAFT_KINDS.get(mode)
        if kind is None and name is not None:
            yield Finding(path=arm.draft_path, got=name, allowed=f"no draft with mode {mode}", change="delete it")
        if kind is not None and name is None:
            yield Finding(
                path=arm.draft_path, got="nothing",
                allowed=f"{A_KIND[kind]} with mode {mode}: {listed(_fitting(trial, kind))}",
                change="name a draft, or write mode none",
            )  # fmt: skip


def _draft_kind(trial: Trial) -> Iterable[Finding]:
    for arm, draft in trial.drafted():
        kind = DRAFT_KINDS.get(arm.variant.mode)
        if kind is None or draft.kind.value == kind:
            continue
        modes = [mode for mode, other in DRAFT_KINDS.items() if other == draft.kind.value and _runs(trial, mode)]
        fitting = _fitting(trial, kind)
        ways = (["write one of them"] if fitting else []) + ([f"write mode {' or '.join(modes)}"] if modes else [])
        change = ", or ".join(ways) or "write mode none"
        yield Finding(
            path=arm.draft_path, got=f"{draft.id}, of kind {draft.kind.value}, with mode {arm.variant.mode}",
            allowed=f"{A_KIND[kind]}: {listed(fitting)}", change=change,
        )  # fmt: skip


def _unpinned(trial: Trial) -> Iterable[Finding]:
    for path, model in trial.models():
        if model.revision.value is None:
            yield Finding(
                path=path, got=f"{model.id} at main, which moves", allowed="a commit of its repository",
                change="write revision.value in its file in tandem/spec/data/models",
                source=model.sources[model.revision.source],
            )  # fmt: skip


def _gated(trial: Trial) -> Iterable[Finding]:
    for path, model in trial.models():
        if model.gated.value:
            yield Finding(
                path=path, got=f"{model.id}, which is gated", allowed="a model that needs no token",
                change="accept its licence and have a token ready for staging",
                source=model.sources[model.gated.source],
            )  # fmt: skip


_FEATURES = "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, speculative decoding"

RULES: tuple[Rule[Trial], ...] = (
    Rule(
        id="target-known", of=Trial, severity="refusal", find=_target_known,
        sentence="the target has a data file", source="tandem/spec/data/models", date=date(2026, 11, 21),
    ),
    Rule(
        id="target-kind", of=Trial, severity="refusal", find=_target_kind,
        sentence="the target is a model that decodes by itself, not a head",
        source=_FEATURES, date=date(2026, 8, 21),
    ),
    Rule(
        id="draft-known", of=Trial, severity="refusal", find=_draft_known,
        sentence="the draft has a data file", source="tandem/spec/data/models", date=date(2026, 11, 21),
    ),
    Rule(
        id="draft-by-mode", of=Trial, severity="refusal", find=_draft_wanted,
        sentence="vanilla, fused, eagle and eagle3 name a draft; none and medusa name none",
        source=_FEATURES, date=date(2026, 8, 21),
    ),
    Rule(
        id="draft-kind", of=Trial, severity="refusal", find=_draft_kind,
        sentence="the draft is what the mode takes: a causal-lm, an EAGLE head or an EAGLE3 head",
        source=_FEATURES, date=date(2026, 8, 21),
    ),
    Rule(
        id="model-unpinned", of=Trial, severity="warning", find=_unpinned,
        sentence="each model is pinned to a commit", source="tandem/spec/data/models", date=date(2026, 11, 21),
    ),
    Rule(
        id="model-gated", of=Trial, severity="warning", find=_gated,
        sentence="no model needs a token to be staged", source="tandem/spec/data/models", date=date(2026, 11, 21),
    ),
)  # fmt: skip
