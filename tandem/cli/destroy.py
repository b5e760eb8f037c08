"""`tandem destroy`: takes an environment down, and says what is left.

Invariant: nothing is deleted before the operator has seen what goes and what stays and has typed
the environment's name. An environment that the rules refuse today may still be taken down: its file
is read for its form alone.

Exit codes: 0 nothing is left but what stays on purpose; 1 orphans are left; 2 refused, nothing was
changed by what was refused; 3 AWS failed, or a kind could not be searched. After 3 the same command
goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter
from rich.filesize import decimal

from tandem.cli.console import (
    VerbatimText,
    format_count,
    print_json,
    print_line,
    print_message,
    print_rows,
)
from tandem.cli.flags import EnvironmentName, require_range
from tandem.cli.fleet import read_environment
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode, InputError
from tandem.ops.account import AccountClients, require_account
from tandem.ops.destroy.stack_deletion import TeardownSettings
from tandem.ops.destroy.stacks import DELETE_FAILED
from tandem.ops.destroy.steps import destroy_environment
from tandem.ops.destroy.survey import TeardownSurvey, survey_teardown
from tandem.ops.leftovers import LeftoverResource, search_leftovers
from tandem.shell_command import quote_command


def destroy(
    *,
    env: EnvironmentName,
    yes_i_mean: Annotated[str | None, Parameter(metavar="NAME")] = None,
    gitops_removed: bool = False,
    poll_s: Annotated[
        float, Parameter(metavar="S", validator=require_range(1e-9, 600, "seconds"))
    ] = 10.0,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Take an environment down stack by stack, and search for what is left.

    Args:
        env: the environment
        yes_i_mean: the environment's name once more, to confirm without a terminal
        gitops_removed: confirm that Argo CD or Flux has removed what it applied
        poll_s: seconds between two looks at a stack

    Raises:
        TandemError: there is no such environment, another name was said, or AWS refused.
    """
    environment = read_environment(selection, env)
    account = AccountClients(environment)
    try:
        _print_progress(f"{env}: account {environment.account}, {environment.region}; looking only")
        survey = _survey_environment(account, gitops_removed=gitops_removed)
        if survey.stacks:
            _confirm_name(env, yes_i_mean)
            destroy_environment(account, TeardownSettings(poll_s=poll_s), _print_progress)
        else:
            _print_progress(f"{env}: no stack of it is deployed, there is nothing to delete")
        _print_progress("searching for what is left")
        other_names = {path.stem for path in selection.environments.glob("*.yaml")} - {env}
        leftovers, failures = search_leftovers(account, sorted(other_names))
    except KeyboardInterrupt:
        _print_progress(
            "interrupted: CloudFormation goes on; the same command continues from there"
        )
        raise

    kept_resources = [resource for resource in leftovers if resource.kept]
    orphans = [resource for resource in leftovers if not resource.kept]
    code = ExitCode.STALE if orphans else ExitCode.DONE
    code = ExitCode.EXTERNAL_FAILURE if failures else code
    if selection.as_json:
        document = {
            "environment": env,
            "account": environment.account,
            "region": environment.region,
            "deleted": [stack.name for stack in survey.stacks],
            "stays": [asdict(resource) for resource in survey.permanent_resources],
            "kept": [asdict(resource) for resource in kept_resources],
            "orphans": [asdict(resource) for resource in orphans],
            "unsearched": failures,
        }
        print_json(document, code)
    else:
        _print_leftovers([*kept_resources, *orphans], failures)
    return code


def _survey_environment(account: AccountClients, *, gitops_removed: bool) -> TeardownSurvey:
    """Return what goes and what stays, and print it."""
    caller = require_account(account.environment)
    survey = survey_teardown(account, gitops_gone=gitops_removed)
    rows = [("as", caller), *_list_survey_rows(survey)]
    print_rows(rows, indent=0, label_columns=7, stderr=True)
    return survey


def _print_progress(line: str) -> None:
    print_message(f"{datetime.now(UTC):%H:%M:%S} {line}")
    sys.stderr.flush()


def _list_survey_rows(survey: TeardownSurvey) -> Iterator[tuple[str, str]]:
    for stack, resource_count in survey.stacks.items():
        stuck = "; its last deletion failed" if stack.status == DELETE_FAILED else ""
        yield "goes", f"{stack.name}, {format_count(resource_count, 'resource')}{stuck}"
    for resource in survey.permanent_resources:
        cost = ""
        if resource.kind == "bucket":
            cost = f", {_format_cost(resource)}"
        yield "stays", f"{resource.kind} {resource.name}{cost}: {resource.note}"


def _format_cost(bucket: LeftoverResource) -> str:
    if bucket.size is None:
        return "size unknown"
    if bucket.usd_month is None:
        return f"{decimal(bucket.size)}, cost unknown"
    return f"{decimal(bucket.size)}, {bucket.usd_month:.2f} USD a month"


def _confirm_name(name: str, typed_name: str | None) -> None:
    """Ask for the name.

    Raises:
        InputError: another name was said, or none.
    """
    if typed_name is None and sys.stdin.isatty():
        question = f"Type the environment's name to destroy it, anything else to leave: {name}? "
        print(question, end="", file=sys.stderr, flush=True)
        typed_name = sys.stdin.readline().strip()
    if typed_name != name:
        problem = f"the name given is {typed_name}" if typed_name else "no name was given"
        change = f"{quote_command('--yes-i-mean', name)} says it"
        raise InputError(f"{problem}; nothing was changed", where=name, change=change)


def _print_leftovers(leftovers: Sequence[LeftoverResource], failures: Mapping[str, str]) -> None:
    lines = []
    for resource in leftovers:
        name = f"{resource.kind} {resource.name}"
        if resource.kept:
            lines.append(f"{name}: stays, {resource.note}")
            continue
        note = f" ({resource.note})" if resource.note else ""
        lines.append(f"{name}: ORPHAN{note}")
        if resource.remove:
            lines.append(VerbatimText(f"  {resource.remove}"))
    lines = lines or ["nothing"]
    lines += [f"not searched: {kind}: {why}" for kind, why in failures.items()]
    print_line("of what could be searched, nothing left but:" if failures else "nothing left but:")
    print_rows((line,) for line in lines)
