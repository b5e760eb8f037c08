"""`tandem doctor`: whether an environment can be deployed and raised, asked of its account before any money is spent.

`--prove-stop` examines nothing and fires the one-shot stop of a lease once, at a fleet that is at 0.

Invariant: nothing is written anywhere, but for the schedule of that proof, which goes again. boto3 and the registries'
client are loaded when something is examined.

Exit codes: 0 nothing fails; 1 with --strict, where a line is not ok; 2 something declared must change; 3 something that
is needed failed or could not be seen.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tandem.commands import fleet
from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.shell_command import clean_text
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
PROOF_VERDICTS = {
    Exit.DONE: "the one-shot stop reaches EKS",
    Exit.WORLD_FAILED: "the one-shot stop is not proven",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem doctor` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a line is not ok")
    parser.add_argument("--policy", action="store_true", help="print the IAM policy that it needs, and ask nothing")
    parser.add_argument(
        "--prove-stop", action="store_true",
        help="fire the one-shot stop once at a fleet at 0, and see that EKS takes it; minutes, raises nothing",
    )  # fmt: skip


def doctor(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Examine an environment's account.

    Args:
        chosen: the folders of declared files.
        options: `env`, `strict`, `policy` and `prove_stop`.

    Raises:
        SpecError: a declared file is refused.
    """
    inputs = legal(replace(chosen, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    from tandem.ops.doctor import Subject, examine, exit_code  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.account import Account  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.calls import policy  # noqa: PLC0415 - boto3

    if options.policy:
        print_json(policy(environment, proof=options.prove_stop))
        return Exit.DONE
    if options.prove_stop:
        return _prove(chosen, environment, strict=options.strict)
    subject = Subject(
        environment=environment, experiments=tuple(inputs.hosted(environment)), catalogue=inputs.catalogue,
        now=datetime.now(tz=UTC), digest_of=_digest_of,
    )  # fmt: skip
    lines = examine(subject, Account(environment))
    return _said(chosen, environment, lines, Exit(exit_code(lines, strict=options.strict)), VERDICTS)


def _said(
    chosen: Selection, environment: Environment, lines: Sequence[Line], code: Exit, verdicts: Mapping[Exit, str]
) -> Exit:
    if chosen.as_json:
        print_json({
            "environment": environment.name, "account": environment.account, "region": environment.region,
            "lines": [line.as_json() for line in lines], "counts": _counts(lines), "exit_code": int(code),
        })  # fmt: skip
    else:
        print("\n".join(_told(environment, lines, code, verdicts)))
    return code


def _prove(chosen: Selection, environment: Environment, *, strict: bool) -> Exit:
    """Fire the one-shot stop, and say what came of it; a refusal is told as a start's is."""
    from tandem.ops.account import require_account, session  # noqa: PLC0415 - boto3
    from tandem.ops.doctor import exit_code  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.account import Account  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.calls import CALLS, PROOF_CALLS  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.examine import proven  # noqa: PLC0415 - boto3
    from tandem.ops.fault import OpsError  # noqa: PLC0415 - boto3

    try:
        shared = session()
        require_account(environment, shared)
        with _ended_as_interrupted():
            line = proven(Account(environment, shared, (*CALLS, *PROOF_CALLS)), _aside)
    except OpsError as error:
        return fleet.failed(error, chosen)
    return _said(chosen, environment, [line], Exit(exit_code([line], strict=strict)), PROOF_VERDICTS)


def _aside(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the proof as Ctrl-C does, so that its schedule goes too."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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


def _told(
    environment: Environment, lines: Sequence[Line], code: Exit, verdicts: Mapping[Exit, str]
) -> Iterator[str]:  # fmt: skip
    yield f"{environment.name}: account {environment.account}, {environment.region}"
    for group in dict.fromkeys(line.group for line in lines):
        yield group
        yield from (row for line in lines if line.group == group for row in _rows(line))
    counts = ", ".join(f"{count} {level}" for level, count in _counts(lines).items())
    yield f"{verdicts[code]}: {counts}; exit code {int(code)}"


def _rows(line: Line) -> Iterator[str]:
    """Return a line within the width of a screen, but for a command, which must be typed as it stands."""
    yield from _folded(line.said, f"  {line.level:<{LEVEL}}{line.check:<{CHECK}}")
    if line.do:
        yield from _folded(line.do, f"{'':<{SAID}}do   ")
    if line.command:
        yield f"{'':<6}{clean_text(line.command)}"


def _folded(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        clean_text(text), WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
