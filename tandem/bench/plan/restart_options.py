"""What a run with several starts of its servers may ask for.

Invariant: the flags of the command line and the options in Python are refused for the same reasons.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

MAX_STARTS = 1000
RESTART_LIMIT_S = 1200.0  # a large model is read from a network disk in minutes


class RestartFault(NamedTuple):
    """An option that is refused, with its value and what is allowed."""

    option: str
    value: object
    allowed: str


def find_restart_fault(
    starts: int,
    commands: Mapping[str, str],
    *,
    servers: Collection[str],
    rounds: int | None,
    duration_s: float | None,
) -> RestartFault | None:
    """Return why the restarts of a run are refused; None if they are not.

    Args:
        starts: of each server.
        commands: name of a server to the command that restarts it.
        servers: names.
        rounds: as asked; None for the default.
        duration_s: of the run in seconds, in place of rounds.
    """
    for name, command in commands.items():
        if name not in servers:
            return RestartFault("restart", name, f"a server of {', '.join(servers)}")
        if not command.strip():
            return RestartFault("restart", command, f"a command that restarts {name}")

    allowed = _describe_starts(starts, has_command=bool(commands))
    if starts > 1 and duration_s is not None:
        allowed = "1 with duration: several starts need rounds"
    elif rounds is not None and rounds < starts:
        allowed = f"1 to {rounds}, the number of rounds"
    return None if allowed is None else RestartFault("starts", starts, allowed)


def _describe_starts(starts: int, *, has_command: bool) -> str | None:
    """Return the starts that are allowed with or without a command; None if these are."""
    if starts > 1 and not has_command:
        return "1, or more with a command in restart"
    if has_command and starts == 1:
        return "2 or more: with 1 the command in restart is never run"
    return None
