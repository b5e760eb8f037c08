"""One expression of CloudWatch's metric math, read and computed.

Invariant: a form is evaluated as tandem.watch.expression states it, or refused with the expression and the column.
Python's own `ast` reads it: there is no grammar of ours that could differ, and what is no Python expression is refused.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable
from typing import Protocol

from tandem.watch.drawn import Binary, Drawn, chosen, filled, finite, joined, running, summed
from tandem.watch.search import SearchError
from tandem.watch.series import MINUTE_S, StatisticError
from tandem.watch.widget import Expression

MOST_CHARACTERS = 2048  # GetMetricData, MetricDataQuery.Expression
MOST_LEVELS = 200  # of forms one in the other: far below where Python's own stack ends, far above what is drawn
_QUOTED = re.compile(r"'([^']*)'")
Value = float | Drawn | tuple[Drawn, ...]
_ARITHMETIC: dict[type[ast.operator], Binary] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class ExpressionError(ValueError):
    """An expression that is not evaluated here.

    Args:
        problem: what is wrong with it.
        text: the expression.
        place: where it stands: the line's id or label, and the column from 1.
    """

    def __init__(self, problem: str, *, text: str, place: str) -> None:
        super().__init__(f"{place}: {problem}: {text}")
        self.problem, self.text, self.place = problem, text, place


class Names(Protocol):
    """What an expression may read."""

    grid: range

    def value(self, name: str) -> Value | None:
        """Return what an id stands for; None for no id."""

    def search(self, query: str, statistic: str) -> tuple[Drawn, ...]:
        """Return the series that a search finds."""


class Formula:
    """One expression.

    Args:
        line: the expression.
        names: what it may read.
    """

    def __init__(self, line: Expression, names: Names) -> None:
        self._line, self._names = line, names
        self._functions: dict[str, Callable[[ast.Call], Value]] = {
            "IF": self._if,
            "FILL": self._fill,
            "RUNNING_SUM": self._running_sum,
            "SEARCH": self._search,
            "SUM": self._sum,
        }

    def compute(self) -> Value:
        """Return what the expression gives.

        Raises:
            ExpressionError: it is of a form that is not evaluated here.
        """
        text = self._line.text.strip()
        if len(text) > MOST_CHARACTERS:
            raise self._fault(f"it has {len(text)} characters, and CloudWatch takes {MOST_CHARACTERS}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # what Python thinks of the style is nobody's concern
                tree = ast.parse(text, mode="eval").body
            if _depth(tree) > MOST_LEVELS:
                raise self._fault("it is nested too deeply")
            return self._value(tree)
        except ExpressionError:
            raise
        except (SyntaxError, ValueError) as error:
            raise self._fault(f"it cannot be read as an expression ({error})") from error
        except (RecursionError, MemoryError) as error:  # of the parser's own, which has no limit to set
            raise self._fault("it is nested too deeply") from error

    def _fault(self, problem: str, node: ast.expr | None = None) -> ExpressionError:
        column = f", column {node.col_offset + 1}" if node else ""
        return ExpressionError(problem, text=self._line.text, place=f"{self._line.id}{column}")

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float()):
                found: Value = self._number(node, node.value)
            case ast.Name(id=name):
                found = self._named(node, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self._each(node, operator.mul, -1.0, self._value(operand))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                found = self._each(node, _ARITHMETIC[type(sign)], self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                found = self._compared(node, sign, self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in self._functions:
                found = self._functions[name](node)
            case _:
                raise self._fault(f"{ast.unparse(node)} is of no form that is evaluated here", node)
        return found

    def _number(self, node: ast.expr, number: object) -> float:
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            found = finite(operator.add, 0.0, number)
            if found is not None:
                return found
        raise self._fault(f"{ast.unparse(node)} is no number that CloudWatch takes", node)

    def _named(self, node: ast.expr, name: str) -> Value:
        found = self._names.value(name)
        if found is None:
            raise self._fault(f"no line of the widget has the id {name}", node)
        return found

    def _each(self, node: ast.expr, does: Binary, left: Value, right: Value) -> Value:
        """Return one value for each pair: numbers, series, or a series of an array with either."""
        if isinstance(left, tuple):
            if isinstance(right, tuple):
                raise self._fault("two arrays are joined, which CloudWatch does not define", node)
            return tuple(Drawn(joined(does, each, right), each.label, each.key) for each in left)
        if isinstance(right, tuple):
            return tuple(Drawn(joined(does, left, each), each.label, each.key) for each in right)
        if isinstance(left, Drawn) or isinstance(right, Drawn):
            return Drawn(joined(does, left, right))
        found = finite(does, left, right)
        if found is None:
            raise self._fault("it divides by zero, or the number is too large", node)
        return found

    def _compared(self, node: ast.expr, sign: ast.cmpop, left: Value, right: Value) -> Value:
        if type(sign) not in _COMPARISON or isinstance(left, tuple) or isinstance(right, tuple):
            raise self._fault("only two series, or a series and a number, are compared", node)
        holds = _COMPARISON[type(sign)]
        return self._each(node, lambda one, other: float(holds(one, other)), left, right)

    def _arguments(self, call: ast.Call, least: int, most: int) -> list[ast.expr]:
        if not least <= len(call.args) <= most:
            wanted = f"{least}" if least == most else f"{least} or {most}"
            raise self._fault(f"{ast.unparse(call.func)} takes {wanted} arguments", call)
        return call.args

    def _if(self, call: ast.Call) -> Value:
        tested, *sides = self._arguments(call, 2, 3)
        condition = self._value(tested)
        then, otherwise = (*(self._value(side) for side in sides), Drawn({}))[:2]
        if isinstance(then, tuple) or isinstance(otherwise, tuple) or not isinstance(condition, Drawn):
            raise self._fault("IF is evaluated for a series as its condition, and series or numbers to choose", call)
        return Drawn(chosen(condition, then, otherwise))

    def _fill(self, call: ast.Call) -> Value:
        points_of, by = self._arguments(call, 2, 2)
        value = self._value(by)
        if not isinstance(value, float):
            raise self._fault("FILL is evaluated with a number", by)
        return self._mapped(points_of, lambda points: filled(points, value, self._names.grid))

    def _running_sum(self, call: ast.Call) -> Value:
        return self._mapped(self._arguments(call, 1, 1)[0], running)

    def _mapped(self, node: ast.expr, does: Callable[[dict[int, float]], dict[int, float]]) -> Value:
        """Return a series of each series."""
        found = self._value(node)
        if isinstance(found, float):
            raise self._fault(f"{ast.unparse(node)} is a number where a series is needed", node)
        if isinstance(found, Drawn):
            return Drawn(does(found.points), found.label, found.key)
        return tuple(Drawn(does(each.points), each.label, each.key) for each in found)

    def _sum(self, call: ast.Call) -> Value:
        (node,) = self._arguments(call, 1, 1)
        found = self._value(node)
        if not isinstance(found, tuple):
            raise self._fault("SUM is evaluated of what a SEARCH finds", call)
        return Drawn(summed(found))

    def _quoted(self, node: ast.expr) -> str | None:
        """Return what stands between single quotes, backslashes as they stand: they belong to the search language."""
        words = _QUOTED.fullmatch(ast.get_source_segment(self._line.text.strip(), node) or "")
        return words[1] if words else None

    def _search(self, call: ast.Call) -> Value:
        asked, of, *rest = self._arguments(call, 2, 3)
        query, statistic = self._quoted(asked), self._quoted(of)
        if query is None or statistic is None:
            raise self._fault("SEARCH takes a query and a statistic, both in single quotes", call)
        period_s = rest[0].value if rest and isinstance(rest[0], ast.Constant) else MINUTE_S if not rest else None
        if type(period_s) is not int or period_s < 1 or period_s % MINUTE_S:
            raise self._fault("the period of SEARCH is not of whole minutes", call)
        try:
            return self._names.search(query, statistic)
        except (SearchError, StatisticError) as error:
            raise self._fault(str(error), call) from error


def _depth(tree: ast.expr) -> int:
    """Return how many levels a tree has, without going down them one in the other."""
    depth, level = 0, list[ast.AST]([tree])
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth
