"""Which node labels a raise sets: they say for whom the nodes are, and a pod without its label waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAdmission:
    """Who may take the nodes.

    Args:
        labels: of the nodes, key to value.
        variants: whose servers they admit.
        waiting_variants: variants that were meant and have no room.
    """

    labels: dict[str, str]
    variants: tuple[Variant, ...] = ()
    waiting_variants: tuple[Variant, ...] = ()


def admit_compile_jobs(experiment: Experiment) -> NodeAdmission:
    """Return what admits the experiment's compile jobs and no server."""
    return NodeAdmission(labels=dict([names.compile_label(experiment)]))


def admit_servers(
    environment: Environment,
    experiment: Experiment,
    catalogue: Catalogue,
    *,
    nodes: int,
    variant_names: Collection[str] = (),
) -> NodeAdmission:
    """Return what admits as many of an experiment's servers as there are devices for, in the order of its file.

    Args:
        environment, experiment, catalogue: as declared; the rules admit them.
        nodes: that are raised.
        variant_names: names of variants; empty for all.
    """
    devices = catalogue.instances.instances[environment.capacity.instance_type].devices.value or 0
    server_count = nodes * (devices // experiment.serving.devices)
    candidates = [
        variant for variant in experiment.all_variants() if not variant_names or variant.name in variant_names
    ]
    variants = tuple(candidates[:server_count])
    return NodeAdmission(
        labels={names.raise_label(variant): experiment.name for variant in variants}, variants=variants,
        waiting_variants=tuple(candidates[server_count:]),
    )  # fmt: skip
