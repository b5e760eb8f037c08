"""`tandem check`: check every declared file, and tell what an edit recompiles.

It names the pins that move together. It says too what each environment costs while parked and what
watching it costs, refuses one whose watching costs more than it admits, and tells what no alarm of
it sees.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cli import monitoring_cost, recompile
from tandem.cli.console import format_count, print_json, print_line, print_rows, print_spec_faults
from tandem.cli.inputs import CommandInputs, read_inputs
from tandem.cli.project_suites import SuiteCheck, check_project_suites
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.show import compute_environment_cost, dump_parked_cost, format_parked_cost
from tandem.declarations.environment import Environment
from tandem.declarations.pins import VersionPin, list_pins
from tandem.declarations.record import FILL_IN
from tandem.errors import ExitCode
from tandem.monitoring.alarms import list_coverage_gaps
from tandem.shell_command import build_tandem_command

NEXT_COLUMNS = 6


def check(
    *names: str,
    strict: bool = False,
    verbose: bool = False,
    why: bool = False,
    against: Annotated[Path | None, Parameter(metavar="PATH")] = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Check the files; say what an edit recompiles and what it costs.

    Args:
        names: environments (default: all)
        strict: exit 1 if there is a warning
        verbose: also how to fix each warning, what no alarm covers, and pinned versions
        why: also the rule behind each error and warning, and its source
        against: compare artifact keys with an experiment file, a folder of them, or rendered
            manifests (the default); never changes the exit code

    Raises:
        SpecError: a folder or a named file does not exist, or `against` is none of these.
    """
    inputs = read_inputs(selection.narrow(names), now=datetime.now(tz=UTC))
    suite_checks = {
        name: check_project_suites(selection, file)
        for name, file in inputs.workspace.experiments.items()
    }
    suite_faults = chain.from_iterable(row.faults for row in suite_checks.values())
    inputs = replace(inputs, faults=(*inputs.faults, *suite_faults))
    refusals = sum(fault.severity == "refusal" for fault in inputs.faults)
    # a warning stops nothing unless --strict asks for it: an example account is true of a healthy
    # checkout too
    code = ExitCode.STALE if strict and inputs.faults else ExitCode.DONE
    code = ExitCode.BAD_INPUT if refusals else code
    old_snapshot = None
    if against is not None:
        old_snapshot = recompile.read_snapshot(against, inputs)
    elif recompile.MANIFESTS.is_dir():
        old_snapshot = recompile.read_manifests(recompile.MANIFESTS)
    changes = recompile.compare_keys(old_snapshot, inputs) if old_snapshot else []
    if selection.as_json:
        document = _build_document(inputs, old_snapshot, changes)
        document["suites"] = {name: row.as_dict() for name, row in suite_checks.items()}
        return print_json(document, code)

    gaps = sum(fault.got == FILL_IN for fault in inputs.faults)
    print_line(_count_faults(inputs, refusals, gaps))
    if code == ExitCode.STALE:
        print_line("refused: --strict treats warnings as errors")
    if not refusals:
        _print_files(inputs)
    _print_suites(suite_checks)
    sys.stdout.flush()
    print_spec_faults(inputs.faults, is_brief=not verbose, has_sources=why)
    if old_snapshot and not gaps:
        recompile.print_changes(old_snapshot, changes)
    if verbose:
        _print_gaps(inputs)
        _print_pins(inputs)
    if not refusals:
        _print_next(inputs, verbose=verbose)
    return code


def _count_faults(inputs: CommandInputs, refusals: int, gaps: int) -> str:
    """Return how many files were read, and how much is wrong.

    Args:
        inputs: that were read.
        refusals: how many faults are no warnings.
        gaps: how many of these are placeholders of `tandem new`.
    """
    warnings = format_count(len(inputs.faults) - refusals, "warning")
    if gaps:
        return (
            f"{format_count(gaps, 'value')} to fill in, {refusals - gaps} other errors, {warnings}"
        )
    environments = format_count(len(inputs.workspace.environments), "environment")
    experiments = format_count(len(inputs.workspace.experiments), "experiment")
    return f"{environments}, {experiments}: {format_count(refusals, 'error')}, {warnings}"


def _build_document(
    inputs: CommandInputs,
    old_snapshot: recompile.KeySnapshot | None,
    changes: list[recompile.VariantChange],
) -> dict[str, object]:
    watching = {}
    for name, watching_cost in inputs.watching_costs.items():
        gaps = list(list_coverage_gaps(watching_cost.scope))
        watching[name] = monitoring_cost.cost_as_dict(watching_cost) | {"unwatched": gaps}
    parked = {}
    pins = {}
    for environment in inputs.environments():
        pins[environment.name] = list(map(asdict, _list_pins(inputs, environment)))
        cost = compute_environment_cost(inputs, environment)
        if cost is not None:
            parked[environment.name] = dump_parked_cost(cost)
    return {
        "environments": sorted(inputs.workspace.environments),
        "experiments": sorted(inputs.workspace.experiments),
        "faults": [fault.as_dict() for fault in inputs.faults],
        "watching": watching,
        "parked": parked,
        "recompiles": recompile.changes_as_dict(old_snapshot, changes) if old_snapshot else None,
        "pins": pins,
    }


def _print_next(inputs: CommandInputs, *, verbose: bool) -> None:
    names = [environment.name for environment in inputs.environments()]
    command = build_tandem_command("doctor", names[0] if len(names) == 1 else "NAME")
    rows = [("next", f"{command}: what would stop a deploy")]
    if inputs.faults and not verbose:
        rows.insert(0, ("next", "tandem check --verbose: how to fix each warning"))
    print_rows(rows, indent=0, label_columns=NEXT_COLUMNS)


def _print_files(inputs: CommandInputs) -> None:
    """Print one line a file: what an environment costs, what an experiment serves."""
    rows = [(host.name, _describe_costs(inputs, host)) for host in inputs.environments()]
    for name, file in inputs.workspace.experiments.items():
        variants = format_count(len(file.record.all_variants()), "variant")
        rows.append((name, f"{variants} on {file.record.runtime}"))
    longest = max((len(name) for name, _ in rows), default=0)
    print_rows(rows, label_columns=longest + 2)


def _print_suites(checks: Mapping[str, SuiteCheck]) -> None:
    """Print the prompts of each experiment's files, and which files are not at hand."""
    for name, suite_check in checks.items():
        rows = suite_check.list_rows()
        if rows:
            print_line(f"prompts of {name}:")
            print_rows(rows, label_columns=max(len(label) for label, _ in rows) + 2)


def _describe_costs(inputs: CommandInputs, environment: Environment) -> str:
    cost = compute_environment_cost(inputs, environment)
    watching_cost = inputs.watching_costs[environment.name]
    assert cost is not None, "nothing is refused"
    return f"{format_parked_cost(cost)}; watching a month: at most {watching_cost.usd:.2f} USD"


def _print_gaps(inputs: CommandInputs) -> None:
    for name, cost in inputs.watching_costs.items():
        short = "; ".join(
            sentence.partition(":")[0].rstrip(".") for sentence in list_coverage_gaps(cost.scope)
        )
        if short:
            print_rows([(f"{name}: no alarm covers this: {short} (why: --json)",)], indent=0)


def _list_pins(inputs: CommandInputs, environment: Environment) -> Iterator[VersionPin]:
    return list_pins(environment, inputs.list_experiments(environment), inputs.catalogue)


def _print_pins(inputs: CommandInputs) -> None:
    """Name each pin once, whatever number of environments has it; each add-on stands in --json."""
    pins: dict[VersionPin, None] = {}
    for environment in inputs.environments():
        pins |= dict.fromkeys(_list_pins(inputs, environment))
    component_pins = [pin for pin in pins if not pin.component.startswith("add-on ")]
    if component_pins:
        add_ons = format_count(len(pins) - len(component_pins), "add-on")
        print_line(f"pins that move together, {add_ons} beside these (docs/upgrade.md):")
    for pin in component_pins:
        print_line(f"  {pin.component} {pin.value}")
        print_rows([(f"{pin.file}: {pin.key}",)], indent=4)
