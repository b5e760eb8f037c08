"""Which experiment of an environment a run measured, and under which dimensions its figures are published.

Invariant: a run is of one experiment alone, whose variants its arms are; publishing and drawing a run ask the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tandem.bench.fault import BenchError
from tandem.metrics import ALL_VALUES, BENCH_DIMENSIONS
from tandem.shell_command import quote_command
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:  # numpy
    from tandem.bench.datapoints import DatapointRow
    from tandem.bench.manifest import ManifestArm


class MeasuredRun(Protocol):
    """What a run measured: a manifest, or what a run is about to start from."""

    @property
    def environment(self) -> str | None: ...  # noqa: D102
    @property
    def experiment(self) -> str | None: ...  # noqa: D102
    @property
    def arms(self) -> Sequence[ManifestArm]: ...  # noqa: D102


def find_measured_experiment(
    environment: Environment, experiments: Sequence[Experiment], run: MeasuredRun, name: str | None
) -> Experiment:
    """Return the experiment that a run measured.

    Args:
        environment: that hosts it.
        experiments: its experiments.
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
    variants = {experiment.name: [variant.name for variant in experiment.all_variants()] for experiment in experiments}
    arms = [arm.name for arm in run.arms]
    experiment_name = name or run.experiment or _match_experiment(environment, variants, arms)
    if experiment_name not in variants:
        suggestions = difflib.get_close_matches(experiment_name, variants, n=1)
        raise BenchError(
            f"{environment.name} hosts no experiment {experiment_name}",
            where="--experiment",
            change=f"did you mean {suggestions[0]}?"
            if suggestions
            else f"it hosts {', '.join(variants) or 'none'}: name one of them",
        )
    unknown_arms = [arm for arm in arms if arm not in variants[experiment_name]]
    if unknown_arms:
        raise BenchError(
            f"{experiment_name} has no variant {' and no '.join(unknown_arms)}; its variants are "
            f"{', '.join(variants[experiment_name])}",
            where="the run's arms",
            change="name the experiment that was measured: --experiment NAME",
        )
    return next(experiment for experiment in experiments if experiment.name == experiment_name)


def _match_experiment(environment: Environment, variants: Mapping[str, Sequence[str]], arms: Sequence[str]) -> str:
    """Return the one experiment whose variants the arms are."""
    matches = [name for name, variant_names in variants.items() if set(arms) <= set(variant_names)]
    if len(matches) > 1:
        raise BenchError(
            f"{' and '.join(matches)} have these arms alike",
            where="--experiment",
            change="name the one that was measured",
        )
    if not matches:
        hosting_text = (
            "; ".join(f"{name}: {', '.join(variant_names)}" for name, variant_names in variants.items())
            or "it hosts none"
        )
        raise BenchError(
            f"no experiment of {environment.name} has the arms {', '.join(arms)} ({hosting_text})",
            where="the run's arms",
            change="name the environment that hosts what was measured; arms have their names of --baseline NAME=URL",
        )
    return matches[0]


def list_dimensions(experiment: str, row: DatapointRow) -> Iterable[tuple[str, str]]:
    """Return the dimensions under which a row is published."""
    load = f"rate-{row.rate_per_s:g}" if row.rate_per_s is not None else str(row.concurrency or ALL_VALUES)
    return zip(BENCH_DIMENSIONS, (experiment, row.arm, row.class_, load), strict=True)
