"""`tandem runs`: which runs there are, how one stands, its logs; and the request that cancels one.

Invariant: of an environment its own file alone is read, so that nobody who wants to end a run is
kept by a rule. Only `cancel` writes, and it writes a request: the runner ends the run.

Exit codes: 0 done, or of a run that is judged, staged, compiled or at work; 1 of one that waits,
ended early or was cancelled; 2 bad input, or refused; 3 an external service failed, or of a run
that failed; 4 of a run that is void.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from tandem.cli import fleet
from tandem.cli.console import (
    VerbatimText,
    ask_consent,
    format_count,
    print_json,
    print_line,
    print_result,
    print_rows,
)
from tandem.cli.flags import EnvironmentName, Name
from tandem.cli.run import wait_for_answer
from tandem.cli.run_timeline import RunTimeline, count_usd
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, InputError
from tandem.judge.schema import REPORT_FILE
from tandem.ops.account import require_account
from tandem.ops.status import current_time
from tandem.run.run_client import RunClient
from tandem.run.run_keys import results_prefix
from tandem.run.run_values import RunRecord, RunRequest, StepRecord
from tandem.shell_command import build_tandem_command

app = App(name="runs")


def open_client(selection: Selection, name: str) -> RunClient:
    """Return what asks the bucket of an environment.

    Raises:
        TandemError: its file has not the form of one, or the credentials are another account's.
    """
    client = RunClient(fleet.read_environment(selection, name))
    require_account(client.environment, client.session)
    return client


@app.default
def list_runs(*, env: EnvironmentName, selection: Selection = DEFAULTS) -> ExitCode:
    """List an environment's runs, the newest first; or show, follow, cancel one.

    Args:
        env: the environment
    """
    client = open_client(selection, env)
    records, unread = client.list_runs()
    code = ExitCode.EXTERNAL_FAILURE if unread else ExitCode.DONE
    if selection.as_json:
        rows = []
        for record in records:
            row = msgspec.to_builtins(record)
            row["usd"] = count_usd(client, record)
            row["results"] = client.config.url(results_prefix(record.experiment, record.run))
            rows.append(row)
        return print_json({"environment": env, "runs": rows, "unread": unread}, code)
    width = max((len(record.run) for record in records), default=0) + 2
    print_line(f"{env}: {format_count(len(records), 'run')}")
    print_rows(
        ((record.run, _format_run(client, record)) for record in records), label_columns=width
    )
    print_rows(("unknown", f"{run}: {problem}") for run, problem in unread.items())
    if records:
        results_url = client.config.url(results_prefix("EXPERIMENT", "RUN"))
        print_rows([("results", VerbatimText(f"{results_url}, once judged with {REPORT_FILE}"))])
    return code


def _format_run(client: RunClient, record: RunRecord) -> str:
    started_at = datetime.fromisoformat(record.started_at)
    usd = count_usd(client, record)
    columns = [
        f"{record.experiment}  {record.state:<9} {started_at:%Y-%m-%d %H:%M}",
        f"{usd:>9,.2f} USD",
        record.verdict or record.reason,
    ]
    return "  ".join(columns)


@app.command(name="show")
def show_run(run: Name, /, *, env: EnvironmentName, selection: Selection = DEFAULTS) -> ExitCode:
    """Show a run: its steps, its cost, and its verdict or why it ended.

    Args:
        run: id of the run
        env: the environment
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    timeline = RunTimeline(client, run, as_json=selection.as_json, verbose=True)
    started_at = datetime.fromisoformat(record.started_at)
    heading = (
        f"{run}: {record.experiment} in {env}, requested by {record.who} at"
        f" {started_at:%Y-%m-%d %H:%M} UTC"
    )
    if record.cancelled_by:
        heading += f", cancelled by {record.cancelled_by}"
    print_line(heading, stderr=selection.as_json)
    return timeline.conclude(timeline.look() or record)


@app.command(name="follow")
def follow_run(
    run: Name, /, *, env: EnvironmentName, verbose: bool = False, selection: Selection = DEFAULTS
) -> ExitCode:
    """Follow a run to its end; Ctrl-C stops following, not the run.

    Args:
        run: id of the run
        env: the environment
        verbose: also print every note of a step
    """
    client = open_client(selection, env)
    client.read_run(run)
    return RunTimeline(client, run, as_json=selection.as_json, verbose=verbose).follow()


@app.command(name="logs")
def print_logs(
    run: Name,
    /,
    *,
    env: EnvironmentName,
    step: Annotated[str | None, Parameter(metavar="STEP")] = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Print the logs of a run's Jobs, from CloudWatch or as the runner kept them.

    Args:
        run: id of the run
        env: the environment
        step: only this step, as `runs show` names it

    Raises:
        InputError: the run has no such step.
    """
    client = open_client(selection, env)
    client.read_run(run)
    steps = [row for row in client.read_steps(run) if step in {None, row.step}]
    if step is not None and not steps:
        change = f"{build_tandem_command(f'runs show {run}', env)} names them"
        raise InputError(f"it has no step {step}", where=f"run {run}", change=change)
    jobs = None if step is None else {job for row in steps for job in row.jobs}
    if jobs is not None and not jobs:
        print_line(f"step {step} ran no Job, so it has no log", stderr=True)
    source = "CloudWatch"
    lines = client.read_pod_logs(run, *_find_span(steps, current_time()), jobs)
    if not lines:
        source = "the tails that the runner kept"
        lines = list(client.read_tails(run, jobs))
    print_line(f"{format_count(len(lines), 'line')}, from {source}", stderr=True)
    document = {
        "run": run,
        "source": source,
        "lines": [line._asdict() for line in lines],
    }
    rows = []
    for line in lines:
        columns = [line.pod, line.text]
        if line.at:
            columns.insert(0, f"{line.at:%H:%M:%S}")
        rows.append("  ".join(columns))
    return print_result(document, rows, as_json=selection.as_json)


def _find_span(steps: Sequence[StepRecord], now: datetime) -> tuple[datetime, datetime]:
    """Return when the first of the steps began, and when the last one ended or still runs."""
    starts = [datetime.fromisoformat(step.started_at) for step in steps]
    ends = [datetime.fromisoformat(step.ended_at) if step.ended_at else now for step in steps]
    return min(starts, default=now), max(ends, default=now)


@app.command(name="cancel")
def cancel_run(
    run: Name, /, *, env: EnvironmentName, yes: bool = False, selection: Selection = DEFAULTS
) -> ExitCode:
    """Cancel a run: its fleet goes to zero, and its records are kept.

    Args:
        run: id of the run
        env: the environment
        yes: do not ask for confirmation

    Raises:
        InputError: the runner refuses it, or there is no terminal to confirm on.
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    code = ExitCode.STALE
    text = "nothing was cancelled"
    if yes or ask_consent(f"cancel {run}, which is {record.state}?", where=f"run {run}"):
        request = RunRequest(
            kind="cancel",
            run=run,
            environment=env,
            experiment=record.experiment,
            at=current_time().isoformat(),
            until=record.request.until,
        )
        wait_for_answer(
            client, client.write_request(request, f"{run}.cancel-{int(current_time().timestamp())}")
        )
        follow = build_tandem_command(f"runs follow {run}", env)
        effect = "ends its Jobs" if record.request.until == "stage" else "sets its fleet to zero"
        code = ExitCode.DONE
        text = f"{run} is cancelled: the runner {effect}; {follow}"
    document = {"environment": env, "run": run, "cancelled": not code}
    return print_result(document, [text], as_json=selection.as_json, code=code)
