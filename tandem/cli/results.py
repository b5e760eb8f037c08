"""`tandem results`: the verdict of a run, where its results lie, and its folder on this machine.

Exit codes: those of `tandem runs show`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tandem.artifacts.store import ObjectStore
from tandem.cli.console import VerbatimText, print_json, print_rows
from tandem.cli.flags import EnvironmentName, Name, RunFolder
from tandem.cli.run_timeline import EXIT_CODES
from tandem.cli.runs import open_client
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.sweep_results import PATCH_FILE, find_decision, format_decision, write_decision
from tandem.errors import ExitCode
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
        return _print_decision(
            client, record, decision, steps, out=Path(out) if out else None, selection=selection
        )
    store = ObjectStore(client.config.bucket, client.clients.s3)
    prefix = results_prefix(record.experiment, run)
    with name_people(client.environment, "engineer"):
        content = store.read(f"{prefix}{VERDICT_TEXT}")
        if out is not None:
            confirmed = list_confirmed(steps.values())
            download_results(store, record.experiment, run, Path(out), confirmed)
    text = (
        content.body.decode(errors="replace")
        if content
        else record.verdict or record.reason or "no verdict yet"
    )
    code = EXIT_CODES[record.state]
    report = quote_command("tandem", "bench", "report", str(out or "DIR"))
    if selection.as_json:
        place = {
            "run": run,
            "state": record.state,
            "verdict": record.verdict,
            "text": text,
            "url": store.url(prefix),
        }
        print_json({**place, "folder": str(out) if out else None, "exit_code": int(code)})
        return code
    print(text.rstrip())
    rows = [("results", VerbatimText(store.url(prefix)))]
    rows += [("folder", VerbatimText(str(out))), ("next", VerbatimText(report))] if out else []
    print_rows(rows)
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
    names = list[str]()
    code = EXIT_CODES[record.state]
    if out is not None:
        experiment_file = Path(selection.experiments) / f"{decision.experiment}.yaml"
        with name_people(client.environment, "engineer"):
            store = ObjectStore(client.config.bucket, client.clients.s3)
            names = write_decision(decision, steps, store, experiment_file, out)
    if selection.as_json:
        print_json(
            {
                "run": decision.run,
                "state": record.state,
                **msgspec.to_builtins({"decision": decision}),
                "folder": str(out) if out else None,
                "exit_code": int(code),
            }
        )
        return code
    for line in format_decision(decision):
        print(line)
    rows = [("folder", VerbatimText(str(out)))] if out else []
    if PATCH_FILE in names:
        rows.append(("next", VerbatimText(quote_command("git", "apply", f"{out}/{PATCH_FILE}"))))
    print_rows(rows)
    return code
