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

from tandem.cli import fleet
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, TandemError
from tandem.shell_command import clean_text
from tandem.spec.environment import Environment

if TYPE_CHECKING:
    from tandem.ops.doctor import CheckResult

WIDTH = 100  # columns
LEVELS = ("ok", "warn", "fail", "unknown")
LEVEL_COLUMNS, CHECK_COLUMNS = 9, 15  # columns of a line's first two words
TEXT_COLUMN = 2 + LEVEL_COLUMNS + CHECK_COLUMNS
VERDICTS = {
    ExitCode.DONE: "nothing stands in the way",
    ExitCode.STALE: "nothing stands in the way, but not all is ok",
    ExitCode.BAD_INPUT: "what is declared and the account do not fit",
    ExitCode.EXTERNAL_FAILURE: "something that is needed failed or could not be seen",
}
PROOF_VERDICTS = {
    ExitCode.DONE: "the one-shot stop reaches EKS",
    ExitCode.EXTERNAL_FAILURE: "the one-shot stop is not proven",
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


def doctor(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Examine an environment's account.

    Args:
        selection: the folders of declared files.
        options: `env`, `strict`, `policy` and `prove_stop`.

    Raises:
        SpecError: a declared file is refused.
    """
    inputs = read_legal_inputs(replace(selection, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    from tandem.ops.doctor import DoctorContext, exit_code, run_checks  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.account import AllowlistedAccount  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.call_policy import build_policy  # noqa: PLC0415 - boto3

    if options.policy:
        print_json(build_policy(environment, with_proof=options.prove_stop))
        return ExitCode.DONE
    if options.prove_stop:
        return _prove_stop(selection, environment, strict=options.strict)
    subject = DoctorContext(
        environment=environment, experiments=tuple(inputs.list_experiments(environment)), catalogue=inputs.catalogue,
        now=datetime.now(tz=UTC), resolve_digest=_resolve_digest,
    )  # fmt: skip
    lines = run_checks(subject, AllowlistedAccount(environment))
    return _report_checks(selection, environment, lines, ExitCode(exit_code(lines, strict=options.strict)), VERDICTS)


def _report_checks(
    selection: Selection,
    environment: Environment,
    lines: Sequence[CheckResult],
    code: ExitCode,
    verdicts: Mapping[ExitCode, str],
) -> ExitCode:
    if selection.as_json:
        print_json({
            "environment": environment.name, "account": environment.account, "region": environment.region,
            "lines": [line.as_json() for line in lines], "counts": _count_levels(lines), "exit_code": int(code),
        })  # fmt: skip
    else:
        print("\n".join(_format_checks(environment, lines, code, verdicts)))
    return code


def _prove_stop(selection: Selection, environment: Environment, *, strict: bool) -> ExitCode:
    """Fire the one-shot stop, and say what came of it; a refusal is told as a start's is."""
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415 - boto3
    from tandem.ops.doctor import exit_code  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.account import AllowlistedAccount  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.call_policy import DOCTOR_CALLS, PROOF_CALLS  # noqa: PLC0415 - boto3
    from tandem.ops.doctor.runner import run_stop_proof  # noqa: PLC0415 - boto3

    try:
        aws_session = create_session()
        require_account(environment, aws_session)
        with _interrupt_on_sigterm():
            line = run_stop_proof(
                AllowlistedAccount(environment, aws_session, (*DOCTOR_CALLS, *PROOF_CALLS)), _print_stderr
            )
    except TandemError as error:
        return fleet.report_failure(error, selection)
    return _report_checks(selection, environment, [line], ExitCode(exit_code([line], strict=strict)), PROOF_VERDICTS)


def _print_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the proof as Ctrl-C does, so that its schedule goes too."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _resolve_digest(reference: str) -> str:
    from tandem.cli import image_digests  # noqa: PLC0415 - the only part that asks registries
    from tandem.ops.doctor.context import MissingImageError, RegistryError  # noqa: PLC0415 - beside its only use

    try:
        return image_digests.resolve_digest(reference, image_digests.open_public_registry)
    except image_digests.UnknownTagError as error:
        raise MissingImageError(f"its registry has no {reference}") from error
    except image_digests.ResolveError as error:
        raise RegistryError(_describe_cause(error)) from error


def _describe_cause(error: BaseException) -> str:
    """Return what a registry's client says at last, without what it was doing when it failed."""
    cause = error.__cause__ or error
    inner_error = cause.args[0] if cause.args else cause
    return " ".join(str(getattr(inner_error, "reason", cause)).split()) or type(cause).__name__


def _count_levels(lines: Sequence[CheckResult]) -> dict[str, int]:
    return {level: sum(line.level == level for line in lines) for level in LEVELS}


def _format_checks(
    environment: Environment, lines: Sequence[CheckResult], code: ExitCode, verdicts: Mapping[ExitCode, str]
) -> Iterator[str]:  # fmt: skip
    yield f"{environment.name}: account {environment.account}, {environment.region}"
    for group in dict.fromkeys(line.group for line in lines):
        yield group
        yield from (row for line in lines if line.group == group for row in _format_check(line))
    counts = ", ".join(f"{count} {level}" for level, count in _count_levels(lines).items())
    yield f"{verdicts[code]}: {counts}; exit code {int(code)}"


def _format_check(line: CheckResult) -> Iterator[str]:
    """Return a line within the width of a screen, but for a command, which must be typed as it stands."""
    yield from _wrap_text(line.said, f"  {line.level:<{LEVEL_COLUMNS}}{line.check:<{CHECK_COLUMNS}}")
    if line.do:
        yield from _wrap_text(line.do, f"{'':<{TEXT_COLUMN}}do   ")
    if line.command:
        yield f"{'':<6}{clean_text(line.command)}"


def _wrap_text(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        clean_text(text), WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
