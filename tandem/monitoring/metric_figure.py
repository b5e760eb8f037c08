"""One figure that somebody else than the bench sends: what is read of it, and what its graph says.

Invariant: its unit is the catalogue's, and its sentence says what it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import CLOUDWATCH_METRICS
from tandem.monitoring.dashboard_arms import PERIOD_S
from tandem.monitoring.layout import COLUMNS
from tandem.monitoring.widget import GraphWidget, MathExpression, MetricLine, Statistic

FIGURE_WIDTH = COLUMNS // 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFigure:
    """A watched metric and its graph.

    Args:
        metric: its name in CloudWatch.
        publisher: who sends it.
        title: of the graph, without the unit.
        sentence: what it shows and what it does not.
        statistic: what is read of it.
        unit: of what is drawn, where an expression makes another of it; None: the metric's own.
    """

    metric: str
    publisher: str
    title: str
    sentence: str
    statistic: Statistic
    unit: str | None = None

    def graph(self, lines: tuple[MetricLine | MathExpression, ...], width: int = FIGURE_WIDTH) -> GraphWidget:
        """Return the graph of some lines of it, `width` columns wide."""
        unit = self.unit or CLOUDWATCH_METRICS[self.publisher, self.metric].unit
        return GraphWidget(
            title=f"{self.title} [{unit}]",
            sentence=self.sentence,
            unit=unit,
            publishers=(self.publisher,),
            lines=lines,
            period_s=PERIOD_S,
            varies=False,
            width=width,
        )
