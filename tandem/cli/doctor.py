"""`tandem doctor`: checks in the account whether an environment can be deployed and raised.

`--prove-stop` examines nothing and fires the one-shot stop of a lease once, at a fleet that is at
0.

Invariant: nothing is written anywhere, but for the schedule of that proof, which goes again. boto3
and the registries' client are loaded when something is examined.

Exit codes: 0 nothing fails; 1 with --strict, where a line is not ok; 2 something declared must
change; 3 something that is needed failed or could not be seen.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from tandem.cli import image_digests
from tandem.cli.console import print_json, print_line, print_rows
from tandem.cli.flags import EnvironmentName
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.environment import Environment
from tandem.errors import ExitCode
from tandem.ops.account import AccountClients, create_session, require_account
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.ops.doctor.runner import CHECKS, CREDENTIALS, exit_code, run_checks, run_stop_proof
from tandem.ops.people.policies import build_command_policy
from tandem.run.suite_findings import judge_bucket_suite

CHECK_COLUMNS = 24  # of a level and the name of a check
LEVELS = ("ok", "warn", "fail", "unknown")


def doctor(
    *,
    env: EnvironmentName,
    strict: bool = False,
    policy: bool = False,
    prove_stop: bool = False,
    verbose: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Check in the account whether an environment can be deployed; or prove its one-shot stop.

    Args:
        env: the environment
        strict: exit 1 if a check is not ok
        policy: print the IAM policy that this command needs, and check nothing
        prove_stop: fire the one-shot stop once at a fleet of 0 nodes and see that EKS takes it;
            takes minutes, starts nothing
        verbose: also a line for each check that is ok

    Raises:
        TandemError: a declared file is refused, or the stop cannot be proven now.
    """
    inputs = read_legal_inputs(selection.narrow((env,)))
    environment = inputs.environments()[0]
    if policy:
        commands = ("doctor", "doctor --prove-stop") if prove_stop else ("doctor",)
        document = build_command_policy(environment, *commands)
        print(json.dumps(document, indent=2))  # for `aws iam`, which takes no other key
        return ExitCode.DONE

    skipped = 0
    if prove_stop:
        findings: Sequence[Finding] = [_prove_stop(environment)]
    else:
        findings = _run_checks(inputs, environment)
        skipped = len(CHECKS) - len({finding.check for finding in findings})
    code = ExitCode(exit_code(findings, strict=strict))
    levels: list[str] = [finding.level for finding in findings]
    counts = {level: levels.count(level) for level in LEVELS}
    counts["skipped"] = skipped
    if selection.as_json:
        document = {
            "environment": environment.name,
            "account": environment.account,
            "region": environment.region,
            "lines": [asdict(finding) for finding in findings],
            "counts": counts,
        }
        return print_json(document, code)

    counts_text = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    print_line(f"{environment.name}: {counts_text}; exit code {int(code)}")
    for finding in findings:
        if skipped and finding.check == CREDENTIALS.id:
            print_rows(
                [(f"{skipped} checks skipped: {finding.message}; {finding.action}",)], indent=0
            )
        elif verbose or prove_stop or finding.level != "ok":
            _print_finding(finding)
    return code


def _run_checks(inputs: CommandInputs, environment: Environment) -> Sequence[Finding]:
    context = DoctorContext(
        environment=environment,
        experiments=tuple(inputs.list_experiments(environment)),
        catalogue=inputs.catalogue,
        now=datetime.now(tz=UTC),
        resolve_digest=image_digests.resolve_digest,
        judge_suite=judge_bucket_suite,
    )
    return run_checks(context, AccountClients(environment))


def _print_finding(finding: Finding) -> None:
    """Print what was seen and what to do."""
    rows: list[tuple[str, ...]] = [(finding.level.ljust(7), finding.check, finding.message)]
    if finding.action:
        rows.append(("", f"do   {finding.action}"))
    print_rows(rows, label_columns=CHECK_COLUMNS)
    if finding.command:
        print_line(f"      {finding.command}")


def _prove_stop(environment: Environment) -> Finding:
    """Fire the one-shot stop; SIGTERM ends the proof as Ctrl-C does, so its schedule goes too."""
    aws_session = create_session()
    require_account(environment, aws_session)
    account = AccountClients(environment, aws_session)
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_stop_proof(account, lambda text: print(text, file=sys.stderr, flush=True))
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
