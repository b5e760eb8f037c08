"""What is watched of an environment: the experiments it hosts, each with the traffic that its suites ask."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.bench.suites.suite import load
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.watch.scope import Scope, Traffic, Watching


def scope(environment: Environment, experiments: Iterable[Experiment]) -> Scope:
    """Return what dashboards, alarms and their cost are computed from.

    Args:
        environment: of good form.
        experiments: that it hosts, in its order.
    """
    return Scope(
        environment=environment,
        experiments=tuple(Watching(experiment=found, traffic=_traffic(found)) for found in experiments),
    )


def _traffic(experiment: Experiment) -> Traffic:
    """Read what the suites ask when no flag of `tandem bench run` says otherwise; another load is watched all the same.

    It has series of its own then, which the dashboards' variables do not offer.
    """
    suites = [load(name) for name in experiment.suites]
    return Traffic(
        suites={suite.name: suite.classes for suite in suites},
        concurrencies=tuple(sorted({streams for suite in suites for streams in suite.defaults.concurrency})),
    )
