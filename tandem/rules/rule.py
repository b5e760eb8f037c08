"""A rule: one sentence that must hold, with its source and the function that checks a spec.

Invariant: a rule yields findings or nothing; a rule that needs a value which another fault already
refused gets an UnknownValueError, and ends without a finding.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from tandem.declarations.faults import Severity
from tandem.declarations.figure import DataFigure
from tandem.declarations.record import UnknownValueError

V = TypeVar("V")
EntryFunction = TypeVar("EntryFunction", bound=Callable[[Any], Iterable[tuple[str, object]]])
FindFunction = TypeVar("FindFunction", bound=Callable[[Any], Iterable["RuleFinding"]])

NEURON_SDK = "aws-neuron/aws-neuron-sdk"
NXDI = "aws-neuron/neuronx-distributed-inference"
LOADER = "vllm 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py"
DATA = "tandem/declarations/data"


@dataclass(frozen=True)
class RuleFinding:
    """One place where a rule does not hold.

    Args:
        path: key path in the subject's file.
        got: the value found; empty if it is missing.
        allowed: the accepted values; empty if `got` alone states the fault: "is empty: ...".
        change: the nearest legal value, and the key for it.
        figure: the figure of a data file that decided, whose source is reported; None for the
            rule's own source.
    """

    path: str
    got: str
    allowed: str
    change: str
    figure: DataFigure[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of the table.

    Args:
        id: kebab-case name, printed with every fault.
        context_type: type of the rule's subject, one of tandem/rules/contexts.py.
        sentence: the requirement, in words.
        source: public document and section, or Tandem's own reason.
        date: day on which the source was read.
        severity: "refusal" stops, "warning" is only reported (and refused by --strict).
        find: yields one finding per violation.
        accepts_unproven: judge only experiments with this accept_unproven; None: all.
    """

    id: str
    context_type: type[Any]
    sentence: str
    source: str
    date: dt.date
    severity: Severity
    find: Callable[[Any], Iterable[RuleFinding]]
    accepts_unproven: bool | None = None

    def judge(self, context: Any) -> Iterator[RuleFinding]:
        """Yield findings until an unknown value is needed; nothing for experiments not judged."""
        with contextlib.suppress(UnknownValueError):
            if (
                self.accepts_unproven is None
                or context.experiment.accept_unproven == self.accepts_unproven
            ):
                yield from self.find(context)


class RuleList(list[Rule]):
    """The rules of one module, in the order of their functions.

    The type of a function's argument is the rule's subject, its docstring is the rule's sentence,
    in which `{NAME}` is a constant of its module. Each decorator takes the rule's id, its source
    and the day, as 2026-11-21, of its reading.
    """

    def refuse(self, rule_id: str, source: str, day: str) -> Callable[[FindFunction], FindFunction]:
        """Make the decorated function a rule that stops every command."""
        return self._add_rule(rule_id, source, day)

    def warn(self, rule_id: str, source: str, day: str) -> Callable[[FindFunction], FindFunction]:
        """Make the decorated function a rule that only warns."""
        return self._add_rule(rule_id, source, day, severity="warning")

    def refuse_repeats(
        self, rule_id: str, source: str, day: str
    ) -> Callable[[EntryFunction], EntryFunction]:
        """Make a rule of a function that lists key paths and values; each value may occur once."""

        def add_rule(list_entries: EntryFunction) -> EntryFunction:
            @functools.wraps(list_entries)
            def find(context: Any) -> Iterator[RuleFinding]:
                first_paths: dict[object, str] = {}
                for path, value in list_entries(context):
                    if value in first_paths:
                        got = f"{value}, as {first_paths[value]}"
                        yield RuleFinding(path, got, "each once", "delete or rename one")
                    first_paths.setdefault(value, path)

            self._add_rule(rule_id, source, day)(find)
            return list_entries

        return add_rule

    def refuse_unproven(
        self, rule_id: str, source: str, day: str, *, accepted: str
    ) -> Callable[[FindFunction], FindFunction]:
        """Make a rule that refuses and one, `<rule_id>-accepted`, that warns if accept_unproven.

        Args:
            rule_id: of the refusal.
            source: of both.
            day: on which the source was read.
            accepted: sentence of the warning.
        """
        refuse = self._add_rule(rule_id, source, day, accepts_unproven=False)
        texts = {"severity": "warning", "sentence": accepted}
        warn = self._add_rule(f"{rule_id}-accepted", source, day, accepts_unproven=True, **texts)

        def add_rules(find: FindFunction) -> FindFunction:
            return warn(refuse(find))

        return add_rules

    def _add_rule(
        self, rule_id: str, source: str, day: str, **fields: Any
    ) -> Callable[[FindFunction], FindFunction]:
        def add_rule(find: FindFunction) -> FindFunction:
            constants = getattr(find, "__globals__", {})
            texts = {
                "severity": "refusal",
                "sentence": (find.__doc__ or "").format_map(constants),
                **fields,
            }
            date = dt.date.fromisoformat(day)
            context_type = get_type_hints(find)["context"]
            self.append(
                Rule(
                    id=rule_id,
                    context_type=context_type,
                    source=source,
                    date=date,
                    find=find,
                    **texts,
                )
            )
            return find

        return add_rule


def index_paths(path: str, values: Iterable[V]) -> list[tuple[str, V]]:
    """Return (key path, value) of each entry of a list."""
    return [(f"{path}[{index}]", value) for index, value in enumerate(values)]


def join_values(values: Iterable[object]) -> str:
    """Return the allowed values as text for an error; `none` for an empty list."""
    return ", ".join(str(value) for value in values) or "none"


def suggest_nearest(value: str, names: Iterable[str]) -> str:
    """Return advice with the nearest of the names."""
    close = difflib.get_close_matches(value, list(names), n=1, cutoff=0.3)
    return f"write {close[0]}" if close else "name one of them"
