"""Settings of an experiment's simulators, one per variant: from spec, runtime data, calibration.

Invariant: the knobs of two variants differ only in law, window, draft cost and acceptance; every
figure that no spec states has its source in `data/calibration.yaml`, `assumed` if there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.figure import DataFigure, DataFile, read_data_file
from tandem.declarations.record import SpecRecord
from tandem.simulator.settings import (
    DEFAULT_CLASS,
    PromptClassSettings,
    SimulatorSettings,
)

CALIBRATION_FILE = Path(__file__).with_name("data") / "calibration.yaml"
# their chat template thinks unless a request says enable_thinking: false
THINKING_FAMILIES = ("qwen3",)


class TargetStepCost(SpecRecord):
    """Times of a target's steps."""

    step_ms: DataFigure[float] = Field(description="one plain decode step, at any batch, in ms")
    prefill_base_ms: DataFigure[float] = Field(description="a prefill without its tokens, in ms")
    prefill_ms_per_token: DataFigure[float] = Field(description="each prompt token, in ms")


class SimulatorCalibration(DataFile):
    """Figures that are in no spec."""

    targets: dict[str, TargetStepCost] = Field(description="model id to its costs")
    drafts: dict[str, DataFigure[float]] = Field(
        description="draft id to one forward's share of the target's step"
    )
    acceptance: dict[str, dict[str, DataFigure[float]]] = Field(
        description="draft id to class to chance of acceptance"
    )


@cache
def read_calibration() -> SimulatorCalibration:
    """Read the calibration.

    Raises:
        SpecError: the file is malformed.
    """
    return read_data_file(SimulatorCalibration, CALIBRATION_FILE)


def build_variant_settings(
    experiment: Experiment,
    catalogue: Catalogue,
    classes: Mapping[str, PromptClassSettings],
    *,
    seed: int = 0,
) -> dict[str, SimulatorSettings]:
    """Return the knobs of each variant, by its name.

    Args:
        classes: of the experiment's suites, without acceptance; a prompt is of the first class with
            a matching text.

    Raises:
        SpecError: the calibration has no figure for a model of the experiment.
    """
    figures = read_calibration()
    serving = experiment.serving
    drafts = {variant.draft for variant in experiment.all_variants() if variant.draft}
    absent_ids = {experiment.target} - figures.targets.keys() | drafts - (
        figures.drafts.keys() & figures.acceptance.keys()
    )
    if absent_ids:
        got = f"no figures of {', '.join(sorted(absent_ids))}"
        legal = "figures of each model that is simulated"
        change = "add a target's step time, or a draft's share and acceptance, each with its source"
        raise SpecError(
            [SpecFault(f"tandem/simulator/data/{CALIBRATION_FILE.name}", "", got, legal, change)]
        )
    runtime = catalogue.runtimes[experiment.runtime]
    cost = figures.targets[experiment.target]
    law = "nxdi" if runtime.counters.tokens_per_step.value == "k" else "vllm"
    plain = SimulatorSettings(
        model=experiment.target,
        runtime="nxdi-v0" if runtime.name == "nxdi-v0" else "native",
        version=runtime.versions.vllm.value,
        step_ms=(cost.step_ms.value,),
        prefill_base_ms=cost.prefill_base_ms.value,
        prefill_ms_per_token=cost.prefill_ms_per_token.value,
        max_num_seqs=serving.max_num_seqs,
        max_model_len=serving.max_model_len,
        spec_counters=runtime.counters.speculation.value,
        reasoning_parser=False,  # no rendered server has one
        thinking=catalogue.models[experiment.target].family.value in THINKING_FAMILIES,
        seed=seed,
    )
    settings = {}
    for variant in experiment.all_variants():
        share = figures.drafts[variant.draft].value if variant.draft else 0.0
        own = {
            "law": "none" if variant.mode == "none" else law,
            "num_speculative_tokens": variant.num_speculative_tokens or 0,
            "draft_ms": cost.step_ms.value * share,
            "classes": _class_settings(variant, classes),
        }
        settings[variant.name] = plain.model_copy(update=own)
    return settings


def _class_settings(
    variant: Variant, classes: Mapping[str, PromptClassSettings]
) -> dict[str, PromptClassSettings]:
    chances = {
        name: figure.value
        for name, figure in read_calibration().acceptance.get(variant.draft or "", {}).items()
    }
    default = chances.get(DEFAULT_CLASS, 0.0)
    own = {
        name: class_.model_copy(update={"acceptance": chances.get(name, default)})
        for name, class_ in classes.items()
    }
    return own | {DEFAULT_CLASS: PromptClassSettings(acceptance=default)}
