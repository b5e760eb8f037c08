"""Node labels of a raise: they say which pods may use the nodes; a pod without its label waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant


@dataclass(frozen=True, kw_only=True)
class NodeAdmission:
    """Admission of pods to the nodes.

    Args:
        labels: of the nodes, key to value.
        variants: whose servers the labels admit.
        waiting_variants: variants that were selected and have no room.
    """

    labels: dict[str, str]
    variants: tuple[Variant, ...] = ()
    waiting_variants: tuple[Variant, ...] = ()


def admit_compile_jobs(experiment: Experiment) -> NodeAdmission:
    """Return the admission of the experiment's compile jobs and of no server."""
    return NodeAdmission(labels=dict([names.compile_label(experiment)]))


def admit_sweep(experiment: Experiment) -> NodeAdmission:
    """Return the admission of a sweep's compile jobs and servers, which take turns."""
    variants = experiment.all_variants()
    labels = dict([names.compile_label(experiment)]) | {
        names.raise_label(row): experiment.name for row in variants
    }
    return NodeAdmission(labels=labels, variants=variants)


def admit_servers(
    environment: Environment,
    experiment: Experiment,
    catalogue: Catalogue,
    *,
    nodes: int,
    variant_names: Collection[str] = (),
) -> NodeAdmission:
    """Return the admission of as many servers as there are devices for, in the file's order.

    Args:
        environment, experiment, catalogue: as declared; the rules admit them.
        nodes: number of raised nodes.
        variant_names: names of variants; empty for all.
    """
    devices = catalogue.instances.instances[environment.capacity.instance_type].devices.value or 0
    server_count = nodes * (devices // experiment.serving.devices)
    candidates = [
        variant
        for variant in experiment.all_variants()
        if not variant_names or variant.name in variant_names
    ]
    variants = tuple(candidates[:server_count])
    return NodeAdmission(
        labels={names.raise_label(variant): experiment.name for variant in variants},
        variants=variants,
        waiting_variants=tuple(candidates[server_count:]),
    )
