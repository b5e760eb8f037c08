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

from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection
from tandem.shell_command import clean_text, quote_command
from tandem.spec.environment import Environment
from tandem.spec.faults import SpecError
from tandem.spec.load import load

if TYPE_CHECKING:
    from tandem.ops.destroy.account import Account
    from tandem.ops.destroy.survey import Stays, Survey
    from tandem.ops.fault import OpsError
    from tandem.ops.leftovers import Leftovers

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
STEP = 1024


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
        "--poll-s", type=_seconds, default=10.0, metavar="S", help="seconds between two looks at a stack; 10"
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:  # noqa: PLR2004 - ten minutes
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 600")
    return value


def destroy(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Show, ask, delete, search.

    Args:
        chosen: the folders of declared files.
        options: `env`, `yes_i_mean`, `gitops_removed`, `adopt_untagged` and `poll_s`.

    Raises:
        SpecError: there is no such environment, or its file has no good form.
    """
    environment = _environment(chosen, options.env)
    from tandem.ops.fault import OpsError  # noqa: PLC0415 - boto3

    try:
        return _destroy(environment, chosen, options)
    except OpsError as fault:
        return _failed(fault, chosen)
    except KeyboardInterrupt:
        _say("interrupted: CloudFormation goes on with what it was asked; the same command goes on from there")
        raise


def _environment(chosen: Selection, name: str) -> Environment:
    workspace = load(chosen.environments, chosen.experiments, (name,))
    declared = workspace.environments.get(name)
    if declared is None or declared.environment is None:
        raise SpecError(list(workspace.faults))
    return declared.environment


def _destroy(environment: Environment, chosen: Selection, options: argparse.Namespace) -> Exit:
    from tandem.ops.account import require_account  # noqa: PLC0415 - boto3
    from tandem.ops.destroy.account import Account  # noqa: PLC0415
    from tandem.ops.destroy.delete import Settings  # noqa: PLC0415
    from tandem.ops.destroy.steps import destroy as take_down  # noqa: PLC0415
    from tandem.ops.destroy.survey import survey  # noqa: PLC0415
    from tandem.ops.leftovers import leftovers  # noqa: PLC0415

    _say(f"{environment.name}: account {environment.account}, {environment.region}; looking, nothing is changed yet")
    who = require_account(environment)
    account = Account(environment=environment, adopted=frozenset(options.adopt_untagged))
    seen = survey(account, gitops_removed=options.gitops_removed)
    _show(account, seen, who)
    if seen.goes:
        _confirm(environment.name, options.yes_i_mean)
        take_down(account, Settings(poll_s=options.poll_s), _say)
    else:
        _say(f"{environment.name}: no stack of it is deployed, there is nothing to delete")
    _say("searching for what is left")
    declared = [path.stem for path in chosen.environments.glob("*.yaml") if path.stem != environment.name]
    return _told(environment, seen, leftovers(account, declared), chosen)


def _say(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {clean_text(line)}", file=sys.stderr, flush=True)


def _show(account: Account, seen: Survey, who: str) -> None:
    from tandem.ops.destroy.gitops import objects  # noqa: PLC0415 - boto3

    lines = [f"as {who}"]
    lines += [
        f"goes   {one.stack.name}, {counted(one.resources, 'resource')}{', adopted' if one.stack.adoptable else ''}"
        for one in seen.goes
    ]
    lines += [f"stays  {one.name}, {_size(one)}: {one.note}" for one in seen.stays]
    if seen.goes and objects(account.environment):
        lines.append(f"removed by you before, with the GitOps tool: {', '.join(objects(account.environment))}")
    lines += [f"stuck  {name}: its last deletion failed; it is tried again with what helps" for name in seen.stuck]
    for line in lines:
        print(clean_text(line), file=sys.stderr)
    sys.stderr.flush()


def _size(stays: Stays) -> str:
    if stays.size is None:
        return "size unknown" if stays.name.startswith("s3:") else "0 USD a month"
    price = "USD a month unknown" if stays.usd_month is None else f"{stays.usd_month:.2f} USD a month"
    return f"{_bytes(stays.size)}, {price}"


def _bytes(size: int) -> str:
    value, unit = float(size), UNITS[0]
    for unit in UNITS:  # noqa: B007 - the last one is kept
        if value < STEP:
            break
        value /= STEP
    return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"


def _confirm(name: str, said: str | None) -> None:
    """Ask for the name.

    Raises:
        RefusedError: another name was said, or none.
    """
    from tandem.ops.fault import RefusedError  # noqa: PLC0415 - boto3

    if said is None and sys.stdin.isatty():
        print(f"Type the environment's name to destroy it, anything else to leave: {name}? ", end="", file=sys.stderr)
        sys.stderr.flush()
        said = sys.stdin.readline().strip()
    if said != name:
        told = "nobody said the environment's name" if not said else f"the name that was said is {said}"
        change = f"{quote_command('--yes-i-mean', name)} says it"
        raise RefusedError(f"{told}; nothing was changed", where=name, change=change)


def _failed(fault: OpsError, chosen: Selection) -> Exit:
    if chosen.as_json:
        said = {"problem": fault.problem, "where": fault.where, "change": fault.change}
        print_json({"fault": said, "exit_code": fault.code})
    _say(f"error: {fault}")
    return Exit(fault.code)


def _told(environment: Environment, seen: Survey, left: Leftovers, chosen: Selection) -> Exit:
    code = Exit.WORLD_FAILED if left.unsearched else Exit.STALE if left.orphans else Exit.DONE
    if chosen.as_json:
        print_json(_document(environment, seen, left) | {"exit_code": int(code)})
        return code
    print("nothing left but:" if not left.unsearched else "of what could be searched, nothing left but:")
    for one in left.kept:
        print(clean_text(f"  {one.kind} {one.name}: stays, {one.note}"))
    for one in left.orphans:
        print(clean_text(f"  {one.kind} {one.name}: ORPHAN{f' ({one.note})' if one.note else ''}; {one.remove}"))
    if not (left.kept or left.orphans):
        print("  nothing")
    for kind in left.unsearched:
        print(clean_text(f"  not searched: {kind.kind}: {kind.why}"))
    print(_metrics(environment))
    return code


def _metrics(environment: Environment) -> str:
    return (
        f"metrics of {environment.name} end 15 months after their last value and cost nothing until then; the CDK's "
        f"own bootstrap stack (qualifier {environment.bootstrap.qualifier}) is shared and was not touched"
    )


def _document(environment: Environment, seen: Survey, left: Leftovers) -> dict[str, Any]:
    return {
        "environment": environment.name, "account": environment.account, "region": environment.region,
        "deleted": [one.stack.name for one in seen.goes],
        "stays": [asdict(one) for one in seen.stays],
        "kept": [asdict(one) for one in left.kept],
        "orphans": [asdict(one) for one in left.orphans],
        "unsearched": [asdict(one) for one in left.unsearched],
    }  # fmt: skip
