"""Which models are known, what each can serve as, and what its files need."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed, nearest
from tandem.rules.subjects import Trial
from tandem.spec.catalogue import Catalogue

DRAFT_KINDS = {"vanilla": "causal-lm", "fused": "causal-lm", "eagle": "eagle-head", "eagle3": "eagle3-head"}


def _of_kind(catalogue: Catalogue, kind: str) -> list[str]:
    return sorted(model.id for model in catalogue.models.values() if model.kind.value == kind)


def _target_known(trial: Trial) -> Iterable[Finding]:
    known = _of_kind(trial.catalogue, "causal-lm")
    if trial.target is None:
        name = trial.experiment.target
        yield Finding(path="target", got=repr(name), allowed=listed(known), change=nearest(name, known))


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
        known = _of_kind(trial.catalogue, kind)
        yield Finding(path=arm.draft_path, got=repr(name), allowed=listed(known), change=nearest(name, known))


def _draft_wanted(trial: Trial) -> Iterable[Finding]:
    for arm in trial.arms:
        mode, name = arm.variant.mode, arm.variant.draft
        kind = DRAFT_KINDS.get(mode)
        if kind is None and name is not None:
            yield Finding(path=arm.draft_path, got=name, allowed=f"no draft with mode {mode}", change="delete it")
        if kind is not None and name is None:
            fitting = [
                model.id
                for model in trial.catalogue.models.values()
                if model.kind.value == kind and model.head_of in (None, trial.experiment.target)
            ]
            yield Finding(
                path=arm.draft_path, got="nothing", allowed=f"a {kind} with mode {mode}: {listed(sorted(fitting))}",
                change="name a draft, or write mode none",
            )  # fmt: skip


def _draft_kind(trial: Trial) -> Iterable[Finding]:
    for arm, draft in trial.drafted():
        kind = DRAFT_KINDS.get(arm.variant.mode)
        if kind is None or draft.kind.value == kind:
            continue
        modes = [mode for mode, other in DRAFT_KINDS.items() if other == draft.kind.value]
        change = f"write one of them, or mode {' or '.join(modes)}" if modes else "write one of them"
        yield Finding(
            path=arm.draft_path, got=f"{draft.id}, of kind {draft.kind.value}, with mode {arm.variant.mode}",
            allowed=f"a {kind}: {listed(_of_kind(trial.catalogue, kind))}", change=change,
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
