"""What start, stop and status share: the environment, times in words, and how they fail.

Invariant: a stop asks of the declared files no more than an environment of good form, for what a
rule refuses and what an experiment says wrong must never keep anybody from ending what is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.cli.console import VerbatimText
from tandem.cli.selection import Selection
from tandem.declarations.document import read_document
from tandem.declarations.environment import Environment
from tandem.declarations.faults import SpecError
from tandem.declarations.record import parse_record
from tandem.declarations.workspace import build_missing_fault
from tandem.errors import InputError, TandemError
from tandem.shell_command import build_cdk_command

if TYPE_CHECKING:
    from tandem.ops.status_warnings import StatusWarning
    from tandem.ops.stop_paths import StopPath

DAYS_FROM_HOURS = 48  # hours from which a span is given in days

TextRow = tuple[str, ...]


def read_environment(selection: Selection, name: str) -> Environment:
    """Return an environment of good form, whatever the rules say of it.

    Its file alone is read: neither another environment nor a folder of experiments that is missing
    matters.

    Raises:
        SpecError: there is no such file, or it has not the form of one.
    """
    folder = selection.environments
    files = {path.stem: path for path in folder.glob("*.yaml")}
    if name not in files:
        change = "name one of these, or another folder by --environments"
        raise SpecError([build_missing_fault(folder, name, files, change)])
    return parse_record(Environment, read_document(files[name]), name=name)


def explain_fault(fault: TandemError, environment: Environment) -> TandemError:
    """Return a stop's or start's fault in an operator's terms: no bucket means not deployed."""
    if "NoSuchBucket" not in fault.problem:
        return fault
    return InputError(
        "it is not deployed: its bucket does not exist",
        where=f"{environment.name} in account {environment.account}",
        change=f"{build_cdk_command('deploy', environment.name)}, or see that the name is meant",
    )


def list_warning_rows(warning: StatusWarning) -> Iterator[TextRow]:
    """Yield what needs attention and what to do; keep a command on one line, to be pasted."""
    yield "attention", warning.problem
    text = f"-> {warning.change}"
    yield "", VerbatimText(text) if warning.is_command else text


def describe_path(path: StopPath, now: datetime) -> str:
    """Return a path's state, when it acts next, and its sentence."""
    mark = {"unarmed": "NOT ARMED: ", "unknown": "unknown: "}.get(path.state, "")
    moment_text = f"{format_moment(path.at, now)}: " if path.at else ""
    return f"{mark}{moment_text}{path.sentence}"


def path_as_dict(path: StopPath) -> dict[str, Any]:
    """Return a path's row; its `state` is armed, unarmed, absent or unknown."""
    return {
        "name": path.name,
        "state": path.state,
        "at": path.at.isoformat() if path.at else None,
        "said": path.sentence,
    }


def format_span(duration: timedelta) -> str:
    """Return a length of time: `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    seconds = int(abs(duration).total_seconds())
    minutes = seconds // 60
    hours = seconds // 3600
    if minutes < 1:
        return f"{seconds} s"
    if hours < 1:
        return f"{minutes} min"
    if hours < DAYS_FROM_HOURS:
        return f"{hours} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24} h"


def format_distance(moment: datetime, now: datetime) -> str:
    """Return how far a moment is away: `in 12 min`, `12 min ago`."""
    if moment > now:
        return f"in {format_span(moment - now)}"
    return f"{format_span(now - moment)} ago"


def format_moment(moment: datetime, now: datetime) -> str:
    """Return a moment, with its day where that is not today's, and how far it is away."""
    clock = f"{moment:%H:%M} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M} UTC"
    return f"{clock} ({format_distance(moment, now)})"
