"""`tandem destroy`: takes an environment down, and says what is left.

Invariant: nothing is deleted before the operator has seen what goes and what stays and has typed the environment's
name. An environment that the rules refuse today may still be taken down: its file is read for its form alone.

Exit codes: 0 nothing is left but what stays on purpose; 1 orphans are left; 2 refused, nothing was changed by what was
refused; 3 AWS failed, or a kind could not be searched. After 3 the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tandem.cli.outcome import format_count, print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, InputError, TandemError
from tandem.shell_command import clean_text, quote_command
from tandem.spec.environment import Environment
from tandem.spec.faults import SpecError
from tandem.spec.workspace import load_workspace

if TYPE_CHECKING:
    from tandem.ops.account import AccountClients
    from tandem.ops.destroy.survey import PermanentResource, TeardownSurvey
    from tandem.ops.leftovers import LeftoverReport

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
UNIT_STEP = 1024


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")
    parser.add_argument(
        "--yes-i-mean", metavar="NAME", help="the environment's name once more, where nobody can type it"
    )
    parser.add_argument(
        "--gitops-removed", action="store_true", help="Argo CD or Flux has removed what it applied; only you can see it"
    )
    parser.add_argument(
        "--adopt-untagged", nargs="+", action="extend", default=[], metavar="STACK",
        help="delete these stacks too, which have no owner's tag; only you can see that they are yours",
    )  # fmt: skip
    parser.add_argument(
        "--poll-s", type=_parse_seconds, default=10.0, metavar="S", help="seconds between two looks at a stack; 10"
    )


def _parse_seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:  # noqa: PLR2004 - ten minutes
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 600")
    return value


def destroy(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Show, ask, delete, search.

    Args:
        selection: the folders of declared files.
        options: `env`, `yes_i_mean`, `gitops_removed`, `adopt_untagged` and `poll_s`.

    Raises:
        SpecError: there is no such environment, or its file has no good form.
    """
    environment = _read_environment(selection, options.env)

    try:
        return _destroy_environment(environment, selection, options)
    except TandemError as fault:
        return _report_failure(fault, selection)
    except KeyboardInterrupt:
        _print_progress(
            "interrupted: CloudFormation goes on with what it was asked; the same command goes on from there"
        )
        raise


def _read_environment(selection: Selection, name: str) -> Environment:
    workspace = load_workspace(selection.environments, selection.experiments, (name,))
    declaration = workspace.environments.get(name)
    if declaration is None or declaration.environment is None:
        raise SpecError(list(workspace.faults))
    return declaration.environment


def _destroy_environment(environment: Environment, selection: Selection, options: argparse.Namespace) -> ExitCode:
    from tandem.ops.account import AccountClients, require_account  # noqa: PLC0415 - boto3
    from tandem.ops.destroy.stack_deletion import TeardownSettings  # noqa: PLC0415
    from tandem.ops.destroy.steps import destroy_environment as take_down  # noqa: PLC0415
    from tandem.ops.destroy.survey import survey_teardown  # noqa: PLC0415
    from tandem.ops.leftovers import search_leftovers  # noqa: PLC0415

    _print_progress(
        f"{environment.name}: account {environment.account}, {environment.region}; looking, nothing is changed yet"
    )
    caller = require_account(environment)
    account = AccountClients(environment=environment, adopted_stacks=frozenset(options.adopt_untagged))
    account_survey = survey_teardown(account, gitops_gone=options.gitops_removed)
    _print_survey(account, account_survey, caller)
    if account_survey.deletions:
        _confirm_name(environment.name, options.yes_i_mean)
        take_down(account, TeardownSettings(poll_s=options.poll_s), _print_progress)
    else:
        _print_progress(f"{environment.name}: no stack of it is deployed, there is nothing to delete")
    _print_progress("searching for what is left")
    environment_names = [path.stem for path in selection.environments.glob("*.yaml") if path.stem != environment.name]
    return _report_leftovers(environment, account_survey, search_leftovers(account, environment_names), selection)


def _print_progress(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {clean_text(line)}", file=sys.stderr, flush=True)


def _print_survey(account: AccountClients, account_survey: TeardownSurvey, caller: str) -> None:
    from tandem.ops.destroy.gitops import list_gitops_objects  # noqa: PLC0415 - boto3

    lines = [f"as {caller}"]
    lines += [
        f"goes   {item.stack.name}, "
        f"{format_count(item.resource_count, 'resource')}{', adopted' if item.stack.is_adoptable else ''}"
        for item in account_survey.deletions
    ]
    lines += [f"stays  {item.name}, {_format_cost(item)}: {item.note}" for item in account_survey.permanent_resources]
    if account_survey.deletions and list_gitops_objects(account.environment):
        lines.append(
            f"removed by you before, with the GitOps tool: {', '.join(list_gitops_objects(account.environment))}"
        )
    lines += [
        f"stuck  {name}: its last deletion failed; it is tried again with what helps"
        for name in account_survey.stuck_stacks
    ]
    for line in lines:
        print(clean_text(line), file=sys.stderr)
    sys.stderr.flush()


def _format_cost(resource: PermanentResource) -> str:
    if resource.size is None:
        return "size unknown" if resource.name.startswith("s3:") else "0 USD a month"
    price = "USD a month unknown" if resource.usd_month is None else f"{resource.usd_month:.2f} USD a month"
    return f"{_format_bytes(resource.size)}, {price}"


def _format_bytes(size: int) -> str:
    value, unit = float(size), UNITS[0]
    for unit in UNITS:  # noqa: B007 - the last one is kept
        if value < UNIT_STEP:
            break
        value /= UNIT_STEP
    return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"


def _confirm_name(name: str, typed_name: str | None) -> None:
    """Ask for the name.

    Raises:
        InputError: another name was said, or none.
    """
    if typed_name is None and sys.stdin.isatty():
        print(f"Type the environment's name to destroy it, anything else to leave: {name}? ", end="", file=sys.stderr)
        sys.stderr.flush()
        typed_name = sys.stdin.readline().strip()
    if typed_name != name:
        problem = "nobody said the environment's name" if not typed_name else f"the name that was said is {typed_name}"
        change = f"{quote_command('--yes-i-mean', name)} says it"
        raise InputError(f"{problem}; nothing was changed", where=name, change=change)


def _report_failure(fault: TandemError, selection: Selection) -> ExitCode:
    if selection.as_json:
        print_json({"fault": fault.as_dict(), "exit_code": fault.exit_code})
    _print_progress(f"error: {fault}")
    return ExitCode(fault.exit_code)


def _report_leftovers(
    environment: Environment, account_survey: TeardownSurvey, leftover_search: LeftoverReport, selection: Selection
) -> ExitCode:
    code = (
        ExitCode.EXTERNAL_FAILURE
        if leftover_search.search_failures
        else ExitCode.STALE
        if leftover_search.orphans
        else ExitCode.DONE
    )
    if selection.as_json:
        print_json(_build_document(environment, account_survey, leftover_search) | {"exit_code": int(code)})
        return code
    print(
        "nothing left but:" if not leftover_search.search_failures else "of what could be searched, nothing left but:"
    )
    for resource in leftover_search.permanent_resources:
        print(clean_text(f"  {resource.kind} {resource.name}: stays, {resource.note}"))
    for resource in leftover_search.orphans:
        print(
            clean_text(
                f"  {resource.kind} {resource.name}: ORPHAN{f' ({resource.note})' if resource.note else ''}; "
                f"{resource.remove}"
            )
        )
    if not (leftover_search.permanent_resources or leftover_search.orphans):
        print("  nothing")
    for kind in leftover_search.search_failures:
        print(clean_text(f"  not searched: {kind.kind}: {kind.why}"))
    print(_describe_metrics(environment))
    return code


def _describe_metrics(environment: Environment) -> str:
    return (
        f"metrics of {environment.name} end 15 months after their last value and cost nothing until then; the CDK's "
        f"own bootstrap stack (qualifier {environment.bootstrap.qualifier}) is shared and was not touched"
    )


def _build_document(
    environment: Environment, account_survey: TeardownSurvey, leftover_search: LeftoverReport
) -> dict[str, Any]:
    return {
        "environment": environment.name, "account": environment.account, "region": environment.region,
        "deleted": [item.stack.name for item in account_survey.deletions],
        "stays": [asdict(item) for item in account_survey.permanent_resources],
        "kept": [asdict(item) for item in leftover_search.permanent_resources],
        "orphans": [asdict(item) for item in leftover_search.orphans],
        "unsearched": [asdict(item) for item in leftover_search.search_failures],
    }  # fmt: skip
