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

from tandem.commands import recompile, recompile_report, watching
from tandem.commands.inputs import Inputs, read
from tandem.commands.outcome import Exit, counted, print_faults, print_json, verdict
from tandem.commands.parked_report import format_parked_cost, list_part_lines, parked_cost_as_dict, read_parked_cost
from tandem.commands.selection import Selection, add_names
from tandem.spec.environment import Environment
from tandem.spec.pins import VersionPin, list_pins


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_names(parser)
    parser.add_argument("--verbose", action="store_true", help="the parts of the parked cost too")
    parser.add_argument(
        "--against", type=Path, metavar="PATH",
        help="what artifact keys are compared with: an experiment file, a folder of them, rendered manifests (default)",
    )  # fmt: skip


def check(chosen: Selection, against: Path | None = None) -> Exit:
    """Print every fault and warning of the named environments and the experiments they host.

    Args:
        chosen: environments and folders.
        against: what the artifact keys are compared with: an experiment file, a folder of them, or rendered
            manifests; None for manifests/, where that is. It never changes the exit code.

    Raises:
        SpecError: a folder or a named file does not exist, or `against` is none of these.
    """
    inputs = read(chosen, now=datetime.now(tz=UTC))
    code = verdict(inputs.faults, strict=chosen.strict)
    before = _before(against, inputs)
    comparisons = recompile.compare(before, inputs) if before else []
    if chosen.as_json:
        print_json(
            {
                "environments": sorted(inputs.workspace.environments),
                "experiments": sorted(inputs.workspace.experiments),
                "faults": [fault.as_dict() for fault in inputs.faults],
                "watching": {
                    name: {
                        **watching.cost_as_dict(asked, _limit(inputs, name)),
                        "unwatched": list(watching.unwatched(inputs.workspace, name)),
                    }
                    for name, asked in inputs.watching.items()
                },
                "parked": {
                    environment.name: parked_cost_as_dict(cost)
                    for environment in inputs.environments()
                    if (cost := read_parked_cost(inputs, environment))
                },
                "recompiles": recompile_report.plain(before, comparisons, inputs) if before else None,
                "pins": {
                    environment.name: [asdict(pin) for pin in _pins(inputs, environment)]
                    for environment in inputs.environments()
                },
                "exit_code": int(code),
            }
        )
        return code
    print_faults(inputs.faults)
    refusals = sum(fault.severity == "refusal" for fault in inputs.faults)
    print(
        f"{counted(len(inputs.workspace.environments), 'environment')}, "
        f"{counted(len(inputs.workspace.experiments), 'experiment')}: "
        f"{counted(refusals, 'error')}, {counted(len(inputs.faults) - refusals, 'warning')}"
    )
    for line in recompile_report.lines(before, comparisons, inputs) if before else ():
        print(line)
    for line in (*_parked(inputs, verbose=chosen.verbose), *_watching(inputs)):
        print(line)
    for line in _pin_lines(inputs):
        print(line)
    return code


def _parked(inputs: Inputs, *, verbose: bool) -> Iterator[str]:
    for environment in inputs.environments():
        cost = read_parked_cost(inputs, environment)
        if cost is not None:
            yield f"{environment.name}: {format_parked_cost(cost)}"
            yield from list_part_lines(cost, "  ") if verbose else ()


def _pins(inputs: Inputs, environment: Environment) -> Iterator[VersionPin]:
    return list_pins(environment, inputs.hosted(environment), inputs.catalogue)


def _pin_lines(inputs: Inputs) -> Iterator[str]:
    """Name each pin once, whatever number of environments has it; each add-on stands in --json."""
    pins = dict.fromkeys(pin for environment in inputs.environments() for pin in _pins(inputs, environment))
    shown = [pin for pin in pins if not pin.component.startswith("add-on ")]
    if not shown:
        return
    yield f"pins that move together, {counted(len(pins) - len(shown), 'add-on')} beside these (docs/upgrade.md):"
    for pin in shown:
        yield f"  {pin.component} {pin.value}"
        yield f"    {pin.file}: {pin.key}"


def _watching(inputs: Inputs) -> Iterator[str]:
    for name, asked in inputs.watching.items():
        yield from watching.cost_lines(name, asked, _limit(inputs, name))
        sentences = watching.unwatched(inputs.workspace, name)
        if sentences:
            yield watching.unwatched_text(name, sentences)


def _limit(inputs: Inputs, name: str) -> float:
    environment = inputs.workspace.environments[name].environment
    return environment.observability.monthly_limit_usd if environment else 0.0


def _before(against: Path | None, inputs: Inputs) -> recompile.State | None:
    if against is not None:
        return recompile.state(against, inputs)
    return recompile.manifests(recompile.MANIFESTS) if recompile.MANIFESTS.is_dir() else None
