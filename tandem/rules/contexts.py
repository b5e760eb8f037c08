"""What rules judge: an environment with what it hosts, an experiment, and one hosting of the two.

Invariant: an experiment is judged once; only what depends on the environment is judged per hosting. What a name stands
for is looked up when a rule asks for it; a rule that asks for what is not known says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from tandem.rules.rule import RuleFinding, index_paths
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.experiment import DRAFT_KINDS, Experiment, Variant
from tandem.spec.figure import DataFigure
from tandem.spec.model import ModelConfig
from tandem.spec.platform import InstanceType
from tandem.spec.record import UnknownValueError
from tandem.spec.runtime import ModeSupport, Runtime, RuntimeSpelling

K = TypeVar("K")
V = TypeVar("V")


def look_up(entries: Mapping[K, V], name: K) -> V:
    """Return the entry of a name.

    Raises:
        UnknownValueError: there is none, which a rule of its own refuses.
    """
    if name not in entries:
        raise UnknownValueError(name)
    return entries[name]


@dataclass(frozen=True, kw_only=True)
class ExperimentContext:
    """An experiment with everything its names stand for."""

    experiment: Experiment
    catalogue: Catalogue

    @property
    def runtime(self) -> Runtime:
        """The runtime, whether it is rendered or not."""
        return look_up(self.catalogue.runtimes, self.experiment.runtime)

    @property
    def spelling(self) -> RuntimeSpelling:
        """How the runtime is told; known where it is rendered."""
        if self.runtime.spelling is None:
            raise UnknownValueError(self.runtime.name)
        return self.runtime.spelling

    @property
    def target(self) -> ModelConfig:
        """The target."""
        return look_up(self.catalogue.models, self.experiment.target)

    @cached_property
    def arms(self) -> tuple[ArmContext, ...]:
        """The written variants, then the swept ones."""
        arms, sweep = [], self.experiment.sweep
        for index, variant in enumerate(self.experiment.all_variants()):
            paths = {name: f"variants[{index}].{name}" for name in Variant.model_fields}
            swept_index = index - len(self.experiment.variants)
            if sweep and swept_index >= 0:
                draft, window = divmod(swept_index, len(sweep.num_speculative_tokens))
                paths = {"name": "sweep.prefix", "mode": "sweep.mode", "draft": f"sweep.drafts[{draft}]"}
                paths["num_speculative_tokens"] = f"sweep.num_speculative_tokens[{window}]"
            arms.append(ArmContext(experiment=self.experiment, catalogue=self.catalogue, variant=variant, paths=paths))
        return tuple(arms)

    def models(self) -> dict[str, ModelConfig]:
        """Return the target and each draft once, where they are known, by key path."""
        models = self.catalogue.models
        paths = {self.experiment.target: "target"}
        for arm in self.arms:
            paths.setdefault(arm.variant.draft or "", arm.paths["draft"])
        return {path: models[name] for name, path in paths.items() if name in models}

    def known_pair(self) -> list[ModelConfig]:
        """Return the target, then each known draft once; a target that drafts for itself is loaded twice."""
        drafts, models = {arm.variant.draft: None for arm in self.arms}, self.catalogue.models
        return [self.target, *(models[name] for name in drafts if name in models)]

    def logical_cores(self) -> int:
        """Return the logical cores of the claimed devices; every Trainium2 type has the same devices."""
        figures = [instance.physical_cores_per_device.value for instance in self.catalogue.instances.instances.values()]
        per_device = max((figure for figure in figures if figure), default=0)
        return self.experiment.serving.devices * per_device // self.experiment.serving.logical_neuron_core


@dataclass(frozen=True, kw_only=True)
class ArmContext(ExperimentContext):
    """One variant of an experiment, and the key path at which each of its fields was declared."""

    variant: Variant
    paths: dict[str, str]

    @property
    def support(self) -> ModeSupport:
        """What the runtime, where it is rendered, says of the mode."""
        return look_up({support.mode: support for support in self.runtime.modes if self.spelling}, self.variant.mode)

    @property
    def draft(self) -> ModelConfig:
        """The draft."""
        return look_up(self.catalogue.models, self.variant.draft or "")

    @property
    def pair(self) -> tuple[ModelConfig, ModelConfig]:
        """Draft and target, where the draft is of the kind that its mode takes and the target decodes by itself."""
        is_pair = self.draft.kind.value == DRAFT_KINDS.get(self.variant.mode) and self.target.kind.value == "causal-lm"
        return look_up({True: (self.draft, self.target)}, is_pair)


@dataclass(frozen=True, kw_only=True)
class HostingContext(ExperimentContext):
    """An experiment in one environment; `path` is its entry in the environment's file."""

    environment: Environment
    path: str

    @property
    def instance(self) -> InstanceType:
        """The type of the nodes."""
        return self.catalogue.instances.instances[self.environment.capacity.instance_type]

    @property
    def instance_name(self) -> str:
        """The name of the instance type."""
        return self.environment.capacity.instance_type

    def bindable_devices(self) -> int:
        """Return the devices claimed, or where no claim has so many, the next larger claim, else the largest."""
        devices, counts = self.experiment.serving.devices, self.instance.device_counts.value
        return min((count for count in counts if count >= devices), default=max(counts, default=0))

    def find(
        self, key: str, value: object, allowed: str, change: str, figure: DataFigure[Any] | None = None
    ) -> RuleFinding:
        """Return a finding on a value of the experiment, told in the environment's file."""
        return RuleFinding(self.path, f"{self.experiment.name!r} with {key} {value}", allowed, change, figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """An environment, and what it hosts and stands next to.

    Args:
        experiments: its experiments.
        other_environments: the other environments loaded with it.
    """

    environment: Environment
    catalogue: Catalogue
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
            return index_paths("network.zones", network.zones)
        return [(f"{path}.zone", subnet.zone) for path, subnet in index_paths("network.subnets", network.subnets)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateContext:
    """An environment and the moment at which somebody asks, UTC: what a synthesis must not depend on."""

    environment: Environment
    now: datetime
