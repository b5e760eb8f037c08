"""What rules judge: an environment with what it hosts, an experiment, and one hosting of the two.

Invariant: an experiment is judged once; only what depends on the environment is judged per hosting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.model import ModelConfig
from tandem.spec.platform import InstanceType
from tandem.spec.runtime import ModeSupport, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmContext:
    """One variant, and the key path each of its fields was declared at.

    Args:
        draft: None where no draft is named or the name is unknown.
        support: what the runtime says of the mode; None where the runtime is unknown.
        is_swept: it came from `sweep`.
    """

    variant: Variant
    draft: ModelConfig | None
    support: ModeSupport | None
    name_path: str
    mode_path: str
    draft_path: str
    tokens_path: str
    method_path: str
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

    def speculative_arms(self) -> Iterator[ArmContext]:
        """Yield the arms that speculate."""
        return (arm for arm in self.arms if arm.variant.mode != "none")

    def draft_arms(self) -> Iterator[tuple[ArmContext, ModelConfig]]:
        """Yield the arms whose draft is known, with it."""
        return ((arm, arm.draft) for arm in self.arms if arm.draft is not None)

    def models(self) -> Iterator[tuple[str, ModelConfig]]:
        """Yield the target and each draft once, with its key path."""
        models_by_id = {self.target.id: ("target", self.target)} if self.target else {}
        for arm, draft in self.draft_arms():
            models_by_id.setdefault(draft.id, (arm.draft_path, draft))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DateContext:
    """An environment and the moment at which somebody asks, UTC: what a synthesis must not depend on."""

    environment: Environment
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostingContext:
    """One experiment in one environment; `path` is its entry in the environment's file."""

    environment: Environment
    catalogue: Catalogue
    instance: InstanceType
    experiment_context: ExperimentContext
    path: str

    def bindable_devices(self) -> int:
        """Return the devices claimed, or where no claim has so many, the next larger claim, else the largest."""
        devices, counts = self.experiment_context.experiment.serving.devices, self.instance.device_counts.value
        return min((count for count in counts if count >= devices), default=max(counts, default=0))

    def format_value(self, key: str, value: object) -> str:
        """Spell a value of the experiment for an error in the environment's file."""
        return f"{self.experiment_context.experiment.name!r} with {key} {value}"


def build_experiment_context(experiment: Experiment, catalogue: Catalogue) -> ExperimentContext:
    """Look up the runtime and the models of an experiment."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    return ExperimentContext(
        experiment=experiment,
        catalogue=catalogue,
        runtime=runtime,
        target=catalogue.models.get(experiment.target),
        arms=tuple(_yield_arms(experiment, catalogue, runtime)),
    )


def build_environment_context(
    environment: Environment,
    experiments: tuple[Experiment, ...],
    other_environments: tuple[Environment, ...],
    catalogue: Catalogue,
) -> EnvironmentContext:
    """Join an environment with its instance type's figures."""
    instance = catalogue.instances.instances[environment.capacity.instance_type]
    return EnvironmentContext(
        environment=environment,
        catalogue=catalogue,
        instance=instance,
        experiments=experiments,
        other_environments=other_environments,
    )


def _yield_arms(experiment: Experiment, catalogue: Catalogue, runtime: Runtime | None) -> Iterator[ArmContext]:
    variant_count, sweep = len(experiment.variants), experiment.sweep
    for index, variant in enumerate(experiment.all_variants()):
        key_path = f"variants[{index}]"
        is_swept = index >= variant_count and sweep is not None
        draft_index, tokens_index = (
            divmod(index - variant_count, len(sweep.num_speculative_tokens)) if sweep else (0, 0)
        )
        yield ArmContext(
            variant=variant,
            draft=catalogue.models.get(variant.draft) if variant.draft else None,
            support=runtime.mode(variant.mode) if runtime else None,
            name_path="sweep.prefix" if is_swept else f"{key_path}.name",
            mode_path="sweep.mode" if is_swept else f"{key_path}.mode",
            draft_path=f"sweep.drafts[{draft_index}]" if is_swept else f"{key_path}.draft",
            tokens_path=f"sweep.num_speculative_tokens[{tokens_index}]"
            if is_swept
            else f"{key_path}.num_speculative_tokens",
            method_path=f"{key_path}.method",
            is_swept=is_swept,
        )
