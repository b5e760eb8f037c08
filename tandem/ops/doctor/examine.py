"""All checks in their order, made at once, and what their lines come to.

Invariant: a check's lines stand where the table has it, however long it took; whatever AWS does, a check ends in a
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tandem.ops.doctor import capacity, cluster, guard, identity, money, people, prove_stop, storage, zones
from tandem.ops.doctor.account import Account
from tandem.ops.doctor.line import REFUSED, WORLD, Finding, Group, Line, unknown
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import OpsError

AT_ONCE = 8
STRICT = 1
CREDENTIALS = "credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of the table.

    Args:
        id: unique.
        find: yields what it finds; raises OpsError where AWS does not tell.
        needed: whether a deploy or a raise goes wrong when its answer is bad, so that not knowing it is a failure.
        asks: whether it asks the account anything.
    """

    id: str
    group: Group
    find: Callable[[Subject, Account], Iterator[Finding]]
    needed: bool = True
    asks: bool = True


CHECKS = (
    Check(id="placeholders", group="account", find=identity.placeholders, asks=False),
    Check(id=CREDENTIALS, group="account", find=identity.credentials),
    Check(id="region", group="account", find=identity.region, needed=False),
    Check(id="bootstrap", group="account", find=identity.bootstrap),
    Check(id="boundary", group="account", find=identity.boundary),
    Check(id="stacks", group="account", find=identity.stacks),
    Check(id="zones", group="network", find=zones.zones),
    Check(id="subnets", group="network", find=zones.subnets),
    Check(id="system-nodes", group="network", find=zones.system_nodes, needed=False),
    Check(id="offering", group="capacity", find=capacity.offering, needed=False),
    Check(id="quota", group="capacity", find=capacity.quota, needed=False),
    Check(id="reservation", group="capacity", find=capacity.reservation),
    Check(id="price", group="capacity", find=capacity.price, needed=False),
    Check(id="cost-tag", group="capacity", find=money.cost_tag, needed=False),
    Check(id="budget", group="capacity", find=money.budget, needed=False),
    Check(id="bucket", group="artifacts", find=storage.bucket),
    Check(id="bucket-key", group="artifacts", find=storage.bucket_key),
    Check(id="images", group="artifacts", find=storage.images, needed=False),
    Check(id="own-images", group="artifacts", find=storage.own_images, needed=False),
    Check(id="token", group="artifacts", find=storage.token),
    Check(id="minor", group="cluster", find=cluster.minor, needed=False),
    Check(id="addons", group="cluster", find=cluster.addons, needed=False),
    Check(id="control-plane", group="cluster", find=cluster.control_plane),
    Check(id="fleet", group="cluster", find=cluster.fleet),
    Check(id="capacity-kind", group="guard", find=guard.compare_kinds),
    Check(id="scaling", group="guard", find=guard.check_scaling_groups, needed=False),
    Check(id="schedules", group="guard", find=guard.check_schedules, needed=False),
    Check(id="principals", group="people", find=people.principals, needed=False),
    Check(id="subscriptions", group="people", find=people.subscriptions, needed=False),
)


def examine(subject: Subject, account: Account, checks: Iterable[Check] = CHECKS) -> tuple[Line, ...]:
    """Make every check; never raises for AWS.

    What is asked with credentials that are none, or another account's, says nothing of this one: then it is not asked.
    """
    asked = tuple(checks)
    first = [line for check in asked if check.id == CREDENTIALS for line in _made(check, subject, account)]
    known = all(line.level == "ok" for line in first)

    def lines(check: Check) -> list[Line]:
        if check.id == CREDENTIALS:
            return first
        if check.asks and not known:
            return [_line(check, unknown("not asked, for want of credentials of this account", "see credentials"))]
        return list(_made(check, subject, account))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="doctor") as pool:
        return tuple(line for found in pool.map(lines, asked) for line in found)


def proven(account: Account, say: Callable[[str], None]) -> Line:
    """Fire the one-shot stop of an account's environment once, and return what came of it.

    Raises:
        RefusedError, OpsError: as of `prove_stop.prove`.
    """
    finding = prove_stop.prove(account, say=say)
    return _line(Check(id=prove_stop.CHECK, group="cluster", find=lambda *_: iter((finding,))), finding)


def _made(check: Check, subject: Subject, account: Account) -> Iterator[Line]:
    try:
        for finding in check.find(subject, account):
            yield _line(check, finding)
    except OpsError as error:
        said = f"{error.where}: {error.problem}" if error.where else error.problem
        yield _line(check, unknown(said, error.change))


def _line(check: Check, finding: Finding) -> Line:
    code = {"fail": finding.code, "unknown": WORLD if check.needed else 0}.get(finding.level, 0)
    return Line(
        group=check.group, check=check.id, level=finding.level, said=finding.said, do=finding.do,
        command=finding.command, code=code,
    )  # fmt: skip


def exit_code(lines: Iterable[Line], *, strict: bool) -> int:
    """Return 2 where something declared must change, else 3 where something needed failed or is unknown, else 0.

    With `strict` 1 stands for 0 where any line is not ok.
    """
    found = tuple(lines)
    codes = {line.code for line in found}
    for code in (REFUSED, WORLD):
        if code in codes:
            return code
    return STRICT if strict and any(line.level != "ok" for line in found) else 0
