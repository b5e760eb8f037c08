"""All checks, run at once and reported in their order, and the exit code of their lines.

Invariant: a check's lines are at its place in the table, however long it took. Whatever AWS does, a
check ends in a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

from tandem.errors import TandemError
from tandem.ops.account import AccountClients
from tandem.ops.doctor import (
    capacity,
    cluster,
    guard,
    identity,
    network,
    prices,
    stop_proof,
    storage,
)
from tandem.ops.doctor.context import (
    EXIT_EXTERNAL,
    EXIT_MISMATCH,
    CheckGroup,
    DoctorContext,
    Finding,
)
from tandem.ops.faults import AccessDeniedError
from tandem.shell_command import build_tandem_command

MAX_WORKERS = 8
EXIT_STRICT = 1


@dataclass(frozen=True)
class DoctorCheck:
    """One row of the table.

    Args:
        id: unique.
        find: returns or yields its findings; raises a TandemError if AWS does not answer.
        mandatory: whether a bad answer breaks a deploy or a raise, so that an unknown one is a
            failure.
        needs_account: whether the check calls the account.
    """

    id: str
    group: CheckGroup
    find: Callable[[DoctorContext, AccountClients], Finding | Iterator[Finding]]
    mandatory: bool = True
    needs_account: bool = True


CREDENTIALS = DoctorCheck("credentials", "account", identity.check_credentials)
CHECKS = (
    DoctorCheck("placeholders", "account", identity.check_placeholders, needs_account=False),
    CREDENTIALS,
    DoctorCheck("region", "account", identity.check_region, mandatory=False),
    DoctorCheck("bootstrap", "account", identity.check_bootstrap),
    DoctorCheck("boundary", "account", identity.check_boundary),
    DoctorCheck("stacks", "account", identity.check_stacks),
    DoctorCheck("zones", "network", network.check_zones),
    DoctorCheck("subnets", "network", network.check_subnets),
    DoctorCheck("system-nodes", "network", network.check_system_nodes, mandatory=False),
    DoctorCheck("offering", "capacity", capacity.check_offering, mandatory=False),
    DoctorCheck("quota", "capacity", capacity.check_quota, mandatory=False),
    DoctorCheck("reservation", "capacity", capacity.check_reservation),
    DoctorCheck("block-end", "capacity", capacity.check_block_end, mandatory=False),
    DoctorCheck("price", "capacity", capacity.check_price, mandatory=False),
    DoctorCheck("unit-prices", "capacity", prices.check_unit_prices, mandatory=False),
    DoctorCheck("cost-tag", "capacity", capacity.check_cost_tag, mandatory=False),
    DoctorCheck("budget", "capacity", capacity.check_budget, mandatory=False),
    DoctorCheck("bucket", "artifacts", storage.check_bucket),
    DoctorCheck("bucket-key", "artifacts", storage.check_bucket_key),
    DoctorCheck("log-key", "artifacts", storage.check_log_key),
    DoctorCheck("images", "artifacts", storage.check_images, mandatory=False),
    DoctorCheck("own-images", "artifacts", storage.check_own_images, mandatory=False),
    DoctorCheck("suites", "artifacts", storage.check_suites, mandatory=False),
    DoctorCheck("build-quota", "artifacts", storage.check_build_quota, mandatory=False),
    DoctorCheck("token", "artifacts", storage.check_token),
    DoctorCheck("minor", "cluster", cluster.check_kubernetes_minor, mandatory=False),
    DoctorCheck("node-image", "cluster", cluster.check_node_image, mandatory=False),
    DoctorCheck("addons", "cluster", cluster.check_addons, mandatory=False),
    DoctorCheck(
        "agent-configuration", "cluster", cluster.check_agent_configuration, mandatory=False
    ),
    DoctorCheck("control-plane", "cluster", cluster.check_control_plane),
    DoctorCheck("fleet", "cluster", cluster.check_fleet),
    DoctorCheck("capacity-kind", "guard", guard.check_capacity_kind),
    DoctorCheck("scaling", "guard", guard.check_scaling_groups, mandatory=False),
    DoctorCheck("schedules", "guard", guard.check_schedules, mandatory=False),
    DoctorCheck("principals", "people", identity.check_principals, mandatory=False),
    DoctorCheck("subscriptions", "people", identity.check_subscriptions, mandatory=False),
)


def run_checks(
    context: DoctorContext, account: AccountClients, checks: Iterable[DoctorCheck] = CHECKS
) -> tuple[Finding, ...]:
    """Run every check and return its findings; never raise for AWS.

    Without credentials, or with another account's, no answer is about this account: then no other
    check calls the account.
    """
    remaining = list(checks)
    credentials: tuple[Finding, ...] = ()
    if CREDENTIALS in remaining:
        credentials = _run_check(CREDENTIALS, context, account)
        if any(finding.level != "ok" for finding in credentials):
            remaining = [
                check for check in remaining if check == CREDENTIALS or not check.needs_account
            ]

    def run_check(check: DoctorCheck) -> tuple[Finding, ...]:
        if check == CREDENTIALS:
            return credentials
        return _run_check(check, context, account)

    with ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="doctor") as pool:
        return tuple(chain.from_iterable(pool.map(run_check, remaining)))


def run_stop_proof(account: AccountClients, log: Callable[[str], None]) -> Finding:
    """Fire the one-shot stop of an account's environment once, and return the result.

    Raises:
        TandemError: as for `prove_one_shot_stop`.
    """
    finding = stop_proof.prove_one_shot_stop(account, log=log)
    return _complete_finding(
        DoctorCheck(stop_proof.PROOF_CHECK, "cluster", lambda *_: iter(())), finding
    )


def _run_check(
    check: DoctorCheck, context: DoctorContext, account: AccountClients
) -> tuple[Finding, ...]:
    findings = []
    try:
        answer = check.find(context, account)
        if isinstance(answer, Finding):
            findings.append(answer)
        else:
            findings += answer
    except TandemError as error:
        is_denied = isinstance(error, AccessDeniedError) and check != CREDENTIALS
        command = build_tandem_command("doctor", account.name, "--policy") if is_denied else ""
        message = f"{error.where}: {error.problem}" if error.where else error.problem
        findings.append(Finding("unknown", message, error.change, command))
    return tuple(_complete_finding(check, finding) for finding in findings)


def _complete_finding(check: DoctorCheck, finding: Finding) -> Finding:
    code = {"fail": finding.code, "unknown": EXIT_EXTERNAL if check.mandatory else 0}.get(
        finding.level, 0
    )
    return replace(finding, group=check.group, check=check.id, code=code)


def exit_code(findings: Iterable[Finding], *, strict: bool) -> int:
    """Return 2 if a declaration must change, else 3 if a necessary check failed or is unknown.

    With `strict`, return 1 in place of 0 if any line is not ok.
    """
    lines = tuple(findings)
    codes = {line.code for line in lines} & {EXIT_MISMATCH, EXIT_EXTERNAL}
    is_stale = strict and any(line.level != "ok" for line in lines)
    return min(codes, default=EXIT_STRICT if is_stale else 0)
