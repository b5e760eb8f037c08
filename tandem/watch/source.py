"""Where an alarm's metric comes from: its namespace, its dimensions, and whether somebody really sends it.

Invariant: a metric without a publisher, or of a publisher without a recorded sample, is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tandem import metrics
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch.widget import Line, Statistic


def sent(publisher: str, name: str) -> bool:
    """Whether `publisher` sends the metric called `name`, and a sample of it is recorded."""
    found = metrics.PUBLISHERS.get(publisher)
    if found is None or found.sample is None:
        return False
    if publisher == metrics.BENCH:
        return any(metric.name == name for metric in metrics.published())
    return (publisher, name) in metrics.WATCHED


@dataclass(frozen=True, slots=True)
class Cell:
    """All metrics that a publisher sends with the same dimensions.

    Args:
        environment: whose names are put into the namespace.
        publisher: as tandem.metrics has it.
        dimensions: name and value of each, in any order.
    """

    environment: Environment
    publisher: str
    dimensions: Mapping[str, str]

    def line(self, name: str, statistic: Statistic, *, id_: str, shown: bool = False) -> Line:
        """Return one metric, its dimensions in the publisher's order.

        Args:
            name: of the metric.
            statistic: what is read of it.
            id_: by which expressions name it.
            shown: whether it is compared itself.

        Raises:
            KeyError: no such publisher.
            ValueError: the publisher sends no such set of dimensions.
        """
        sets = metrics.PUBLISHERS[self.publisher].dimensions
        order = next((each for each in sets if set(each) == set(self.dimensions)), None)
        if order is None:
            named = ", ".join(self.dimensions) or "no dimension"
            raise ValueError(f"{self.publisher} sends nothing by {named}")
        return Line(
            metric=name,
            namespace=metrics.namespace(self.publisher, self.environment.name, names.cluster(self.environment)),
            dimensions=tuple((dimension, self.dimensions[dimension]) for dimension in order),
            statistic=statistic,
            label=name,
            id=id_,
            shown=shown,
        )
