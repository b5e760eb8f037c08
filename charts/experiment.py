"""A chart of one experiment: its namespace, and the declared values that it reads."""

from __future__ import annotations

from typing import ClassVar

from constructs import Construct

from charts.chart import TandemChart
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment


class ExperimentChart(TandemChart):
    """A chart in the namespace of one experiment; each kind of chart adds its own objects.

    The experiment must have passed the rules: its runtime can be rendered and its models are known.
    """

    sync_wave: ClassVar[int] = 3
    """The place of its objects in an Argo CD sync: servers and CronJobs are the last.

    A sync that waited for a suspended object would wait for ever.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        experiment: Experiment,
        catalogue: Catalogue,
    ) -> None:
        super().__init__(
            scope, id_, namespace=names.experiment_namespace(experiment), wave=self.sync_wave
        )
        self.environment = environment
        self.experiment = experiment
        self.catalogue = catalogue
        self.add_objects()

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        raise NotImplementedError
