"""Which node labels a raise sets: they say for whom the nodes are, and a pod without its label waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Who may take the nodes.

    Args:
        labels: of the nodes, key to value.
        variants: whose servers they admit.
        waiting: variants that were meant and have no room.
    """

    labels: dict[str, str]
    variants: tuple[Variant, ...] = ()
    waiting: tuple[Variant, ...] = ()


def for_compiling(experiment: Experiment) -> Admitted:
    """Return what admits the experiment's compile jobs and no server."""
    return Admitted(labels=dict([names.compile_label(experiment)]))


def for_serving(
    environment: Environment, experiment: Experiment, catalogue: Catalogue, *, nodes: int, only: Collection[str] = ()
) -> Admitted:
    """Return what admits as many of an experiment's servers as there are devices for, in the order of its file.

    Args:
        environment, experiment, catalogue: as declared; the rules admit them.
        nodes: that are raised.
        only: names of variants; empty for all.
    """
    devices = catalogue.instances.instances[environment.capacity.instance_type].devices.value or 0
    room = nodes * (devices // experiment.serving.devices)
    meant = [variant for variant in experiment.all_variants() if not only or variant.name in only]
    admitted = tuple(meant[:room])
    return Admitted(
        labels={names.raise_label(variant): experiment.name for variant in admitted}, variants=admitted,
        waiting=tuple(meant[room:]),
    )  # fmt: skip
