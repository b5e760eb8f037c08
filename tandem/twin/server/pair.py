"""The twins of an experiment: one set of knobs for each variant, from the spec, the runtime's data and a calibration.

Invariant: two variants' knobs differ in law, window and draft alone; every figure that no spec states has its source
in `data/calibration.yaml`, `assumed` where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import Field

from tandem.spec.catalogue import Catalogue
from tandem.spec.document import read_document
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.faults import Fault, SpecError
from tandem.spec.figure import Figure, Source
from tandem.spec.record import Record, parse
from tandem.spec.runtime import Runtime
from tandem.twin.server.knobs import DEFAULT_CLASS, ClassKnobs, Knobs, RuntimeName, checked

CALIBRATION = Path(__file__).with_name("data") / "calibration.yaml"
THINKING_FAMILIES = ("qwen3",)  # their chat template thinks unless a request says enable_thinking: false


class TargetCost(Record):
    """What a target's steps cost."""

    step_ms: Figure[float] = Field(description="one plain decode step, at any batch, in ms")
    prefill_base_ms: Figure[float] = Field(description="a prefill without its tokens, in ms")
    prefill_ms_per_token: Figure[float] = Field(description="each prompt token, in ms")


class Calibration(Record):
    """Figures that no spec states."""

    targets: dict[str, TargetCost] = Field(description="model id to its costs")
    drafts: dict[str, Figure[float]] = Field(description="draft id to one forward's share of the target's step")
    acceptance: dict[str, dict[str, Figure[float]]] = Field(description="draft id to class to chance of acceptance")
    sources: dict[str, Source] = Field(description="key to document and date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A class of prompts as a suite has it.

    Args:
        texts: by which a prompt is known. output_tokens, output_spread: how long its answers are. form: as the knob.
    """

    texts: tuple[str, ...]
    output_tokens: int
    output_spread: int
    as_json: bool = False


@cache
def calibration(path: Path = CALIBRATION) -> Calibration:
    """Read the calibration.

    Raises:
        SpecError: it is malformed.
    """
    return parse(Calibration, read_document(path, f"data/{path.name}"))


def pair(
    experiment: Experiment, catalogue: Catalogue, sketches: Mapping[str, Sketch], *, seed: int = 0
) -> dict[str, Knobs]:
    """Return the knobs of each variant, by its name.

    Args:
        sketches: the classes of the experiment's suites; the first whose text a prompt contains is its class.

    Raises:
        SpecError: the calibration has no figure for a model of the experiment.
    """
    known = calibration()
    missing = _missing(experiment, known)
    if missing:
        raise SpecError(missing)
    runtime = catalogue.runtimes[experiment.runtime]
    thinks = catalogue.models[experiment.target].family.value in THINKING_FAMILIES
    return {
        variant.name: checked(_knobs(experiment, variant, runtime, sketches).model_copy(
            update={"thinking": thinks, "seed": seed}
        ))
        for variant in experiment.all_variants()
    }  # fmt: skip


def _knobs(experiment: Experiment, variant: Variant, runtime: Runtime, sketches: Mapping[str, Sketch]) -> Knobs:
    known = calibration()
    cost, serving = known.targets[experiment.target], experiment.serving
    window = variant.num_speculative_tokens or 0
    plain = variant.mode == "none"
    share = known.drafts[variant.draft].value if variant.draft else 0.0
    return Knobs(
        model=experiment.target, runtime=_dialect(runtime), version=runtime.versions.vllm.value,
        law="none" if plain else "nxdi" if runtime.counters.tokens_per_step.value == "k" else "vllm",
        num_speculative_tokens=window, classes=_classes(variant, sketches),
        step_ms=(cost.step_ms.value,), draft_ms=cost.step_ms.value * share,
        prefill_base_ms=cost.prefill_base_ms.value, prefill_ms_per_token=cost.prefill_ms_per_token.value,
        max_num_seqs=serving.max_num_seqs, max_model_len=serving.max_model_len,
        spec_counters=runtime.counters.speculation.value,
        reasoning_parser=False,  # no rendered server is told to have one
    )  # fmt: skip


def _dialect(runtime: Runtime) -> RuntimeName:
    return "nxdi-v0" if runtime.name == "nxdi-v0" else "native"


def _classes(variant: Variant, sketches: Mapping[str, Sketch]) -> dict[str, ClassKnobs]:
    chances = calibration().acceptance.get(variant.draft or "", {})
    rest = chances[DEFAULT_CLASS].value if chances else 0.0
    classes = {
        name: ClassKnobs(
            acceptance=chances[name].value if name in chances else rest, output_tokens=sketch.output_tokens,
            output_spread=sketch.output_spread, form="json" if sketch.as_json else "prose", contains=sketch.texts,
        )
        for name, sketch in sketches.items()
    }  # fmt: skip
    return {**classes, DEFAULT_CLASS: ClassKnobs(acceptance=rest)}


def _missing(experiment: Experiment, known: Calibration) -> Sequence[Fault]:
    drafts = [variant.draft for variant in experiment.all_variants() if variant.draft]
    needed: list[tuple[str, str, Mapping[str, object]]] = [("target", experiment.target, known.targets)]
    for draft in drafts:
        needed += [("draft", draft, known.drafts), ("draft", draft, known.acceptance)]
    faults = [
        Fault(
            file=f"experiments/{experiment.name}.yaml", path=what, got=model, allowed=", ".join(table),
            change=f"add its figures, with their source, to tandem/twin/server/data/{CALIBRATION.name}",
        )
        for what, model, table in needed
        if model not in table
    ]  # fmt: skip
    return list(dict.fromkeys(faults))
