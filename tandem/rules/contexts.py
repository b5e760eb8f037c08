"""What rules judge: an environment with what it hosts, an experiment, and one hosting of the two.

Invariant: an experiment is judged once; only what depends on the environment is judged per hosting. What a name stands
for is looked up when a rule asks for it; a rule that asks for what is not known says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.model import ModelConfig
from tandem.spec.platform import InstanceType
from tandem.spec.record import UnknownValueError
from tandem.spec.runtime import ModeSupport, Runtime, RuntimeSpelling

V = TypeVar("V")


def look_up(entries: Mapping[str, V], name: str) -> V:
    """Return the entry of a name.

    Raises:
        UnknownValueError: there is none, which a rule of its own refuses.
    """
    if name not in entries:
        raise UnknownValueError(name)
    return entries[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmContext:
    """One variant, and the key path at which each of its fields was declared.

    Args:
        draft: None where no draft is named or the name is unknown.
        paths: field of the variant to its key path.
        is_swept: it came from `sweep`.
    """

    variant: Variant
    draft: ModelConfig | None
    paths: dict[str, str]
    is_swept: bool


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
            draft_model = self.catalogue.models.get(variant.draft or "")
            arms.append(ArmContext(variant=variant, draft=draft_model, paths=paths, is_swept=swept_index >= 0))
        return tuple(arms)

    def arms_with_support(self) -> Iterator[tuple[ArmContext, ModeSupport]]:
        """Yield each arm with what the rendered runtime says of its mode."""
        return ((arm, self.runtime.mode(arm.variant.mode)) for arm in self.arms if self.spelling)

    def arms_with_draft(self) -> Iterator[tuple[ArmContext, ModelConfig]]:
        """Yield the arms whose draft is known, with it."""
        return ((arm, arm.draft) for arm in self.arms if arm.draft is not None)

    def models(self) -> dict[str, ModelConfig]:
        """Return the target and each draft once, where they are known, by key path."""
        target = self.catalogue.models.get(self.experiment.target)
        models_by_id = {target.id: ("target", target)} if target else {}
        for arm, draft in self.arms_with_draft():
            models_by_id.setdefault(draft.id, (arm.paths["draft"], draft))
        return dict(models_by_id.values())

    def known_pair(self) -> list[ModelConfig]:
        """Return the target, then each known draft once."""
        return [self.target, *(model for path, model in self.models().items() if path != "target")]

    def claims(self) -> list[int]:
        """Return the device counts that some instance type can bind, ascending."""
        figures = (instance.device_counts.value for instance in self.catalogue.instances.instances.values())
        return sorted({count for counts in figures for count in counts})

    def logical_cores(self) -> int:
        """Return the logical cores of the claimed devices; every Trainium2 type has the same devices."""
        figures = [instance.physical_cores_per_device.value for instance in self.catalogue.instances.instances.values()]
        per_device = max((figure for figure in figures if figure), default=0)
        return self.experiment.serving.devices * per_device // self.experiment.serving.logical_neuron_core


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

    def format_value(self, key: str, value: object) -> str:
        """Spell a value of the experiment for an error in the environment's file."""
        return f"{self.experiment.name!r} with {key} {value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """An environment, and what it hosts and stands beside.

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
            return [(f"network.zones[{index}]", zone) for index, zone in enumerate(network.zones)]
        return [(f"network.subnets[{index}].zone", subnet.zone) for index, subnet in enumerate(network.subnets)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateContext:
    """An environment and the moment at which somebody asks, UTC: what a synthesis must not depend on."""

    environment: Environment
    now: datetime
