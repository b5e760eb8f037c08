"""What is wrong with a dashboard, before CloudWatch shows it as an empty graph or refuses it.

Invariant: a reference is checked against the catalogue alone: by publisher, name, namespace and names of dimensions.
A dashboard without faults names nothing that nobody sends, and stays within CloudWatch's limits.

Limits: "CloudWatch service quotas" (user guide, read 2026-11-21) for widgets and metrics, "CloudWatch search expression
syntax" for a search. tandem.watch.body adds the size of the JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tandem.metrics import CATALOGUE, PUBLISHERS, WATCHED, Publisher, Watched
from tandem.metrics import Metric as Figure
from tandem.watch.layout import boxes, faults_of
from tandem.watch.widget import Dashboard, Expression, Graph, Line, Mark

WIDGETS = 500
METRICS_OF_A_WIDGET = 500
METRICS = 2500
SEARCH_CHARACTERS = 1024
EXPRESSION_CHARACTERS = 2048  # GetMetricData, MetricDataQuery.Expression
NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")
ID = re.compile(r"[a-z][A-Za-z0-9_]{0,254}")
PERIODS_S = (60, 300, 900, 3600, 21_600, 86_400)
STATISTIC = re.compile(r"Average|Sum|SampleCount|Minimum|Maximum|p[0-9]{1,2}(\.[0-9]+)?")
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SEARCH = re.compile(
    r"SEARCH\('\{\"(?P<namespace>[^\"]+)\"(?P<names>(?:,\w+)*)\}(?P<terms>(?: \w+=\"[^\"]*\")+)', "
    r"'(?P<statistic>[^']+)', (?P<period_s>[0-9]+)\)"
)
_TERM = re.compile(r" (\w+)=\"([^\"]*)\"")


@dataclass(frozen=True, slots=True)
class _Reference:
    """What is read from CloudWatch: by a line, or by a search that fixes some dimensions."""

    metric: str
    namespace: str
    dimensions: tuple[str, ...]
    statistic: str


def faults_of_widgets(dashboard: Dashboard) -> Iterator[str]:
    """Yield what is wrong with a dashboard's name, places, variables and widgets, each in a sentence."""
    yield from _of_dashboard(dashboard)
    for number, widget in enumerate(dashboard.widgets, start=1):
        if isinstance(widget, Graph):
            yield from (f"graph {widget.title!r}: {fault}" for fault in _of_graph(widget))
        elif not widget.markdown.strip():
            yield f"widget {number}: a text that says nothing"


def _of_dashboard(dashboard: Dashboard) -> Iterator[str]:
    if not NAME.fullmatch(dashboard.name):
        yield f"{dashboard.name!r} is no name of a dashboard: letters, digits, - and _, at most 255"
    placed = boxes(dashboard)
    if len(placed) > WIDGETS:
        yield f"{len(placed)} widgets, captions counted; CloudWatch draws {WIDGETS}"
    metrics = sum(len(widget.lines) for widget in dashboard.widgets if isinstance(widget, Graph))
    if metrics > METRICS:
        yield f"{metrics} metrics and expressions; CloudWatch takes {METRICS} a dashboard"
    yield from faults_of(placed)
    yield from _of_variables(dashboard)
    environments = _environments(dashboard)
    if len(environments) > 1:
        yield f"it mixes the metrics of several environments: {', '.join(sorted(environments))}"


def _of_variables(dashboard: Dashboard) -> Iterator[str]:
    varying = [widget for widget in dashboard.widgets if isinstance(widget, Graph) and widget.varies]
    for variable in dashboard.variables:
        if not variable.values or len(set(variable.values)) < len(variable.values):
            yield f"variable {variable.dimension}: its values are none, or one stands twice"
            continue
        for graph in varying:
            if not _has(graph, variable.dimension, variable.values[0]):
                yield f"graph {graph.title!r} varies, and {variable.dimension} {variable.values[0]!r} is not in it"
    if varying and not dashboard.variables:
        yield f"graph {varying[0].title!r} varies, and the dashboard has no variable"


def _has(graph: Graph, dimension: str, value: str) -> bool:
    return any(
        (dimension, value) in line.dimensions if isinstance(line, Line) else f'{dimension}="{value}"' in line.text
        for line in graph.lines
    )


def _of_graph(graph: Graph) -> Iterator[str]:
    yield from _of_words(graph)
    yield from _of_ids(graph)
    yield from _of_references(graph)
    for mark in graph.marks:
        yield from _of_mark(mark)


def _of_words(graph: Graph) -> Iterator[str]:
    if not graph.unit or not graph.title.endswith(f"[{graph.unit}]"):
        yield f"its title does not end with its unit, [{graph.unit}]"
    if not graph.sentence.strip().endswith("."):
        yield "no sentence says what it shows and what it does not"
    if graph.period_s not in PERIODS_S:
        yield f"a period of {graph.period_s} s is none of {', '.join(map(str, PERIODS_S))}"
    if not any(line.shown for line in graph.lines):
        yield "it shows no line"
    if len(graph.lines) > METRICS_OF_A_WIDGET:
        yield f"{len(graph.lines)} metrics and expressions; CloudWatch takes {METRICS_OF_A_WIDGET} a widget"
    for line in graph.lines:
        if line.shown and line.label is None:
            yield f"a shown line without a label: {_told(line)}"


def _of_ids(graph: Graph) -> Iterator[str]:
    ids = Counter(line.id for line in graph.lines if line.id is not None)
    used = {name for line in graph.lines if isinstance(line, Expression) for name in _names(line.text)}
    for name, count in ids.items():
        if count > 1:
            yield f"id {name!r} is given {count} times"
        if not ID.fullmatch(name):
            yield f"id {name!r} does not start with a small letter, or has more than letters, digits and _"
    for name in sorted(used - ids.keys()):
        yield f"an expression reads {name!r}, and no line has this id"
    for line in graph.lines:
        if not line.shown and line.id not in used:
            yield f"a hidden line that nothing reads: {_told(line)}"


def _names(expression: str) -> set[str]:
    """Return the ids an expression reads: words that begin small, outside of a search."""
    return set(re.findall(r"\b[a-z]\w*", re.sub(r"'[^']*'", "", expression)))


def _of_references(graph: Graph) -> Iterator[str]:
    for line in graph.lines:
        if isinstance(line, Expression):
            yield from _of_text(line.text)
        for read in _read(line):
            yield from _of_reference(read, graph, drawn=line.shown and isinstance(line, Line))
    senders = {_sender(read, graph.publishers) for line in graph.lines for read in _read(line)}
    for publisher in graph.publishers:
        if publisher not in PUBLISHERS:
            yield f"publisher {publisher!r} is not in the catalogue"
        elif PUBLISHERS[publisher].sample is None:
            yield f"nobody has recorded what {publisher} sends, so nothing of it may be drawn"
        if publisher not in senders:
            yield f"it names publisher {publisher!r} and draws nothing of it"


def _of_text(expression: str) -> Iterator[str]:
    if len(expression) > EXPRESSION_CHARACTERS:
        yield f"an expression of {len(expression)} characters; CloudWatch takes {EXPRESSION_CHARACTERS}"
    if expression.count("SEARCH") > len(_SEARCH.findall(expression)):
        yield f"a search of another form than ours: {expression}"
    for found in _SEARCH.finditer(expression):
        if len(found[0]) > SEARCH_CHARACTERS:
            yield f"a search of {len(found[0])} characters; CloudWatch takes {SEARCH_CHARACTERS}"


def _of_reference(read: _Reference, graph: Graph, *, drawn: bool) -> Iterator[str]:
    sender = _sender(read, graph.publishers)
    if sender is None:
        yield f"nobody named publishes {read.metric} in {read.namespace} by {', '.join(read.dimensions)}"
    elif drawn and _figure(sender, read.metric).unit != graph.unit:
        yield f"{read.metric} is in {_figure(sender, read.metric).unit}, and the graph in {graph.unit}"
    if not STATISTIC.fullmatch(read.statistic):
        yield f"{read.statistic!r} is no statistic"


def _read(line: Line | Expression) -> Iterator[_Reference]:
    """Yield what a line, or each search of an expression, reads."""
    if isinstance(line, Line):
        yield _Reference(line.metric, line.namespace, tuple(name for name, _ in line.dimensions), line.statistic)
        return
    for found in _SEARCH.finditer(line.text):
        terms = dict(_TERM.findall(found["terms"]))
        names = tuple(found["names"].strip(",").split(",")) if found["names"] else ()
        metric = terms.pop("MetricName", "")
        known = names if terms.keys() <= set(names) else tuple(terms)  # a value of what the schema does not name
        yield _Reference(metric, found["namespace"], known, found["statistic"])


def _sender(read: _Reference, publishers: Iterable[str]) -> str | None:
    """Return which of `publishers` sends what is read."""
    for name in publishers:
        publisher = PUBLISHERS.get(name)
        if (
            publisher
            and _sends(publisher, read.metric)
            and _pattern(publisher.namespace).fullmatch(read.namespace)
            and read.dimensions in publisher.dimensions
        ):
            return name
    return None


def _sends(publisher: Publisher, metric: str) -> bool:
    of_bench = metric in CATALOGUE and CATALOGUE[metric].published and publisher.name == "bench"
    return of_bench or (publisher.name, metric) in WATCHED


def _figure(publisher: str, metric: str) -> Figure | Watched:
    return WATCHED.get((publisher, metric)) or CATALOGUE[metric]


@cache
def _pattern(namespace: str) -> re.Pattern[str]:
    name = "[a-z][a-z0-9-]*"
    return re.compile(re.escape(namespace).replace(r"\{environment\}", f"({name})").replace(r"\{cluster\}", name))


def _environments(dashboard: Dashboard) -> set[str]:
    """Return the environments whose namespaces a dashboard reads."""
    found = set()
    for graph in dashboard.widgets:
        for line in graph.lines if isinstance(graph, Graph) else ():
            for read in _read(line):
                for publisher in PUBLISHERS.values():
                    match = _pattern(publisher.namespace).fullmatch(read.namespace)
                    found |= set(match.groups()) if match else set()
    return found


def _of_mark(mark: Mark) -> Iterator[str]:
    if (mark.value is None) == (mark.at is None):
        yield f"mark {mark.label!r} has not exactly one of a level and a moment"
    if mark.at is not None and not MOMENT.fullmatch(mark.at):
        yield f"mark {mark.label!r}: {mark.at!r} is no moment of the form 2026-12-01T11:30:00Z"


def _told(line: Line | Expression) -> str:
    return line.metric if isinstance(line, Line) else line.text
