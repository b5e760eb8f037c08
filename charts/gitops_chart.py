"""A chart of what a GitOps tool gets, and the declared values that it reads."""

from __future__ import annotations

from collections.abc import Sequence

from constructs import Construct

from charts.chart import TandemChart
from tandem.declarations.environment import GitopsDelivery
from tandem.declarations.experiment import Experiment
from tandem.declarations.platform import DraChart


class GitopsChart(TandemChart):
    """All objects of a GitOps tool for one environment; each tool adds its own.

    Args:
        environment_name: of the environment.
        delivery: how it is delivered.
        experiments: that it hosts.
        driver: the Neuron DRA chart.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment_name: str,
        delivery: GitopsDelivery,
        experiments: Sequence[Experiment],
        driver: DraChart,
    ) -> None:
        super().__init__(scope, id_, namespace=delivery.namespace)
        self.environment_name = environment_name
        self.delivery = delivery
        self.experiments = experiments
        self.driver = driver
        self.add_objects()

    def add_objects(self) -> None:
        """Add the objects of the tool."""
        raise NotImplementedError
