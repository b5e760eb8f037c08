"""What is wrong with a dashboard, before CloudWatch shows it as an empty graph or refuses it.

Invariant: a reference is checked against the catalogue alone: by publisher, name, namespace and names of dimensions.
A dashboard without faults names nothing that nobody sends, and stays within CloudWatch's limits.

Limits: "CloudWatch service quotas" (user guide, read 2026-11-21) for widgets and metrics, "CloudWatch search expression
syntax" for a search. tandem.monitoring.dashboard_body adds the size of the JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tandem.metrics import CATALOGUE, CLOUDWATCH_METRICS, PUBLISHERS, CloudWatchMetric, MetricPublisher
from tandem.metrics import Metric as Figure
from tandem.monitoring.layout import find_layout_faults, place_widgets
from tandem.monitoring.widget import Dashboard, GraphMark, GraphWidget, MathExpression, MetricLine

MAX_WIDGETS = 500
MAX_WIDGET_METRICS = 500
MAX_METRICS = 2500
MAX_SEARCH_CHARACTERS = 1024
MAX_EXPRESSION_CHARACTERS = 2048  # GetMetricData, MetricDataQuery.Expression
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,255}")
ID_PATTERN = re.compile(r"[a-z][A-Za-z0-9_]{0,254}")
PERIODS_S = (60, 300, 900, 3600, 21_600, 86_400)
STATISTIC_PATTERN = re.compile(r"Average|Sum|SampleCount|Minimum|Maximum|p[0-9]{1,2}(\.[0-9]+)?")
MOMENT_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SEARCH_PATTERN = re.compile(
    r"SEARCH\('\{\"(?P<namespace>[^\"]+)\"(?P<names>(?:,\w+)*)\}(?P<terms>(?: \w+=\"[^\"]*\")+)', "
    r"'(?P<statistic>[^']+)', (?P<period_s>[0-9]+)\)"
)
_TERM_PATTERN = re.compile(r" (\w+)=\"([^\"]*)\"")


@dataclass(frozen=True, slots=True)
class _MetricReference:
    """What is read from CloudWatch: by a line, or by a search that fixes some dimensions."""

    metric: str
    namespace: str
    dimensions: tuple[str, ...]
    statistic: str


def find_widget_faults(dashboard: Dashboard) -> Iterator[str]:
    """Yield what is wrong with a dashboard's name, places, variables and widgets, each in a sentence."""
    yield from _find_dashboard_faults(dashboard)
    for number, widget in enumerate(dashboard.widgets, start=1):
        if isinstance(widget, GraphWidget):
            yield from (f"graph {widget.title!r}: {fault}" for fault in _find_graph_faults(widget))
        elif not widget.markdown.strip():
            yield f"widget {number}: a text that says nothing"


def _find_dashboard_faults(dashboard: Dashboard) -> Iterator[str]:
    if not NAME_PATTERN.fullmatch(dashboard.name):
        yield f"{dashboard.name!r} is no name of a dashboard: letters, digits, - and _, at most 255"
    widget_boxes = place_widgets(dashboard)
    if len(widget_boxes) > MAX_WIDGETS:
        yield f"{len(widget_boxes)} widgets, captions counted; CloudWatch draws {MAX_WIDGETS}"
    metrics = sum(len(widget.lines) for widget in dashboard.widgets if isinstance(widget, GraphWidget))
    if metrics > MAX_METRICS:
        yield f"{metrics} metrics and expressions; CloudWatch takes {MAX_METRICS} a dashboard"
    yield from find_layout_faults(widget_boxes)
    yield from _find_variable_faults(dashboard)
    environments = _list_environments(dashboard)
    if len(environments) > 1:
        yield f"it mixes the metrics of several environments: {', '.join(sorted(environments))}"


def _find_variable_faults(dashboard: Dashboard) -> Iterator[str]:
    variable_graphs = [widget for widget in dashboard.widgets if isinstance(widget, GraphWidget) and widget.varies]
    for variable in dashboard.variables:
        if not variable.values or len(set(variable.values)) < len(variable.values):
            yield f"variable {variable.dimension}: its values are none, or one stands twice"
            continue
        for graph in variable_graphs:
            if not _has_value(graph, variable.dimension, variable.values[0]):
                yield f"graph {graph.title!r} varies, and {variable.dimension} {variable.values[0]!r} is not in it"
    if variable_graphs and not dashboard.variables:
        yield f"graph {variable_graphs[0].title!r} varies, and the dashboard has no variable"


def _has_value(graph: GraphWidget, dimension: str, value: str) -> bool:
    return any(
        (dimension, value) in line.dimensions if isinstance(line, MetricLine) else f'{dimension}="{value}"' in line.text
        for line in graph.lines
    )


def _find_graph_faults(graph: GraphWidget) -> Iterator[str]:
    yield from _find_text_faults(graph)
    yield from _find_id_faults(graph)
    yield from _find_reference_faults(graph)
    for mark in graph.marks:
        yield from _find_mark_faults(mark)


def _find_text_faults(graph: GraphWidget) -> Iterator[str]:
    if not graph.unit or not graph.title.endswith(f"[{graph.unit}]"):
        yield f"its title does not end with its unit, [{graph.unit}]"
    if not graph.sentence.strip().endswith("."):
        yield "no sentence says what it shows and what it does not"
    if graph.period_s not in PERIODS_S:
        yield f"a period of {graph.period_s} s is none of {', '.join(map(str, PERIODS_S))}"
    if not any(line.is_visible for line in graph.lines):
        yield "it shows no line"
    if len(graph.lines) > MAX_WIDGET_METRICS:
        yield f"{len(graph.lines)} metrics and expressions; CloudWatch takes {MAX_WIDGET_METRICS} a widget"
    for line in graph.lines:
        if line.is_visible and line.label is None:
            yield f"a shown line without a label: {_line_text(line)}"


def _find_id_faults(graph: GraphWidget) -> Iterator[str]:
    ids = Counter(line.id for line in graph.lines if line.id is not None)
    used_ids = {
        name for line in graph.lines if isinstance(line, MathExpression) for name in _list_expression_ids(line.text)
    }
    for name, count in ids.items():
        if count > 1:
            yield f"id {name!r} is given {count} times"
        if not ID_PATTERN.fullmatch(name):
            yield f"id {name!r} does not start with a small letter, or has more than letters, digits and _"
    for name in sorted(used_ids - ids.keys()):
        yield f"an expression reads {name!r}, and no line has this id"
    for line in graph.lines:
        if not line.is_visible and line.id not in used_ids:
            yield f"a hidden line that nothing reads: {_line_text(line)}"


def _list_expression_ids(expression: str) -> set[str]:
    """Return the ids an expression reads: words that begin small, outside of a search."""
    return set(re.findall(r"\b[a-z]\w*", re.sub(r"'[^']*'", "", expression)))


def _find_reference_faults(graph: GraphWidget) -> Iterator[str]:
    for line in graph.lines:
        if isinstance(line, MathExpression):
            yield from _find_expression_faults(line.text)
        for reference in _list_references(line):
            yield from _find_source_faults(
                reference, graph, is_visible=line.is_visible and isinstance(line, MetricLine)
            )
    senders = {
        _find_sender(reference, graph.publishers) for line in graph.lines for reference in _list_references(line)
    }
    for publisher in graph.publishers:
        if publisher not in PUBLISHERS:
            yield f"publisher {publisher!r} is not in the catalogue"
        elif PUBLISHERS[publisher].sample is None:
            yield f"nobody has recorded what {publisher} sends, so nothing of it may be drawn"
        if publisher not in senders:
            yield f"it names publisher {publisher!r} and draws nothing of it"


def _find_expression_faults(expression: str) -> Iterator[str]:
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        yield f"an expression of {len(expression)} characters; CloudWatch takes {MAX_EXPRESSION_CHARACTERS}"
    if expression.count("SEARCH") > len(_SEARCH_PATTERN.findall(expression)):
        yield f"a search of another form than ours: {expression}"
    for search_match in _SEARCH_PATTERN.finditer(expression):
        if len(search_match[0]) > MAX_SEARCH_CHARACTERS:
            yield f"a search of {len(search_match[0])} characters; CloudWatch takes {MAX_SEARCH_CHARACTERS}"


def _find_source_faults(reference: _MetricReference, graph: GraphWidget, *, is_visible: bool) -> Iterator[str]:
    sender = _find_sender(reference, graph.publishers)
    if sender is None:
        yield f"nobody named publishes {reference.metric} in {reference.namespace} by {', '.join(reference.dimensions)}"
    elif is_visible and _find_definition(sender, reference.metric).unit != graph.unit:
        yield (
            f"{reference.metric} is in {_find_definition(sender, reference.metric).unit}, and the graph in {graph.unit}"
        )
    if not STATISTIC_PATTERN.fullmatch(reference.statistic):
        yield f"{reference.statistic!r} is no statistic"


def _list_references(line: MetricLine | MathExpression) -> Iterator[_MetricReference]:
    """Yield what a line, or each search of an expression, reads."""
    if isinstance(line, MetricLine):
        yield _MetricReference(line.metric, line.namespace, tuple(name for name, _ in line.dimensions), line.statistic)
        return
    for search_match in _SEARCH_PATTERN.finditer(line.text):
        terms = dict(_TERM_PATTERN.findall(search_match["terms"]))
        names = tuple(search_match["names"].strip(",").split(",")) if search_match["names"] else ()
        metric = terms.pop("MetricName", "")
        dimension_names = (
            names if terms.keys() <= set(names) else tuple(terms)
        )  # a value of what the schema does not name
        yield _MetricReference(metric, search_match["namespace"], dimension_names, search_match["statistic"])


def _find_sender(reference: _MetricReference, publishers: Iterable[str]) -> str | None:
    """Return which of `publishers` sends what is read."""
    for name in publishers:
        publisher = PUBLISHERS.get(name)
        if (
            publisher
            and _sends_metric(publisher, reference.metric)
            and _compile_namespace(publisher.namespace).fullmatch(reference.namespace)
            and reference.dimensions in publisher.dimensions
        ):
            return name
    return None


def _sends_metric(publisher: MetricPublisher, metric: str) -> bool:
    is_bench_metric = metric in CATALOGUE and CATALOGUE[metric].goes_to_cloudwatch and publisher.name == "bench"
    return is_bench_metric or (publisher.name, metric) in CLOUDWATCH_METRICS


def _find_definition(publisher: str, metric: str) -> Figure | CloudWatchMetric:
    return CLOUDWATCH_METRICS.get((publisher, metric)) or CATALOGUE[metric]


@cache
def _compile_namespace(namespace: str) -> re.Pattern[str]:
    name = "[a-z][a-z0-9-]*"
    return re.compile(re.escape(namespace).replace(r"\{environment\}", f"({name})").replace(r"\{cluster\}", name))


def _list_environments(dashboard: Dashboard) -> set[str]:
    """Return the environments whose namespaces a dashboard reads."""
    environments = set()
    for graph in dashboard.widgets:
        for line in graph.lines if isinstance(graph, GraphWidget) else ():
            for reference in _list_references(line):
                for publisher in PUBLISHERS.values():
                    match = _compile_namespace(publisher.namespace).fullmatch(reference.namespace)
                    environments |= set(match.groups()) if match else set()
    return environments


def _find_mark_faults(mark: GraphMark) -> Iterator[str]:
    if (mark.value is None) == (mark.moment is None):
        yield f"mark {mark.label!r} has not exactly one of a level and a moment"
    if mark.moment is not None and not MOMENT_PATTERN.fullmatch(mark.moment):
        yield f"mark {mark.label!r}: {mark.moment!r} is no moment of the form 2026-12-01T11:30:00Z"


def _line_text(line: MetricLine | MathExpression) -> str:
    return line.metric if isinstance(line, MetricLine) else line.text
