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
from tandem.spec.model import Model
from tandem.spec.platform import Instance
from tandem.spec.runtime import ModeSupport, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One variant, and the key path each of its fields was declared at.

    Args:
        draft: None where no draft is named or the name is unknown.
        support: what the runtime says of the mode; None where the runtime is unknown.
        swept: it came from `sweep`.
    """

    variant: Variant
    draft: Model | None
    support: ModeSupport | None
    name_path: str
    mode_path: str
    draft_path: str
    tokens_path: str
    method_path: str
    swept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An experiment with everything its names stand for.

    Args:
        runtime, target: None where the name is unknown; a rule of its own refuses that.
    """

    experiment: Experiment
    catalogue: Catalogue
    runtime: Runtime | None
    target: Model | None
    arms: tuple[Arm, ...]

    def speculating(self) -> Iterator[Arm]:
        """Yield the arms that speculate."""
        return (arm for arm in self.arms if arm.variant.mode != "none")

    def drafted(self) -> Iterator[tuple[Arm, Model]]:
        """Yield the arms whose draft is known, with it."""
        return ((arm, arm.draft) for arm in self.arms if arm.draft is not None)

    def models(self) -> Iterator[tuple[str, Model]]:
        """Yield the target and each draft once, with its key path."""
        named = {self.target.id: ("target", self.target)} if self.target else {}
        for arm, draft in self.drafted():
            named.setdefault(draft.id, (arm.draft_path, draft))
        yield from named.values()

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
class Stamp:
    """An environment, its instance type, and what good form it hosts and stands beside.

    Args:
        hosted: its experiments.
        others: the other environments loaded with it.
    """

    environment: Environment
    catalogue: Catalogue
    instance: Instance
    hosted: tuple[Experiment, ...]
    others: tuple[Environment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedEnvironment:
    """An environment and the moment at which somebody asks, UTC: what a synthesis must not depend on."""

    environment: Environment
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """One experiment in one environment; `path` is its entry in the environment's file."""

    environment: Environment
    catalogue: Catalogue
    instance: Instance
    trial: Trial
    path: str

    def bindable_devices(self) -> int:
        """Return the devices claimed, or where no claim has so many, the next larger claim, else the largest."""
        devices, counts = self.trial.experiment.serving.devices, self.instance.device_counts.value
        return min((count for count in counts if count >= devices), default=max(counts, default=0))

    def said(self, key: str, value: object) -> str:
        """Spell a value of the experiment for an error in the environment's file."""
        return f"{self.trial.experiment.name!r} with {key} {value}"


def trial(experiment: Experiment, catalogue: Catalogue) -> Trial:
    """Look up the runtime and the models of an experiment."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    return Trial(
        experiment=experiment,
        catalogue=catalogue,
        runtime=runtime,
        target=catalogue.models.get(experiment.target),
        arms=tuple(_arms(experiment, catalogue, runtime)),
    )


def stamp(
    environment: Environment, hosted: tuple[Experiment, ...], others: tuple[Environment, ...], catalogue: Catalogue
) -> Stamp:
    """Join an environment with its instance type's figures."""
    instance = catalogue.instances.instances[environment.capacity.instance_type]
    return Stamp(environment=environment, catalogue=catalogue, instance=instance, hosted=hosted, others=others)


def _arms(experiment: Experiment, catalogue: Catalogue, runtime: Runtime | None) -> Iterator[Arm]:
    written, sweep = len(experiment.variants), experiment.sweep
    for index, variant in enumerate(experiment.all_variants()):
        at = f"variants[{index}]"
        swept = index >= written and sweep is not None
        draft_index, tokens_index = divmod(index - written, len(sweep.num_speculative_tokens)) if sweep else (0, 0)
        yield Arm(
            variant=variant,
            draft=catalogue.models.get(variant.draft) if variant.draft else None,
            support=runtime.mode(variant.mode) if runtime else None,
            name_path="sweep.prefix" if swept else f"{at}.name",
            mode_path="sweep.mode" if swept else f"{at}.mode",
            draft_path=f"sweep.drafts[{draft_index}]" if swept else f"{at}.draft",
            tokens_path=f"sweep.num_speculative_tokens[{tokens_index}]" if swept else f"{at}.num_speculative_tokens",
            method_path=f"{at}.method",
            swept=swept,
        )
