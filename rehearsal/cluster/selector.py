"""Selectors: labels by `=`, `!=`, `in`, `notin`, presence and absence; fields by `=` and `!=`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_TERM = re.compile(
    r"\s*(?:(?P<key>[^\s!=,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|(?P<set_key>[^\s!=,()]+)\s+(?P<set_operator>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<absent>!)?(?P<present>[^\s!=,()]+))\s*(?:,|$)"
)


def match_labels(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether labels match a selector; an empty selector matches all.

    Raises:
        ValueError: the selector is not of the form.
    """
    return all(_match_term(term, labels) for term in _parse_terms(selector))


def match_fields(selector: str, body: Mapping[str, Any]) -> bool:
    """Tell whether fields, by path like status.phase, match a selector; absent ones are empty.

    Raises:
        ValueError: the selector is not of the form.
    """
    terms = _parse_terms(selector)
    values = {path: find_field(body, path) for term in terms for path in [term["key"]] if path}
    return all(
        _match_term(term, {path: str(value or "") for path, value in values.items()})
        for term in terms
    )


def find_field(body: Mapping[str, Any], path: str) -> Any:
    """Return the field at a path with dots between its parts, or None."""
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


@lru_cache(maxsize=1024)  # the controllers ask with the same few
def _parse_terms(selector: str) -> tuple[re.Match[str], ...]:
    terms = list[re.Match[str]]()
    end = 0
    while end < len(selector):
        term = _TERM.match(selector, end)
        if term is None:
            raise ValueError(f"unable to parse selector {selector!r}")
        terms.append(term)
        end = term.end()
    return tuple(terms)


def _match_term(term: re.Match[str], labels: Mapping[str, str]) -> bool:
    if term["present"]:
        return (term["present"] in labels) != bool(term["absent"])
    if term["set_key"]:
        values = {value.strip() for value in term["values"].split(",")}
        return (labels.get(term["set_key"]) in values) == (term["set_operator"] == "in")
    return (labels.get(term["key"]) == term["value"]) == (term["operator"] != "!=")
