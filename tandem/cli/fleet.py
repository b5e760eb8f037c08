"""What start, stop and status share: the environment they mean, moments and spans in words, and how they fail.

Invariant: a stop asks of the declared files no more than an environment of good form, for what a rule refuses and what
an experiment says wrong must never keep anybody from ending what is paid for.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tandem.cli.outcome import print_error, print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.spec.document import read_document
from tandem.spec.environment import Environment
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.record import parse_record

if TYPE_CHECKING:
    from tandem.ops.status_warnings import StatusWarning

WIDTH = 100
LABEL_COLUMNS = 12  # characters of a line's first word and what follows it


def read_environment(selection: Selection, name: str) -> Environment:
    """Return an environment of good form, whatever the rules say of it.

    Its file alone is read: neither another environment nor a folder of experiments that is missing matters.

    Raises:
        SpecError: there is no such file, or it has not the form of one.
    """
    files = {path.stem: path for path in sorted(selection.environments.glob("*.yaml"))}
    if name not in files:
        raise SpecError([
            SpecFault(file=str(selection.environments / f"{name}.yaml"), path="", got="no such file",
                  allowed=", ".join(files) or "none yet", change="name one of these, or another folder by "
                  "--environments")
        ])  # fmt: skip
    return parse_record(Environment, read_document(files[name]), name=name)


def list_other_environments(selection: Selection, name: str) -> list[str]:
    """Return the names of the other environments, of good form or not."""
    return sorted(path.stem for path in selection.environments.glob("*.yaml") if path.stem != name)


def explain_fault(fault: TandemError, environment: Environment) -> TandemError:
    """Return the fault of a stop or a start as its operator meets it: without its bucket nothing is deployed."""
    return (
        build_not_deployed_error(environment, "its bucket does not exist") if "NoSuchBucket" in fault.problem else fault
    )


def build_not_deployed_error(environment: Environment, reason: str) -> InputError:
    """Return the refusal of an environment of which nothing exists."""
    return InputError(
        f"it is not deployed: {reason}", where=f"{environment.name} in account {environment.account}",
        change=f"{deploy_command(environment)}, or see that the name is meant",
    )  # fmt: skip


def deploy_command(environment: Environment, stack: str = "*") -> str:
    """Return the command that deploys one stack of an environment, or all, as a shell takes it."""
    return shlex.join(["npx", "cdk", "deploy", f"{environment.name}/{stack}", "-c", f"env={environment.name}"])


def tandem_command(*words: str) -> str:
    """Return a command of ours as a shell takes it."""
    return shlex.join(["tandem", *words])


def report_failure(
    error: TandemError, selection: Selection, extra_fields: Mapping[str, object] | None = None
) -> ExitCode:
    """Say a fault, and return its code; `extra_fields` is what the document has of what was done before."""
    if selection.as_json:
        print_json({**(extra_fields or {}), "fault": error.as_dict(), "exit_code": error.exit_code})
    print_error(error)
    return ExitCode(error.exit_code)


def format_row(label: str, text: str) -> Iterator[str]:
    """Yield a labelled line, folded within the width of a screen; a word that is longer stays whole."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<{LABEL_COLUMNS - 2}}", subsequent_indent=" " * LABEL_COLUMNS,
        break_long_words=False, break_on_hyphens=False,
    ) or [f"  {label}"]  # fmt: skip


def format_concern(concern: StatusWarning) -> Iterator[str]:
    """Yield what needs attention and what to do about it; a command stays on one line, to be pasted."""
    yield from format_row("attention", concern.problem)
    if concern.is_command:
        yield f"{' ' * LABEL_COLUMNS}-> {concern.change}"
    else:
        yield from format_row("", f"-> {concern.change}")


def format_clock(moment: datetime, now: datetime) -> str:
    """Return a moment, with its day where that is not today's."""
    return f"{moment:%H:%M} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M} UTC"


def format_span(duration: timedelta) -> str:
    """Return a length of time: `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    seconds = int(abs(duration).total_seconds())
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 1:
        return f"{seconds} s"
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"  # noqa: PLR2004


def format_distance(moment: datetime, now: datetime) -> str:
    """Return how far a moment is away: `in 12 min`, `12 min ago`."""
    return f"in {format_span(moment - now)}" if moment > now else f"{format_span(now - moment)} ago"


def format_moment(moment: datetime, now: datetime) -> str:
    """Return a moment and how far it is away."""
    return f"{format_clock(moment, now)} ({format_distance(moment, now)})"
