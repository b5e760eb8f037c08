"""Arms of a run with declared servers: an experiment's variants, as the manifest names them."""

from __future__ import annotations

from collections.abc import Sequence

from tandem.bench.records.manifest import ManifestArm, Speculation
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.images import pull_name
from tandem.declarations.variant_key import compute_artifact_key


def build_pair(experiment: Experiment, variant_name: str) -> Experiment:
    """Return the experiment of one candidate of a sweep: plain decoding and the candidate.

    Args:
        experiment: with a sweep.
        variant_name: of the candidate.
    """
    variants = [variant for variant in experiment.all_variants() if variant.mode == "none"][:1]
    variants += [variant for variant in experiment.all_variants() if variant.name == variant_name]
    return experiment.model_copy(update={"variants": tuple(variants), "sweep": None})


def build_arms(
    environment: Environment,
    experiment: Experiment,
    catalogue: Catalogue,
    variant_names: Sequence[str] = (),
) -> tuple[ManifestArm, ...]:
    """Return the arms, the baseline first, with the addresses that hold inside the cluster.

    Args:
        environment, experiment, catalogue: as declared.
        variant_names: these variants in this order, the first is the baseline. Empty means all: the
            first without speculation, then the others in the file's order.
    """
    variants = {variant.name: variant for variant in experiment.all_variants()}
    # a rule refuses an experiment with no variant without speculation; sorting keeps the order of
    # the rest
    baseline = next(variant for variant in variants.values() if variant.mode == "none")
    chosen_names = variant_names or sorted(
        variants, key=lambda variant_name: variant_name != baseline.name
    )
    image = catalogue.runtimes[experiment.runtime].image.reference
    image = pull_name(image, catalogue.digests.find_digest(image), environment.registry_mirrors)
    return tuple(
        ManifestArm(
            name=variant.name,
            role="variant" if index else "baseline",
            url=f"http://{variant.name}.{names.experiment_namespace(experiment)}.svc:{names.SERVER_PORT}",
            model=experiment.target,
            artifact_key=compute_artifact_key(experiment, variant, catalogue).name,
            image=image,
            runtime=experiment.runtime,
            speculation=Speculation(
                method=None if variant.mode == "none" else variant.mode,
                num_speculative_tokens=variant.num_speculative_tokens,
            ),
        )
        for index, variant in enumerate(map(variants.__getitem__, chosen_names))
    )
