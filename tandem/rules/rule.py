"""A rule: one sentence about what is legal, with its source and the predicate that holds a spec against it.

Invariant: a rule yields findings or nothing; it never raises, and it stays silent where another rule has
already refused what it would need to know.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

from tandem.spec.faults import Severity
from tandem.spec.figure import FigureSource

S = TypeVar("S")
FindFunction = TypeVar("FindFunction", bound=Callable[[Any], Iterable["RuleFinding"]])


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFinding:
    """One place where a rule does not hold.

    Args:
        path: key path in the subject's file.
        got: the value found.
        allowed: the values that would be accepted.
        change: the nearest legal value, and where to write it.
        source: where the figure that decided was read; None for the rule's own source.
    """

    path: str
    got: str
    allowed: str
    change: str
    source: FigureSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[S]):
    """One row of the table.

    Args:
        id: kebab-case name, printed with every fault.
        context_type: the kind of subject it judges, one of tandem/rules/contexts.py.
        sentence: what must hold, in words.
        source: public document and section, or Tandem's own reason.
        date: day on which the source was read.
        severity: "refusal" stops, "warning" is only told (and refused by --strict).
        find: yields one finding per place where it does not hold.
    """

    id: str
    context_type: type[S]
    sentence: str
    source: str
    date: dt.date
    severity: Severity
    find: Callable[[S], Iterable[RuleFinding]]


class RuleList(list[Rule[Any]]):
    """The rules of one module, in the order in which their functions stand."""

    def refuse(
        self, rule_id: str, source: str, day: str, *, sentence: str | None = None
    ) -> Callable[[FindFunction], FindFunction]:
        """Make a rule of the function below: its argument says what it judges, its docstring what must hold.

        Args:
            rule_id: kebab-case name.
            source: public document and section, or Tandem's own reason.
            day: on which the source was read, as 2026-11-21.
            sentence: what must hold, where it names a constant; else the docstring says it.
        """
        return self._add_rule(rule_id, source, day, "refusal", sentence)

    def warn(
        self, rule_id: str, source: str, day: str, *, sentence: str | None = None
    ) -> Callable[[FindFunction], FindFunction]:
        """As `refuse`, of a rule that is only told."""
        return self._add_rule(rule_id, source, day, "warning", sentence)

    def _add_rule(
        self, rule_id: str, source: str, day: str, severity: Severity, sentence: str | None
    ) -> Callable[[FindFunction], FindFunction]:
        def add_rule(find: FindFunction) -> FindFunction:
            context_type = get_type_hints(find)["context"]
            text, date = sentence or find.__doc__ or "", dt.date.fromisoformat(day)
            self.append(
                Rule(
                    id=rule_id, context_type=context_type, sentence=text, source=source, date=date, severity=severity,
                    find=find,
                )
            )  # fmt: skip
            return find

        return add_rule


def join_values(values: Iterable[object]) -> str:
    """Spell the allowed values of an error; `none` for an empty list."""
    return ", ".join(str(value) for value in values) or "none"


def suggest_nearest(value: str, known_names: Iterable[str]) -> str:
    """Say which known name was probably meant."""
    close = difflib.get_close_matches(value, list(known_names), n=1, cutoff=0.3)
    return f"write {close[0]}" if close else "name one of them"
