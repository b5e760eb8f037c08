"""One row of a file of prompts, before it is a prompt.

Invariant: a row has a value or a fault, and its place says where a person finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class RowError(ValueError):
    """A row that is no prompt: why, and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One entry of a file, before it is a prompt.

    Args:
        place: of the entry, such as `line 37`.
        value: an object, a list or a text.
        repeats_key: whether an object in it, with the marks of Tandem's form, has a key twice.
        fault: why there is no value; None if there is one.
    """

    place: str
    value: Any = None
    repeats_key: bool = False
    fault: str | None = None

    @property
    def has_own_marks(self) -> bool:
        """Whether it has the two keys that every row of Tandem's own form has."""
        return isinstance(self.value, dict) and {"id", "class"} <= self.value.keys()

    @property
    def place_id(self) -> str:
        """The id of a prompt that has no other, such as `line-37`."""
        return self.place.replace(" ", "-")
