"""Answers to claims about how the servers were set up, from the manifest.

Invariant: what the manifest does not know confirms nothing; what it knows to differ contradicts.
"""

from __future__ import annotations

from tandem.bench.manifest import ManifestArm
from tandem.bench.request_table import UNKNOWN
from tandem.judge.claims.register import Claim, ClaimAnswer
from tandem.judge.claims.variant_results import VariantResults, find_manifest_arm

_FIELDS = {"model": "model", "image": "image", "server_version": "server version", "runtime": "runtime"}


def answer_setup(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the arms differ in their decoding alone."""
    arms = _find_arms(results)
    if arms is None:
        return ClaimAnswer("no evidence", "the manifest does not know both arms")
    differences, unknown = _compare_fields(*arms)
    placement_text = _describe_placements(results)
    if differences:
        return ClaimAnswer("contradicted", f"{'; '.join(differences)}{placement_text}")
    experiment = results.table.run.experiment
    if unknown or experiment is None:
        unknown_texts = [f"{name} of an arm" for name in unknown]
        unknown_texts += (
            [] if experiment else ["tensor parallelism, lengths and batch, since servers were named by address"]
        )
        return ClaimAnswer(
            "no evidence", f"not known: {', '.join(unknown_texts)}; what is known is equal{placement_text}"
        )
    text = f"model, image, server version and runtime are equal, and experiment {experiment} declares the rest once"
    return ClaimAnswer("confirmed", f"{text}; samplers of the arms' engines are not compared{placement_text}")


def answer_image(_: Claim, results: VariantResults) -> ClaimAnswer:
    """Answer whether the same image serves both arms."""
    arms = _find_arms(results)
    if arms is None or not (arms[0].image and arms[1].image):
        return ClaimAnswer("no evidence", "the manifest does not know the images of both arms")
    if arms[0].image != arms[1].image or arms[0].model != arms[1].model:
        return ClaimAnswer("contradicted", f"{arms[0].name} and {arms[1].name} are not the same image and model")
    if arms[1].speculation is None or arms[1].speculation.method is None:
        return ClaimAnswer("no evidence", f"the manifest does not say that {arms[1].name} speculates")
    keys = [arm.artifact_key for arm in arms]
    text = f"both arms serve {arms[0].model} from {arms[0].image}"
    if all(keys) and keys[0] != keys[1]:
        text += f"; each has a compiled artifact of its own, {keys[0]} and {keys[1]}, compiled before"
    return ClaimAnswer("confirmed", text)


def answer_declaration(claim: Claim, results: VariantResults) -> ClaimAnswer:  # noqa: ARG001 - one signature for all
    """Answer what a run cannot: such a pair is refused before it serves."""
    return ClaimAnswer(
        "not comparable",
        "a run asks servers that already serve; `tandem check` refuses a pair of other tokenizers or vocabularies "
        "(rules tokenizer-equal, vocabulary-equal) and warns of another family (draft-family)",
    )


def answer_months(claim: Claim, results: VariantResults) -> ClaimAnswer:  # noqa: ARG001 - one signature for all
    """Answer what one run cannot."""
    return ClaimAnswer(
        "not comparable",
        "one run is one moment of one pair of models: hold two runs beside each other with `tandem bench compare`, and "
        "watch acceptance on the dashboard",
    )


def _find_arms(results: VariantResults) -> tuple[ManifestArm, ManifestArm] | None:
    base, variant = find_manifest_arm(results.table, results.table.baseline), results.manifest_arm
    return (base, variant) if base is not None and variant is not None else None


def _compare_fields(base: ManifestArm, variant: ManifestArm) -> tuple[list[str], list[str]]:
    """Return what differs, and what of one arm or both is not known."""
    differences, unknown = [], []
    for field, name in _FIELDS.items():
        before, after = getattr(base, field), getattr(variant, field)
        if before is None or after is None:
            unknown.append(name)
        elif before != after:
            differences.append(f"{name}: {before} and {after}")
    return differences, unknown


def _describe_placements(results: VariantResults) -> str:
    """Say that each arm sat on a place of its own, where records tell."""
    table = results.table
    placements = [
        set(table.placement[table.arm_mask(arm)].tolist()) - {UNKNOWN} for arm in (table.baseline, results.variant)
    ]
    if not all(placements):
        return "; where each arm ran is not recorded"
    return "; each arm stayed on a place of its own, so what differs between them is in every figure" * placements[
        0
    ].isdisjoint(placements[1])
