"""What is watched: an environment, the experiments it hosts, the traffic of each, and the metrics that are sent of it.

Invariant: a metric without a publisher, or of a publisher without a recorded sample, is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem import metrics
from tandem.monitoring.widget import MetricLine, Statistic
from tandem.spec import names
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


def is_published(publisher: str, name: str) -> bool:
    """Whether `publisher` sends the metric called `name`, and a sample of it is recorded."""
    if metrics.PUBLISHERS[publisher].sample is None:
        return False
    if publisher == metrics.BENCH:
        return any(metric.name == name for metric in metrics.list_published_metrics())
    return (publisher, name) in metrics.CLOUDWATCH_METRICS


@dataclass(frozen=True, slots=True)
class MetricSource:
    """All metrics that a publisher sends with the same dimensions.

    Args:
        environment: whose names are put into the namespace.
        publisher: as tandem.metrics has it.
        dimensions: name and value of each, in any order.
    """

    environment: Environment
    publisher: str
    dimensions: Mapping[str, str] = field(default_factory=dict)

    def line(self, name: str, statistic: Statistic, *, id_: str, is_visible: bool = False) -> MetricLine:
        """Return one metric, its dimensions in the publisher's order; expressions name it by `id_`.

        Raises:
            KeyError: no such publisher.
            ValueError: the publisher sends no such set of dimensions.
        """
        for dimension_names in metrics.PUBLISHERS[self.publisher].dimensions:
            if set(dimension_names) == set(self.dimensions):
                cluster = names.cluster_name(self.environment)
                return MetricLine(
                    metric=name,
                    namespace=metrics.format_namespace(self.publisher, self.environment.name, cluster),
                    dimensions=tuple((dimension, self.dimensions[dimension]) for dimension in dimension_names),
                    statistic=statistic,
                    label=name,
                    id=id_,
                    is_visible=is_visible,
                )
        raise ValueError(f"{self.publisher} sends nothing by {', '.join(self.dimensions) or 'no dimension'}")
