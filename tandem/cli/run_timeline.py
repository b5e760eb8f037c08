"""A run as it goes on, for who follows it: a line for each step that has ended, and how the run came out.

Invariant: nothing is written here. A bucket that does not answer for a while is told once and asked again; a runner
that has not written for five minutes is told once. What is shown is what the journal says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.progress import BarColumn, Progress, TextColumn

from tandem.bench.terminal_text import clean_text
from tandem.cli.console import VerbatimText, open_console, print_json, print_rows
from tandem.cli.fleet import TextRow, format_span
from tandem.errors import ExitCode, ExternalError
from tandem.ops.faults import AccessDeniedError
from tandem.ops.status import current_time
from tandem.run.run_client import BEAT_LIMIT, RunClient
from tandem.run.run_plan import RunEstimate
from tandem.run.run_values import RunRecord, RunState, StepRecord
from tandem.shell_command import build_tandem_command

POLL_S = 3.0
BLIND_LIMIT = timedelta(minutes=15)  # of a bucket that does not answer, then the following ends
ANNOUNCED_STEPS = frozenset({"stage", "compile", "llmperf"})  # hours: a log has a line where they begin
GOAL_SHARE = 0.85  # of paid node-minutes that compile or measure
EXIT_CODES: Mapping[RunState, ExitCode] = {
    "running": ExitCode.DONE,
    "judged": ExitCode.DONE,
    "void": ExitCode.VOID,
    "failed": ExitCode.EXTERNAL_FAILURE,
    **dict.fromkeys(("waiting", "ended", "cancelled"), ExitCode.STALE),
}


class RunTimeline:
    """Follows one run to its end, or until it waits for another lease.

    Args:
        client: of the environment.
        run: its id.
        estimate: the plan, for the time that is left; None where nobody has it.
        stderr: print on standard error, as where standard output takes a document.
        verbose: print each note and each beginning, too.
    """

    def __init__(
        self, client: RunClient, run: str, *, estimate: RunEstimate | None = None, stderr: bool = False,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        self.client, self.run, self.verbose = client, run, verbose
        self.console = open_console(stderr=stderr)
        self.planned_minutes = {step.step: step.minutes for step in estimate.steps} if estimate else {}
        self.steps: tuple[StepRecord, ...] = ()
        self._printed: dict[str, tuple[Any, ...]] = {}
        self._told: set[str] = set()
        self._blind_since: datetime | None = None

    def follow(self) -> RunRecord:
        """Print what changes until the run has ended or waits, and return it.

        Raises:
            ExternalError: the bucket has not answered for a quarter of an hour.
            AccessDeniedError: the credentials may not look.
        """
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20)
        progress = Progress(*columns, console=self.console, transient=True)
        with progress if self.console.is_terminal else contextlib.nullcontext():
            task = progress.add_task("", total=sum(self.planned_minutes.values()) or None)
            while True:
                record = self._look()
                if record is not None and record.state != "running":
                    return record
                progress.update(task, description=clean_text(self._describe_now()), completed=self._count_minutes())
                time.sleep(POLL_S)

    def _look(self) -> RunRecord | None:
        """Read the run and its steps, and print what is new; None where the run cannot be read now."""
        try:
            record = self.client.find_run(self.run)
            self.steps = self.client.read_steps(self.run) if record else ()
            beat = self.client.read_beat()
        except AccessDeniedError:
            raise
        except ExternalError as fault:
            self._blind_since = self._blind_since or current_time()
            if current_time() - self._blind_since > BLIND_LIMIT:
                raise
            self._tell("bucket", f"cannot look ({fault.problem}); the run goes on, this command tries again")
            return None
        self._blind_since = None
        for step in self.steps:
            self._print_step(step)
        if record and record.state == "running" and beat:
            age = current_time() - datetime.fromisoformat(beat.at)
            if age > BEAT_LIMIT:
                self._tell(
                    "runner", f"the runner has not written for {format_span(age)}: see its pod; the run may stand still"
                )
        return record

    def _tell(self, subject: str, sentence: str) -> None:
        """Print what is to be known of the following itself, once for each subject."""
        if subject not in self._told:
            self._told.add(subject)
            self.console.print(f"  {sentence}", soft_wrap=True)

    def _print_step(self, step: StepRecord) -> None:
        is_running = step.state == "running"
        is_quiet = is_running and not self.verbose and step.step not in ANNOUNCED_STEPS
        version = (step.state, step.attempts, step.note) if self.verbose else (step.state,)
        if is_quiet or self._printed.get(step.step) == version or (is_running and self.console.is_terminal):
            return
        self._printed[step.step] = version
        started_at = datetime.fromisoformat(step.started_at)
        moment = datetime.fromisoformat(step.ended_at) if step.ended_at else started_at
        span = "" if is_running else format_span(moment - started_at)
        note = "; ".join(filter(None, (step.note, self._describe_left())))
        state = "begins" if is_running else step.state
        line = f"  {moment:%H:%M:%S}  {step.step:<12} {state:<8}{span:>11}  {note}"
        self.console.print(clean_text(line.rstrip()), soft_wrap=True)

    def _describe_now(self) -> str:
        """Return the line of a terminal that is written anew."""
        step = next((step for step in reversed(self.steps) if step.state == "running"), None)
        if step is None:
            return "  the runner takes up the run"
        elapsed = format_span(current_time() - datetime.fromisoformat(step.started_at))
        return ", ".join(filter(None, (f"  {step.step}: {elapsed}", step.note[:40], self._describe_left())))

    def _count_minutes(self) -> float:
        """Return the planned minutes of what is done, with those that the step at work has taken of its own."""
        minutes = 0.0
        for step in self.steps:
            planned = self.planned_minutes.get(step.step, 0.0)
            elapsed = current_time() - datetime.fromisoformat(step.started_at)
            minutes += min(planned, elapsed.total_seconds() / 60) if step.state == "running" else planned
        return minutes

    def _describe_left(self) -> str:
        """Return about how long the run will still take by its plan; empty without one, and at its end."""
        left = timedelta(minutes=sum(self.planned_minutes.values()) - self._count_minutes())
        return f"about {format_span(left)} left" if left > timedelta(minutes=1) else ""


def conclude_run(
    client: RunClient, record: RunRecord, steps: tuple[StepRecord, ...], *, as_json: bool,
    estimate: RunEstimate | None = None,
) -> ExitCode:  # fmt: skip
    """Print how a run came out, what it cost and what comes next, and return the exit code that says so."""
    if as_json:
        print_json(run_as_dict(client, record, steps))
    else:
        print_rows(_list_conclusion_rows(client, record, estimate))
    return EXIT_CODES[record.state]


def _list_conclusion_rows(client: RunClient, record: RunRecord, estimate: RunEstimate | None) -> Iterator[TextRow]:
    yield record.state, record.verdict or record.reason or "no reason is written"
    if record.verdict and record.reason:
        yield "because", record.reason
    planned = f"; the plan had {estimate.node_minutes:.0f}" if estimate else ""
    yield "cost", f"{describe_cost(client, record)}{planned}"
    yield "next", VerbatimText(describe_next(client, record))


def describe_cost(client: RunClient, record: RunRecord) -> str:
    """Return the paid node-minutes of a run, their price as declared, and how much of them compiled or measured."""
    if not record.node_s:
        return "no node was paid"
    capacity = client.environment.capacity
    paid = "; the capacity is paid already" if capacity.needs_reservation else ""
    share = f"{record.used_node_s / record.node_s:.0%} of them compiled or measured (goal: {GOAL_SHARE:.0%})"
    price = f"{capacity.usd_per_hour:.2f} USD an hour"
    return f"{record.node_s / 60:.0f} node-minutes, {count_usd(client, record):,.2f} USD at {price}{paid}; {share}"


def count_usd(client: RunClient, record: RunRecord) -> float:
    """Return what a run's nodes cost so far, at the declared price."""
    return record.node_s / 3600 * client.environment.capacity.usd_per_hour


def describe_next(client: RunClient, record: RunRecord) -> str:
    """Return the command that comes next."""
    name, run = client.environment.name, record.run
    if record.state == "running":
        return build_tandem_command(f"runs follow {run}", name)
    if record.state == "waiting":
        return f"{build_tandem_command('run', name, '--resume', run)} --hours H"
    if record.state in {"judged", "void"}:
        return build_tandem_command(f"results {run}", name, "--out", f"runs/{run}")
    return build_tandem_command(f"runs logs {run}", name)


def describe_return(client: RunClient, run: str) -> str:
    """Return how somebody who does not follow comes back to a run, and how it is cancelled."""
    name = client.environment.name
    commands = [build_tandem_command(f"runs {verb} {run}", name) for verb in ("follow", "cancel")]
    return f"come back: {commands[0]}; cancel: {commands[1]}"


def run_as_dict(client: RunClient, record: RunRecord, steps: tuple[StepRecord, ...]) -> dict[str, Any]:
    """Return the JSON document of a run."""
    return {
        **msgspec.to_builtins(record),
        "steps": msgspec.to_builtins(steps),
        "node_minutes": round(record.node_s / 60, 2),
        "usd": round(count_usd(client, record), 2),
        "next": describe_next(client, record),
        "exit_code": int(EXIT_CODES[record.state]),
    }
