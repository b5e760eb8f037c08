"""What an edit compiles again, told: per experiment and variant, with the most that it can cost.

Invariant: an edit that compiles nothing is told in one line, and no figure of a cost is Tandem's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.explain import describe_differences
from tandem.cli.inputs import CommandInputs
from tandem.cli.outcome import format_count
from tandem.cli.recompile import KeyComparison, KeySnapshot, VariantChange
from tandem.spec.environment import Environment

WIDTH = 100  # columns


def format_comparisons(
    old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs
) -> Iterator[str]:
    """Say for a person what the edit compiles."""
    changed_comparisons = [comparison for comparison in comparisons if comparison.has_changes]
    if not changed_comparisons and any(comparison.skip_reason is None for comparison in comparisons):
        yield f"nothing is compiled again: every variant keeps the artifact that {old_snapshot.where} names"
    if changed_comparisons:
        yield f"what differs from {old_snapshot.where}:"
    for environment in (*inputs.environments(), None):
        name = environment.name if environment else ""
        environment_comparisons = [comparison for comparison in changed_comparisons if comparison.place[0] == name]
        if environment_comparisons:
            yield (
                f"  {environment.name if environment else 'in no environment'}: "
                f"{_format_bill(environment_comparisons, environment, inputs)}"
            )
        for comparison in environment_comparisons:
            yield from (line for change in comparison.changes for line in _format_change(change, comparison.place[1]))
    for reason in dict.fromkeys(comparison.skip_reason for comparison in comparisons if comparison.skip_reason):
        places = (
            "/".join(filter(None, skipped_comparison.place))
            for skipped_comparison in comparisons
            if skipped_comparison.skip_reason == reason
        )
        yield from wrap_parts(f"not compared, {reason}: ", places, "  ")


def comparisons_as_dict(
    old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    bills = {environment.name: compute_bill(comparisons, environment, inputs) for environment in inputs.environments()}
    return {
        "against": old_snapshot.where,
        "environments": {
            name: {
                "artifacts": compile_bill.artifacts,
                "graphs": compile_bill.graphs,
                "most_usd": compile_bill.most_usd,
            }
            for name, compile_bill in bills.items()
        },
        "experiments": [
            {
                "environment": comparison.place[0] or None,
                "experiment": comparison.place[1],
                "not_compared": comparison.skip_reason,
                "variants": [_change_as_dict(change) for change in comparison.changes],
            }
            for comparison in comparisons
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileBill:
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


def compute_bill(comparisons: Iterable[KeyComparison], environment: Environment, inputs: CommandInputs) -> CompileBill:
    """Return what an edit compiles in an environment, and the most that this can cost."""
    compile_by_experiment = {experiment.name: experiment.compile for experiment in inputs.list_experiments(environment)}
    graphs: dict[str, int | None] = {}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        environment_name, experiment = comparison.place
        if environment_name == environment.name and experiment in compile_by_experiment:
            graphs |= comparison.compiles
            compile_settings = compile_by_experiment[experiment]
            deadline_hours = compile_settings.deadline_hours if compile_settings.where == "device" else None
            hours |= dict.fromkeys(comparison.compiles, deadline_hours)
    total_hours = _sum_values(hours)
    return CompileBill(
        artifacts=len(graphs), graphs=None if (total := _sum_values(graphs)) is None else int(total),
        most_usd=None if total_hours is None else total_hours * environment.capacity.usd_per_hour,
    )  # fmt: skip


def _sum_values(values: Mapping[str, float | None]) -> float | None:
    known_values = [value for value in values.values() if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _format_bill(comparisons: list[KeyComparison], environment: Environment | None, inputs: CommandInputs) -> str:
    if environment is None:
        names = {name for comparison in comparisons for name in comparison.compiles}
        return f"{format_count(len(names), 'artifact')} to compile" if names else "nothing to compile"
    compile_bill = compute_bill(comparisons, environment, inputs)
    if not compile_bill.artifacts:
        return "nothing to compile"
    graphs = f" ({format_count(compile_bill.graphs, 'graph')})" if compile_bill.graphs else ""
    summary = f"{format_count(compile_bill.artifacts, 'artifact')}{graphs} to compile"
    if compile_bill.most_usd is None:
        return f"{summary}, on a CPU node: its price is not declared"
    return (
        f"{summary}, at most {compile_bill.most_usd:.2f} USD (deadline_hours x {environment.capacity.usd_per_hour:.2f})"
    )


def _format_change(change: VariantChange, experiment: str) -> Iterator[str]:
    head, indent = f"    {experiment}/{change.variant}: ", " " * 6
    if change.verdict == "same artifact":
        yield f"{head}same artifact"
    elif change.verdict == "gone":
        yield from wrap_parts(
            f"{head}gone, its artifact stays until collected: ", [change.old_name or "unnamed"], indent
        )
    elif change.previous_owner is not None:
        yield from wrap_parts(f"{head}nothing to compile, it takes the artifact of ", [change.previous_owner], indent)
    elif change.verdict == "new":
        yield from wrap_parts(f"{head}new, compiles ", [change.new_name or ""], indent)
    else:
        yield from wrap_parts(f"{head}recompiles because ", describe_differences(change.differences or {}), indent)
        yield f"{indent}compiles {change.new_name}"
        yield f"{indent}until applied, serves {change.old_name or 'the artifact that it has'}"


def wrap_parts(start: str, parts: Iterable[str], indent: str) -> Iterator[str]:
    """Yield `start` and the parts with commas between, each part whole, as many on a line as fit."""
    line, separator = start, ""
    for part in parts:
        if len(line) + len(separator) + len(part) > WIDTH and line.strip():
            yield f"{line}{separator}".rstrip()
            line, separator = indent, ""
        line, separator = f"{line}{separator}{part}", ", "
    yield line


def _change_as_dict(change: VariantChange) -> dict[str, Any]:
    return {
        "variant": change.variant,
        "verdict": change.verdict,
        "compiles": change.compiles,
        "was": change.old_name,
        "now": change.new_name,
        "same_as": change.previous_owner,
        "differences": {field: {"was": was, "now": now} for field, (was, now) in (change.differences or {}).items()},
    }
