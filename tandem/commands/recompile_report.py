"""What an edit compiles again, told: per experiment and variant, with the most that it can cost.

Invariant: an edit that compiles nothing is told in one line, and no figure of a cost is Tandem's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    costs = {environment.name: most_usd(comparisons, environment, inputs) for environment in inputs.environments()}
    return {
        "against": before.where,
        "environments": {name: {"artifacts": count, "most_usd": usd} for name, (count, usd) in costs.items()},
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


def most_usd(comparisons: Iterable[Comparison], environment: Environment, inputs: Inputs) -> tuple[int, float | None]:
    """Return how many artifacts an environment compiles because of the edit, and the most that this can cost.

    Two experiments that need the same artifact compile it once. The bound is the declared deadline of each
    compile at the declared price of a node-hour; None where one compiles on a node whose price is not declared.
    """
    hosted = {experiment.name: experiment.compile for experiment in inputs.hosted(environment)}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        at, experiment = comparison.place
        if at == environment.name and experiment in hosted:
            compiling = hosted[experiment]
            each = compiling.deadline_hours if compiling.where == "device" else None
            hours |= dict.fromkeys(comparison.compiles, each)
    known = [each for each in hours.values() if each is not None]
    return len(hours), sum(known) * environment.capacity.usd_per_hour if len(known) == len(hours) else None


def _bill(mine: list[Comparison], environment: Environment | None, inputs: Inputs) -> str:
    if environment is None:
        names = {name for comparison in mine for name in comparison.compiles}
        return f"{counted(len(names), 'artifact')} to compile" if names else "nothing to compile"
    count, usd = most_usd(mine, environment, inputs)
    if not count:
        return "nothing to compile"
    said, capacity = f"{counted(count, 'artifact')} to compile", environment.capacity
    if usd is None:
        return f"{said}, on a CPU node: its price is not declared"
    return f"{said}, at most {usd:.2f} USD (compile.deadline_hours x {capacity.usd_per_hour:.2f})"


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
