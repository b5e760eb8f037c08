"""Subjects of rules: an environment with its experiments, an experiment alone or in an environment.

Invariant: an experiment is judged once; only rules that depend on the environment judge each
hosting. A name is looked up at the time of its use by a rule; a rule that needs an unknown value
finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import DRAFT_KINDS, Experiment, Variant
from tandem.declarations.figure import DataFigure
from tandem.declarations.model import ModelConfig
from tandem.declarations.network_settings import NewNetwork
from tandem.declarations.platform import InstanceType
from tandem.declarations.record import UnknownValueError
from tandem.declarations.runtime import ModeSupport, Runtime, RuntimeSpelling
from tandem.rules.rule import RuleFinding, index_paths

K = TypeVar("K")
V = TypeVar("V")


def look_up(entries: Mapping[K, V], name: K) -> V:
    """Return the entry of a name.

    Raises:
        UnknownValueError: there is no entry; another rule refuses the name.
    """
    if name not in entries:
        raise UnknownValueError(name)
    return entries[name]


@dataclass(frozen=True, kw_only=True)
class ExperimentContext:
    """An experiment with the data of its runtime and models."""

    experiment: Experiment
    catalogue: Catalogue

    @property
    def runtime(self) -> Runtime:
        """The runtime, rendered or not."""
        return look_up(self.catalogue.runtimes, self.experiment.runtime)

    @property
    def spelling(self) -> RuntimeSpelling:
        """Spelling of the runtime's arguments; unknown if Tandem does not render the runtime."""
        if self.runtime.spelling is None:
            raise UnknownValueError(self.runtime.name)
        return self.runtime.spelling

    @property
    def target(self) -> ModelConfig:
        """The target model."""
        return look_up(self.catalogue.models, self.experiment.target)

    @property
    def family(self) -> str | None:
        """The target's family; None of a target that no data file has."""
        target = self.catalogue.models.get(self.experiment.target)
        return target.family.value if target else None

    @cached_property
    def arms(self) -> tuple[ArmContext, ...]:
        """The written variants, then the swept ones."""
        arms = []
        sweep = self.experiment.sweep
        for index, variant in enumerate(self.experiment.all_variants()):
            paths = {name: f"variants[{index}].{name}" for name in Variant.model_fields}
            swept_index = index - len(self.experiment.variants)
            if sweep and swept_index >= 0:
                draft, window = divmod(swept_index, len(sweep.num_speculative_tokens))
                paths = {
                    "name": "sweep.prefix",
                    "mode": "sweep.mode",
                    "draft": f"sweep.drafts[{draft}]",
                }
                paths["num_speculative_tokens"] = f"sweep.num_speculative_tokens[{window}]"
            arms.append(
                ArmContext(
                    experiment=self.experiment,
                    catalogue=self.catalogue,
                    variant=variant,
                    paths=paths,
                )
            )
        return tuple(arms)

    def models(self) -> dict[str, ModelConfig]:
        """Return the target and each draft once, if known, by key path."""
        models = self.catalogue.models
        paths = {self.experiment.target: "target"}
        for arm in self.arms:
            paths.setdefault(arm.variant.draft or "", arm.paths["draft"])
        return {path: models[name] for name, path in paths.items() if name in models}

    def list_pair(self) -> list[ModelConfig]:
        """Return the target, then each known draft once; a target drafting for itself, twice."""
        drafts = {arm.variant.draft: None for arm in self.arms}
        models = self.catalogue.models
        return [self.target, *(models[name] for name in drafts if name in models)]

    def logical_cores(self) -> int:
        """Return the claimed devices' logical cores; all Trainium2 types have the same devices."""
        figures = [
            instance.physical_cores_per_device.value
            for instance in self.catalogue.instances.instances.values()
        ]
        per_device = max((figure for figure in figures if figure), default=0)
        return (
            self.experiment.serving.devices
            * per_device
            // self.experiment.serving.logical_neuron_core
        )


@dataclass(frozen=True, kw_only=True)
class ArmContext(ExperimentContext):
    """One variant of an experiment, and the key path at which each of its fields was declared."""

    variant: Variant
    paths: dict[str, str]

    @property
    def support(self) -> ModeSupport:
        """The runtime's support of the mode; unknown for a runtime that Tandem does not render."""
        if self.runtime.spelling is None:
            raise UnknownValueError(self.runtime.name)
        return self.runtime.mode(self.variant.mode)

    @property
    def draft(self) -> ModelConfig:
        """The draft model."""
        return look_up(self.catalogue.models, self.variant.draft or "")

    def find_in_draft(
        self, got: str, allowed: str, change: str, figure: DataFigure[Any] | None = None
    ) -> RuleFinding:
        """Return a finding at the key that names the draft."""
        return RuleFinding(self.paths["draft"], got, allowed, change, figure)

    @property
    def pair(self) -> tuple[ModelConfig, ModelConfig]:
        """Draft and target if the draft fits the mode and the target decodes alone; or unknown."""
        draft_kind = DRAFT_KINDS.get(self.variant.mode)
        if (self.draft.kind.value, self.target.kind.value) != (draft_kind, "causal-lm"):
            raise UnknownValueError(self.variant.mode)
        return self.draft, self.target


@dataclass(frozen=True, kw_only=True)
class HostingContext(ExperimentContext):
    """An experiment in one environment; `path` is its key path in the environment's file."""

    environment: Environment
    path: str

    @property
    def instance(self) -> InstanceType:
        """The instance type of the nodes."""
        return self.catalogue.instances.instances[self.environment.capacity.instance_type]

    @property
    def instance_name(self) -> str:
        """The name of the instance type."""
        return self.environment.capacity.instance_type

    def bindable_devices(self) -> int:
        """Return the claimed device count if bindable, else the next larger, else the largest."""
        devices = self.experiment.serving.devices
        counts = self.instance.device_counts.value
        return min((count for count in counts if count >= devices), default=max(counts, default=0))

    def find(
        self,
        key: str,
        value: object,
        allowed: str,
        change: str,
        figure: DataFigure[Any] | None = None,
    ) -> RuleFinding:
        """Return a finding on a value of the experiment, reported in the environment's file."""
        return RuleFinding(
            self.path, f"{self.experiment.name!r} with {key} {value}", allowed, change, figure
        )


@dataclass(frozen=True, kw_only=True)
class EnvironmentContext:
    """An environment, with its experiments and the other environments.

    Args:
        experiments: its experiments.
        other_environments: of the same workspace.
    """

    environment: Environment
    catalogue: Catalogue
    experiments: tuple[Experiment, ...]
    other_environments: tuple[Environment, ...]

    def is_closed(self) -> bool:
        """Return whether the VPC has no way out, by its file: a new network without NAT."""
        network = self.environment.network
        return isinstance(network, NewNetwork) and network.nat == "none"

    def zones(self) -> list[tuple[str, str]]:
        """Return (key path, zone id) of every zone of the network."""
        network = self.environment.network
        if isinstance(network, NewNetwork):
            return index_paths("network.zones", network.zones)
        return [
            (f"{path}.zone", subnet.zone)
            for path, subnet in index_paths("network.subnets", network.subnets)
        ]

    def control_plane_zones(self) -> list[tuple[str, str]]:
        """Return (key path, zone id) of control plane subnets that an existing network names."""
        subnets = getattr(self.environment.network, "control_plane_subnets", None) or ()
        return [
            (f"{path}.zone", subnet.zone)
            for path, subnet in index_paths("network.control_plane_subnets", subnets)
        ]

    def cluster_zones(self) -> list[tuple[str, str]]:
        """Return (key path, zone id) of every zone of the network and of the control plane."""
        return [*self.zones(), *self.control_plane_zones()]


@dataclass(frozen=True, kw_only=True)
class DateContext:
    """An environment and the present time, UTC; a synthesis must not depend on this time."""

    environment: Environment
    now: datetime
