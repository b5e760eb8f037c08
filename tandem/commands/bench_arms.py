"""Who is measured: servers named on the command line, or those of an experiment inside its cluster.

Invariant: what the declared files know of an arm goes into the manifest; the bench itself never reads them.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from tandem.bench import manifest
from tandem.bench.fault import BenchError
from tandem.bench.manifest import Arm, Manifest, Speculation
from tandem.commands.inputs import legal
from tandem.commands.selection import Selection
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.images import pull_name
from tandem.spec.variant_key import artifact_key

Role = Literal["baseline", "variant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run starts from.

    Args:
        arms: the baseline first.
        environment, experiment: their names; None for servers by address.
        suites, schedule: of the experiment; none for servers by address.
        most_tokens: the longest answer the experiment's servers give; None where that is not known.
    """

    arms: tuple[Arm, ...]
    environment: str | None = None
    experiment: str | None = None
    suites: tuple[str, ...] = ()
    schedule: Literal["interleaved", "simultaneous"] | None = None
    most_tokens: int | None = None


def measured(chosen: Selection, options: argparse.Namespace) -> Measured:
    """Return the arms that the flags name.

    Raises:
        BenchError: flags that contradict each other or lack something.
        SpecError: a declared file is refused.
    """
    if options.env is None and (options.experiment is None or options.publish):
        return Measured(arms=_by_address(options))
    given = [flag for flag, value in (("--baseline", options.baseline), ("--variant", options.variant),
                                      ("--model", options.model)) if value]  # fmt: skip
    if given:
        raise _refused(f"{given[0]} beside --env", "--env and --experiment, or servers by address", "drop one of them")
    if options.env is None:
        raise _refused("--experiment without --env", "both", "add --env NAME: where the experiment's servers are")
    return _by_experiment(chosen, options)


def begun(folder: Path | None) -> Manifest | None:
    """Return the manifest of the run that is gone on with; None of a new one, or where the folder holds no run.

    Raises:
        BenchError: it is no manifest.
    """
    return manifest.read(folder) if folder is not None and (folder / manifest.FILE).is_file() else None


def placed(arms: Sequence[Arm], said: Sequence[tuple[str, str]], before: Manifest | None) -> tuple[Arm, ...]:
    """Return the arms with their placements: as said now, else as before.

    Raises:
        BenchError: a placement of no arm, or two of one.
    """
    words = {arm.name: arm.placement for arm in (before.arms if before else ())}
    for name, word in said:
        if name not in {arm.name for arm in arms}:
            raise _refused(f"--placement names no arm {name!r}", ", ".join(arm.name for arm in arms), "name an arm")
        if [other for other, _ in said].count(name) > 1:
            raise _refused(f"--placement places {name!r} twice", "each arm once", "drop one of them")
        words[name] = word
    return tuple(msgspec.structs.replace(arm, placement=words.get(arm.name)) for arm in arms)


def _refused(problem: str, allowed: str, change: str) -> BenchError:
    return BenchError(f"{problem}; allowed: {allowed}", change=change)


def _by_address(options: argparse.Namespace) -> tuple[Arm, ...]:
    for flag, value in (("--baseline", options.baseline), ("--model", options.model)):
        if not value:
            raise _refused(f"no {flag}", "servers by address, or --env and --experiment", f"add {flag}")
    if options.only:
        raise _refused("--only without --env", "variants of an experiment", "drop --only")
    asked = [options.baseline, *options.variant]
    default = ["baseline", "variant", *(f"variant-{number}" for number in range(2, len(asked)))]
    named = [name or default[place] for place, (name, _) in enumerate(asked)]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise _refused(f"two arms are named {twice!r}", "each name once", "name them apart: NAME=URL")
    return tuple(
        Arm(name=name, role="variant" if place else "baseline", url=url, model=options.model)
        for place, (name, (_, url)) in enumerate(zip(named, asked, strict=True))
    )


def _by_experiment(chosen: Selection, options: argparse.Namespace) -> Measured:
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
        suites=experiment.suites,
        schedule=experiment.schedule,
        most_tokens=experiment.max_output_tokens,
    )


def _experiment(environment: Environment, hosted: Sequence[Experiment], name: str | None) -> Experiment:
    known = {experiment.name: experiment for experiment in hosted}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise _refused("no --experiment", ", ".join(known), f"{environment.name} hosts several: name one")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        change = f"did you mean {close[0]!r}?" if close else "name one of them"
        raise _refused(f"{environment.name} hosts no experiment {name!r}", ", ".join(known), change)
    return known[name]


def _variants(experiment: Experiment, only: tuple[str, ...] | None) -> list[Variant]:
    """Return what is measured, the baseline first: as --only has it, else the first variant without speculation."""
    known = {variant.name: variant for variant in experiment.all_variants()}
    if only:
        for name in only:
            if name not in known:
                raise _refused(f"{experiment.name} has no variant {name!r}", ", ".join(known), "name its variants")
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
