"""Recorded conversations: what is sent of them.

Invariant: a request ends with the user, its turns alternate, and its answers are the file's own, so
every arm is sent the same bytes. Roles have many names: ShareGPT's files say human and gpt, others
user and assistant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from tandem.bench.suites.file_row import RowError

RoleName = Literal["system", "user", "assistant"]
Turn = tuple[RoleName, str]

ROLES: dict[str, RoleName] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "ai": "assistant",
}
RECORDED_KEYS = ("conversations", "conversation")
"""Keys of conversations that were recorded, in ShareGPT's files and others."""
ROLE_KEYS = ("role", "from")
TEXT_KEYS = ("content", "value", "text")


class OmissionError(Exception):
    """A conversation of which nothing can be sent; it is counted, and its reason said."""


def read_turns(entries: Sequence[Any]) -> Iterator[Turn]:
    """Yield the turns of a conversation in order.

    Args:
        entries: an object each, with its role and its text.

    Raises:
        OmissionError: a turn has a role that no chat request has, such as `tool`.
        RowError: an entry is no turn.
    """
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, Mapping):
            raise RowError(f"turn {number} is no object with a role and a text")
        role = _find_value(entry, ROLE_KEYS)
        text = _find_value(entry, TEXT_KEYS)
        if isinstance(text, list):
            text = _join_parts(text, number)
        if not isinstance(role, str) or not isinstance(text, str | None):
            keys = ", ".join(entry)
            raise RowError(f"turn {number} has no role or no text; its keys: {keys}")
        role_name = ROLES.get(role.lower())
        if role_name is None:
            raise OmissionError(f"a turn of the role {role!r}")
        yield role_name, text or ""


def _find_value(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key that an entry has; None if it has none."""
    for key in keys:
        if key in entry:
            return entry[key]
    return None


def _join_parts(parts: Sequence[Any], number: int) -> str:
    """Return the text of a turn in parts.

    Raises:
        RowError: a part is no text, such as an image.
    """
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise RowError(f"turn {number} has a part that is no text")
        texts.append(text)
    return "".join(texts)


def cut_turns(turns: Iterator[Turn], count: int) -> tuple[Turn, ...]:
    """Return a conversation up to the user's turn with this number, or to the last one.

    Turns without text, answers before the first question and late system messages are left out.
    Adjacent turns of one role are one turn, since many chat templates refuse them.

    Args:
        turns: in order.
        count: of the user's turns.

    Raises:
        OmissionError: the user says nothing, or a turn has an unknown role.
        RowError: a turn cannot be read.
    """
    cut: list[Turn] = []
    user_count = 0
    for role, text in turns:
        is_late = role == "system" and bool(cut)
        is_early = role == "assistant" and not user_count
        if not text.strip() or is_late or is_early:
            continue
        last_role, last_text = cut[-1] if cut else (None, "")
        if role == last_role:
            cut[-1] = role, f"{last_text}\n\n{text}"
            continue
        if user_count == count:
            break
        if role == "user":
            user_count += 1
        cut.append((role, text))
    while cut and cut[-1][0] != "user":
        cut.pop()
    if not cut:
        raise OmissionError("no turn of the user")
    return tuple(cut)
