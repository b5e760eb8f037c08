"""`tandem runs`: which runs there are, how one stands, its logs; and the request that cancels one.

Invariant: of an environment its own file alone is read, so that nobody who wants to end a run is kept by a rule. Only
`cancel` writes, and it writes a request: the runner ends the run.

Exit codes: 0 done, or of a run that is judged or at work; 1 of one that waits, ended early or was cancelled; 2 bad
input, or refused; 3 an external service failed, or of a run that failed; 4 of a run that is void.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from tandem.cli import fleet
from tandem.cli.console import ask_consent, print_json, print_line, print_result, print_rows
from tandem.cli.flags import EnvironmentName, Name
from tandem.cli.fleet import TextRow, format_distance, format_moment, format_span
from tandem.cli.run import wait_for_answer
from tandem.cli.run_timeline import (
    EXIT_CODES,
    RunTimeline,
    conclude_run,
    count_usd,
    describe_cost,
    describe_next,
    describe_return,
    run_as_dict,
)
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, InputError
from tandem.ops.account import require_account
from tandem.ops.status import current_time
from tandem.run.run_client import LogLine, RunClient
from tandem.run.run_values import RunRecord, RunRequest, StepRecord

app = App(name="runs")


def open_client(selection: Selection, name: str) -> RunClient:
    """Return what asks the bucket of an environment.

    Raises:
        TandemError: its file has not the form of one, or the credentials are another account's.
    """
    environment = fleet.read_environment(selection, name)
    client = RunClient(environment)
    require_account(environment, client.session)
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
        rows = [{**msgspec.to_builtins(record), "usd": round(count_usd(client, record), 2)} for record in records]
        print_json({"environment": env, "runs": rows, "unread": unread, "exit_code": int(code)})
        return code
    width = max((len(record.run) for record in records), default=0) + 2
    print_line(f"{env}: {len(records)} runs")
    print_rows(((record.run, _format_run(client, record)) for record in records), label_columns=width)
    print_rows(("unknown", f"{run}: {problem}") for run, problem in unread.items())
    return code


def _format_run(client: RunClient, record: RunRecord) -> str:
    started_at = datetime.fromisoformat(record.started_at)
    figures = f"{started_at:%Y-%m-%d %H:%M}  {count_usd(client, record):>9,.2f} USD"
    return f"{record.experiment}  {record.state:<9} {figures}  {record.verdict or record.reason}".rstrip()


@app.command(name="show")
def show_run(run: Name, /, *, env: EnvironmentName, selection: Selection = DEFAULTS) -> ExitCode:
    """Show how a run stands: its steps, leases and cost.

    Args:
        run: its id
        env: the environment
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    steps = client.read_steps(run)
    if selection.as_json:
        print_json(run_as_dict(client, record, steps))
    else:
        print_line(f"{record.run}: {record.state}, of experiment {record.experiment} in {record.environment}")
        print_rows(_list_run_rows(client, record, steps))
    return EXIT_CODES[record.state]


def _list_run_rows(client: RunClient, record: RunRecord, steps: Sequence[StepRecord]) -> Iterator[TextRow]:
    now, request = current_time(), record.request
    yield from (
        ("verdict" if text is record.verdict else "reason", text) for text in (record.verdict, record.reason) if text
    )
    yield "asked by", f"{record.who}, {format_moment(datetime.fromisoformat(record.started_at), now)}"
    if record.cancelled_by:
        yield "cancelled", f"by {record.cancelled_by}"
    yield (
        "asked for",
        f"{request.size} size, {record.rounds_total} rounds, {request.starts} starts, {request.hours:g} h",
    )
    for lease in record.leases:
        ended = f"empty {format_distance(datetime.fromisoformat(lease.empty_at), now)}" if lease.empty_at else "alive"
        yield "lease", f"{lease.name} until {format_moment(datetime.fromisoformat(lease.deadline), now)}; {ended}"
    yield "cost", describe_cost(client, record)
    for index, step in enumerate(steps):
        started_at = datetime.fromisoformat(step.started_at)
        span = format_span((datetime.fromisoformat(step.ended_at) if step.ended_at else now) - started_at)
        yield "steps" if index == 0 else "", f"{step.step:<12} {step.state:<8} {span:>11}  {step.note}".rstrip()
    yield "next", describe_next(client, record)


@app.command(name="follow")
def follow_run(
    run: Name, /, *, env: EnvironmentName, verbose: bool = False, selection: Selection = DEFAULTS
) -> ExitCode:
    """Follow a run to its end; Ctrl-C leaves it alone.

    Args:
        run: its id
        env: the environment
        verbose: print every note of a step, too
    """
    client = open_client(selection, env)
    client.read_run(run)
    timeline = RunTimeline(client, run, stderr=selection.as_json, verbose=verbose)
    try:
        record = timeline.follow()
    except KeyboardInterrupt:
        print(f"the run goes on without this command; {describe_return(client, run)}", file=sys.stderr)
        raise
    return conclude_run(client, record, timeline.steps, as_json=selection.as_json)


@app.command(name="logs")
def print_logs(
    run: Name, /, *, env: EnvironmentName, step: Annotated[str | None, Parameter(metavar="STEP")] = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:  # fmt: skip
    """Print what a run's Jobs wrote: from CloudWatch, else what the runner kept.

    Args:
        run: its id
        env: the environment
        step: of this step alone, as `runs show` names it

    Raises:
        InputError: the run has no such step.
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    steps = [row for row in client.read_steps(run) if step in {None, row.step}]
    if step is not None and not steps:
        raise InputError(f"it has no step {step}", where=f"run {run}", change=f"tandem runs show {run} names them")
    started_at = min((datetime.fromisoformat(row.started_at) for row in steps), default=current_time())
    ends = [datetime.fromisoformat(row.ended_at) if row.ended_at else current_time() for row in steps]
    span = (started_at, max(ends, default=current_time()))
    source, lines = "CloudWatch", client.read_pod_logs(record.run, *span)
    if not lines:
        source, lines = "the tails that the runner kept", list(client.read_tails(record.run, *span))
    document = {"run": run, "source": source, "lines": msgspec.to_builtins(lines), "exit_code": 0}
    if not lines:
        print_line(f"no log of run {run} from these steps: neither CloudWatch nor the bucket has one", stderr=True)
    print_result(document, [_format_line(line) for line in lines], as_json=selection.as_json)
    return ExitCode.DONE


def _format_line(line: LogLine) -> str:
    return f"{f'{line.at:%H:%M:%S}  ' if line.at else ''}{line.pod}  {line.text}"


@app.command(name="cancel")
def cancel_run(run: Name, /, *, env: EnvironmentName, yes: bool = False, selection: Selection = DEFAULTS) -> ExitCode:
    """Cancel a run: its fleet goes to zero, and what was recorded is kept.

    Args:
        run: its id
        env: the environment
        yes: ask nothing

    Raises:
        InputError: the runner refuses it, or nobody is there to be asked.
    """
    client = open_client(selection, env)
    record = client.read_run(run)
    document = {"environment": env, "run": run, "cancelled": False, "exit_code": int(ExitCode.STALE)}
    if not yes and not ask_consent(f"cancel {run}, which is {record.state}?", where=f"run {run}"):
        print_result(document, ["nothing was done"], as_json=selection.as_json)
        return ExitCode.STALE
    request = RunRequest(
        kind="cancel", run=run, environment=env, experiment=record.experiment, at=current_time().isoformat()
    )
    wait_for_answer(client, client.write_request(request, f"{run}.cancel"))
    text = f"{run} is cancelled: the runner sets its fleet to zero; follow: {describe_next(client, record)}"
    print_result(document | {"cancelled": True, "exit_code": 0}, [text], as_json=selection.as_json)
    return ExitCode.DONE
