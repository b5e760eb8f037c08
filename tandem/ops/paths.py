"""The three paths that stop a fleet, each independent of the others: the state of each, and when it acts next.

A path is judged by what it left behind: the schedule as Scheduler reads it back, the reaper by the figures that its
last pass published, the budget as AWS Budgets describes it and its notifications.

Sources: AWS Billing and Cost Management API reference, DescribeNotificationsForBudget and Notification (at most ten a
budget; ALARM: the threshold was passed); AWS Lambda API reference, GetFunctionConfiguration (LastModified).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from tandem.ops.account import client
from tandem.ops.caller import BriefSession
from tandem.ops.fault import OpsError, ask, code_of
from tandem.spec import names
from tandem.spec.budgets import by_hand
from tandem.spec.environment import Environment
from tandem.stop import (
    BLOCK_MARGIN,
    ENDING_LIMIT,
    INSTANCES_ALIVE,
    PASS_MINUTES,
    Clients,
    Guarded,
    Seen,
    due,
)

SILENT = timedelta(minutes=4 * PASS_MINUTES)  # three passes missed, and CloudWatch's own delay
SPENT = "spent: no further alert this month"
NOTIFICATION_PAGES = 5  # a budget has at most ten notifications
PathName = Literal["schedule", "reaper", "budget"]
PathState = Literal["armed", "unarmed", "absent", "unknown"]
_AT = re.compile(r"^at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPath:
    """One path.

    Args:
        name: schedule, reaper or budget.
        state: armed: it would act; unarmed: it should and would not; absent: there is nothing that it could stop, or
            it cannot exist here; unknown: nobody can tell now.
        at: when it acts next, as things stand; None: nothing that is known now makes it act.
        sentence: why, in a few words.
    """

    name: PathName
    state: PathState
    at: datetime | None = None
    sentence: str


def read_schedule_path(scheduler: Any, guarded: Guarded, seen: Seen) -> StopPath:
    """Return the schedule of the lease's run, which calls EKS without any Lambda.

    Raises:
        OpsError: it could not be read.
    """
    if "lease" in seen.unknown:
        return StopPath(name="schedule", state="unknown", sentence="the lease that names it could not be read")
    lease = seen.lease
    if lease is None or seen.now >= lease.deadline:
        return StopPath(name="schedule", state="absent", sentence="none: no lease; each start arms its own")
    where = f"schedule {lease.schedule} of {guarded.schedule_group}"
    try:
        schedule = ask(scheduler, "GetSchedule", where, Name=lease.schedule, GroupName=guarded.schedule_group)
    except OpsError as fault:
        if code_of(fault.__cause__) == "ResourceNotFoundException":
            return StopPath(name="schedule", state="unarmed", sentence=f"{lease.schedule} is missing")
        raise
    moment = _AT.match(schedule["ScheduleExpression"])
    if moment is None or schedule.get("State") != "ENABLED":
        sentence = f"{lease.schedule} is {schedule.get('State', '?').lower()}, {schedule['ScheduleExpression']}"
        return StopPath(name="schedule", state="unarmed", sentence=sentence)
    at = datetime.fromisoformat(moment[1]).replace(tzinfo=UTC)
    return StopPath(name="schedule", state="armed", at=at, sentence=f"{lease.schedule} calls EKS")


def read_reaper_path(
    cloudwatch: Any, functions: Any, environment: Environment, guarded: Guarded, seen: Seen
) -> StopPath:
    """Return the reaper, which looks every few minutes.

    Args:
        cloudwatch, functions: boto3's clients of CloudWatch and Lambda.
        environment, guarded: as declared.
        seen: what the reaper will act on.

    Raises:
        OpsError: its figures could not be read.
    """
    statistics = ask(
        cloudwatch, "GetMetricStatistics", f"metric {INSTANCES_ALIVE} of {guarded.namespace}",
        Namespace=guarded.namespace, MetricName=INSTANCES_ALIVE, StartTime=seen.now - SILENT,
        EndTime=seen.now + timedelta(minutes=1), Period=60, Statistics=["SampleCount"],
    )  # fmt: skip
    passes = [point["Timestamp"] for point in statistics.get("Datapoints", [])]
    if not passes:
        return _judge_silence(functions, environment, seen.now)
    next_stop = min(list_reasons(seen, guarded), default=None)
    why = f"; ends {next_stop[1]}" if seen.fenced and next_stop else f"; stops for {next_stop[1]}" if next_stop else ""
    ago = max(int((seen.now - max(passes)).total_seconds() // 60), 0)
    return StopPath(
        name="reaper", state="armed", at=next_stop[0] if next_stop else None,
        sentence=f"looked {ago} min ago, looks every {PASS_MINUTES} min{why}",
    )  # fmt: skip


def list_reasons(seen: Seen, guarded: Guarded) -> Iterator[tuple[datetime, str]]:
    """Yield when the reaper will stop the fleet as things stand, and for what; a pass may come minutes later."""
    live, ours = seen.live, [one for one in seen.instances if one.ours]
    if not ours and live is None:
        return
    if seen.fence is not None and seen.fenced:
        by_id = max([seen.fence.at, *(one.launched for one in ours)]) + guarded.grace
        yield max(by_id, seen.now), "what is left, by id"
        return
    if seen.ending and seen.lease and seen.lease.ending:
        yield seen.lease.ending + ENDING_LIMIT, "the normal end, where it does not come about"
        return
    for why in due(seen, guarded).why:
        yield seen.now, why
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
            yield max(one.launched, seen.now), f"{one.id}, which no lease covers"
    ends = seen.block_ends or guarded.block_ends
    if ends is not None:
        yield ends - BLOCK_MARGIN, "the block's end"


def _judge_silence(functions: Any, environment: Environment, now: datetime) -> StopPath:
    """Return the reaper that left no figure: a deploy of minutes ago explains that, nothing else does."""
    minutes = int(SILENT.total_seconds() // 60)
    silent = StopPath(name="reaper", state="unarmed", sentence=f"silent: no pass in the last {minutes} min")
    function = names.guard_function(environment, "reap")
    try:
        configuration = ask(functions, "GetFunctionConfiguration", f"function {function}", FunctionName=function)
        deployed = datetime.fromisoformat(configuration["LastModified"])
    except (OpsError, ValueError, TypeError):
        return silent  # no figure is known, and nothing excuses it
    if deployed.tzinfo is None or not timedelta() <= now - deployed < SILENT:
        return silent
    ago = int((now - deployed).total_seconds() // 60)
    return StopPath(
        name="reaper", state="unknown",
        sentence=f"deployed {ago} min ago; its first pass comes within {PASS_MINUTES} min",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardClients:
    """boto3's clients that only the judging of the paths needs.

    Args:
        budgets: of AWS Budgets, which has one endpoint for all regions and none inside a VPC.
        functions: of AWS Lambda.
    """

    budgets: Any
    functions: Any

    @classmethod
    def of(cls, environment: Environment, shared: Any) -> Self:
        """Return clients that give up soon: where no way leads to AWS Budgets, a path is unknown and nobody waits."""
        brief = BriefSession(shared)
        return cls(budgets=client(environment, "budgets", brief), functions=client(environment, "lambda", brief))


def read_standing_paths(
    clients: Clients, more: GuardClients, environment: Environment, guarded: Guarded, seen: Seen
) -> tuple[StopPath, ...]:
    """Return the two paths that stand before a start, reaper and budget; never raises for AWS.

    Args:
        clients, more: of the environment.
        environment, guarded: as declared.
        seen: a look at the fleet.
    """
    return tuple(
        read_or_unknown(name, act)
        for name, act in path_readers(clients, more, environment, guarded, seen).items()
        if name != "schedule"
    )


def path_readers(
    clients: Clients, more: GuardClients, environment: Environment, guarded: Guarded, seen: Seen
) -> dict[PathName, Callable[[], StopPath]]:
    """Return what reads each path, by its name."""
    return {
        "schedule": lambda: read_schedule_path(clients.scheduler, guarded, seen),
        "reaper": lambda: read_reaper_path(clients.cloudwatch, more.functions, environment, guarded, seen),
        "budget": lambda: read_budget_path(more.budgets, environment, capacity_kind_of(seen, guarded)),
    }


def read_or_unknown(name: PathName, act: Callable[[], StopPath]) -> StopPath:
    """Return a path; unknown, with what to do, where it could not be read."""
    try:
        return act()
    except OpsError as fault:
        return StopPath(name=name, state="unknown", sentence=f"{fault.problem}; {fault.change}")


def capacity_kind_of(seen: Seen, guarded: Guarded) -> str:
    """Return of which kind the fleet is: what the node group is deployed with comes before what is declared."""
    return seen.capacity_kind or guarded.capacity_kind


def read_budget_path(budgets: Any, environment: Environment, kind: str) -> StopPath:
    """Return the monthly budget, whose notifications stop the fleet or, of a Capacity Block, only tell people.

    Args:
        budgets: boto3's client of AWS Budgets.
        environment: as declared.
        kind: of the fleet's capacity, as deployed.

    Raises:
        OpsError: it could not be read.
    """
    name, stops = names.budget(environment), kind != "capacity-block"
    try:
        answer = ask(budgets, "DescribeBudget", f"budget {name}", AccountId=environment.account, BudgetName=name)
        alerts = list(_list_notifications(budgets, environment)) if stops else []
    except OpsError as fault:
        if code_of(fault.__cause__) == "NotFoundException":
            return _judge_missing_budget(environment, stops=stops)
        raise
    spent = float(answer["Budget"].get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount", 0))
    limit = float(answer["Budget"].get("BudgetLimit", {}).get("Amount", 0))
    month = f"{spent:,.2f} of {limit:,.2f} USD this month"
    if not stops:
        return StopPath(name="budget", state="absent", sentence=f"{month}; only tells people: a block is paid")
    return _judge_alerts(alerts, spent, limit, month)


def _judge_missing_budget(environment: Environment, *, stops: bool) -> StopPath:
    name = names.budget(environment)
    if not stops:
        return StopPath(
            name="budget", state="absent", sentence=f"{name} is missing; it would only tell people: a block is paid"
        )  # fmt: skip
    if by_hand(environment):
        sentence = (f"none: CloudFormation makes none in {environment.region}, and nobody made {name} by hand (an "
                    "older release's had another name)")  # fmt: skip
        return StopPath(name="budget", state="absent", sentence=sentence)
    return StopPath(name="budget", state="unarmed", sentence=f"{name} is missing")


def _list_notifications(budgets: Any, environment: Environment) -> Iterator[Mapping[str, Any]]:
    name, token = names.budget(environment), ""
    for _ in range(NOTIFICATION_PAGES):
        page = ask(
            budgets, "DescribeNotificationsForBudget", f"budget {name}", AccountId=environment.account, BudgetName=name,
            MaxResults=100, **({"NextToken": token} if token else {}),
        )  # fmt: skip
        yield from page.get("Notifications", [])
        token = page.get("NextToken", "")
        if not token:
            return


def _judge_alerts(alerts: list[Mapping[str, Any]], spent: float, limit: float, month: str) -> StopPath:
    """Return whether an alert is still to come: AWS sends each once in a period, as soon as its threshold is passed."""
    actual = [alert for alert in alerts if _is_of_spent_cost(alert)]
    if not actual:
        return StopPath(name="budget", state="unarmed", sentence=f"{month}; it has no alert of actual cost")
    ahead = sorted(
        (amount, words) for amount, words in (_threshold_of(alert, limit) for alert in actual if _is_pending(alert))
        if amount >= spent
    )  # fmt: skip
    if not ahead:
        return StopPath(name="budget", state="unarmed", sentence=f"{month}, {SPENT}")
    return StopPath(name="budget", state="armed", sentence=f"{month}, next at {ahead[0][1]}; stops the fleet")


def _is_of_spent_cost(alert: Mapping[str, Any]) -> bool:
    return alert.get("NotificationType") == "ACTUAL" and alert.get("ComparisonOperator") == "GREATER_THAN"


def _is_pending(alert: Mapping[str, Any]) -> bool:
    return alert.get("NotificationState") != "ALARM"


def _threshold_of(alert: Mapping[str, Any], limit: float) -> tuple[float, str]:
    """Return a threshold in USD and as its budget says it; a type that is not said is PERCENTAGE."""
    threshold = float(alert["Threshold"])
    if alert.get("ThresholdType") == "ABSOLUTE_VALUE":
        return threshold, f"{threshold:,.2f} USD"
    return limit * threshold / 100, f"{threshold:g} %"
