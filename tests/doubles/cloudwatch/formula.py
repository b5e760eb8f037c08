"""One expression of CloudWatch's metric math, read and computed.

Invariant: a form is evaluated as doubles.cloudwatch.expression states it, or refused with the
expression and the column. Python's own `ast` reads it: there is no grammar of ours that could
differ, and what is no Python expression is refused.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Protocol

from doubles.cloudwatch.point_series import (
    BinaryOperation,
    PointSeries,
    accumulate_points,
    choose_points,
    compute_finite,
    fill_points,
    join_series,
    sum_series,
)
from doubles.cloudwatch.search import SearchError
from doubles.cloudwatch.series_store import MINUTE_S, StatisticError
from tandem.monitoring.widget import MathExpression

MAX_CHARACTERS = 2048  # GetMetricData, MetricDataQuery.Expression
_QUOTE_PATTERN = re.compile(r"'([^']*)'")
Value = float | PointSeries | tuple[PointSeries, ...]
_ARITHMETIC: dict[type[ast.operator], BinaryOperation] = {
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
        self.problem = problem
        self.text = text
        self.place = place


class ExpressionContext(Protocol):
    """What an expression may read."""

    grid: range

    def value(self, name: str) -> Value | None:
        """Return what an id stands for; None for no id."""

    def search(self, query: str, statistic: str) -> tuple[PointSeries, ...]:
        """Return the series that a search finds."""


class MathFormula:
    """One expression.

    Args:
        line: the expression.
        names: what it may read.
    """

    def __init__(self, line: MathExpression, context: ExpressionContext) -> None:
        self._line = line
        self._context = context
        self._functions: dict[str, Callable[[ast.Call], Value]] = {
            "IF": self._evaluate_if,
            "FILL": self._evaluate_fill,
            "RUNNING_SUM": self._evaluate_running_sum,
            "SEARCH": self._evaluate_search,
            "SUM": self._evaluate_sum,
        }

    def compute(self) -> Value:
        """Return what the expression gives.

        Raises:
            ExpressionError: it is of a form that is not evaluated here.
        """
        text = self._line.text.strip()
        if len(text) > MAX_CHARACTERS:
            raise self._fault(
                f"it has {len(text)} characters, and CloudWatch takes {MAX_CHARACTERS}"
            )
        try:
            tree = ast.parse(text, mode="eval").body
            return self._evaluate_node(tree)
        except ExpressionError:
            raise
        except (SyntaxError, ValueError) as error:
            raise self._fault(f"it cannot be read as an expression ({error})") from error

    def _fault(self, problem: str, node: ast.expr | None = None) -> ExpressionError:
        column = f", column {node.col_offset + 1}" if node else ""
        return ExpressionError(problem, text=self._line.text, place=f"{self._line.id}{column}")

    def _evaluate_node(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float()):
                result: Value = self._read_number(node, node.value)
            case ast.Name(id=name):
                result = self._read_name(node, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                result = self._combine(node, operator.mul, -1.0, self._evaluate_node(operand))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                result = self._combine(
                    node,
                    _ARITHMETIC[type(sign)],
                    self._evaluate_node(left),
                    self._evaluate_node(right),
                )
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                result = self._compare(
                    node, sign, self._evaluate_node(left), self._evaluate_node(right)
                )
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in self._functions:
                result = self._functions[name](node)
            case _:
                raise self._fault(f"{ast.unparse(node)} is of no form that is evaluated here", node)
        return result

    def _read_number(self, node: ast.expr, number: object) -> float:
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            result = compute_finite(operator.add, 0.0, number)
            if result is not None:
                return result
        raise self._fault(f"{ast.unparse(node)} is no number that CloudWatch takes", node)

    def _read_name(self, node: ast.expr, name: str) -> Value:
        result = self._context.value(name)
        if result is None:
            raise self._fault(f"no line of the widget has the id {name}", node)
        return result

    def _combine(
        self, node: ast.expr, operation: BinaryOperation, first: Value, second: Value
    ) -> Value:
        """Return one value for each pair: numbers, series, or a series of an array with either."""
        if isinstance(first, tuple):
            if isinstance(second, tuple):
                raise self._fault("two arrays are joined, which CloudWatch does not define", node)
            return tuple(
                PointSeries(join_series(operation, member, second), member.label, member.key)
                for member in first
            )
        if isinstance(second, tuple):
            return tuple(
                PointSeries(join_series(operation, first, member), member.label, member.key)
                for member in second
            )
        if isinstance(first, PointSeries) or isinstance(second, PointSeries):
            return PointSeries(join_series(operation, first, second))
        result = compute_finite(operation, first, second)
        if result is None:
            raise self._fault("it divides by zero, or the number is too large", node)
        return result

    def _compare(self, node: ast.expr, sign: ast.cmpop, first: Value, second: Value) -> Value:
        if type(sign) not in _COMPARISON or isinstance(first, tuple) or isinstance(second, tuple):
            raise self._fault("only two series, or a series and a number, are compared", node)
        comparison = _COMPARISON[type(sign)]
        return self._combine(
            node,
            lambda first_value, second_value: float(comparison(first_value, second_value)),
            first,
            second,
        )

    def _read_arguments(self, call: ast.Call, min_count: int, max_count: int) -> list[ast.expr]:
        if not min_count <= len(call.args) <= max_count:
            count_text = f"{min_count}" if min_count == max_count else f"{min_count} or {max_count}"
            raise self._fault(f"{ast.unparse(call.func)} takes {count_text} arguments", call)
        return call.args

    def _evaluate_if(self, call: ast.Call) -> Value:
        condition_node, *branch_nodes = self._read_arguments(call, 2, 3)
        condition = self._evaluate_node(condition_node)
        then_value, else_value = (
            *(self._evaluate_node(branch_node) for branch_node in branch_nodes),
            PointSeries({}),
        )[:2]
        if (
            isinstance(then_value, tuple)
            or isinstance(else_value, tuple)
            or not isinstance(condition, PointSeries)
        ):
            raise self._fault(
                "IF is evaluated for a series as its condition, and series or numbers to choose",
                call,
            )
        return PointSeries(choose_points(condition, then_value, else_value))

    def _evaluate_fill(self, call: ast.Call) -> Value:
        series_node, number_node = self._read_arguments(call, 2, 2)
        value = self._evaluate_node(number_node)
        if not isinstance(value, float):
            raise self._fault("FILL is evaluated with a number", number_node)
        return self._map_series(
            series_node, lambda points: fill_points(points, value, self._context.grid)
        )

    def _evaluate_running_sum(self, call: ast.Call) -> Value:
        return self._map_series(self._read_arguments(call, 1, 1)[0], accumulate_points)

    def _map_series(
        self, node: ast.expr, operation: Callable[[dict[int, float]], dict[int, float]]
    ) -> Value:
        """Return a series of each series."""
        result = self._evaluate_node(node)
        if isinstance(result, float):
            raise self._fault(f"{ast.unparse(node)} is a number where a series is needed", node)
        if isinstance(result, PointSeries):
            return PointSeries(operation(result.points), result.label, result.key)
        return tuple(
            PointSeries(operation(member.points), member.label, member.key) for member in result
        )

    def _evaluate_sum(self, call: ast.Call) -> Value:
        (node,) = self._read_arguments(call, 1, 1)
        result = self._evaluate_node(node)
        if not isinstance(result, tuple):
            raise self._fault("SUM is evaluated of what a SEARCH finds", call)
        return PointSeries(sum_series(result))

    def _read_quotation(self, node: ast.expr) -> str | None:
        """Return what stands between single quotes, backslashes as they stand: they belong to the
        search language."""
        match = _QUOTE_PATTERN.fullmatch(
            ast.get_source_segment(self._line.text.strip(), node) or ""
        )
        return match[1] if match else None

    def _evaluate_search(self, call: ast.Call) -> Value:
        query_node, statistic_node, *period_nodes = self._read_arguments(call, 2, 3)
        query = self._read_quotation(query_node)
        statistic = self._read_quotation(statistic_node)
        if query is None or statistic is None:
            raise self._fault("SEARCH takes a query and a statistic, both in single quotes", call)
        period_s = (
            period_nodes[0].value
            if period_nodes and isinstance(period_nodes[0], ast.Constant)
            else MINUTE_S
            if not period_nodes
            else None
        )
        if type(period_s) is not int or period_s < 1 or period_s % MINUTE_S:
            raise self._fault("the period of SEARCH is not of whole minutes", call)
        try:
            return self._context.search(query, statistic)
        except (SearchError, StatisticError) as error:
            raise self._fault(str(error), call) from error
