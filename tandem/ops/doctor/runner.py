"""All checks in their order, made at once, and what their lines come to.

Invariant: a check's lines stand where the table has it, however long it took; whatever AWS does, a check ends in a
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tandem.errors import TandemError
from tandem.ops.doctor import (
    budget,
    capacity,
    cluster,
    guard,
    identity,
    network,
    people,
    stop_proof,
    storage,
)
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.check_result import (
    EXIT_EXTERNAL,
    EXIT_MISMATCH,
    CheckFinding,
    CheckGroup,
    CheckResult,
    unknown_finding,
)
from tandem.ops.doctor.context import DoctorContext

MAX_WORKERS = 8
EXIT_STRICT = 1
CREDENTIALS_CHECK = "credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One row of the table.

    Args:
        id: unique.
        find: yields what it finds; raises a TandemError where AWS does not tell.
        mandatory: whether a deploy or a raise goes wrong when its answer is bad, so that not knowing it is a failure.
        needs_account: whether it asks the account anything.
    """

    id: str
    group: CheckGroup
    find: Callable[[DoctorContext, AllowlistedAccount], Iterator[CheckFinding]]
    mandatory: bool = True
    needs_account: bool = True


CHECKS = (
    DoctorCheck(id="placeholders", group="account", find=identity.check_placeholders, needs_account=False),
    DoctorCheck(id=CREDENTIALS_CHECK, group="account", find=identity.check_credentials),
    DoctorCheck(id="region", group="account", find=identity.check_region, mandatory=False),
    DoctorCheck(id="bootstrap", group="account", find=identity.check_bootstrap),
    DoctorCheck(id="boundary", group="account", find=identity.check_boundary),
    DoctorCheck(id="stacks", group="account", find=identity.check_stacks),
    DoctorCheck(id="zones", group="network", find=network.check_zones),
    DoctorCheck(id="subnets", group="network", find=network.check_subnets),
    DoctorCheck(id="system-nodes", group="network", find=network.check_system_nodes, mandatory=False),
    DoctorCheck(id="offering", group="capacity", find=capacity.check_offering, mandatory=False),
    DoctorCheck(id="quota", group="capacity", find=capacity.check_quota, mandatory=False),
    DoctorCheck(id="reservation", group="capacity", find=capacity.check_reservation),
    DoctorCheck(id="price", group="capacity", find=capacity.check_price, mandatory=False),
    DoctorCheck(id="cost-tag", group="capacity", find=budget.check_cost_tag, mandatory=False),
    DoctorCheck(id="budget", group="capacity", find=budget.check_budget, mandatory=False),
    DoctorCheck(id="bucket", group="artifacts", find=storage.check_bucket),
    DoctorCheck(id="bucket-key", group="artifacts", find=storage.check_bucket_key),
    DoctorCheck(id="images", group="artifacts", find=storage.check_images, mandatory=False),
    DoctorCheck(id="own-images", group="artifacts", find=storage.check_own_images, mandatory=False),
    DoctorCheck(id="token", group="artifacts", find=storage.check_token),
    DoctorCheck(id="minor", group="cluster", find=cluster.check_kubernetes_minor, mandatory=False),
    DoctorCheck(id="addons", group="cluster", find=cluster.check_addons, mandatory=False),
    DoctorCheck(id="control-plane", group="cluster", find=cluster.check_control_plane),
    DoctorCheck(id="fleet", group="cluster", find=cluster.check_fleet),
    DoctorCheck(id="capacity-kind", group="guard", find=guard.check_capacity_kind),
    DoctorCheck(id="scaling", group="guard", find=guard.check_scaling_groups, mandatory=False),
    DoctorCheck(id="schedules", group="guard", find=guard.check_schedules, mandatory=False),
    DoctorCheck(id="principals", group="people", find=people.check_principals, mandatory=False),
    DoctorCheck(id="subscriptions", group="people", find=people.check_subscriptions, mandatory=False),
)


def run_checks(
    context: DoctorContext, account: AllowlistedAccount, checks: Iterable[DoctorCheck] = CHECKS
) -> tuple[CheckResult, ...]:
    """Make every check; never raises for AWS.

    What is asked with credentials that are none, or another account's, says nothing of this one: then it is not asked.
    """
    all_checks = tuple(checks)
    credential_results = [
        result
        for check in all_checks
        if check.id == CREDENTIALS_CHECK
        for result in _run_check(check, context, account)
    ]
    has_credentials = all(result.level == "ok" for result in credential_results)

    def collect_results(check: DoctorCheck) -> list[CheckResult]:
        if check.id == CREDENTIALS_CHECK:
            return credential_results
        if check.needs_account and not has_credentials:
            return [
                _build_result(
                    check, unknown_finding("not asked, for want of credentials of this account", "see credentials")
                )
            ]
        return list(_run_check(check, context, account))

    with ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="doctor") as pool:
        return tuple(result for results in pool.map(collect_results, all_checks) for result in results)


def run_stop_proof(account: AllowlistedAccount, log: Callable[[str], None]) -> CheckResult:
    """Fire the one-shot stop of an account's environment once, and return what came of it.

    Raises:
        TandemError: as of `prove_one_shot_stop`.
    """
    finding = stop_proof.prove_one_shot_stop(account, log=log)
    return _build_result(
        DoctorCheck(id=stop_proof.PROOF_CHECK, group="cluster", find=lambda *_: iter((finding,))), finding
    )


def _run_check(check: DoctorCheck, context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckResult]:
    try:
        for finding in check.find(context, account):
            yield _build_result(check, finding)
    except TandemError as error:
        message = f"{error.where}: {error.problem}" if error.where else error.problem
        yield _build_result(check, unknown_finding(message, error.change))


def _build_result(check: DoctorCheck, finding: CheckFinding) -> CheckResult:
    code = {"fail": finding.code, "unknown": EXIT_EXTERNAL if check.mandatory else 0}.get(finding.level, 0)
    return CheckResult(
        group=check.group, check=check.id, level=finding.level, said=finding.message, do=finding.action,
        command=finding.command, code=code,
    )  # fmt: skip


def exit_code(check_results: Iterable[CheckResult], *, strict: bool) -> int:
    """Return 2 where something declared must change, else 3 where something needed failed or is unknown, else 0.

    With `strict` 1 stands for 0 where any line is not ok.
    """
    results = tuple(check_results)
    codes = {result.code for result in results}
    for code in (EXIT_MISMATCH, EXIT_EXTERNAL):
        if code in codes:
            return code
    return EXIT_STRICT if strict and any(result.level != "ok" for result in results) else 0
