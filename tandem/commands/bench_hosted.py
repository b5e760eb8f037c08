"""Who is measured inside a cluster: the variants of an experiment that an environment hosts.

Invariant: arms come from declared files that have passed the rules, the baseline first.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tandem.bench.manifest import Arm, Speculation
from tandem.commands.bench_arms import Measured, refused
from tandem.commands.inputs import legal
from tandem.commands.selection import Selection
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.images import pull_name
from tandem.spec.variant_key import artifact_key

Role = Literal["baseline", "variant"]


def hosted_arms(chosen: Selection, options: argparse.Namespace) -> Measured:
    """Return the arms of the experiment that the flags name.

    Raises:
        BenchError: the environment hosts no such experiment, or it has no such variant.
        SpecError: a declared file is refused.
    """
    inputs = legal(replace(chosen, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    experiment = _experiment(environment, inputs.hosted(environment), options.experiment)
    variants = _variants(experiment, options.only)
    return Measured(
        arms=tuple(
            _arm(environment, experiment, variant, inputs.catalogue, "variant" if place else "baseline")
            for place, variant in enumerate(variants)
        ),
        environment=environment.name,
        experiment=experiment.name,
        instance_type=environment.capacity.instance_type,
        suites=experiment.suites,
        schedule=experiment.schedule,
        most_tokens=experiment.max_output_tokens,
    )


def _experiment(environment: Environment, hosted: Sequence[Experiment], name: str | None) -> Experiment:
    known = {experiment.name: experiment for experiment in hosted}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise refused("no --experiment", ", ".join(known), f"{environment.name} hosts several: name one")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        change = f"did you mean {close[0]!r}?" if close else "name one of them"
        raise refused(f"{environment.name} hosts no experiment {name!r}", ", ".join(known), change)
    return known[name]


def _variants(experiment: Experiment, only: tuple[str, ...] | None) -> list[Variant]:
    """Return what is measured, the baseline first: as --only has it, else the first variant without speculation."""
    known = {variant.name: variant for variant in experiment.all_variants()}
    if only:
        for name in only:
            if name not in known:
                raise refused(f"{experiment.name} has no variant {name!r}", ", ".join(known), "name its variants")
        return [known[name] for name in only]
    baseline = next(variant for variant in known.values() if variant.mode == "none")  # a rule refuses to have none
    return [baseline, *(variant for variant in known.values() if variant is not baseline)]


def _arm(environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue, role: Role) -> Arm:
    image = catalogue.runtimes[experiment.runtime].image
    return Arm(
        name=variant.name,
        role=role,
        url=f"http://{variant.name}.{names.namespace(experiment)}.svc:{names.SERVER_PORT}",
        model=experiment.target,
        artifact_key=artifact_key(experiment, variant, catalogue).name,
        image=pull_name(image.reference, catalogue.digests.of(image.reference), environment.registry_mirrors),
        runtime=experiment.runtime,
        speculation=Speculation(
            method=None if variant.mode == "none" else variant.mode,
            num_speculative_tokens=variant.num_speculative_tokens,
        ),
    )
