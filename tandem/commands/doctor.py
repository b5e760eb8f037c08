"""`tandem doctor`: whether an environment can be deployed and raised, asked of its account before any money is spent.

Invariant: nothing is written anywhere. boto3 and the registries' client are loaded when something is examined.

Exit codes: 0 nothing fails; 1 with --strict, where a line is not ok; 2 something declared must change; 3 something that
is needed failed or could not be seen.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.spec.environment import Environment

if TYPE_CHECKING:
    from tandem.ops.doctor import Line

WIDTH = 100  # columns
LEVELS = ("ok", "warn", "fail", "unknown")
LEVEL, CHECK = 9, 15  # columns of a line's first two words
SAID = 2 + LEVEL + CHECK
VERDICTS = {
    Exit.DONE: "nothing stands in the way",
    Exit.STALE: "nothing stands in the way, but not all is ok",
    Exit.BAD_INPUT: "what is declared and the account do not fit",
    Exit.WORLD_FAILED: "something that is needed failed or could not be seen",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem doctor` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a line is not ok")
    parser.add_argument("--policy", action="store_true", help="print the IAM policy that it needs, and ask nothing")


def doctor(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Examine an environment's account.

    Args:
        chosen: the folders of declared files.
        options: `env`, `strict` and `policy`.

    Raises:
        SpecError: a declared file is refused.
    """
    inputs = legal(replace(chosen, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    from tandem.ops.doctor import Subject, examine, exit_code  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.account import Account  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.calls import policy  # noqa: PLC0415 - boto3

    if options.policy:
        print_json(policy(environment))
        return Exit.DONE
    subject = Subject(
        environment=environment, experiments=tuple(inputs.hosted(environment)), catalogue=inputs.catalogue,
        now=datetime.now(tz=UTC), digest_of=_digest_of,
    )  # fmt: skip
    lines = examine(subject, Account(environment))
    code = Exit(exit_code(lines, strict=options.strict))
    if chosen.as_json:
        print_json({
            "environment": environment.name, "account": environment.account, "region": environment.region,
            "lines": [line.as_json() for line in lines], "counts": _counts(lines), "exit_code": int(code),
        })  # fmt: skip
    else:
        print("\n".join(_told(environment, lines, code)))
    return code


def _digest_of(reference: str) -> str:
    from tandem.commands import resolve  # noqa: PLC0415 - the only part that asks registries
    from tandem.ops.doctor.subject import MissingImageError, RegistryError  # noqa: PLC0415 - beside its only use

    try:
        return resolve.digest_of(reference, resolve.public_registry)
    except resolve.UnknownTagError as error:
        raise MissingImageError(f"its registry has no {reference}") from error
    except resolve.ResolveError as error:
        raise RegistryError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Return what a registry's client says at last, without what it was doing when it failed."""
    cause = error.__cause__ or error
    wrapped = cause.args[0] if cause.args else cause
    return " ".join(str(getattr(wrapped, "reason", cause)).split()) or type(cause).__name__


def _counts(lines: Sequence[Line]) -> dict[str, int]:
    return {level: sum(line.level == level for line in lines) for level in LEVELS}


def _told(environment: Environment, lines: Sequence[Line], code: Exit) -> Iterator[str]:
    yield f"{environment.name}: account {environment.account}, {environment.region}"
    for group in dict.fromkeys(line.group for line in lines):
        yield group
        yield from (row for line in lines if line.group == group for row in _rows(line))
    counts = ", ".join(f"{count} {level}" for level, count in _counts(lines).items())
    yield f"{VERDICTS[code]}: {counts}; exit code {int(code)}"


def _rows(line: Line) -> Iterator[str]:
    """Return a line within the width of a screen, but for a command, which must be typed as it stands."""
    yield from _folded(line.said, f"  {line.level:<{LEVEL}}{line.check:<{CHECK}}")
    if line.do:
        yield from _folded(line.do, f"{'':<{SAID}}do   ")
    if line.command:
        yield f"{'':<6}{line.command}"


def _folded(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
