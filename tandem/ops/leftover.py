"""One thing that is left of an environment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverResource:
    """One thing that is left.

    Args:
        kind: in words, singular.
        name: the id, name or ARN that its service knows it by.
        note: what it is, or why it stays.
        remove: the command that removes it, or what leads there; empty for what goes by itself.
        kept: whether it stays on purpose.
    """

    kind: str
    name: str
    note: str = ""
    remove: str = ""
    kept: bool = False
