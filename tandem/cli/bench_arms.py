"""Who is measured: servers named on the command line, or those of an experiment inside its cluster.

Invariant: what the declared files know of an arm goes into the manifest; the bench itself never reads them. Who names
servers by address waits for no rule of an environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tandem.bench import manifest
from tandem.bench.fault import BenchError
from tandem.bench.manifest import ManifestArm, RunManifest
from tandem.cli.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArms:
    """What a run starts from.

    Args:
        arms: the baseline first.
        environment, experiment, instance_type: their names; None for servers by address.
        suites, schedule: of the experiment; none for servers by address.
        most_tokens: the longest answer the experiment's servers give; None where that is not known.
    """

    arms: tuple[ManifestArm, ...]
    environment: str | None = None
    experiment: str | None = None
    instance_type: str | None = None
    suites: tuple[str, ...] = ()
    schedule: Literal["interleaved", "simultaneous"] | None = None
    most_tokens: int | None = None


def select_arms(selection: Selection, options: argparse.Namespace) -> RunArms:
    """Return the arms that the flags name.

    Raises:
        BenchError: flags that contradict each other or lack something.
        SpecError: a declared file is refused.
    """
    if options.env is None and (options.experiment is None or options.publish):
        return RunArms(arms=_build_address_arms(options))
    address_flags = [flag for flag, value in (("--baseline", options.baseline), ("--variant", options.variant),
                                      ("--model", options.model)) if value]  # fmt: skip
    if address_flags:
        raise build_flag_error(
            f"{address_flags[0]} beside --env", "--env and --experiment, or servers by address", "drop one of them"
        )
    if options.env is None:
        raise build_flag_error(
            "--experiment without --env", "both", "add --env NAME: where the experiment's servers are"
        )
    from tandem.cli.bench_experiment import select_hosted_arms  # noqa: PLC0415 - the rules of an environment

    return select_hosted_arms(selection, options)


def read_previous_run(folder: Path | None) -> RunManifest | None:
    """Return the manifest of the run that is gone on with; None of a new one, or where the folder holds no run.

    Raises:
        BenchError: it is no manifest.
    """
    return manifest.read_manifest(folder) if folder is not None and (folder / manifest.FILE).is_file() else None


def assign_placements(
    arms: Sequence[ManifestArm], placements: Sequence[tuple[str, str]], previous_run: RunManifest | None
) -> tuple[ManifestArm, ...]:
    """Return the arms with their placements: as said now, else as before.

    Raises:
        BenchError: a placement of no arm, or two of one.
    """
    placement_by_arm = {arm.name: arm.placement for arm in (previous_run.arms if previous_run else ())}
    for name, word in placements:
        if name not in {arm.name for arm in arms}:
            raise build_flag_error(
                f"--placement names no arm {name!r}", ", ".join(arm.name for arm in arms), "name an arm"
            )
        if [arm_name for arm_name, _ in placements].count(name) > 1:
            raise build_flag_error(f"--placement places {name!r} twice", "each arm once", "drop one of them")
        placement_by_arm[name] = word
    return tuple(msgspec.structs.replace(arm, placement=placement_by_arm.get(arm.name)) for arm in arms)


def build_flag_error(problem: str, requirement: str, change: str) -> BenchError:
    """Return a refusal of flags."""
    return BenchError(f"{problem}; allowed: {requirement}", change=change)


def _build_address_arms(options: argparse.Namespace) -> tuple[ManifestArm, ...]:
    for flag, value in (("--baseline", options.baseline), ("--model", options.model)):
        if not value:
            raise build_flag_error(f"no {flag}", "servers by address, or --env and --experiment", f"add {flag}")
    if options.only:
        raise build_flag_error("--only without --env", "variants of an experiment", "drop --only")
    servers = [options.baseline, *options.variant]
    default_names = ["baseline", "variant", *(f"variant-{number}" for number in range(2, len(servers)))]
    arm_names = [name or default_names[index] for index, (name, _) in enumerate(servers)]
    duplicate = next((name for name in arm_names if arm_names.count(name) > 1), None)
    if duplicate is not None:
        raise build_flag_error(f"two arms are named {duplicate!r}", "each name once", "name them apart: NAME=URL")
    models = _parse_models(options.model, arm_names)
    return tuple(
        ManifestArm(name=name, role="variant" if index else "baseline", url=url, model=models[name])
        for index, (name, (_, url)) in enumerate(zip(arm_names, servers, strict=True))
    )


def _parse_models(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return each arm's model: its own NAME=M, else the one for all.

    Raises:
        BenchError: a model of no arm, two of one, or an arm without one.
    """
    models: dict[str | None, str] = {}
    for word in words:
        name, equals, model = word.partition("=")
        arm = name if equals else None
        if arm is not None and arm not in names:
            raise build_flag_error(f"--model names no arm {arm!r}", ", ".join(names), "name an arm: NAME=MODEL")
        if arm in models:
            whose = f"two models of {arm!r}" if arm else "two models for all arms"
            raise build_flag_error(
                f"--model has {whose}", "one, and NAME=MODEL for each that differs", "drop one of them"
            )
        models[arm] = model if equals else word
    missing_names = [name for name in names if name not in models and None not in models]
    if missing_names:
        raise build_flag_error(
            f"no --model of {missing_names[0]!r}", "one of each arm, or one for all", f"add {missing_names[0]}=MODEL"
        )
    return {name: models.get(name) or models[None] for name in names}
