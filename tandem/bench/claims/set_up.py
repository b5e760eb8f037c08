"""Answers to claims about how the servers were set up, from the manifest.

Invariant: what the manifest does not know confirms nothing; what it knows to differ contradicts.
"""

from __future__ import annotations

from tandem.bench.claims.case import Case, named
from tandem.bench.claims.register import Claim
from tandem.bench.claims.said import Said
from tandem.bench.judge.observations import UNKNOWN
from tandem.bench.manifest import Arm

_FIELDS = {"model": "model", "image": "image", "server_version": "server version", "runtime": "runtime"}


def alike(_: Claim, case: Case) -> Said:
    """Answer whether the arms differ in their decoding alone."""
    arms = _arms(case)
    if arms is None:
        return Said("no evidence", "the manifest does not know both arms")
    differ, unknown = _held(*arms)
    halves = _halves(case)
    if differ:
        return Said("contradicted", f"{'; '.join(differ)}{halves}")
    experiment = case.seen.run.experiment
    if unknown or experiment is None:
        lacks = [f"{name} of an arm" for name in unknown]
        lacks += [] if experiment else ["tensor parallelism, lengths and batch, since servers were named by address"]
        return Said("no evidence", f"not known: {', '.join(lacks)}; what is known is equal{halves}")
    told = f"model, image, server version and runtime are equal, and experiment {experiment} declares the rest once"
    return Said("confirmed", f"{told}; samplers of the arms' engines are not compared{halves}")


def image(_: Claim, case: Case) -> Said:
    """Answer whether the same image serves both arms."""
    arms = _arms(case)
    if arms is None or not (arms[0].image and arms[1].image):
        return Said("no evidence", "the manifest does not know the images of both arms")
    if arms[0].image != arms[1].image or arms[0].model != arms[1].model:
        return Said("contradicted", f"{arms[0].name} and {arms[1].name} are not the same image and model")
    if arms[1].speculation is None or arms[1].speculation.method is None:
        return Said("no evidence", f"the manifest does not say that {arms[1].name} speculates")
    keys = [arm.artifact_key for arm in arms]
    told = f"both arms serve {arms[0].model} from {arms[0].image}"
    if all(keys) and keys[0] != keys[1]:
        told += f"; each has a compiled artifact of its own, {keys[0]} and {keys[1]}, compiled before"
    return Said("confirmed", told)


def declared(claim: Claim, case: Case) -> Said:  # noqa: ARG001 - one signature for all
    """Answer what a run cannot: such a pair is refused before it serves."""
    return Said(
        "not comparable",
        "a run asks servers that already serve; `tandem check` refuses a pair of other tokenizers or vocabularies "
        "(rules tokenizer-equal, vocabulary-equal) and warns of another family (draft-family)",
    )


def months(claim: Claim, case: Case) -> Said:  # noqa: ARG001 - one signature for all
    """Answer what one run cannot."""
    return Said(
        "not comparable",
        "one run is one moment of one pair of models: hold two runs beside each other with `tandem bench compare`, and "
        "watch acceptance on the dashboard",
    )


def _arms(case: Case) -> tuple[Arm, Arm] | None:
    base, variant = named(case.seen, case.seen.baseline), case.arm
    return (base, variant) if base is not None and variant is not None else None


def _held(base: Arm, variant: Arm) -> tuple[list[str], list[str]]:
    """Return what differs, and what of one arm or both is not known."""
    differ, unknown = [], []
    for field, name in _FIELDS.items():
        before, after = getattr(base, field), getattr(variant, field)
        if before is None or after is None:
            unknown.append(name)
        elif before != after:
            differ.append(f"{name}: {before} and {after}")
    return differ, unknown


def _halves(case: Case) -> str:
    """Say that each arm sat on a place of its own, where records tell."""
    seen = case.seen
    met = [set(seen.placement[seen.of_arm(arm)].tolist()) - {UNKNOWN} for arm in (seen.baseline, case.variant)]
    if not all(met):
        return "; where each arm ran is not recorded"
    return "; each arm stayed on a place of its own, so what differs between them is in every figure" * met[
        0
    ].isdisjoint(met[1])
