"""`tandem check`: hold every declared file against its schema and the rules, and say what an edit recompiles.

It names the pins that move together. It says too what each environment costs while parked and what watching it
costs, refuses one whose watching costs more than it admits, and tells what no alarm of it sees.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tandem.cli import monitoring_cost, recompile, recompile_report
from tandem.cli.cost_report import (
    build_parked_cost_dict,
    compute_environment_cost,
    format_parked_cost,
    list_part_lines,
)
from tandem.cli.inputs import CommandInputs, read_inputs
from tandem.cli.outcome import compute_exit_code, format_count, print_faults, print_json
from tandem.cli.selection import Selection, add_name_flags
from tandem.errors import ExitCode
from tandem.spec.environment import Environment
from tandem.spec.pins import VersionPin, list_pins


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_name_flags(parser)
    parser.add_argument("--verbose", action="store_true", help="the parts of the parked cost too")
    parser.add_argument(
        "--against", type=Path, metavar="PATH",
        help="what artifact keys are compared with: an experiment file, a folder of them, rendered manifests (default)",
    )  # fmt: skip


def check(selection: Selection, against: Path | None = None) -> ExitCode:
    """Print every fault and warning of the named environments and the experiments they host.

    Args:
        selection: environments and folders.
        against: what the artifact keys are compared with: an experiment file, a folder of them, or rendered
            manifests; None for manifests/, where that is. It never changes the exit code.

    Raises:
        SpecError: a folder or a named file does not exist, or `against` is none of these.
    """
    inputs = read_inputs(selection, now=datetime.now(tz=UTC))
    code = compute_exit_code(inputs.faults, strict=selection.strict)
    old_snapshot = _read_old_snapshot(against, inputs)
    comparisons = recompile.compare_experiment_keys(old_snapshot, inputs) if old_snapshot else []
    if selection.as_json:
        print_json(
            {
                "environments": sorted(inputs.workspace.environments),
                "experiments": sorted(inputs.workspace.experiments),
                "faults": [fault.as_dict() for fault in inputs.faults],
                "watching": {
                    name: {
                        **monitoring_cost.cost_as_dict(watching_cost, _monthly_limit_usd(inputs, name)),
                        "unwatched": list(monitoring_cost.list_blind_spots(inputs.workspace, name)),
                    }
                    for name, watching_cost in inputs.watching_costs.items()
                },
                "parked": {
                    environment.name: build_parked_cost_dict(cost)
                    for environment in inputs.environments()
                    if (cost := compute_environment_cost(inputs, environment))
                },
                "recompiles": recompile_report.comparisons_as_dict(old_snapshot, comparisons, inputs)
                if old_snapshot
                else None,
                "pins": {
                    environment.name: [asdict(pin) for pin in _list_environment_pins(inputs, environment)]
                    for environment in inputs.environments()
                },
                "exit_code": int(code),
            }
        )
        return code
    print_faults(inputs.faults)
    refusals = sum(fault.severity == "refusal" for fault in inputs.faults)
    print(
        f"{format_count(len(inputs.workspace.environments), 'environment')}, "
        f"{format_count(len(inputs.workspace.experiments), 'experiment')}: "
        f"{format_count(refusals, 'error')}, {format_count(len(inputs.faults) - refusals, 'warning')}"
    )
    for line in recompile_report.format_comparisons(old_snapshot, comparisons, inputs) if old_snapshot else ():
        print(line)
    for line in (*_format_parked_costs(inputs, verbose=selection.verbose), *_format_watching_costs(inputs)):
        print(line)
    for line in _format_pins(inputs):
        print(line)
    return code


def _format_parked_costs(inputs: CommandInputs, *, verbose: bool) -> Iterator[str]:
    for environment in inputs.environments():
        cost = compute_environment_cost(inputs, environment)
        if cost is not None:
            yield f"{environment.name}: {format_parked_cost(cost)}"
            yield from list_part_lines(cost, "  ") if verbose else ()


def _list_environment_pins(inputs: CommandInputs, environment: Environment) -> Iterator[VersionPin]:
    return list_pins(environment, inputs.list_experiments(environment), inputs.catalogue)


def _format_pins(inputs: CommandInputs) -> Iterator[str]:
    """Name each pin once, whatever number of environments has it; each add-on stands in --json."""
    pins = dict.fromkeys(
        pin for environment in inputs.environments() for pin in _list_environment_pins(inputs, environment)
    )
    component_pins = [pin for pin in pins if not pin.component.startswith("add-on ")]
    if not component_pins:
        return
    yield (
        f"pins that move together, {format_count(len(pins) - len(component_pins), 'add-on')} beside these "
        "(docs/upgrade.md):"
    )
    for pin in component_pins:
        yield f"  {pin.component} {pin.value}"
        yield f"    {pin.file}: {pin.key}"


def _format_watching_costs(inputs: CommandInputs) -> Iterator[str]:
    for name, watching_cost in inputs.watching_costs.items():
        yield from monitoring_cost.format_cost(name, watching_cost, _monthly_limit_usd(inputs, name))
        sentences = monitoring_cost.list_blind_spots(inputs.workspace, name)
        if sentences:
            yield monitoring_cost.format_blind_spots(name, sentences)


def _monthly_limit_usd(inputs: CommandInputs, name: str) -> float:
    environment = inputs.workspace.environments[name].environment
    return environment.observability.monthly_limit_usd if environment else 0.0


def _read_old_snapshot(against: Path | None, inputs: CommandInputs) -> recompile.KeySnapshot | None:
    if against is not None:
        return recompile.read_snapshot(against, inputs)
    return recompile.read_manifests(recompile.MANIFESTS) if recompile.MANIFESTS.is_dir() else None
