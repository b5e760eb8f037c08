"""The three paths that stop a fleet, each independent of the others: whether it is armed, and when it acts next.

A path is judged by what it left behind: the schedule as Scheduler reads it back, the reaper by the figures that its
last pass published, the budget as AWS Budgets describes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tandem.ops.fault import OpsError, ask, code_of
from tandem.spec import names
from tandem.spec.budgets import by_hand
from tandem.spec.environment import Environment
from tandem.stop import BLOCK_MARGIN, INSTANCES_ALIVE, PASS_MINUTES, Clients, Guarded, Seen

SILENT = timedelta(minutes=4 * PASS_MINUTES)  # three passes missed, and CloudWatch's own delay
PathName = Literal["schedule", "reaper", "budget"]
_AT = re.compile(r"^at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One path.

    Args:
        name: schedule, reaper or budget.
        armed: whether it would act; None: unknown, or there is nothing for it to do.
        at: when it acts next, as things stand; None: nothing that is known now makes it act.
        said: in a few words.
    """

    name: PathName
    armed: bool | None
    at: datetime | None
    said: str


def one_shot(scheduler: Any, guarded: Guarded, seen: Seen) -> Path:
    """Return the schedule of the lease's run, which calls EKS without any Lambda.

    Raises:
        OpsError: it could not be read.
    """
    if "lease" in seen.unknown:
        return Path(name="schedule", armed=None, at=None, said="unknown: the lease that names it could not be read")
    lease = seen.lease
    if lease is None or seen.now >= lease.deadline:
        return Path(name="schedule", armed=None, at=None, said="none: no lease")
    where = f"schedule {lease.schedule} of {guarded.schedule_group}"
    try:
        found = ask(scheduler, "GetSchedule", where, Name=lease.schedule, GroupName=guarded.schedule_group)
    except OpsError as fault:
        if code_of(fault.__cause__) == "ResourceNotFoundException":
            return Path(name="schedule", armed=False, at=None, said=f"{lease.schedule} is missing")
        raise
    written = _AT.match(found["ScheduleExpression"])
    if written is None or found.get("State") != "ENABLED":
        said = f"{lease.schedule} is {found.get('State', '?').lower()}, {found['ScheduleExpression']}"
        return Path(name="schedule", armed=False, at=None, said=said)
    at = datetime.fromisoformat(written[1]).replace(tzinfo=UTC)
    return Path(name="schedule", armed=True, at=at, said=f"{lease.schedule} calls EKS")


def reaper(cloudwatch: Any, guarded: Guarded, seen: Seen) -> Path:
    """Return the reaper, which looks every few minutes.

    Raises:
        OpsError: its figures could not be read.
    """
    said = ask(
        cloudwatch, "GetMetricStatistics", f"metric {INSTANCES_ALIVE} of {guarded.namespace}",
        Namespace=guarded.namespace, MetricName=INSTANCES_ALIVE, StartTime=seen.now - SILENT,
        EndTime=seen.now + timedelta(minutes=1), Period=60, Statistics=["SampleCount"],
    )  # fmt: skip
    passes = [point["Timestamp"] for point in said.get("Datapoints", [])]
    if not passes:
        minutes = int(SILENT.total_seconds() // 60)
        return Path(name="reaper", armed=False, at=None, said=f"silent: no pass in the last {minutes} min")
    next_stop = min(reasons(seen, guarded), default=None)
    why = f"; ends {next_stop[1]}" if seen.fenced and next_stop else f"; stops for {next_stop[1]}" if next_stop else ""
    ago = max(int((seen.now - max(passes)).total_seconds() // 60), 0)
    return Path(
        name="reaper", armed=True, at=next_stop[0] if next_stop else None,
        said=f"looked {ago} min ago, looks every {PASS_MINUTES} min{why}",
    )  # fmt: skip


def reasons(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield when the reaper will stop the fleet as things stand, and for what; a pass may come minutes later."""
    live, ours = seen.live, [one for one in seen.instances if one.ours]
    if not ours and live is None:
        return
    if seen.fence is not None and seen.fenced:
        by_id = max([seen.fence.at, *(one.launched for one in ours)]) + guarded.grace
        yield max(by_id, seen.now), "what is left, by id"
        return
    if live:
        longest = live.created + timedelta(hours=guarded.max_hours)
        yield live.deadline, "the lease's deadline"
        yield longest, "the lease's age"
        if live.beats:
            beat = max(live.created, seen.heartbeat or live.created)
            yield beat + timedelta(minutes=guarded.idle_minutes), "the missing heartbeat"
    for one in ours:
        yield one.launched + timedelta(hours=guarded.max_hours), f"the age of {one.id}"
        if live is None:
            yield one.launched + timedelta(minutes=guarded.idle_minutes), f"{one.id}, which no lease covers"
    ends = seen.block_ends or guarded.block_ends
    if ends is not None:
        yield ends - BLOCK_MARGIN, "the block's end"


def trouble(
    clients: Clients, budgets: Any, environment: Environment, guarded: Guarded, now: datetime
) -> dict[str, str]:
    """Return what is wrong with the paths that stand before a start: name to a sentence; never raises for AWS.

    Args:
        clients: of the environment.
        budgets: boto3's client of AWS Budgets.
        environment, guarded: as declared.
        now: the time.
    """
    found: dict[str, str] = {}
    asked: dict[PathName, Callable[[], Path]] = {
        "reaper": lambda: reaper(clients.cloudwatch, guarded, Seen(now=now)),
        "budget": lambda: budget(budgets, environment),
    }
    for name, act in asked.items():
        try:
            path = act()
        except OpsError as fault:
            found[name] = f"unknown: {fault.problem}; {fault.change}"
        else:
            if path.armed is False:
                found[name] = f"NOT ARMED: {path.said}"
    return found


def budget(budgets: Any, environment: Environment) -> Path:
    """Return the monthly budget, whose notification stops the fleet or, of a Capacity Block, only tells people.

    Raises:
        OpsError: it could not be read.
    """
    name, stops = names.budget(environment), environment.capacity.kind != "capacity-block"
    try:
        found = ask(budgets, "DescribeBudget", f"budget {name}", AccountId=environment.account, BudgetName=name)
    except OpsError as fault:
        if code_of(fault.__cause__) == "NotFoundException":
            return Path(name="budget", armed=False, at=None, said=f"{name} is missing{_who_makes_it(environment)}")
        raise
    spent = float(found["Budget"].get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount", 0))
    limit = float(found["Budget"].get("BudgetLimit", {}).get("Amount", 0))
    does = "stops the fleet" if stops else "only tells people: a block is paid"
    return Path(
        name="budget", armed=stops or None, at=None, said=f"{spent:,.2f} of {limit:,.2f} USD this month; {does}"
    )


def _who_makes_it(environment: Environment) -> str:
    return f", and CloudFormation makes none in {environment.region}" if by_hand(environment) else ""
