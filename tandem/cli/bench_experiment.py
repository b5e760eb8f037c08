"""Who is measured inside a cluster: the variants of an experiment that an environment hosts.

Invariant: arms come from declared files that have passed the rules, the baseline first.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tandem.bench.manifest import ManifestArm, Speculation
from tandem.cli.bench_arms import RunArms, build_flag_error
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.selection import Selection
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.images import pull_name
from tandem.spec.variant_key import compute_artifact_key

ArmRole = Literal["baseline", "variant"]


def select_hosted_arms(selection: Selection, options: argparse.Namespace) -> RunArms:
    """Return the arms of the experiment that the flags name.

    Raises:
        BenchError: the environment hosts no such experiment, or it has no such variant.
        SpecError: a declared file is refused.
    """
    inputs = read_legal_inputs(replace(selection, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    experiment = _select_experiment(environment, inputs.list_experiments(environment), options.experiment)
    variants = _select_variants(experiment, options.only)
    return RunArms(
        arms=tuple(
            _build_arm(environment, experiment, variant, inputs.catalogue, "variant" if index else "baseline")
            for index, variant in enumerate(variants)
        ),
        environment=environment.name,
        experiment=experiment.name,
        instance_type=environment.capacity.instance_type,
        suites=experiment.suites,
        schedule=experiment.schedule,
        most_tokens=experiment.max_output_tokens,
    )


def _select_experiment(environment: Environment, experiments: Sequence[Experiment], name: str | None) -> Experiment:
    experiments_by_name = {experiment.name: experiment for experiment in experiments}
    if name is None and len(experiments_by_name) == 1:
        return next(iter(experiments_by_name.values()))
    if name is None:
        raise build_flag_error(
            "no --experiment", ", ".join(experiments_by_name), f"{environment.name} hosts several: name one"
        )
    if name not in experiments_by_name:
        suggestions = difflib.get_close_matches(name, experiments_by_name, n=1)
        change = f"did you mean {suggestions[0]!r}?" if suggestions else "name one of them"
        raise build_flag_error(
            f"{environment.name} hosts no experiment {name!r}", ", ".join(experiments_by_name), change
        )
    return experiments_by_name[name]


def _select_variants(experiment: Experiment, variant_names: tuple[str, ...] | None) -> list[Variant]:
    """Return what is measured, the baseline first: as --only has it, else the first variant without speculation."""
    variants_by_name = {variant.name: variant for variant in experiment.all_variants()}
    if variant_names:
        for name in variant_names:
            if name not in variants_by_name:
                raise build_flag_error(
                    f"{experiment.name} has no variant {name!r}", ", ".join(variants_by_name), "name its variants"
                )
        return [variants_by_name[name] for name in variant_names]
    baseline = next(
        variant for variant in variants_by_name.values() if variant.mode == "none"
    )  # a rule refuses to have none
    return [baseline, *(variant for variant in variants_by_name.values() if variant is not baseline)]


def _build_arm(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue, role: ArmRole
) -> ManifestArm:
    image = catalogue.runtimes[experiment.runtime].image
    return ManifestArm(
        name=variant.name,
        role=role,
        url=f"http://{variant.name}.{names.experiment_namespace(experiment)}.svc:{names.SERVER_PORT}",
        model=experiment.target,
        artifact_key=compute_artifact_key(experiment, variant, catalogue).name,
        image=pull_name(image.reference, catalogue.digests.find_digest(image.reference), environment.registry_mirrors),
        runtime=experiment.runtime,
        speculation=Speculation(
            method=None if variant.mode == "none" else variant.mode,
            num_speculative_tokens=variant.num_speculative_tokens,
        ),
    )
