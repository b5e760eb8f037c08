"""Scope of the monitoring: an environment, its experiments with their load, the publishers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tandem import cloudwatch_metrics as metrics
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.monitoring.widget import MetricLine, Statistic


@dataclass(frozen=True, kw_only=True)
class ExperimentScope:
    """An experiment, and the load of its suites.

    Args:
        suites: suite -> its prompt classes, in its order; none of a file whose classes the
            experiment does not state, which is watched as a whole.
        concurrencies: of all suites, each once, ascending.
    """

    experiment: Experiment
    suites: dict[str, tuple[str, ...]]
    concurrencies: tuple[int, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The prompt classes of all suites, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.suites.values())))

    @property
    def unstated_suites(self) -> tuple[str, ...]:
        """The suites whose classes nobody states: each of their classes adds series."""
        return tuple(name for name, classes in self.suites.items() if not classes)


@dataclass(frozen=True, kw_only=True)
class MonitoringScope:
    """All inputs of dashboards, alarms and their cost."""

    environment: Environment
    experiments: tuple[ExperimentScope, ...]


@dataclass(frozen=True)
class MetricSource:
    """All metrics of one publisher with the same dimensions.

    Args:
        environment: for the names in the namespace.
        publisher: as in tandem.metrics.
        dimensions: name and value of each, in any order; one of the publisher's sets.
    """

    environment: Environment
    publisher: str
    dimensions: Mapping[str, str] = field(default_factory=dict)

    def line(self, name: str, statistic: Statistic, **fields: Any) -> MetricLine:
        """Return a metric with its dimensions in the publisher's order, hidden by default."""
        dimension_sets = {
            frozenset(row): row for row in metrics.PUBLISHERS[self.publisher].dimensions
        }
        dimension_names = dimension_sets[frozenset(self.dimensions)]
        cluster = names.cluster_name(self.environment)
        defaults = {"label": name, "is_visible": False}
        return MetricLine(
            metric=name,
            namespace=metrics.format_namespace(self.publisher, self.environment.name, cluster),
            dimensions=tuple(
                (dimension, self.dimensions[dimension]) for dimension in dimension_names
            ),
            statistic=statistic,
            **{**defaults, **fields},
        )
