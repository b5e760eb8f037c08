"""What start, stop and status share: the environment they mean, moments and spans in words, and how they fail.

Invariant: a stop asks of the declared files no more than an environment of good form, for what a rule refuses and what
an experiment says wrong must never keep anybody from ending what is paid for.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.spec.document import read_document
from tandem.spec.environment import Environment
from tandem.spec.faults import Fault, SpecError
from tandem.spec.record import parse

if TYPE_CHECKING:
    from tandem.ops.concerns import Concern
    from tandem.ops.fault import OpsError, RefusedError
    from tandem.stop import StopError

WIDTH = 100
LABEL = 12  # characters of a line's first word and what follows it


def environment_of(chosen: Selection, name: str) -> Environment:
    """Return an environment of good form, whatever the rules say of it.

    Its file alone is read: neither another environment nor a folder of experiments that is missing matters.

    Raises:
        SpecError: there is no such file, or it has not the form of one.
    """
    files = {path.stem: path for path in sorted(chosen.environments.glob("*.yaml"))}
    if name not in files:
        raise SpecError([
            Fault(file=str(chosen.environments / f"{name}.yaml"), path="", got="no such file",
                  allowed=", ".join(files) or "none yet", change="name one of these, or another folder by "
                  "--environments")
        ])  # fmt: skip
    return parse(Environment, read_document(files[name]), name=name)


def siblings(chosen: Selection, name: str) -> list[str]:
    """Return the names of the other environments, of good form or not."""
    return sorted(path.stem for path in chosen.environments.glob("*.yaml") if path.stem != name)


def explain_fault(fault: StopError, environment: Environment) -> OpsError | StopError:
    """Return the fault of a stop or a start as its operator meets it: without its bucket nothing is deployed."""
    return not_deployed(environment, "its bucket does not exist") if "NoSuchBucket" in fault.what else fault


def not_deployed(environment: Environment, why: str) -> RefusedError:
    """Return the refusal of an environment of which nothing exists."""
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3

    return RefusedError(
        f"it is not deployed: {why}", where=f"{environment.name} in account {environment.account}",
        change=f"{deploy_command(environment)}, or see that the name is meant",
    )  # fmt: skip


def deploy_command(environment: Environment, stack: str = "*") -> str:
    """Return the command that deploys one stack of an environment, or all, as a shell takes it."""
    return shlex.join(["npx", "cdk", "deploy", f"{environment.name}/{stack}", "-c", f"env={environment.name}"])


def tandem_command(*words: str) -> str:
    """Return a command of ours as a shell takes it."""
    return shlex.join(["tandem", *words])


def failed(error: OpsError | StopError, chosen: Selection, done: Mapping[str, object] | None = None) -> Exit:
    """Say a fault, and return its code; `done` is what the document has of what was done before."""
    problem = getattr(error, "problem", None) or getattr(error, "what", str(error))
    if chosen.as_json:
        said = {"problem": problem, "where": error.where, "change": error.change}
        print_json({**(done or {}), "fault": said, "exit_code": error.code})
    place = f"{error.where}: " if error.where else ""
    print(f"error: {place}{problem}\n  change   {error.change}", file=sys.stderr)
    return Exit(error.code)


def row(label: str, text: str) -> Iterator[str]:
    """Yield a labelled line, folded within the width of a screen; a word that is longer stays whole."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<{LABEL - 2}}", subsequent_indent=" " * LABEL,
        break_long_words=False, break_on_hyphens=False,
    ) or [f"  {label}"]  # fmt: skip


def concern_rows(concern: Concern) -> Iterator[str]:
    """Yield what needs attention and what to do about it; a command stays on one line, to be pasted."""
    yield from row("attention", concern.problem)
    if concern.is_command:
        yield f"{' ' * LABEL}-> {concern.change}"
    else:
        yield from row("", f"-> {concern.change}")


def clock(at: datetime, now: datetime) -> str:
    """Return a moment, with its day where that is not today's."""
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def span(length: timedelta) -> str:
    """Return a length of time: `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    seconds = int(abs(length).total_seconds())
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 1:
        return f"{seconds} s"
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"  # noqa: PLR2004


def until(at: datetime, now: datetime) -> str:
    """Return how far a moment is away: `in 12 min`, `12 min ago`."""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def when(at: datetime, now: datetime) -> str:
    """Return a moment and how far it is away."""
    return f"{clock(at, now)} ({until(at, now)})"
