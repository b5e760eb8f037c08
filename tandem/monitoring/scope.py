"""What is watched: an environment, the experiments it hosts and the traffic each is measured with."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTraffic:
    """What an experiment's suites ask.

    Args:
        suites: suite -> its prompt classes, in its order.
        concurrencies: of all suites, each once, ascending.
    """

    suites: dict[str, tuple[str, ...]]
    concurrencies: tuple[int, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The prompt classes of all suites, each once."""
        return tuple(dict.fromkeys(name for classes in self.suites.values() for name in classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentScope:
    """An experiment and its traffic."""

    experiment: Experiment
    traffic: SuiteTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringScope:
    """All that dashboards, alarms and their cost are computed from."""

    environment: Environment
    experiments: tuple[ExperimentScope, ...]
