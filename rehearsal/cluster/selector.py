"""Selectors of labels and fields, by equality: `a=b,c=d`. Other operators are refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def match_labels(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether labels match a selector; an empty selector matches all.

    Raises:
        ValueError: the selector is not of the form.
    """
    return all(labels.get(key) == value for key, value in _parse_terms(selector))


def match_fields(selector: str, body: Mapping[str, Any]) -> bool:
    """Tell whether fields, by path like status.phase, match a selector; absent ones are empty.

    Raises:
        ValueError: the selector is not of the form.
    """
    return all(_find_field(body, path) == value for path, value in _parse_terms(selector))


def _find_field(body: Mapping[str, Any], path: str) -> str:
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return str(value or "")


@lru_cache(maxsize=1024)  # the controllers ask with the same few
def _parse_terms(selector: str) -> tuple[tuple[str, str], ...]:
    terms = []
    for term in filter(None, selector.split(",")):
        key, sign, value = term.partition("=")
        if not sign or key.endswith("!") or value.startswith("="):
            raise ValueError(f"unable to parse selector {selector!r}")
        terms.append((key, value))
    return tuple(terms)
