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

from tandem.watch.series import Key

MOST_CHARACTERS = 1024  # user guide, search expression limits
_SCHEMA = re.compile(r"\s*\{([^{}]*)\}\s*,?\s*")
_SCHEMA_NAME = re.compile(r'\s*(?:"([^"]+)"|([^\s",{}]+))\s*(?:,|$)')
_PIECE = re.compile(
    r'\s*(?:(?P<bracket>[()])|(?:(?P<property>"[^"]+"|[A-Za-z][\w.\-]*)\s*=\s*)?'
    r'(?:"(?P<exact>(?:[^"\\]|\\.)+)"|(?P<token>[^\s()"=]+)))'
)
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ESCAPED = re.compile(r'\\(["\\()])')
_WORDS = {"AND": "and", "OR": "or", "NOT": "not"}

Matches = Callable[[Key], bool]


class SearchError(ValueError):
    """The query is of a form that is not evaluated here."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a metric must have, all of it and nothing else."""

    namespace: str
    dimensions: frozenset[str]


def search(query: str, metrics: Iterable[Key]) -> tuple[Key, ...]:
    """Return the metrics that a query finds, sorted.

    Args:
        query: what stands between SEARCH's first single quotes.
        metrics: what there is.

    Raises:
        SearchError: the query is of a form that is not evaluated here.
    """
    if len(query) > MOST_CHARACTERS:
        raise SearchError(f"the search has {len(query)} characters, and CloudWatch takes {MOST_CHARACTERS}")
    schema, terms = _schema(query)
    if schema is None and not terms.strip():
        raise SearchError("the search names neither a schema nor a term")
    fits = _terms(terms)
    return tuple(sorted(key for key in metrics if _of(schema, key) and fits(key)))


def tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a name: the whole of it, then its words and numbers, in small letters.

    `Project2-trial333` has `project2trial333`, `project`, `2`, `trial` and `333`.
    """
    whole = re.sub(r"[^A-Za-z0-9]", "", text).lower()
    return tuple(dict.fromkeys([whole, *(found.lower() for found in _TOKEN.findall(text))]))


def _schema(query: str) -> tuple[Schema | None, str]:
    """Return the schema and what follows it."""
    if not query.lstrip().startswith("{"):
        return None, query
    braces = _SCHEMA.match(query)
    if not braces:
        raise SearchError("the schema's braces do not close, or hold others")
    names: list[str] = []
    place = 0
    while place < len(braces[1]):
        name = _SCHEMA_NAME.match(braces[1], place)
        if not name:
            raise SearchError(f"the schema {{{braces[1]}}} is no list of names; quote a name with blanks")
        names.append(name[1] or name[2])
        place = name.end()
    if not names:
        raise SearchError("the schema names no namespace")
    return Schema(names[0], frozenset(names[1:])), query[braces.end() :]


def _of(schema: Schema | None, key: Key) -> bool:
    if schema is None:
        return True
    return key.namespace == schema.namespace and frozenset(name for name, _ in key.dimensions) == schema.dimensions


def _terms(text: str) -> Matches:
    """Return what decides whether a metric fits the terms."""
    if not text.strip():
        return lambda _: True
    terms: list[Matches] = []
    words = " ".join(_as_python(text, terms))
    try:
        tree = ast.parse(words, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SearchError(f"the terms {text.strip()} are not joined by AND, OR, NOT and parentheses") from error
    return lambda key: _fits(tree, terms, key)


def _as_python(text: str, terms: list[Matches]) -> Iterator[str]:
    """Yield the words of a Python condition over `_0`, `_1`, and so on; what each stands for goes to `terms`."""
    place, joined = 0, True  # whether an operator, an opening bracket or nothing stands before
    while text[place:].strip():
        piece = _PIECE.match(text, place)
        if not piece:
            raise SearchError(f"{text[place:].strip()} is no term")
        place = piece.end()
        word = None if piece["property"] else _WORDS.get(piece["token"] or "")
        if not joined and (piece["bracket"] == "(" or word == "not" or not (piece["bracket"] or word)):
            yield "and"
        joined = piece["bracket"] == "(" or word is not None
        yield piece["bracket"] or word or f"_{len(terms)}"
        if not (piece["bracket"] or word):
            terms.append(_term(piece))


def _fits(node: ast.expr, terms: list[Matches], key: Key) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_fits(part, terms, key) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_fits(part, terms, key) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _fits(part, terms, key)
        case ast.Name(id=name):
            return terms[int(name.removeprefix("_"))](key)
        case _:
            raise SearchError("terms are joined by AND, OR, NOT and parentheses alone")


def _term(piece: re.Match[str]) -> Matches:
    """Return what decides whether a metric fits one term."""
    of = (piece["property"] or "").strip('"') or None
    if piece["exact"]:
        wanted = _ESCAPED.sub(r"\1", piece["exact"])
        return lambda key: wanted in _names(key, of)
    found = tokens(piece["token"])
    if len(found) != 1 or not found[0]:
        raise SearchError(f"{piece['token']} has not one token alone: quote it, and it is compared whole")
    return lambda key: any(found[0] in tokens(name) for name in _names(key, of))


def _names(key: Key, of: str | None) -> Iterator[str]:
    """Yield the names of a metric that a term is held against."""
    match of:
        case None:
            yield from (key.metric, key.namespace, *(word for pair in key.dimensions for word in pair))
        case "MetricName":
            yield key.metric
        case "Namespace":
            yield key.namespace
        case _:
            yield from (value for name, value in key.dimensions if name == of)
