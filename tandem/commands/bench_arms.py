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
from tandem.bench.manifest import Arm, Manifest
from tandem.commands.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run starts from.

    Args:
        arms: the baseline first.
        environment, experiment, instance_type: their names; None for servers by address.
        suites, schedule: of the experiment; none for servers by address.
        most_tokens: the longest answer the experiment's servers give; None where that is not known.
    """

    arms: tuple[Arm, ...]
    environment: str | None = None
    experiment: str | None = None
    instance_type: str | None = None
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
        raise refused(f"{given[0]} beside --env", "--env and --experiment, or servers by address", "drop one of them")
    if options.env is None:
        raise refused("--experiment without --env", "both", "add --env NAME: where the experiment's servers are")
    from tandem.commands.bench_hosted import hosted_arms  # noqa: PLC0415 - the rules of an environment

    return hosted_arms(chosen, options)


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
            raise refused(f"--placement names no arm {name!r}", ", ".join(arm.name for arm in arms), "name an arm")
        if [other for other, _ in said].count(name) > 1:
            raise refused(f"--placement places {name!r} twice", "each arm once", "drop one of them")
        words[name] = word
    return tuple(msgspec.structs.replace(arm, placement=words.get(arm.name)) for arm in arms)


def refused(problem: str, allowed: str, change: str) -> BenchError:
    """Return a refusal of flags."""
    return BenchError(f"{problem}; allowed: {allowed}", change=change)


def _by_address(options: argparse.Namespace) -> tuple[Arm, ...]:
    for flag, value in (("--baseline", options.baseline), ("--model", options.model)):
        if not value:
            raise refused(f"no {flag}", "servers by address, or --env and --experiment", f"add {flag}")
    if options.only:
        raise refused("--only without --env", "variants of an experiment", "drop --only")
    asked = [options.baseline, *options.variant]
    default = ["baseline", "variant", *(f"variant-{number}" for number in range(2, len(asked)))]
    named = [name or default[place] for place, (name, _) in enumerate(asked)]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise refused(f"two arms are named {twice!r}", "each name once", "name them apart: NAME=URL")
    models = _models_by_arm(options.model, named)
    return tuple(
        Arm(name=name, role="variant" if place else "baseline", url=url, model=models[name])
        for place, (name, (_, url)) in enumerate(zip(named, asked, strict=True))
    )


def _models_by_arm(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return each arm's model: its own NAME=M, else the one for all.

    Raises:
        BenchError: a model of no arm, two of one, or an arm without one.
    """
    models: dict[str | None, str] = {}
    for word in words:
        name, equals, model = word.partition("=")
        arm = name if equals else None
        if arm is not None and arm not in names:
            raise refused(f"--model names no arm {arm!r}", ", ".join(names), "name an arm: NAME=MODEL")
        if arm in models:
            whose = f"two models of {arm!r}" if arm else "two models for all arms"
            raise refused(f"--model has {whose}", "one, and NAME=MODEL for each that differs", "drop one of them")
        models[arm] = model if equals else word
    lacking = [name for name in names if name not in models and None not in models]
    if lacking:
        raise refused(f"no --model of {lacking[0]!r}", "one of each arm, or one for all", f"add {lacking[0]}=MODEL")
    return {name: models.get(name) or models[None] for name in names}
