"""One figure that somebody else than the bench sends: what is read of it, and what its graph says.

Invariant: its unit is the catalogue's, and its sentence says what it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import WATCHED
from tandem.watch.compared import PERIOD_S
from tandem.watch.layout import COLUMNS
from tandem.watch.widget import Expression, Graph, Line, Statistic

WIDTH = COLUMNS // 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A watched metric and its graph.

    Args:
        metric: its name in CloudWatch.
        publisher: who sends it.
        title: of the graph, without the unit.
        says: what it shows and what it does not.
        statistic: what is read of it.
        unit: of what is drawn, where an expression makes another of it; None: the metric's own.
    """

    metric: str
    publisher: str
    title: str
    says: str
    statistic: Statistic
    unit: str | None = None

    def graph(self, lines: tuple[Line | Expression, ...], width: int = WIDTH) -> Graph:
        """Return the graph of some lines of it, `width` columns wide."""
        unit = self.unit or WATCHED[self.publisher, self.metric].unit
        return Graph(
            title=f"{self.title} [{unit}]",
            sentence=self.says,
            unit=unit,
            publishers=(self.publisher,),
            lines=lines,
            period_s=PERIOD_S,
            varies=False,
            width=width,
        )
