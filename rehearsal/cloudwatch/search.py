r"""CloudWatch's search language: which metrics a SEARCH finds.

Invariant: what is evaluated is what the user guide states without doubt ("CloudWatch search expression syntax", read
2026-11-21); anything else is refused, never guessed.

Evaluated: a schema in braces, which must name all of a metric's dimensions; terms with or without a property
(`MetricName=`, `Namespace=`, a dimension's name); AND, OR, NOT in capitals, a blank as AND, parentheses. A term in
double quotes is compared whole and by case, with `\\` before `"`, `\\`, `(` and `)`; any other term is one token.
Refused: terms of several tokens without quotes (their matching by case is stated in two ways), account ids. Stated by
us, not by the guide: NOT binds before AND, AND before OR; what is found is sorted by name and dimensions. Not modelled:
CloudWatch finds nothing that sent no data for two weeks, and draws 500 series of a graph at most.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rehearsal.cloudwatch.series_store import MetricKey

MAX_CHARACTERS = 1024  # user guide, search expression limits
_SCHEMA_PATTERN = re.compile(r"\s*\{([^{}]*)\}\s*,?\s*")
_SCHEMA_NAME_PATTERN = re.compile(r'\s*(?:"([^"]+)"|([^\s",{}]+))\s*(?:,|$)')
_TERM_PATTERN = re.compile(
    r'\s*(?:(?P<bracket>[()])|(?:(?P<property>"[^"]+"|[A-Za-z][\w.\-]*)\s*=\s*)?'
    r'(?:"(?P<exact>(?:[^"\\]|\\.)+)"|(?P<token>[^\s()"=]+)))'
)
_TOKEN_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ESCAPE_PATTERN = re.compile(r'\\(["\\()])')
_OPERATORS = {"AND": "and", "OR": "or", "NOT": "not"}

KeyPredicate = Callable[[MetricKey], bool]


class SearchError(ValueError):
    """The query is of a form that is not evaluated here."""


@dataclass(frozen=True, slots=True)
class SearchSchema:
    """What a metric must have, all of it and nothing else."""

    namespace: str
    dimensions: frozenset[str]


def search_metrics(query: str, metrics: Iterable[MetricKey]) -> tuple[MetricKey, ...]:
    """Return the metrics that a query finds, sorted.

    Args:
        query: what stands between SEARCH's first single quotes.
        metrics: what there is.

    Raises:
        SearchError: the query is of a form that is not evaluated here.
    """
    if len(query) > MAX_CHARACTERS:
        raise SearchError(f"the search has {len(query)} characters, and CloudWatch takes {MAX_CHARACTERS}")
    schema, terms = _parse_schema(query)
    if schema is None and not terms.strip():
        raise SearchError("the search names neither a schema nor a term")
    is_match = _parse_terms(terms)
    return tuple(sorted(key for key in metrics if _fits_schema(schema, key) and is_match(key)))


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a name: the whole of it, then its words and numbers, in small letters.

    `Project2-trial333` has `project2trial333`, `project`, `2`, `trial` and `333`.
    """
    full_token = re.sub(r"[^A-Za-z0-9]", "", text).lower()
    return tuple(dict.fromkeys([full_token, *(token.lower() for token in _TOKEN_PATTERN.findall(text))]))


def _parse_schema(query: str) -> tuple[SearchSchema | None, str]:
    """Return the schema and what follows it."""
    if not query.lstrip().startswith("{"):
        return None, query
    braces = _SCHEMA_PATTERN.match(query)
    if not braces:
        raise SearchError("the schema's braces do not close, or hold others")
    names: list[str] = []
    position = 0
    while position < len(braces[1]):
        name = _SCHEMA_NAME_PATTERN.match(braces[1], position)
        if not name:
            raise SearchError(f"the schema {{{braces[1]}}} is no list of names; quote a name with blanks")
        names.append(name[1] or name[2])
        position = name.end()
    if not names:
        raise SearchError("the schema names no namespace")
    return SearchSchema(names[0], frozenset(names[1:])), query[braces.end() :]


def _fits_schema(schema: SearchSchema | None, key: MetricKey) -> bool:
    if schema is None:
        return True
    return key.namespace == schema.namespace and frozenset(name for name, _ in key.dimensions) == schema.dimensions


def _parse_terms(text: str) -> KeyPredicate:
    """Return what decides whether a metric fits the terms."""
    if not text.strip():
        return lambda _: True
    terms: list[KeyPredicate] = []
    words = " ".join(_translate_terms(text, terms))
    try:
        tree = ast.parse(words, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SearchError(f"the terms {text.strip()} are not joined by AND, OR, NOT and parentheses") from error
    return lambda key: _fits_terms(tree, terms, key)


def _translate_terms(text: str, terms: list[KeyPredicate]) -> Iterator[str]:
    """Yield the words of a Python condition over `_0`, `_1`, and so on; what each stands for goes to `terms`."""
    position, follows_operator = 0, True  # whether an operator, an opening bracket or nothing stands before
    while text[position:].strip():
        match = _TERM_PATTERN.match(text, position)
        if not match:
            raise SearchError(f"{text[position:].strip()} is no term")
        position = match.end()
        word = None if match["property"] else _OPERATORS.get(match["token"] or "")
        if not follows_operator and (match["bracket"] == "(" or word == "not" or not (match["bracket"] or word)):
            yield "and"
        follows_operator = match["bracket"] == "(" or word is not None
        yield match["bracket"] or word or f"_{len(terms)}"
        if not (match["bracket"] or word):
            terms.append(_parse_term(match))


def _fits_terms(node: ast.expr, terms: list[KeyPredicate], key: MetricKey) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_fits_terms(part, terms, key) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_fits_terms(part, terms, key) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _fits_terms(part, terms, key)
        case ast.Name(id=name):
            return terms[int(name.removeprefix("_"))](key)
        case _:
            raise SearchError("terms are joined by AND, OR, NOT and parentheses alone")


def _parse_term(match: re.Match[str]) -> KeyPredicate:
    """Return what decides whether a metric fits one term."""
    property_name = (match["property"] or "").strip('"') or None
    if match["exact"]:
        exact_text = _ESCAPE_PATTERN.sub(r"\1", match["exact"])
        return lambda key: exact_text in _list_names(key, property_name)
    term_tokens = split_tokens(match["token"])
    if len(term_tokens) != 1 or not term_tokens[0]:
        raise SearchError(f"{match['token']} has not one token alone: quote it, and it is compared whole")
    return lambda key: any(term_tokens[0] in split_tokens(name) for name in _list_names(key, property_name))


def _list_names(key: MetricKey, property_name: str | None) -> Iterator[str]:
    """Yield the names of a metric that a term is held against."""
    match property_name:
        case None:
            yield from (key.metric, key.namespace, *(word for pair in key.dimensions for word in pair))
        case "MetricName":
            yield key.metric
        case "Namespace":
            yield key.namespace
        case _:
            yield from (value for name, value in key.dimensions if name == property_name)
