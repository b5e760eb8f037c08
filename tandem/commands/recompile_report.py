"""What an edit compiles again, told: per experiment and variant, with the most that it can cost.

Invariant: an edit that compiles nothing is told in one line, and no figure of a cost is Tandem's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.explain import reasons
from tandem.commands.inputs import Inputs
from tandem.commands.outcome import counted
from tandem.commands.recompile import Change, Comparison, State
from tandem.spec.environment import Environment

WIDTH = 100  # columns


def lines(before: State, comparisons: list[Comparison], inputs: Inputs) -> Iterator[str]:
    """Say for a person what the edit compiles."""
    touched = [comparison for comparison in comparisons if comparison.touched]
    if not touched and any(comparison.silent is None for comparison in comparisons):
        yield f"nothing is compiled again: every variant keeps the artifact that {before.where} names"
    if touched:
        yield f"what differs from {before.where}:"
    for environment in (*inputs.environments(), None):
        name = environment.name if environment else ""
        mine = [comparison for comparison in touched if comparison.place[0] == name]
        if mine:
            yield f"  {environment.name if environment else 'in no environment'}: {_bill(mine, environment, inputs)}"
        for comparison in mine:
            yield from (line for change in comparison.changes for line in _told(change, comparison.place[1]))
    for reason in dict.fromkeys(comparison.silent for comparison in comparisons if comparison.silent):
        places = ("/".join(filter(None, each.place)) for each in comparisons if each.silent == reason)
        yield from wrapped(f"not compared, {reason}: ", places, "  ")


def plain(before: State, comparisons: list[Comparison], inputs: Inputs) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    bills = {environment.name: bill(comparisons, environment, inputs) for environment in inputs.environments()}
    return {
        "against": before.where,
        "environments": {
            name: {"artifacts": each.artifacts, "graphs": each.graphs, "most_usd": each.most_usd}
            for name, each in bills.items()
        },
        "experiments": [
            {
                "environment": comparison.place[0] or None,
                "experiment": comparison.place[1],
                "not_compared": comparison.silent,
                "variants": [_plain(change) for change in comparison.changes],
            }
            for comparison in comparisons
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What an edit compiles in one environment.

    Args:
        artifacts: their number; two experiments that need the same one compile it once.
        graphs: of all of them; None where a runtime decides it by itself.
        most_usd: the declared deadline of each at the declared price of a node-hour; None where one is compiled on
            a node whose price is not declared.
    """

    artifacts: int
    graphs: int | None
    most_usd: float | None


def bill(comparisons: Iterable[Comparison], environment: Environment, inputs: Inputs) -> Bill:
    """Return what an edit compiles in an environment, and the most that this can cost."""
    hosted = {experiment.name: experiment.compile for experiment in inputs.hosted(environment)}
    graphs: dict[str, int | None] = {}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        at, experiment = comparison.place
        if at == environment.name and experiment in hosted:
            graphs |= comparison.compiles
            compiling = hosted[experiment]
            each = compiling.deadline_hours if compiling.where == "device" else None
            hours |= dict.fromkeys(comparison.compiles, each)
    priced = _sum(hours)
    return Bill(
        artifacts=len(graphs), graphs=None if (total := _sum(graphs)) is None else int(total),
        most_usd=None if priced is None else priced * environment.capacity.usd_per_hour,
    )  # fmt: skip


def _sum(values: Mapping[str, float | None]) -> float | None:
    known = [value for value in values.values() if value is not None]
    return sum(known) if len(known) == len(values) else None


def _bill(mine: list[Comparison], environment: Environment | None, inputs: Inputs) -> str:
    if environment is None:
        names = {name for comparison in mine for name in comparison.compiles}
        return f"{counted(len(names), 'artifact')} to compile" if names else "nothing to compile"
    found = bill(mine, environment, inputs)
    if not found.artifacts:
        return "nothing to compile"
    graphs = f" ({counted(found.graphs, 'graph')})" if found.graphs else ""
    said = f"{counted(found.artifacts, 'artifact')}{graphs} to compile"
    if found.most_usd is None:
        return f"{said}, on a CPU node: its price is not declared"
    return f"{said}, at most {found.most_usd:.2f} USD (deadline_hours x {environment.capacity.usd_per_hour:.2f})"


def _told(change: Change, experiment: str) -> Iterator[str]:
    head, below = f"    {experiment}/{change.variant}: ", " " * 6
    if change.verdict == "same artifact":
        yield f"{head}same artifact"
    elif change.verdict == "gone":
        yield from wrapped(f"{head}gone, its artifact stays until collected: ", [change.was or "unnamed"], below)
    elif change.of is not None:
        yield from wrapped(f"{head}nothing to compile, it takes the artifact of ", [change.of], below)
    elif change.verdict == "new":
        yield from wrapped(f"{head}new, compiles ", [change.now or ""], below)
    else:
        yield from wrapped(f"{head}recompiles because ", reasons(change.differing or {}), below)
        yield f"{below}compiles {change.now}"
        yield f"{below}until applied, serves {change.was or 'the artifact that it has'}"


def wrapped(start: str, parts: Iterable[str], below: str) -> Iterator[str]:
    """Yield `start` and the parts with commas between, each part whole, as many on a line as fit."""
    line, between = start, ""
    for part in parts:
        if len(line) + len(between) + len(part) > WIDTH and line.strip():
            yield f"{line}{between}".rstrip()
            line, between = below, ""
        line, between = f"{line}{between}{part}", ", "
    yield line


def _plain(change: Change) -> dict[str, Any]:
    return {
        "variant": change.variant,
        "verdict": change.verdict,
        "compiles": change.compiles,
        "was": change.was,
        "now": change.now,
        "same_as": change.of,
        "differences": {field: {"was": was, "now": now} for field, (was, now) in (change.differing or {}).items()},
    }
