"""What rules judge: an environment with what it hosts, an experiment, and one hosting of the two.

Invariant: an experiment is judged once; only what depends on the environment is judged per hosting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.figure import DataFigure, FigureSource
from tandem.spec.model import ModelConfig
from tandem.spec.platform import InstanceType
from tandem.spec.runtime import ModeSupport, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmContext:
    """One variant, and the key path at which each of its fields was declared.

    Args:
        draft: None where no draft is named or the name is unknown.
        support: what the runtime says of the mode; None where the runtime is unknown or not rendered.
        paths: field of the variant to its key path.
        is_swept: it came from `sweep`.
    """

    variant: Variant
    draft: ModelConfig | None
    support: ModeSupport | None
    paths: dict[str, str]
    is_swept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentContext:
    """An experiment with everything its names stand for.

    Args:
        runtime, target: None where the name is unknown; a rule of its own refuses that.
    """

    experiment: Experiment
    catalogue: Catalogue
    runtime: Runtime | None
    target: ModelConfig | None
    arms: tuple[ArmContext, ...]

    def draft_arms(self) -> Iterator[tuple[ArmContext, ModelConfig]]:
        """Yield the arms whose draft is known, with it."""
        return ((arm, arm.draft) for arm in self.arms if arm.draft is not None)

    def drafts(self) -> list[ModelConfig]:
        """Return each known draft once."""
        return list({draft.id: draft for _, draft in self.draft_arms()}.values())

    def models(self) -> Iterator[tuple[str, ModelConfig]]:
        """Yield the target and each draft once, with its key path."""
        models_by_id = {self.target.id: ("target", self.target)} if self.target else {}
        for arm, draft in self.draft_arms():
            models_by_id.setdefault(draft.id, (arm.paths["draft"], draft))
        yield from models_by_id.values()

    def claims(self) -> list[int]:
        """Return the device counts that some instance type can bind, ascending."""
        figures = (instance.device_counts.value for instance in self.catalogue.instances.instances.values())
        return sorted({count for counts in figures for count in counts})

    def logical_cores(self) -> int:
        """Return the logical cores of the claimed devices; every Trainium2 type has the same devices."""
        figures = [instance.physical_cores_per_device.value for instance in self.catalogue.instances.instances.values()]
        per_device = max((figure for figure in figures if figure), default=0)
        return self.experiment.serving.devices * per_device // self.experiment.serving.logical_neuron_core


@dataclass(frozen=True, slots=True, kw_only=True)
class HostingContext(ExperimentContext):
    """An experiment in one environment; `path` is its entry in the environment's file."""

    environment: Environment
    instance: InstanceType
    path: str

    @property
    def instance_name(self) -> str:
        """The name of the instance type."""
        return self.environment.capacity.instance_type

    def bindable_devices(self) -> int:
        """Return the devices claimed, or where no claim has so many, the next larger claim, else the largest."""
        devices, counts = self.experiment.serving.devices, self.instance.device_counts.value
        return min((count for count in counts if count >= devices), default=max(counts, default=0))

    def format_value(self, key: str, value: object) -> str:
        """Spell a value of the experiment for an error in the environment's file."""
        return f"{self.experiment.name!r} with {key} {value}"

    def cite(self, figure: DataFigure[Any]) -> FigureSource:
        """Return the source of a figure of the instance type."""
        return self.catalogue.instances.cite(figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """An environment, its instance type, and what good form it hosts and stands beside.

    Args:
        experiments: its experiments.
        other_environments: the other environments loaded with it.
    """

    environment: Environment
    catalogue: Catalogue
    instance: InstanceType
    experiments: tuple[Experiment, ...]
    other_environments: tuple[Environment, ...]

    def is_closed(self) -> bool:
        """Return whether nothing leads out of the VPC, as far as the environment says."""
        network = self.environment.network
        return isinstance(network, NewNetwork) and network.nat == "none"

    def zones(self) -> list[tuple[str, str]]:
        """Return (key path, zone id) of every zone the network names."""
        network = self.environment.network
        if isinstance(network, NewNetwork):
            return [(f"network.zones[{index}]", zone) for index, zone in enumerate(network.zones)]
        return [(f"network.subnets[{index}].zone", subnet.zone) for index, subnet in enumerate(network.subnets)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateContext:
    """An environment and the moment at which somebody asks, UTC: what a synthesis must not depend on."""

    environment: Environment
    now: datetime


def build_experiment_context(experiment: Experiment, catalogue: Catalogue) -> ExperimentContext:
    """Look up the runtime and the models of an experiment."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    variant_count, sweep = len(experiment.variants), experiment.sweep
    arms = []
    for index, variant in enumerate(experiment.all_variants()):
        paths = {name: f"variants[{index}].{name}" for name in Variant.model_fields}
        if index >= variant_count and sweep:
            draft, window = divmod(index - variant_count, len(sweep.num_speculative_tokens))
            paths = {"name": "sweep.prefix", "mode": "sweep.mode", "draft": f"sweep.drafts[{draft}]"}
            paths["num_speculative_tokens"] = f"sweep.num_speculative_tokens[{window}]"
        draft_model, is_swept = catalogue.models.get(variant.draft or ""), index >= variant_count
        support = runtime.mode(variant.mode) if runtime and runtime.rendered else None
        arms.append(ArmContext(variant=variant, draft=draft_model, support=support, paths=paths, is_swept=is_swept))
    target = catalogue.models.get(experiment.target)
    return ExperimentContext(
        experiment=experiment, catalogue=catalogue, runtime=runtime, target=target, arms=tuple(arms)
    )
