"""What is wrong with a declared file, in words an operator can act on.

Invariant: every fault names its file and key path, the value got, the values allowed and what to
change, and all faults of one file are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from tandem.errors import InputError

Severity = Literal["refusal", "warning"]


@dataclass(frozen=True)
class SpecFault:
    """One fault or one warning.

    Args:
        file: the file as the user named it, or a data file relative to the package.
        path: dotted key path with list indices, `variants[1].draft`; empty for the file as a whole.
        got: the value found, as YAML would spell it; empty when the key is missing.
        allowed: the values that would be accepted; empty where `got` says whole what is wrong: "is
            empty: ...".
        change: what to do about it.
        line: 1-based line in the file, None when the key is missing.
        rule: id of the rule that refused, None for a fault of form.
        source: where the rule's fact was read, with its date.
        severity: "refusal" stops, "warning" does not stop (--strict refuses it).
    """

    file: str
    path: str
    got: str
    allowed: str
    change: str
    line: int | None = None
    rule: str | None = None
    source: str | None = None
    severity: Severity = "refusal"

    @property
    def place(self) -> str:
        """Where it stands, in the form that editors open: `file:line`."""
        if self.line is None:
            return self.file
        return f"{self.file}:{self.line}"

    def describe_problem(self) -> str:
        """Return what is wrong, without its place."""
        if not self.allowed:
            return f"`{self.path}` {self.got}"
        if not self.path:
            return self.got
        if self.got:
            return f"{self.path}: got {self.got}"
        return f"{self.path}: missing"

    def __str__(self) -> str:
        """Render it as one line, for a log."""
        problem = f"{self.place}: {self.describe_problem()}"
        tail = "".join(f" [{note}]" for note in (self.rule, self.source) if note)
        if not self.allowed:
            return f"{problem}. {self.change}{tail}"
        return f"{problem}; allowed: {self.allowed}; change: {self.change}{tail}"

    def as_dict(self) -> dict[str, object]:
        """Return the fault as the plain values that --json prints."""
        return asdict(self)


class SpecError(InputError):
    """A declared file cannot be used; carries every fault found in it, and reads as the first."""

    def __init__(self, faults: Iterable[SpecFault]) -> None:
        self.faults = tuple(faults)
        first_fault = self.faults[0]
        super().__init__(
            first_fault.describe_problem(), where=first_fault.place, change=first_fault.change
        )

    def __str__(self) -> str:
        """Render every fault, one a line."""
        return "\n".join(str(fault) for fault in self.faults)
