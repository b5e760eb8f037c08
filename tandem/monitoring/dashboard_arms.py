"""The arms that a dashboard can distinguish, and the bench's series of each.

Invariant: the baseline is the first variant that decodes plainly; an arm has one color in every
graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tandem.cloudwatch_metrics import ALL_VALUES, BENCH, BENCH_DIMENSIONS, CloudWatchMetric
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Variant
from tandem.monitoring.scope import ExperimentScope, MetricSource
from tandem.monitoring.widget import (
    COLUMNS,
    PERIOD_S,
    GraphWidget,
    MathExpression,
    MetricLine,
    Statistic,
)

BASELINE_COLOR = "#7a8ba6"
# Each at least 20 from every other and from the baseline (CIE 1976), for normal sight, protanopia
# and deuteranopia. Each at least 2:1 against white and against CloudWatch's dark. Both hold in
# tests/monitoring/test_colors.py.
VARIANT_COLORS = (
    "#e69f00",
    "#471af9",
    "#bd0505",
    "#72ca84",
    "#42b1fa",
    "#8d3547",
    "#4156aa",
    "#6a6afb",
)
# in addition to the baseline; more lines in a graph cannot be distinguished
MAX_VARIANTS = len(VARIANT_COLORS)


class DashboardArms:
    """The drawn arms of an experiment, and the series of each.

    Args:
        environment: whose namespace has the series.
        experiment_scope: the experiment and the classes and loads of its suites.
    """

    def __init__(self, environment: Environment, experiment_scope: ExperimentScope) -> None:
        self.environment = environment
        self.experiment = experiment_scope.experiment
        self.suites = experiment_scope.suites
        self.namespace = names.bench_namespace(environment)
        all_variants = self.experiment.all_variants()
        self.baseline = next((variant for variant in all_variants if variant.mode == "none"), None)
        compared_variants = tuple(
            variant for variant in all_variants if variant is not self.baseline
        )
        self.variants = compared_variants[:MAX_VARIANTS]
        self.overflow_variants = compared_variants[MAX_VARIANTS:]
        self.visible_variants = ((self.baseline,) if self.baseline else ()) + self.variants
        colors = (BASELINE_COLOR, *VARIANT_COLORS) if self.baseline else VARIANT_COLORS
        self._colors = dict(
            zip((variant.name for variant in self.visible_variants), colors, strict=False)
        )
        classes = (*experiment_scope.classes, ALL_VALUES)
        concurrencies = tuple(str(streams) for streams in reversed(experiment_scope.concurrencies))
        self.variables = {"PromptClass": classes, "Concurrency": concurrencies}
        self.default_choice = classes[0], concurrencies[0]

    def color(self, variant: Variant) -> str:
        """Return the color of an arm in every graph."""
        return self._colors[variant.name]

    def line(
        self,
        name: str,
        variant: Variant,
        statistic: Statistic,
        id_: str | None = None,
        *,
        cell: tuple[str, str] | None = None,
    ) -> MetricLine:
        """Return an arm's series of a figure, hidden if it has an id.

        Args:
            name: of the metric.
            variant: the arm.
            statistic: the drawn one.
            id_: its name in expressions.
            cell: class and concurrency; None: the chosen ones.
        """
        values = (self.experiment.name, variant.name, *(cell or self.default_choice))
        dimensions = dict(zip(BENCH_DIMENSIONS, values, strict=True))
        source = MetricSource(self.environment, BENCH, dimensions)
        if id_:
            return source.line(name, statistic, label=None, id=id_)
        color = self.color(variant)
        return source.line(name, statistic, label=variant.name, is_visible=True, color=color)

    def build_expression(self, text: str, variant: Variant, id_: str) -> MathExpression:
        """Return an expression that is drawn as an arm is."""
        return MathExpression(text=text, label=variant.name, id=id_, color=self.color(variant))

    def build_search(self, name: str, statistic: Statistic, **values: str) -> str:
        """Return the SEARCH for a figure of this experiment, in the cells with the given values."""
        terms = {"Experiment": self.experiment.name, **values}
        return build_search(self.namespace, BENCH_DIMENSIONS, name, statistic, terms)


def build_search(
    namespace: str,
    dimensions: Sequence[str],
    metric: str,
    statistic: Statistic,
    values: Mapping[str, str],
) -> str:
    """Return the SEARCH for the series of a metric with some values of its dimensions."""
    terms = " ".join(f'{key}="{value}"' for key, value in {"MetricName": metric, **values}.items())
    return (
        f"SEARCH('{{\"{namespace}\",{','.join(dimensions)}}} {terms}', '{statistic}', {PERIOD_S})"
    )


def build_bench_graph(
    title: str,
    unit: str,
    sentence: str,
    lines: Iterable[MetricLine | MathExpression],
    **fields: Any,
) -> GraphWidget:
    """Return a graph of metrics of the bench."""
    title = f"{title} [{unit}]"
    return GraphWidget(
        title=title, sentence=sentence, unit=unit, publisher=BENCH, lines=tuple(lines), **fields
    )


def build_metric_graph(
    metric: CloudWatchMetric, *lines: MetricLine | MathExpression, width: int = COLUMNS // 3
) -> GraphWidget:
    """Return the graph of a metric with the catalogue's texts, with some lines; fixed."""
    unit = metric.drawn_unit or metric.unit
    return GraphWidget(
        title=f"{metric.title} [{unit}]",
        sentence=metric.sentence,
        unit=unit,
        publisher=metric.publisher,
        lines=lines,
        varies=False,
        width=width,
    )
