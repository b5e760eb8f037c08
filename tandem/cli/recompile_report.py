"""What an edit compiles again, told: per experiment and variant, with the most that it can cost.

Invariant: an edit that compiles nothing is told in one line, and no figure of a cost is Tandem's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.explain import describe_differences
from tandem.cli.console import format_count, print_line, print_rows
from tandem.cli.inputs import CommandInputs
from tandem.cli.recompile import KeyComparison, KeySnapshot, VariantChange
from tandem.spec.environment import Environment


def print_comparisons(old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs) -> None:
    """Say for a person what the edit compiles."""
    changed = [
        comparison
        for comparison in comparisons
        if any(change.verdict != "same artifact" for change in comparison.changes)
    ]
    if changed:
        print_line(f"what differs from {old_snapshot.where}:")
    elif any(comparison.skip_reason is None for comparison in comparisons):
        print_line(f"nothing is compiled again: every variant keeps the artifact that {old_snapshot.where} names")
    for environment in (*inputs.environments(), None):
        name = environment.name if environment else ""
        comparisons_here = [comparison for comparison in changed if comparison.place[0] == name]
        if comparisons_here:
            print_line(f"  {name or 'in no environment'}: {_format_bill(comparisons_here, environment, inputs)}")
        for comparison in comparisons_here:
            for change in comparison.changes:
                _print_change(change, comparison.place[1])
    skips: dict[str, list[str]] = {}
    for comparison in comparisons:
        if comparison.skip_reason:
            skips.setdefault(comparison.skip_reason, []).append("/".join(filter(None, comparison.place)))
    rows = ((f"not compared, {reason}: {', '.join(places)}",) for reason, places in skips.items())
    print_rows(rows, indent=0, label_columns=0)


def comparisons_as_dict(
    old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    bills = {environment.name: compute_bill(comparisons, environment, inputs) for environment in inputs.environments()}
    return {
        "against": old_snapshot.where,
        "environments": {
            name: {"artifacts": bill.artifacts, "graphs": bill.graphs, "most_usd": bill.most_usd}
            for name, bill in bills.items()
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
    settings_by_experiment = {
        experiment.name: experiment.compile for experiment in inputs.list_experiments(environment)
    }
    graphs: dict[str, int | None] = {}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        environment_name, experiment = comparison.place
        if environment_name == environment.name and experiment in settings_by_experiment:
            settings = settings_by_experiment[experiment]
            graphs |= comparison.compiles
            hours |= dict.fromkeys(comparison.compiles, settings.deadline_hours if settings.where == "device" else None)
    total_graphs, total_hours = _sum_values(graphs), _sum_values(hours)
    return CompileBill(
        artifacts=len(graphs),
        graphs=None if total_graphs is None else int(total_graphs),
        most_usd=None if total_hours is None else total_hours * environment.capacity.usd_per_hour,
    )


def _sum_values(values: Mapping[str, float | None]) -> float | None:
    known_values = [value for value in values.values() if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _format_bill(comparisons: list[KeyComparison], environment: Environment | None, inputs: CommandInputs) -> str:
    if environment is None:
        names = {name for comparison in comparisons for name in comparison.compiles}
        return f"{format_count(len(names), 'artifact')} to compile" if names else "nothing to compile"
    bill = compute_bill(comparisons, environment, inputs)
    if not bill.artifacts:
        return "nothing to compile"
    graphs = f" ({format_count(bill.graphs, 'graph')})" if bill.graphs else ""
    summary = f"{format_count(bill.artifacts, 'artifact')}{graphs} to compile"
    if bill.most_usd is None:
        return f"{summary}, on a CPU node: its price is not declared"
    price = f"deadline_hours x {environment.capacity.usd_per_hour:.2f}"
    return f"{summary}, at most {bill.most_usd:.2f} USD ({price})"


def _print_change(change: VariantChange, experiment: str) -> None:
    verdict: str = change.verdict
    name = change.new_name
    if verdict == "gone":
        verdict, name = "gone, its artifact stays until collected:", change.old_name or "unnamed"
    elif change.previous_owner is not None:
        verdict, name = "nothing to compile, it takes the artifact of", change.previous_owner
    elif verdict == "new":
        verdict = "new, compiles"
    elif verdict == "recompiles":
        verdict, name = "recompiles because", ", ".join(describe_differences(change.differences or {}))
    text = f"{experiment}/{change.variant}: {verdict}{'' if verdict == 'same artifact' else f' {name}'}"
    print_rows([(text,)], indent=4, label_columns=0)
    if change.compiles and change.differences:
        print_line(f"      compiles {change.new_name}")
        print_line(f"      until applied, serves {change.old_name or 'the artifact that it has'}")


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
