"""Which metrics a SEARCH finds, for the one form that our dashboards write.

Invariant: `{"NAMESPACE",DIMENSION,...} KEY="VALUE" ...` as the user guide states it ("CloudWatch
search expression syntax", read 2026-11-21): the schema names all of a metric's dimensions, a term
in quotes is compared whole and by case, a blank means AND. Any other form is refused, never
guessed. What is found is sorted by name and dimensions. Not modelled: CloudWatch finds nothing that
sent no data for two weeks, and draws 500 series of a graph at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from doubles.cloudwatch.series_store import MetricKey

_FORM = re.compile(
    r"\{\"(?P<namespace>[^\"]+)\"(?P<dimensions>(?:,\w+)*)\}(?P<terms>(?: \w+=\"[^\"]*\")+)"
)
_TERM = re.compile(r" (\w+)=\"([^\"]*)\"")


class SearchError(ValueError):
    """The query is of a form that is not evaluated here."""


def search_metrics(query: str, metrics: Iterable[MetricKey]) -> tuple[MetricKey, ...]:
    """Return the metrics that a query finds, sorted.

    Args:
        query: what stands between SEARCH's first single quotes.
        metrics: what there is.

    Raises:
        SearchError: the query is of a form that is not evaluated here.
    """
    match = _FORM.fullmatch(query)
    if match is None:
        raise SearchError(f"a search of another form than ours: {query}")
    dimensions = set(filter(None, match["dimensions"].split(",")))
    terms = dict(_TERM.findall(match["terms"]))
    return tuple(
        sorted(
            key
            for key in metrics
            if key.namespace == match["namespace"]
            and {name for name, _ in key.dimensions} == dimensions
            and terms.items() <= {"MetricName": key.metric, **dict(key.dimensions)}.items()
        )
    )
