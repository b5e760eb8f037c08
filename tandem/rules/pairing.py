"""What a draft and its target must have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from tandem.rules.models import DRAFT_KINDS
from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Arm, Trial
from tandem.spec.model import Model


def _pairs(trial: Trial, *, head: bool) -> Iterator[tuple[Arm, Model, Model]]:
    """Yield arm, draft and target where the draft is of the kind its mode takes."""
    target = trial.target
    if target is None or target.kind.value != "causal-lm":
        return
    for arm, draft in trial.drafted():
        if draft.kind.value == DRAFT_KINDS.get(arm.variant.mode) and (draft.kind.value != "causal-lm") == head:
            yield arm, draft, target


def _alike(trial: Trial, draft: Model, target: Model) -> str:
    """List the drafts of the target's tokenizer and vocabulary that are smaller than it."""
    return listed(
        sorted(
            model.id
            for model in trial.catalogue.models.values()
            if model.kind.value == draft.kind.value
            and model.tokenizer.value == target.tokenizer.value
            and model.vocabulary.value == target.vocabulary.value
            and model.layers.value < target.layers.value
        )
    )


def _tokenizer(trial: Trial) -> Iterable[Finding]:
    heads = ((arm, head, target) for arm, head, target in _pairs(trial, head=True) if head.head_of == target.id)
    for arm, draft, target in (*_pairs(trial, head=False), *heads):
        if draft.tokenizer.value != target.tokenizer.value:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, whose tokenizer is {draft.tokenizer.value}",
                allowed=f"a draft with the target's tokenizer, {target.tokenizer.value}",
                change=f"write one of: {_alike(trial, draft, target)}", source=draft.sources[draft.tokenizer.source],
            )  # fmt: skip


def _vocabulary(trial: Trial) -> Iterable[Finding]:
    for arm, draft, target in _pairs(trial, head=False):
        if draft.tokenizer.value == target.tokenizer.value and draft.vocabulary.value != target.vocabulary.value:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, whose vocabulary has {draft.vocabulary.value} rows",
                allowed=f"a draft with the target's {target.vocabulary.value} rows",
                change=f"write one of: {_alike(trial, draft, target)}", source=draft.sources[draft.vocabulary.source],
            )  # fmt: skip


def _family(trial: Trial) -> Iterable[Finding]:
    for arm, draft, target in _pairs(trial, head=False):
        if draft.family.value != target.family.value:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, of family {draft.family.value}",
                allowed=f"a draft of the target's family, {target.family.value}",
                change="expect a lower acceptance, or write one of the same family",
                source=draft.sources[draft.family.source],
            )  # fmt: skip


def _smaller(trial: Trial) -> Iterable[Finding]:
    for arm, draft, target in _pairs(trial, head=False):
        deeper = draft.layers.value >= target.layers.value
        heavier = (draft.bytes.value or 0) >= (target.bytes.value or float("inf"))
        if deeper or heavier:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, of {draft.layers.value} layers",
                allowed=f"a draft smaller than {target.id}, of {target.layers.value} layers",
                change=f"write one of: {_alike(trial, draft, target)}", source=draft.sources[draft.layers.source],
            )  # fmt: skip


def _head_of(trial: Trial) -> Iterable[Finding]:
    for arm, draft, target in _pairs(trial, head=True):
        if draft.head_of != target.id:
            fitting = sorted(
                model.id
                for model in trial.catalogue.models.values()
                if model.kind.value == draft.kind.value and model.head_of == target.id
            )
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, a head of {draft.head_of}",
                allowed=f"a head of {target.id}: {listed(fitting)}",
                change=f"write one of them, or target {draft.head_of}",
            )  # fmt: skip


def _hidden(trial: Trial) -> Iterable[Finding]:
    for arm, draft, target in _pairs(trial, head=True):
        if draft.head_of == target.id and draft.hidden_size.value != target.hidden_size.value:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, of hidden size {draft.hidden_size.value}",
                allowed=f"a head of the target's hidden size, {target.hidden_size.value}", change="write another head",
                source=draft.sources[draft.hidden_size.source],
            )  # fmt: skip


def _head_vocabulary(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or not runtime.needs_vocabulary_match.value:
        return
    needed = runtime.needs_vocabulary_match
    for arm, draft, target in _pairs(trial, head=True):
        own = draft.draft_vocabulary.value if draft.draft_vocabulary else None
        rows = own or draft.vocabulary.value
        if rows != target.vocabulary.value:
            yield Finding(
                path=arm.draft_path, got=f"{draft.id}, which drafts from {rows} tokens, on runtime {runtime.name}",
                allowed=f"a head that drafts from all {target.vocabulary.value}",
                change="write another head, or runtime native", source=runtime.sources[needed.source],
            )  # fmt: skip


def _head_output(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or runtime.versions.nxdi.value is None:
        return
    for arm, draft, _ in _pairs(trial, head=True):
        if arm.variant.mode == "eagle":
            yield Finding(
                path=arm.draft_path, got=f"{draft.id} on runtime {runtime.name}",
                allowed="a head whose files hold the target's output matrix (lm_head), which published heads leave out",
                change="copy lm_head from the target into the head's files before they are staged",
            )  # fmt: skip


_EXACT = (
    "aws-neuron/neuronx-distributed-inference models/model_base.py: a token is accepted when its id is the target's"
)

RULES: tuple[Rule[Trial], ...] = (
    Rule(
        id="tokenizer-equal", of=Trial, severity="refusal", find=_tokenizer,
        sentence="draft and target have the same tokenizer", source=_EXACT, date=date(2025, 9, 22),
    ),
    Rule(
        id="vocabulary-equal", of=Trial, severity="refusal", find=_vocabulary,
        sentence="draft and target have the same vocabulary",
        source="vllm 0.16.0 vllm/config/speculative.py", date=date(2026, 11, 21),
    ),
    Rule(
        id="draft-family", of=Trial, severity="warning", find=_family,
        sentence="draft and target are of one family", source="arXiv 2211.17192, section 3: acceptance",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="draft-smaller", of=Trial, severity="refusal", find=_smaller,
        sentence="the draft has fewer layers and bytes than the target",
        source="arXiv 2211.17192, section 3.3: no speedup unless the draft costs less", date=date(2026, 11, 21),
    ),
    Rule(
        id="head-of-target", of=Trial, severity="refusal", find=_head_of,
        sentence="a head was trained for the target",
        source="aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-hidden-size", of=Trial, severity="refusal", find=_hidden,
        sentence="a head has the target's hidden size",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-output", of=Trial, severity="warning", find=_head_output,
        sentence="with NxD Inference the files of an EAGLE head hold the target's output matrix",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, EAGLE",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="head-vocabulary", of=Trial, severity="refusal", find=_head_vocabulary,
        sentence="where the runtime needs it, a head drafts from the target's whole vocabulary",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst",
        date=date(2026, 8, 21),
    ),
)  # fmt: skip
