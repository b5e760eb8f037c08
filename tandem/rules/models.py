"""Rules on runtimes and models: known ones, targets a runtime serves, drafts that fit a target."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations.experiment import DRAFT_KINDS
from tandem.declarations.model import ModelConfig
from tandem.rules.contexts import ArmContext, ExperimentContext
from tandem.rules.rule import (
    DATA,
    NEURON_SDK,
    NXDI,
    RuleFinding,
    RuleList,
    join_values,
    suggest_nearest,
)

HOW_TO_ADD = "or add its figures to tandem/declarations/data/models"

_FEATURES = (
    f"{NEURON_SDK} libraries/nxd-inference/developer_guides/feature-guide.rst, speculative decoding"
)
_EAGLE = f"{NEURON_SDK} libraries/nxd-inference/developer_guides/feature-guide.rst, EAGLE"
_EAGLE3 = f"{NEURON_SDK} vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)"
_GPT_OSS = f"{NEURON_SDK} libraries/nxd-inference/tutorials/trn3-gpt-oss-120b-tutorial.rst"
_ACCEPTANCE = f"{NXDI} models/model_base.py: a token is accepted when its id is the target's"
RULES = RuleList()


@RULES.refuse("runtime-known", f"{DATA}/runtimes", "2026-11-21")
def _find_unknown_runtime(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime has a data file."""
    name = context.experiment.runtime
    names = sorted(context.catalogue.runtimes)
    if name not in names:
        yield RuleFinding("runtime", repr(name), join_values(names), suggest_nearest(name, names))


@RULES.refuse("runtime-rendered", f"{DATA}/runtimes, not_rendered_because", "2026-11-21")
def _find_unrendered_runtime(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime is one that Tandem renders."""
    runtime = context.runtime
    if not runtime.rendered:
        got = f"{runtime.name!r}, which is not rendered: {runtime.not_rendered_because}"
        runtimes = context.catalogue.runtimes.values()
        legal = join_values(sorted(other.name for other in runtimes if other.rendered))
        change = "nxdi-v0 for a plain draft model, native for EAGLE3"
        yield RuleFinding("runtime", got, legal, change, runtime.support)


@RULES.refuse("target-family", f"{DATA}/runtimes, target_families", "2026-11-21")
def _find_unsupported_family(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime serves the target's family."""
    runtime = context.runtime
    target = context.target
    family = target.family.value
    families = runtime.target_families
    if family not in families.value:
        got = f"{target.id}, of family {family}, on runtime {runtime.name}"
        change = "write a target of these families, or another runtime"
        yield RuleFinding(
            "target", got, f"families {join_values(families.value)}", change, families
        )


@RULES.refuse_unproven(
    "target-unproven",
    f"{DATA}/runtimes, proven_targets",
    "2026-11-21",
    accepted="A target admitted by accept_unproven has no documented run.",
)
def _find_unproven_target(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A documented run shows the target on the runtime, or the experiment says accept_unproven."""
    runtime = context.runtime
    target = context.target
    proven = runtime.proven_targets
    is_served = target.family.value in runtime.target_families.value
    if is_served and proven.value and target.id not in proven.value:
        got = f"{target.id}, which no source shows on runtime {runtime.name}"
        change = "write one of them, or accept_unproven: true"
        if context.experiment.accept_unproven:
            change = "prove it on one node first"
        yield RuleFinding("target", got, join_values(proven.value), change, proven)


@RULES.warn("image-vulnerable", "aws-neuron/deep-learning-containers README.md", "2026-08-17")
def _find_vulnerable_image(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime's image has no known vulnerabilities."""
    runtime = context.runtime
    figure = runtime.image.vulnerabilities
    if figure.value is not None:
        change = (
            "keep its servers inside the cluster, as rendered;"
            " use another runtime where its modes suffice"
        )
        legal = "an image without known vulnerabilities"
        yield RuleFinding("runtime", f"{runtime.name}: {figure.value}", legal, change, figure)


def _list_targets(context: ExperimentContext) -> list[str]:
    return sorted(
        model.id for model in context.catalogue.models.values() if model.kind.value == "causal-lm"
    )


def _list_drafts(context: ExperimentContext, kind: str) -> list[str]:
    """Return a kind's drafts that fit: the target's own heads, smaller models of its vocabulary."""
    models = context.catalogue.models
    target_name = context.experiment.target
    target = models.get(target_name)
    drafts = []
    for model in models.values():
        is_candidate = model.kind.value == kind and model.head_of in (None, target_name)
        if is_candidate and (target is None or _fits_target(model, target)):
            drafts.append(model.id)
    return sorted(drafts)


def _fits_target(draft: ModelConfig, target: ModelConfig) -> bool:
    """Return whether a draft has the target's tokens and, unless it is a head, is smaller."""
    if draft.tokenizer.value != target.tokenizer.value:
        return False
    if draft.head_of:
        return True
    return draft.vocabulary.value == target.vocabulary.value and _is_smaller(draft, target)


def _is_smaller(draft: ModelConfig, target: ModelConfig) -> bool:
    is_lighter = (draft.bytes.value or 0) < (target.bytes.value or float("inf"))
    return draft.layers.value < target.layers.value and is_lighter


@RULES.refuse("target-known", f"{DATA}/models", "2026-11-21")
def _find_unknown_target(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The target has a data file."""
    name = context.experiment.target
    targets = _list_targets(context)
    if name not in context.catalogue.models:
        change = f"{suggest_nearest(name, targets)}, {HOW_TO_ADD}"
        yield RuleFinding("target", repr(name), join_values(targets), change)


@RULES.refuse("target-kind", _FEATURES, "2026-08-21")
def _find_wrong_target_kind(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The target is a model that decodes by itself, not a head."""
    target = context.target
    if target.kind.value != "causal-lm":
        got = f"{target.id}, of kind {target.kind.value}"
        change = f"write {target.head_of or 'a causal-lm'}"
        yield RuleFinding("target", got, join_values(_list_targets(context)), change)


@RULES.refuse("draft-known", f"{DATA}/models", "2026-11-21")
def _find_unknown_draft(context: ArmContext) -> Iterable[RuleFinding]:
    """The draft has a data file."""
    name = context.variant.draft
    kind = DRAFT_KINDS.get(context.variant.mode)
    if name is not None and name not in context.catalogue.models and kind is not None:
        drafts = _list_drafts(context, kind)
        change = f"{suggest_nearest(name, drafts)}, {HOW_TO_ADD}"
        yield context.find_in_draft(repr(name), join_values(drafts), change)


@RULES.refuse("draft-by-mode", _FEATURES, "2026-08-21")
def _find_draft_mode_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """Vanilla, fused, eagle and eagle3 name a draft; none and medusa name none."""
    path = context.paths["draft"]
    mode = context.variant.mode
    name = context.variant.draft
    kind = DRAFT_KINDS.get(mode)
    if kind is None and name is not None:
        yield RuleFinding(path, name, f"no draft with mode {mode}", "delete it")
    if kind is not None and name is None:
        legal = f"of kind {kind} with mode {mode}: {join_values(_list_drafts(context, kind))}"
        yield RuleFinding(path, "", legal, "name a draft, or write mode none")


@RULES.refuse("draft-kind", _FEATURES, "2026-08-21")
def _find_wrong_draft_kind(context: ArmContext) -> Iterable[RuleFinding]:
    """The draft is what the mode takes: a causal-lm, an EAGLE head or an EAGLE3 head."""
    kind = DRAFT_KINDS.get(context.variant.mode)
    draft_kind = context.draft.kind.value
    if kind is not None and draft_kind != kind:
        got = f"{context.draft.id}, a {draft_kind}, with mode {context.variant.mode}"
        drafts = _list_drafts(context, kind)
        change = "write one of them" if drafts else "write mode none"
        yield context.find_in_draft(got, f"of kind {kind}: {join_values(drafts)}", change)


@RULES.warn("model-unpinned", f"{DATA}/models", "2026-11-21")
def _find_unpinned_models(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Each model is pinned to a commit."""
    for path, model in context.models().items():
        if model.revision.value is None:
            got = f"{model.id} at main, which moves"
            change = f"write revision.value in its file in {DATA}/models"
            yield RuleFinding(path, got, "a commit of its repository", change, model.revision)


@RULES.warn("model-gated", f"{DATA}/models", "2026-11-21")
def _find_gated_models(context: ExperimentContext) -> Iterable[RuleFinding]:
    """No model needs a token to be staged."""
    for path, model in context.models().items():
        if model.gated.value:
            got = f"{model.id}, which is gated"
            change = "accept its licence and have a token ready for staging"
            yield RuleFinding(path, got, "a model that needs no token", change, model.gated)


def _suggest_drafts(context: ArmContext) -> str:
    return f"write one of: {join_values(_list_drafts(context, context.draft.kind.value))}"


@RULES.refuse("tokenizer-equal", _ACCEPTANCE, "2025-09-22")
def _find_tokenizer_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """Draft and target have the same tokenizer."""
    draft, target = context.pair
    if draft.head_of in (None, target.id) and draft.tokenizer.value != target.tokenizer.value:
        got = f"{draft.id}, whose tokenizer is {draft.tokenizer.value}"
        legal = f"the target's tokenizer, {target.tokenizer.value}"
        yield context.find_in_draft(got, legal, _suggest_drafts(context), draft.tokenizer)


@RULES.refuse("vocabulary-equal", "vllm 0.16.0 vllm/config/speculative.py", "2026-11-21")
def _find_vocabulary_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """Draft and target have the same vocabulary."""
    draft, target = context.pair
    is_comparable = draft.head_of is None and draft.tokenizer.value == target.tokenizer.value
    if is_comparable and draft.vocabulary.value != target.vocabulary.value:
        got = f"{draft.id}, whose vocabulary has {draft.vocabulary.value} rows"
        legal = f"the target's {target.vocabulary.value} rows"
        yield context.find_in_draft(got, legal, _suggest_drafts(context), draft.vocabulary)


@RULES.warn("draft-family", "arXiv 2211.17192, section 3: acceptance", "2026-11-21")
def _find_family_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """Draft and target are of one family."""
    draft, target = context.pair
    if draft.head_of is None and draft.family.value != target.family.value:
        got = f"{draft.id}, of family {draft.family.value}"
        legal = f"the target's family, {target.family.value}"
        change = "expect a lower acceptance, or write one of the same family"
        yield context.find_in_draft(got, legal, change, draft.family)


@RULES.refuse(
    "draft-smaller",
    "arXiv 2211.17192, section 3.3: no speedup unless the draft costs less",
    "2026-11-21",
)
def _find_large_draft(context: ArmContext) -> Iterable[RuleFinding]:
    """The draft has fewer layers and bytes than the target."""
    draft, target = context.pair
    if draft.head_of is None and not _is_smaller(draft, target):
        got = f"{draft.id}, of {draft.layers.value} layers"
        legal = f"less than the target's {target.layers.value}"
        yield context.find_in_draft(got, legal, _suggest_drafts(context), draft.layers)


@RULES.refuse("head-of-target", _EAGLE3, "2026-08-21")
def _find_foreign_head(context: ArmContext) -> Iterable[RuleFinding]:
    """A head was trained for the target."""
    draft, target = context.pair
    if draft.head_of not in (None, target.id):
        legal = f"a head of {target.id}: {join_values(_list_drafts(context, draft.kind.value))}"
        change = f"write one of them, or target {draft.head_of}"
        yield context.find_in_draft(f"{draft.id}, a head of {draft.head_of}", legal, change)


@RULES.refuse("head-hidden-size", _GPT_OSS, "2026-08-21")
def _find_hidden_size_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """A head has the target's hidden size."""
    draft, target = context.pair
    if draft.head_of == target.id and draft.hidden_size.value != target.hidden_size.value:
        got = f"{draft.id}, of hidden size {draft.hidden_size.value}"
        yield context.find_in_draft(
            got,
            f"the target's {target.hidden_size.value}",
            "write another head",
            draft.hidden_size,
        )


@RULES.refuse("head-vocabulary", _GPT_OSS, "2026-08-21")
def _find_small_head_vocabulary(context: ArmContext) -> Iterable[RuleFinding]:
    """Where the runtime needs it, a head drafts from the target's whole vocabulary."""
    draft, target = context.pair
    needs_match = context.runtime.needs_vocabulary_match
    rows = (draft.draft_vocabulary and draft.draft_vocabulary.value) or draft.vocabulary.value
    if needs_match.value and draft.head_of is not None and rows != target.vocabulary.value:
        got = f"{draft.id}, which drafts from {rows} tokens, on runtime {context.runtime.name}"
        legal = f"all {target.vocabulary.value} tokens"
        change = "write another head, or runtime native"
        yield context.find_in_draft(got, legal, change, needs_match)


@RULES.warn("head-output", _EAGLE, "2026-08-21")
def _find_missing_output_matrix(context: ArmContext) -> Iterable[RuleFinding]:
    """With NxD Inference the files of an EAGLE head hold the target's output matrix."""
    draft, _ = context.pair
    if context.runtime.versions.nxdi.value is not None and context.variant.mode == "eagle":
        legal = (
            "a head whose files hold the target's output matrix (lm_head),"
            " which published heads leave out"
        )
        change = "copy lm_head from the target into the head's files before they are staged"
        yield context.find_in_draft(f"{draft.id} on runtime {context.runtime.name}", legal, change)
