"""What a draft and its target must have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tandem.rules.contexts import ArmContext, ExperimentContext
from tandem.rules.models import DRAFT_KINDS
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.model import ModelConfig

_EXACT = (
    "aws-neuron/neuronx-distributed-inference models/model_base.py: a token is accepted when its id is the target's"
)
RULES = RuleList()


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


@RULES.refuse("tokenizer-equal", _EXACT, "2025-09-22")
def _find_tokenizer_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Draft and target have the same tokenizer."""
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


@RULES.refuse("vocabulary-equal", "vllm 0.16.0 vllm/config/speculative.py", "2026-11-21")
def _find_vocabulary_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Draft and target have the same vocabulary."""
    for arm, draft, target in _yield_pairs(context, head=False):
        if draft.tokenizer.value == target.tokenizer.value and draft.vocabulary.value != target.vocabulary.value:
            yield RuleFinding(
                path=arm.draft_path,
                got=f"{draft.id}, whose vocabulary has {draft.vocabulary.value} rows",
                allowed=f"a draft with the target's {target.vocabulary.value} rows",
                change=f"write one of: {_list_matching_drafts(context, draft, target)}",
                source=draft.sources[draft.vocabulary.source],
            )


@RULES.warn("draft-family", "arXiv 2211.17192, section 3: acceptance", "2026-11-21")
def _find_family_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Draft and target are of one family."""
    for arm, draft, target in _yield_pairs(context, head=False):
        if draft.family.value != target.family.value:
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, of family {draft.family.value}",
                allowed=f"a draft of the target's family, {target.family.value}",
                change="expect a lower acceptance, or write one of the same family",
                source=draft.sources[draft.family.source],
            )  # fmt: skip


@RULES.refuse("draft-smaller", "arXiv 2211.17192, section 3.3: no speedup unless the draft costs less", "2026-11-21")
def _find_large_draft(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The draft has fewer layers and bytes than the target."""
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


@RULES.refuse(
    "head-of-target",
    "aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)",
    "2026-08-21",
)
def _find_foreign_head(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A head was trained for the target."""
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


@RULES.refuse(
    "head-hidden-size",
    "aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
    "2026-08-21",
)
def _find_hidden_size_mismatch(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A head has the target's hidden size."""
    for arm, draft, target in _yield_pairs(context, head=True):
        if draft.head_of == target.id and draft.hidden_size.value != target.hidden_size.value:
            yield RuleFinding(
                path=arm.draft_path, got=f"{draft.id}, of hidden size {draft.hidden_size.value}",
                allowed=f"a head of the target's hidden size, {target.hidden_size.value}", change="write another head",
                source=draft.sources[draft.hidden_size.source],
            )  # fmt: skip


@RULES.refuse(
    "head-vocabulary",
    "aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
    "2026-08-21",
)
def _find_small_head_vocabulary(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Where the runtime needs it, a head drafts from the target's whole vocabulary."""
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


@RULES.warn(
    "head-output",
    "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, EAGLE",
    "2026-08-21",
)
def _find_missing_output_matrix(context: ExperimentContext) -> Iterable[RuleFinding]:
    """With NxD Inference the files of an EAGLE head hold the target's output matrix."""
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
