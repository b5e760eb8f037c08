"""What one check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

CheckLevel = Literal["ok", "warn", "fail", "unknown"]
CheckGroup = Literal["account", "network", "capacity", "artifacts", "cluster", "guard", "people"]

EXIT_MISMATCH = 2  # what is declared and what the account has do not fit; the same tomorrow, until somebody changes one
EXIT_EXTERNAL = 3  # AWS, the credentials, the network or a half-done deploy; or what is needed could not be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """One sentence of a check.

    Args:
        message: what is so.
        action: what to do about it, in one sentence without its full stop; empty where nothing is to be done.
        command: to type, or lines to write into a file; empty for none.
        code: of a `fail_finding`, EXIT_MISMATCH or EXIT_EXTERNAL.
    """

    level: CheckLevel
    message: str
    action: str = ""
    command: str = ""
    code: int = EXIT_MISMATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A finding, and whose it is.

    Args:
        check: id of the check.
        code: the exit code that this line alone asks for: 0, EXIT_MISMATCH or EXIT_EXTERNAL.
    """

    group: CheckGroup
    check: str
    level: CheckLevel
    said: str
    do: str
    command: str
    code: int

    def as_json(self) -> dict[str, Any]:
        """Return its fields by name."""
        return asdict(self)


def ok_finding(message: str) -> CheckFinding:
    """Return what is as it must be."""
    return CheckFinding(level="ok", message=message)


def warn_finding(message: str, action: str, command: str = "") -> CheckFinding:
    """Return what stops nothing today."""
    return CheckFinding(level="warn", message=message, action=action, command=command)


def fail_finding(message: str, action: str, command: str = "", *, code: int = EXIT_MISMATCH) -> CheckFinding:
    """Return what a deploy or a raise will stumble over."""
    return CheckFinding(level="fail", message=message, action=action, command=command, code=code)


def unknown_finding(message: str, action: str, command: str = "") -> CheckFinding:
    """Return what could not be seen."""
    return CheckFinding(level="unknown", message=message, action=action, command=command)
