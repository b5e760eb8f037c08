"""What a draft and its target must have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from tandem.rules.contexts import ArmContext, ExperimentContext
from tandem.rules.models import DRAFT_KINDS
from tandem.rules.rule import Rule, RuleFinding, join_values
from tandem.spec.model import ModelConfig


def _yield_pairs(context: ExperimentContext, *, head: bool) -> Iterator[tuple[ArmContext, ModelConfig, ModelConfig]]:
    """Yield arm, draft and target where the draft is of the kind its mode takes."""
    target = context.target
    if target is None or target.kind.value != "causal-lm":
        return
    for arm, draft in context.draft_arms():
        if draft.kind.value == DRAFT_KINDS.get(arm.variant.mode) and (draft.kind.value != "causal-lm") == head:
            yield arm, draft, target


def _list_matching_drafts(context: ExperimentContext, draft: ModelConfig, target: ModelConfig) -> str:
    """List the drafts of the target's tokenizer and vocabulary that are smaller than it."""
    return join_values(
        sorted(
            model.id
            for model in context.catalogue.models.values()
            if model.kind.value == draft.kind.value
            and model.tokenizer.value == target.tokenizer.value
            and model.vocabulary.value == target.vocabulary.value
            and model.layers.value < target.layers.value
        )
    )


def _find_tokenizer_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    heads = ((arm, head, target) for arm, head, target in _yield_pairs(context, head=True) if head.head_of == target.id)
    for arm, draft, target in (*_yield_pairs(context, head=False), *heads):
        if draft.tokenizer.value != target.tokenizer.value:
            yield RuleFinding(
                path=arm.draft_path,
                got=f"{draft.id}, whose tokenizer is {draft.tokenizer.value}",
                allowed=f"a draft with the target's tokenizer, {target.tokenizer.value}",
                change=f"write one of: {_list_matching_drafts(context, draft, target)}",
                source=draft.sources[draft.tokenizer.source],
            )


def _find_vocabulary_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm, draft, target in _yield_pairs(context, head=False):
        if draft.tokenizer.value == target.tokenizer.value and draft.vocabulary.value != target.vocabulary.value:
            yield RuleFinding(
                path=arm.draft_path,
                got=f"{draft.id}, whose vocabulary has {draft.vocabulary.value} rows",
                allowed=f"a draft with the target's {target.vocabulary.value} rows",
                change=f"write one of: {_list_matching_drafts(context, draft, target)}",
                source=draft.sources[draft.vocabulary.source],
            )


def _find_family_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm, draft, target in _yield_pairs(context, head=False):
        if draft.family.value != target.family.value:
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, of family {draft.family.value}",
                allowed=f"a draft of the target's family, {target.family.value}",
                change="expect a lower acceptance, or write one of the same family",
                source=draft.sources[draft.family.source],
            )  # fmt: skip


def _find_large_draft(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm, draft, target in _yield_pairs(context, head=False):
        is_deeper = draft.layers.value >= target.layers.value
        is_heavier = (draft.bytes.value or 0) >= (target.bytes.value or float("inf"))
        if is_deeper or is_heavier:
            yield RuleFinding(
                path=arm.draft_path,
                got=f"{draft.id}, of {draft.layers.value} layers",
                allowed=f"a draft smaller than {target.id}, of {target.layers.value} layers",
                change=f"write one of: {_list_matching_drafts(context, draft, target)}",
                source=draft.sources[draft.layers.source],
            )


def _find_foreign_head(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm, draft, target in _yield_pairs(context, head=True):
        if draft.head_of != target.id:
            fitting = sorted(
                model.id
                for model in context.catalogue.models.values()
                if model.kind.value == draft.kind.value and model.head_of == target.id
            )
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, a head of {draft.head_of}",
                allowed=f"a head of {target.id}: {join_values(fitting)}",
                change=f"write one of them, or target {draft.head_of}",
            )  # fmt: skip


def _find_hidden_size_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    for arm, draft, target in _yield_pairs(context, head=True):
        if draft.head_of == target.id and draft.hidden_size.value != target.hidden_size.value:
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, of hidden size {draft.hidden_size.value}",
                allowed=f"a head of the target's hidden size, {target.hidden_size.value}", change="write another head",
                source=draft.sources[draft.hidden_size.source],
            )  # fmt: skip


def _find_small_head_vocabulary(context: ExperimentContext) -> Iterable[RuleFinding]:
    runtime = context.runtime
    if runtime is None or not runtime.needs_vocabulary_match.value:
        return
    vocabulary_match = runtime.needs_vocabulary_match
    for arm, draft, target in _yield_pairs(context, head=True):
        draft_rows = draft.draft_vocabulary.value if draft.draft_vocabulary else None
        rows = draft_rows or draft.vocabulary.value
        if rows != target.vocabulary.value:
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, which drafts from {rows} tokens, on runtime {runtime.name}",
                allowed=f"a head that drafts from all {target.vocabulary.value}",
                change="write another head, or runtime native", source=runtime.sources[vocabulary_match.source],
            )  # fmt: skip


def _find_missing_output_matrix(context: ExperimentContext) -> Iterable[RuleFinding]:
    runtime = context.runtime
    if runtime is None or runtime.versions.nxdi.value is None:
        return
    for arm, draft, _ in _yield_pairs(context, head=True):
        if arm.variant.mode == "eagle":
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id} on runtime {runtime.name}",
                allowed="a head whose files hold the target's output matrix (lm_head), which published heads leave out",
                change="copy lm_head from the target into the head's files before they are staged",
            )  # fmt: skip


_EXACT = (
    "aws-neuron/neuronx-distributed-inference models/model_base.py: a token is accepted when its id is the target's"
)

RULES: tuple[Rule[ExperimentContext], ...] = (
    Rule(
        id="tokenizer-equal", context_type=ExperimentContext, severity="refusal", find=_find_tokenizer_mismatch,
        sentence="draft and target have the same tokenizer", source=_EXACT, date=date(2025, 9, 22),
    ),
    Rule(
        id="vocabulary-equal", context_type=ExperimentContext, severity="refusal", find=_find_vocabulary_mismatch,
        sentence="draft and target have the same vocabulary",
        source="vllm 0.16.0 vllm/config/speculative.py", date=date(2026, 11, 21),
    ),
    Rule(
        id="draft-family", context_type=ExperimentContext, severity="warning", find=_find_family_mismatch,
        sentence="draft and target are of one family", source="arXiv 2211.17192, section 3: acceptance",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="draft-smaller", context_type=ExperimentContext, severity="refusal", find=_find_large_draft,
        sentence="the draft has fewer layers and bytes than the target",
        source="arXiv 2211.17192, section 3.3: no speedup unless the draft costs less", date=date(2026, 11, 21),
    ),
    Rule(
        id="head-of-target", context_type=ExperimentContext, severity="refusal", find=_find_foreign_head,
        sentence="a head was trained for the target",
        source="aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-hidden-size", context_type=ExperimentContext, severity="refusal", find=_find_hidden_size_mismatch,
        sentence="a head has the target's hidden size",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-output", context_type=ExperimentContext, severity="warning", find=_find_missing_output_matrix,
        sentence="with NxD Inference the files of an EAGLE head hold the target's output matrix",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, EAGLE",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-vocabulary", context_type=ExperimentContext, severity="refusal", find=_find_small_head_vocabulary,
        sentence="where the runtime needs it, a head drafts from the target's whole vocabulary",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
        date=date(2026, 8, 21),
    ),
)  # fmt: skip
