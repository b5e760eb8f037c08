"""`tandem migrate EXPERIMENT --runtime NAME`: the experiment on another runtime.

Invariant: the command writes only with --write, overwrites no file, and writes no experiment that
the rules refuse.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from tandem.bench.records.terminal_text import wrap_text
from tandem.cli.console import count_columns, print_result
from tandem.cli.inputs import read_legal_experiment
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.workspace import load_workspace
from tandem.errors import ExitCode, InputError
from tandem.plan.migration import ExperimentMigration, MigrationChange, migrate_experiment
from tandem.rules import check_workspace
from tandem.shell_command import quote_command

SETTING_TOPICS = {"flag", "variable"}


def migrate(
    experiment: str,
    /,
    *,
    runtime: Annotated[str, Parameter(metavar="NAME")],
    write: bool = False,
    verbose: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Say what an experiment becomes on another runtime, and write it.

    Args:
        experiment: name of the experiment
        runtime: the other runtime, such as native
        write: write it as EXPERIMENT-RUNTIME
        verbose: also list each flag and variable of the servers

    Raises:
        SpecError: there is no such experiment, it or the new one is refused, or the file to write
            exists.
        InputError: the runtime cannot serve it; the message names the nearest.
    """
    catalogue = load_catalogue()
    migration = migrate_experiment(
        read_legal_experiment(selection, experiment, catalogue), runtime, catalogue
    )
    text = format_experiment(migration.experiment, experiment)
    path = selection.experiments / f"{migration.experiment.name}.yaml"
    refusals = [
        fault for fault in _check_text(text, path, catalogue) if fault.severity == "refusal"
    ]
    if refusals:
        raise SpecError(refusals)
    if write:
        if path.exists():
            raise InputError(
                "the file exists", where=str(path), change="rename or delete it, then migrate again"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = quote_command("tandem", "migrate", experiment, "--runtime", runtime, "--write")
    width = count_columns()
    lines = []
    for line in _list_lines(migration, experiment, verbose=verbose):
        lines += wrap_text(line, width, indent="    ")
    if write:
        lines.append(f"wrote {path}")
        lines.append("next  list it under `experiments` of an environment, then tandem check")
    else:
        lines.append(f"next  {command}")
    return print_result(
        _migration_as_dict(migration, text, path if write else None),
        lines,
        as_json=selection.as_json,
    )


def format_experiment(experiment: Experiment, source: str) -> str:
    """Return the file of an experiment, without the values that are defaults.

    Args:
        experiment: to be written.
        source: the experiment that it was made of, for the file's first line.
    """
    values = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    head = f"# {source} on the runtime {experiment.runtime}, by `tandem migrate`.\n"
    return head + yaml.safe_dump(values, sort_keys=False)


def _check_text(text: str, path: Path, catalogue: Catalogue) -> tuple[SpecFault, ...]:
    """Return what form and rules say of the new file alone."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("environments", "experiments"):
            (Path(folder) / name).mkdir()
        (Path(folder) / "experiments" / path.name).write_text(text)
        workspace = load_workspace(Path(folder) / "environments", Path(folder) / "experiments")
        faults = workspace.faults + check_workspace(workspace, catalogue)
    return tuple(replace(fault, file=str(path)) for fault in faults)


def _list_lines(migration: ExperimentMigration, source: str, *, verbose: bool) -> Iterator[str]:
    """Yield the answer, the variants, what is lost, what differs, and what to prove first."""
    experiment = migration.experiment
    count = len(experiment.all_variants())
    yield f"{source} on {experiment.runtime}: {count} variants, and each compiles again"
    for change in migration.changes:
        if change.topic == "variant":
            yield _format_variant(change)
    yield "prove first, on one node"
    for sentence in migration.evidence:
        yield f"  {sentence}"
    yield "lost"
    for sentence in migration.losses or ["nothing"]:
        yield f"  {sentence}"
    yield "differs"
    topics = {"image", "driver", "counters", "artifact"}
    if verbose:
        topics |= SETTING_TOPICS
    for change in migration.changes:
        if change.topic in topics:
            values = f"{change.before or '-'} -> {change.after or '-'}"
            yield f"  {change.topic} {change.subject}: {values}"
    settings = sum(change.topic in SETTING_TOPICS for change in migration.changes)
    if settings and not verbose:
        yield f"  {settings} flags and variables of the servers: --verbose"


def _format_variant(change: MigrationChange) -> str:
    if change.before == change.after:
        return f"  {change.subject}: {change.before}, unchanged"
    values = f"{change.before or 'nothing'} -> {change.after or 'dropped'}"
    reason = f" ({change.reason})" if change.reason else ""
    return f"  {change.subject}: {values}{reason}"


def _migration_as_dict(
    migration: ExperimentMigration, text: str, path: Path | None
) -> dict[str, object]:
    return {
        "experiment": migration.experiment.name,
        "runtime": migration.experiment.runtime,
        "changes": [change._asdict() for change in migration.changes],
        "losses": list(migration.losses),
        "evidence": list(migration.evidence),
        "file": text,
        "written": str(path) if path else None,
    }
