"""`tandem results`: the verdict of a run, where its results lie, and its folder on this machine.

Exit codes: those of `tandem runs show`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tandem.artifacts.store import ObjectStore
from tandem.cli.console import VerbatimText, print_json, print_rows
from tandem.cli.flags import EnvironmentName, Name, RunFolder
from tandem.cli.run_timeline import EXIT_CODES, locate_report
from tandem.cli.runs import open_client
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.sweep_results import (
    PAGE_FILE,
    PATCH_FILE,
    find_decision,
    format_decision,
    write_decision,
)
from tandem.errors import ExitCode
from tandem.judge.schema import REPORT_FILE
from tandem.judge.sweep_record import SweepRecord
from tandem.run.round_records import VERDICT_TEXT, download_results
from tandem.run.run_client import RunClient, name_people
from tandem.run.run_keys import results_prefix
from tandem.run.run_values import RunRecord, StepRecord, list_confirmed
from tandem.shell_command import quote_command


def results(
    run: Name,
    /,
    *,
    env: EnvironmentName,
    out: RunFolder | None = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Print the verdict of a run, and download its folder.

    Args:
        run: id of the run
        env: the environment
        out: new folder for the records, the verdict and the report
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    steps = {step.step: step for step in client.read_steps(run)}
    if decision := find_decision(steps):
        return _print_decision(client, record, decision, steps, out=out, selection=selection)

    store = ObjectStore(client.config.bucket, client.clients.s3)
    prefix = results_prefix(record.experiment, run)
    with name_people(client.environment, "engineer"):
        content = store.read(f"{prefix}{VERDICT_TEXT}")
        if out is not None:
            confirmed_rounds = list_confirmed(steps.values())
            download_results(store, record.experiment, run, out, confirmed_rounds)
    text = record.verdict or record.reason or "no verdict yet"
    if content:
        text = content.body.decode(errors="replace")

    code = EXIT_CODES[record.state]
    url = store.url(prefix)
    report_url = locate_report(client, record, tuple(steps.values()))
    report_path = out / REPORT_FILE if out is not None and report_url else None
    if selection.as_json:
        document = {
            "run": run,
            "state": record.state,
            "verdict": record.verdict,
            "text": text,
            "url": url,
            "report": str(report_path or report_url) or None,
            "folder": str(out) if out else None,
        }
        return print_json(document, code)
    print(text.rstrip())
    print_rows([("results", VerbatimText(url))])
    if report_url:
        print_rows([("report", VerbatimText(str(report_path or report_url)))])
    command = quote_command("tandem", "bench", "report", str(out))
    print_rows(_list_folder_rows(out, command))
    return code


def _print_decision(
    client: RunClient,
    record: RunRecord,
    decision: SweepRecord,
    steps: Mapping[str, StepRecord],
    *,
    out: Path | None,
    selection: Selection,
) -> ExitCode:
    """Print a sweep's decision; with a folder, fetch its pairs, its page and the edit."""
    names = []
    if out is not None:
        experiment_file = selection.experiments / f"{decision.experiment}.yaml"
        with name_people(client.environment, "engineer"):
            store = ObjectStore(client.config.bucket, client.clients.s3)
            names = write_decision(decision, steps, store, experiment_file, out)

    code = EXIT_CODES[record.state]
    if selection.as_json:
        document = {
            "run": decision.run,
            "state": record.state,
            "decision": msgspec.to_builtins(decision),
            "folder": str(out) if out else None,
        }
        return print_json(document, code)
    for line in format_decision(decision):
        print(line)
    if out is not None:
        print_rows([("report", VerbatimText(str(out / PAGE_FILE)))])
    patch = ""
    if PATCH_FILE in names:
        patch = quote_command("git", "apply", f"{out}/{PATCH_FILE}")
    print_rows(_list_folder_rows(out, patch))
    return code


def _list_folder_rows(out: Path | None, command: str) -> Iterator[tuple[str, str]]:
    """Yield where the files lie, and the command that uses them."""
    if out is not None:
        yield "folder", VerbatimText(str(out))
        if command:
            yield "next", VerbatimText(command)
