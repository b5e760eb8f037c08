"""Which models are known, what each can serve as, and what its files need."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values, suggest_nearest
from tandem.spec.catalogue import Catalogue

DRAFT_KINDS = {"vanilla": "causal-lm", "fused": "causal-lm", "eagle": "eagle-head", "eagle3": "eagle3-head"}


KIND_TEXTS = {"causal-lm": "a causal-lm", "eagle-head": "an eagle-head", "eagle3-head": "an eagle3-head"}
HOW_TO_ADD = "or add its figures to tandem/spec/data/models"

_FEATURES = "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, speculative decoding"
RULES = RuleList()


def _list_model_ids(catalogue: Catalogue, kind: str) -> list[str]:
    return sorted(model.id for model in catalogue.models.values() if model.kind.value == kind)


def _list_draft_ids(context: ExperimentContext, kind: str) -> list[str]:
    """Return the drafts of a kind that fit the target: heads made for it, smaller models with its tokenizer."""
    target = context.target
    return sorted(
        model.id
        for model in context.catalogue.models.values()
        if model.kind.value == kind
        and model.head_of in (None, context.experiment.target)
        and (target is None or model.head_of is not None or model.layers.value < target.layers.value)
        and (target is None or model.tokenizer.value == target.tokenizer.value)
    )


def _can_run_mode(context: ExperimentContext, mode: str) -> bool:
    return context.runtime is None or context.runtime.mode(mode).verdict.value != "refused"


@RULES.refuse("target-known", "tandem/spec/data/models", "2026-11-21")
def _find_unknown_target(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The target has a data file."""
    model_ids = _list_model_ids(context.catalogue, "causal-lm")
    if context.target is None:
        name = context.experiment.target
        change = f"{suggest_nearest(name, model_ids)}, {HOW_TO_ADD}"
        yield RuleFinding(path="target", got=repr(name), allowed=join_values(model_ids), change=change)


@RULES.refuse("target-kind", _FEATURES, "2026-08-21")
def _find_wrong_target_kind(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The target is a model that decodes by itself, not a head."""
    target = context.target
    if target is not None and target.kind.value != "causal-lm":
        change = f"write {target.head_of}" if target.head_of else "write a causal-lm"
        yield RuleFinding(
            path="target", got=f"{target.id}, of kind {target.kind.value}",
            allowed=join_values(_list_model_ids(context.catalogue, "causal-lm")), change=change,
        )  # fmt: skip


@RULES.refuse("draft-known", "tandem/spec/data/models", "2026-11-21")
def _find_unknown_draft(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The draft has a data file."""
    for arm in context.arms:
        name, kind = arm.variant.draft, DRAFT_KINDS.get(arm.variant.mode)
        if name is None or arm.draft is not None or kind is None:
            continue
        draft_ids = _list_draft_ids(context, kind)
        change = f"{suggest_nearest(name, draft_ids)}, {HOW_TO_ADD}"
        yield RuleFinding(path=arm.draft_path, got=repr(name), allowed=join_values(draft_ids), change=change)


@RULES.refuse("draft-by-mode", _FEATURES, "2026-08-21")
def _find_draft_mode_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Vanilla, fused, eagle and eagle3 name a draft; none and medusa name none."""
    for arm in context.arms:
        mode, name = arm.variant.mode, arm.variant.draft
        kind = DRAFT_KINDS.get(mode)
        if kind is None and name is not None:
            yield RuleFinding(path=arm.draft_path, got=name, allowed=f"no draft with mode {mode}", change="delete it")
        if kind is not None and name is None:
            yield RuleFinding(
                path=arm.draft_path, got="nothing",
                allowed=f"{KIND_TEXTS[kind]} with mode {mode}: {join_values(_list_draft_ids(context, kind))}",
                change="name a draft, or write mode none",
            )  # fmt: skip


@RULES.refuse("draft-kind", _FEATURES, "2026-08-21")
def _find_wrong_draft_kind(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The draft is what the mode takes: a causal-lm, an EAGLE head or an EAGLE3 head."""
    for arm, draft in context.draft_arms():
        kind = DRAFT_KINDS.get(arm.variant.mode)
        if kind is None or draft.kind.value == kind:
            continue
        modes = [
            mode
            for mode, model_kind in DRAFT_KINDS.items()
            if model_kind == draft.kind.value and _can_run_mode(context, mode)
        ]
        draft_ids = _list_draft_ids(context, kind)
        ways = (["write one of them"] if draft_ids else []) + ([f"write mode {' or '.join(modes)}"] if modes else [])
        change = ", or ".join(ways) or "write mode none"
        yield RuleFinding(
            path=arm.draft_path, got=f"{draft.id}, of kind {draft.kind.value}, with mode {arm.variant.mode}",
            allowed=f"{KIND_TEXTS[kind]}: {join_values(draft_ids)}", change=change,
        )  # fmt: skip


@RULES.warn("model-unpinned", "tandem/spec/data/models", "2026-11-21")
def _find_unpinned_models(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Each model is pinned to a commit."""
    for path, model in context.models():
        if model.revision.value is None:
            yield RuleFinding(
                path=path, got=f"{model.id} at main, which moves", allowed="a commit of its repository",
                change="write revision.value in its file in tandem/spec/data/models",
                source=model.sources[model.revision.source],
            )  # fmt: skip


@RULES.warn("model-gated", "tandem/spec/data/models", "2026-11-21")
def _find_gated_models(context: ExperimentContext) -> Iterable[RuleFinding]:
    """No model needs a token to be staged."""
    for path, model in context.models():
        if model.gated.value:
            yield RuleFinding(
                path=path, got=f"{model.id}, which is gated", allowed="a model that needs no token",
                change="accept its licence and have a token ready for staging",
                source=model.sources[model.gated.source],
            )  # fmt: skip
