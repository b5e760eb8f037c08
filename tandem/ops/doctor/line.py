"""What one check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warn", "fail", "unknown"]
Group = Literal["account", "network", "capacity", "artifacts", "cluster", "guard", "people"]

REFUSED = 2  # what is declared and what the account has do not fit; the same tomorrow, until somebody changes one
WORLD = 3  # AWS, the credentials, the network or a half-done deploy; or what is needed could not be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence of a check.

    Args:
        said: what is so.
        do: what to do about it, in one sentence without its full stop; empty where nothing is to be done.
        command: to type, or lines to write into a file; empty for none.
        code: of a `fail`, REFUSED or WORLD.
    """

    level: Level
    said: str
    do: str = ""
    command: str = ""
    code: int = REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A finding, and whose it is.

    Args:
        check: id of the check.
        code: the exit code that this line alone asks for: 0, REFUSED or WORLD.
    """

    group: Group
    check: str
    level: Level
    said: str
    do: str
    command: str
    code: int

    def as_json(self) -> dict[str, Any]:
        """Return its fields by name."""
        return asdict(self)


def ok(said: str) -> Finding:
    """Return what is as it must be."""
    return Finding(level="ok", said=said)


def warn(said: str, do: str, command: str = "") -> Finding:
    """Return what stops nothing today."""
    return Finding(level="warn", said=said, do=do, command=command)


def fail(said: str, do: str, command: str = "", *, code: int = REFUSED) -> Finding:
    """Return what a deploy or a raise will stumble over."""
    return Finding(level="fail", said=said, do=do, command=command, code=code)


def unknown(said: str, do: str, command: str = "") -> Finding:
    """Return what could not be seen."""
    return Finding(level="unknown", said=said, do=do, command=command)
