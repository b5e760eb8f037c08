"""Which experiment of an environment a run measured, and under which dimensions its figures are published.

Invariant: a run is of one experiment alone, whose variants its arms are; publishing and drawing a run ask the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tandem.bench.fault import BenchError
from tandem.metrics import BENCH_DIMENSIONS, EVERY
from tandem.shell_command import quote_command
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:  # numpy
    from tandem.bench.manifest import Arm
    from tandem.bench.points import Row


class Ran(Protocol):
    """What a run measured: a manifest, or what a run is about to start from."""

    @property
    def environment(self) -> str | None: ...  # noqa: D102
    @property
    def experiment(self) -> str | None: ...  # noqa: D102
    @property
    def arms(self) -> Sequence[Arm]: ...  # noqa: D102


def measured_experiment(
    environment: Environment, hosted: Sequence[Experiment], run: Ran, name: str | None
) -> Experiment:
    """Return the experiment that a run measured.

    Args:
        environment: that hosts it.
        hosted: its experiments.
        run: its manifest, or what it starts from; it names the experiment where it was measured inside the cluster.
        name: what the user says; None to take what the run says, or the only one whose variants the arms are.

    Raises:
        BenchError: another environment was measured, there is no such experiment, none or several fit, or an arm is no
            variant of the named one.
    """
    if run.environment not in {None, environment.name}:
        raise BenchError(
            f"the servers of {run.environment} were measured, not those of {environment.name}",
            where="--env",
            change=f"say {quote_command('--env', str(run.environment))}",
        )
    variants = {found.name: [variant.name for variant in found.all_variants()] for found in hosted}
    arms = [arm.name for arm in run.arms]
    chosen = name or run.experiment or _fitting(environment, variants, arms)
    if chosen not in variants:
        close = difflib.get_close_matches(chosen, variants, n=1)
        raise BenchError(
            f"{environment.name} hosts no experiment {chosen}",
            where="--experiment",
            change=f"did you mean {close[0]}?"
            if close
            else f"it hosts {', '.join(variants) or 'none'}: name one of them",
        )
    strange = [arm for arm in arms if arm not in variants[chosen]]
    if strange:
        raise BenchError(
            f"{chosen} has no variant {' and no '.join(strange)}; its variants are {', '.join(variants[chosen])}",
            where="the run's arms",
            change="name the experiment that was measured: --experiment NAME",
        )
    return next(found for found in hosted if found.name == chosen)


def _fitting(environment: Environment, variants: Mapping[str, Sequence[str]], arms: Sequence[str]) -> str:
    """Return the one experiment whose variants the arms are."""
    fitting = [name for name, known in variants.items() if set(arms) <= set(known)]
    if len(fitting) > 1:
        raise BenchError(
            f"{' and '.join(fitting)} have these arms alike",
            where="--experiment",
            change="name the one that was measured",
        )
    if not fitting:
        hosted = "; ".join(f"{name}: {', '.join(known)}" for name, known in variants.items()) or "it hosts none"
        raise BenchError(
            f"no experiment of {environment.name} has the arms {', '.join(arms)} ({hosted})",
            where="the run's arms",
            change="name the environment that hosts what was measured; arms have their names of --baseline NAME=URL",
        )
    return fitting[0]


def dimensions(experiment: str, row: Row) -> Iterable[tuple[str, str]]:
    """Return the dimensions under which a row is published."""
    load = f"rate-{row.rate_per_s:g}" if row.rate_per_s is not None else str(row.concurrency or EVERY)
    return zip(BENCH_DIMENSIONS, (experiment, row.arm, row.class_, load), strict=True)
