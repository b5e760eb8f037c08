"""A run in progress: a line for each finished step, and how the run came out.

Invariant: nothing is written here, and what is shown is what the journal says. A bucket that does
not answer for a while is told once and asked again; a runner that has not written for five minutes
is reported once.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.progress import BarColumn, Progress, TextColumn

from tandem.bench.records.terminal_text import fit_line, wrap_text
from tandem.cli.console import VerbatimText, open_console, print_json, print_rows
from tandem.cli.fleet import TextRow, format_span
from tandem.errors import ExitCode, ExternalError
from tandem.judge.schema import REPORT_FILE
from tandem.ops.faults import AccessDeniedError
from tandem.ops.status import current_time
from tandem.run.run_client import BEAT_LIMIT, RunClient
from tandem.run.run_estimate import RunEstimate
from tandem.run.run_keys import PAIR_STEP, results_prefix
from tandem.run.run_values import RunRecord, RunState, StepRecord
from tandem.shell_command import build_tandem_command

POLL_S = 3.0
BLIND_LIMIT = timedelta(minutes=15)  # of a bucket that does not answer, then the following ends
# hours: a log has a line where they begin
ANNOUNCED_STEPS = frozenset({"stage", "compile", "llmperf"})
JUDGE_STEP = "judge"
# of a step's name on the screen
STEP_WIDTH = 12
PAIR_STEP_WIDTH = 19
NOTE_INDENT = " " * 12  # of what a step's note has beyond its first row
BAR_COLUMNS = 20  # of the plan's share that is done, behind the line that is written anew
GOAL_SHARE = 0.85  # of paid node-minutes that compile or measure
EXIT_CODES: Mapping[RunState, ExitCode] = {
    "running": ExitCode.DONE,
    "staged": ExitCode.DONE,
    "compiled": ExitCode.DONE,
    "judged": ExitCode.DONE,
    "void": ExitCode.VOID,
    "failed": ExitCode.EXTERNAL_FAILURE,
    "waiting": ExitCode.STALE,
    "ended": ExitCode.STALE,
    "cancelled": ExitCode.STALE,
}


class RunTimeline:
    """Shows one run.

    Args:
        client: of the environment.
        run: its id.
        estimate: the plan, for the time that is left; None where nobody has it.
        as_json: print one document at the end, and lines on standard error.
        verbose: print each note and each beginning, too.
    """

    def __init__(
        self,
        client: RunClient,
        run: str,
        *,
        estimate: RunEstimate | None = None,
        as_json: bool,
        verbose: bool = False,
    ) -> None:
        self.client = client
        self.run = run
        self.as_json = as_json
        self.verbose = verbose
        self.console = open_console(stderr=as_json)
        self.estimate = estimate
        steps = estimate.steps if estimate else ()
        self.planned_minutes = {step.step: step.minutes for step in steps}
        self.steps: tuple[StepRecord, ...] = ()
        self._printed: dict[str, tuple[Any, ...]] = {}
        self._blind_since: datetime | None = None

    def follow(self) -> ExitCode:
        """Print changes until the run ends or waits, then its outcome; return what says so.

        Raises:
            ExternalError: the bucket has not answered for a quarter of an hour.
            AccessDeniedError: the credentials may not look.
        """
        columns = TextColumn("{task.description}"), BarColumn(bar_width=BAR_COLUMNS)
        progress = Progress(*columns, console=self.console, transient=True)
        try:
            with progress if self.console.is_terminal else contextlib.nullcontext():
                task = progress.add_task("", total=sum(self.planned_minutes.values()) or None)
                while (record := self.look()) is None or record.state == "running":
                    progress.update(
                        task, description=self._fit_now(), completed=self._count_minutes()
                    )
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            print(
                f"the run continues without this command; {describe_return(self.client, self.run)}",
                file=sys.stderr,
            )
            raise
        return self.conclude(record)

    def look(self) -> RunRecord | None:
        """Read the run and its steps and print news; return None if it cannot be read now.

        Raises:
            TandemError: as for `follow`.
        """
        try:
            record = self.client.find_run(self.run)
            steps = self.client.read_steps(self.run) if record else ()
            beat = self.client.read_beat()
        except AccessDeniedError:
            raise
        except ExternalError as fault:
            self._blind_since = self._blind_since or current_time()
            if current_time() - self._blind_since > BLIND_LIMIT:
                raise
            self._print_once(
                "bucket",
                f"cannot read the run ({fault.problem}); it continues, and is read again",
            )
            return None
        self._blind_since = None
        self.steps = steps
        is_running = record is not None and record.state == "running"
        for step in self.steps:
            left = ""
            if is_running and step is self.steps[-1]:
                left = self._describe_left()
            self._print_step(step, left=left)

        age = current_time() - datetime.fromisoformat(beat.at) if beat else timedelta()
        if is_running and age > BEAT_LIMIT:
            self._print_once(
                "runner", f"the runner has not written for {format_span(age)}: look at its pod"
            )
        return record

    def _print_once(self, key: str, line: str, version: tuple[Any, ...] = ()) -> None:
        """Print a line, folded if too wide, unless the last of its key was the same."""
        if self._printed.get(key) != version:
            self._printed[key] = version
            for row in wrap_text(line, self.console.width, first="  ", indent=NOTE_INDENT):
                self.console.print(row, soft_wrap=True)

    def _print_step(self, step: StepRecord, *, left: str) -> None:
        is_running = step.state == "running"
        is_announced = self.verbose or step.step in ANNOUNCED_STEPS
        if is_running and (self.console.is_terminal or not is_announced):
            return
        is_verdict = step.step == JUDGE_STEP and step.state == "done"
        notes = [step.note.rstrip("."), left]
        if is_verdict and not self.verbose:  # the run's end says it
            notes = [left]
        line = f"{_format_step(step)}  {'; '.join(filter(None, notes))}"
        version: tuple[Any, ...] = (step.state,)
        if self.verbose:
            version = (step.state, step.attempts, step.note)
        self._print_once(f"step {step.step}", line.rstrip(), version)

    def _describe_now(self) -> tuple[str, str, str]:
        """Return the current step with its time and note, and the rest of the run's time."""
        step = next((step for step in reversed(self.steps) if step.state == "running"), None)
        if step is None:
            return "the runner is between two steps", "", ""
        elapsed = format_span(current_time() - datetime.fromisoformat(step.started_at))
        return f"{step.step}: {elapsed}", step.note, self._describe_left()

    def _fit_now(self) -> str:
        """Return the terminal's rewritten line; its note gives way to the remaining time."""
        step, note, left = self._describe_now()
        room = self.console.width - BAR_COLUMNS - 1
        return fit_line(f"  {step}", note, left, width=room, separator=", ")

    def _count_minutes(self) -> float:
        """Return the planned minutes that are done, with those of the current step."""
        minutes = 0.0
        for step in self.steps:
            step_minutes = self.planned_minutes.get(step.step, 0.0)
            if step.state == "running":
                elapsed = current_time() - datetime.fromisoformat(step.started_at)
                step_minutes = min(step_minutes, elapsed.total_seconds() / 60)
            minutes += step_minutes
        return minutes

    def _describe_left(self) -> str:
        """Return about how long the run will still take; empty without a plan and at its end."""
        left = timedelta(minutes=sum(self.planned_minutes.values()) - self._count_minutes())
        if left > timedelta(minutes=1):
            return f"about {format_span(left)} left"
        return ""

    def conclude(self, record: RunRecord) -> ExitCode:
        """Print a run's state, cost and next step; return the exit code that says so."""
        code = EXIT_CODES[record.state]
        command = _describe_next(self.client, record)
        report_url = locate_report(self.client, record, self.steps)
        if self.as_json:
            document = msgspec.to_builtins(record)
            document["steps"] = msgspec.to_builtins(self.steps)
            document["node_minutes"] = round(record.node_s / 60, 2)
            document["usd"] = count_usd(self.client, record)
            document["report"] = report_url or None
            document["next"] = command
            print_json(document, code)
        else:
            print_rows(self._list_conclusion_rows(record))
            if report_url:
                print_rows([("report", VerbatimText(report_url))])
            print_rows([("next", VerbatimText(command))])
        return code

    def _list_conclusion_rows(self, record: RunRecord) -> Iterator[TextRow]:
        now = ""
        if record.state == "running":
            now = ", ".join(filter(None, self._describe_now()))
        yield record.state, "; ".join(filter(None, (record.verdict, record.reason, now)))
        capacity = self.client.environment.capacity
        if record.node_s:
            usd = count_usd(self.client, record)
            price = f"{usd:,.2f} USD at {capacity.usd_per_hour:.2f} USD an hour"
            parts = [f"{record.node_s / 60:.0f} node-minutes, {price}"]
            if capacity.needs_reservation:
                parts.append("the capacity is paid already")
            share = record.used_node_s / record.node_s
            parts.append(f"{share:.0%} compiled or measured (goal: {GOAL_SHARE:.0%})")
            # a resumed run's plan has only what was left
            if self.estimate and not record.resumes:
                parts.append(f"the plan had {self.estimate.node_minutes:.0f}")
            yield "cost", "; ".join(parts)
        for lease in record.leases:
            if lease.doubt:
                yield (
                    "cost",
                    (
                        f"of lease {lease.name} as the runner counted, which is too much at worst:"
                        f" {lease.doubt}"
                    ),
                )


def _format_step(step: StepRecord) -> str:
    """Return when a step ended or began, its name, its state and its time."""
    start = datetime.fromisoformat(step.started_at)
    moment = datetime.fromisoformat(step.ended_at or step.started_at)
    state = "begins"
    span = ""
    if step.state != "running":
        state = step.state
        span = format_span(moment - start)
    width = PAIR_STEP_WIDTH if step.step.startswith(PAIR_STEP) else STEP_WIDTH
    return f"{moment:%H:%M:%S}  {step.step:<{width}} {state:<8}{span:>11}"


def count_usd(client: RunClient, record: RunRecord) -> float:
    """Return what a run's nodes cost so far, at the declared price."""
    return round(record.node_s / 3600 * client.environment.capacity.usd_per_hour, 2)


def describe_return(client: RunClient, run: str) -> str:
    """Return how somebody who does not follow comes back to a run, and how it is cancelled."""
    name = client.environment.name
    follow = build_tandem_command(f"runs follow {run}", name)
    cancel = build_tandem_command(f"runs cancel {run}", name)
    return f"come back: {follow}; cancel: {cancel}"


def locate_report(client: RunClient, record: RunRecord, steps: Sequence[StepRecord]) -> str:
    """Return the URL of a judged run's report; empty before, and of a sweep, which stores none."""
    judge = next((step for step in steps if step.step == JUDGE_STEP), None)
    if judge is None or judge.state != "done" or judge.result.get("decision"):
        return ""
    return client.config.url(f"{results_prefix(record.experiment, record.run)}{REPORT_FILE}")


def _describe_next(client: RunClient, record: RunRecord) -> str:
    name = client.environment.name
    run = record.run
    match record.state:
        case "running":
            return build_tandem_command(f"runs follow {run}", name)
        case "waiting":
            return f"{build_tandem_command('run', name, '--resume', run)} --hours H"
        case "staged" | "compiled":
            return f"{build_tandem_command('run ' + record.experiment, name)} --hours H"
        case "void" if not record.verdict:
            return build_tandem_command(f"runs show {run}", name)
        case "judged" | "void":
            return build_tandem_command(f"results {run}", name, "--out", f"runs/{run}")
        case _:
            return build_tandem_command(f"runs logs {run}", name)
