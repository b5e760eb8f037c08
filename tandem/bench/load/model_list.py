"""The models that a server lists, and the names under which it may answer.

Invariant: a list says what a server has, never that it has nothing else: gateways leave out aliases
and deployments. Whether a model is there is known only by a request.

Forms of the page: OpenAI's `{"data": [...]}`, llama.cpp's `models` beside it, and a bare list; an
entry is a card, or only a name. An entry such as `*` or `openai/*` is litellm's for all names that
match.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tandem.bench.load.event import EventError, find_error, format_bytes
from tandem.bench.load.reply import ServerReply, read_page
from tandem.bench.records.json_file import DECODE_ERRORS

DATE_SUFFIX = re.compile(r"-\d[\d-]*\Z")  # a dated snapshot of a name, as OpenAI answers
MOST_NAMES = 12  # of a gateway's hundreds, that a message names
_LIST_KEYS = ("data", "models")
_NAME_KEYS = ("id", "name", "model")
_LATEST_TAG = ":latest"  # ollama's, where the user names no tag


@dataclass(frozen=True, slots=True)
class ModelList:
    """The models of a server.

    Args:
        cards: of each model by its name, in the order of the page; empty without a page.
    """

    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a request can have, without wildcards."""
        return tuple(name for name in self.cards if "*" not in name)

    def format_names(self) -> str:
        """Return the first names for a person."""
        shown_names = ", ".join(self.names[:MOST_NAMES])
        left_count = len(self.names) - MOST_NAMES
        return f"{shown_names} and {left_count} more" if left_count > 0 else shown_names

    def has_model(self, model: str) -> bool:
        """Return whether the list names the model, as it is, as an alias or by a wildcard."""
        return bool(self.list_names(model)) or any(
            "*" in name and fnmatch.fnmatchcase(model, name) for name in self.cards
        )

    def list_names(self, model: str) -> frozenset[str]:
        """Return the names that the server may give the model; empty if no card says one.

        vLLM lists each served name of a model as a card of the same root.
        """
        listed_names = [name for name, card in self.cards.items() if _is_named(name, card, model)]
        if not listed_names:
            return frozenset()
        roots = {self.cards[name].get("root") for name in listed_names}
        served_names = [
            name for name, card in self.cards.items() if card.get("root") in roots - {None}
        ]
        paths = [root for root in roots if isinstance(root, str)]
        return frozenset([model, *listed_names, *served_names, *paths])


def parse_model_list(reply: ServerReply) -> ModelList:
    """Return the models of a page.

    Raises:
        EventError: those of `decode_page`; `api_error` if the page reports an error.
    """
    page = decode_page(reply)
    error = find_error(page)
    if error is not None:
        raise EventError("api_error", format_bytes(reply.body))

    cards: dict[str, Mapping[str, Any]] = {}
    for entry in _list_entries(page):
        card = {"id": entry} if isinstance(entry, str) else entry
        name = _read_name(card) if isinstance(card, dict) else None
        if name is not None:
            cards[name] = card
    return ModelList(cards)


def _list_entries(page: Any) -> list[Any]:
    """Return the entries of a page: of its list, or the page itself as a single card."""
    if isinstance(page, list):
        return page
    if not isinstance(page, dict):
        return []
    lists = [page[key] for key in _LIST_KEYS if isinstance(page.get(key), list)]
    return lists[0] if lists else [page]


def _read_name(card: Mapping[str, Any]) -> str | None:
    """Return the name of a card; None if it has none."""
    for key in _NAME_KEYS:
        name = card.get(key)
        if isinstance(name, str) and name:
            return name
    return None


def decode_page(reply: ServerReply) -> Any:
    """Return a page's JSON.

    Raises:
        EventError: those of `read_page`; `not_sse` if the page is no JSON.
    """
    body = read_page(reply)
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        detail = f"{reply.url} is {reply.content_type or 'of no type'}: {format_bytes(body[:80])}"
        raise EventError("not_sse", detail) from error


def names_model(answer_name: str, names: Iterable[str]) -> bool:
    """Return whether an answer's name is one of a model's, or a dated snapshot of one."""
    for name in names:
        suffix = answer_name.removeprefix(name)
        if answer_name.startswith(name) and (not suffix or DATE_SUFFIX.fullmatch(suffix)):
            return True
    return False


def _is_named(name: str, card: Mapping[str, Any], model: str) -> bool:
    """Return whether a card is the model's."""
    aliases = card.get("aliases")
    own_aliases = aliases if isinstance(aliases, list) else []
    names = [name.casefold(), name.casefold().removesuffix(_LATEST_TAG)]
    return model.casefold() in names or model in own_aliases
