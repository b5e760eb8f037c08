"""The three paths that stop a fleet, each independent of the others: the state of each, and when it acts next.

A path is judged by what it left behind: the schedule as Scheduler reads it back, the reaper by the figures that its
last pass published, the budget as AWS Budgets describes it and its notifications.

Sources: AWS Billing and Cost Management API reference, DescribeNotificationsForBudget and Notification (at most ten a
budget; ALARM: the threshold was passed); AWS Lambda API reference, GetFunctionConfiguration (LastModified).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from tandem.aws.faults import error_code
from tandem.errors import ExternalError, TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.observe import BLOCK_MARGIN, NORMAL_END_LIMIT, FleetState
from tandem.guard.pass_metrics import INSTANCES_ALIVE, PASS_MINUTES
from tandem.guard.plan import plan_stop
from tandem.ops.account import create_client
from tandem.ops.caller import ShortTimeoutSession
from tandem.ops.faults import call_if_present, call_operation
from tandem.ops.guard_config import stop_topic_arn
from tandem.spec import names
from tandem.spec.budgets import needs_manual_budget
from tandem.spec.environment import Environment

SILENCE_LIMIT = timedelta(minutes=4 * PASS_MINUTES)  # three passes missed, and CloudWatch's own delay
SPENT_NOTE = "spent: no further alert this month"
_NOTIFICATION_KEYS = ("NotificationType", "ComparisonOperator", "Threshold", "ThresholdType")  # that name an alert
NOTIFICATION_PAGES = 5  # a budget has at most ten notifications
PathName = Literal["schedule", "reaper", "budget"]
PathState = Literal["armed", "unarmed", "absent", "unknown"]
_AT_EXPRESSION = re.compile(r"^at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)$")


@dataclass(frozen=True, slots=True)
class StopPath:
    """One path.

    Args:
        name: schedule, reaper or budget.
        state: armed: it would act; unarmed: it should and would not; absent: there is nothing that it could stop, or
            it cannot exist here; unknown: nobody can tell now.
        sentence: why, in a few words.
        at: when it acts next, as things stand; None: nothing that is known now makes it act.
    """

    name: PathName
    state: PathState
    sentence: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PathClients:
    """boto3's clients that only the judging of the paths needs.

    Args:
        budgets: of AWS Budgets, which has one endpoint for all regions and none inside a VPC.
        functions: of AWS Lambda.
    """

    budgets: Any
    functions: Any

    @classmethod
    def create(cls, environment: Environment, boto_session: Any) -> Self:
        """Return clients that give up soon: where no way leads to AWS Budgets, a path is unknown and nobody waits."""
        short_session = ShortTimeoutSession(boto_session)
        return cls(*(create_client(environment, service, short_session) for service in ("budgets", "lambda")))


def build_path_readers(
    clients: AwsClients, path_clients: PathClients, environment: Environment, config: GuardConfig, fleet: FleetState
) -> dict[PathName, Callable[[], StopPath]]:
    """Return what reads each path, by its name."""
    return {
        "schedule": lambda: read_schedule_path(clients.scheduler, config, fleet),
        "reaper": lambda: read_reaper_path(clients.cloudwatch, path_clients.functions, environment, config, fleet),
        "budget": lambda: read_budget_path(path_clients.budgets, environment, fleet_capacity_kind(fleet, config)),
    }


def read_standing_paths(
    clients: AwsClients, path_clients: PathClients, environment: Environment, config: GuardConfig, fleet: FleetState
) -> tuple[StopPath, ...]:
    """Return the two paths that stand before a start, reaper and budget; never raises for AWS.

    Args:
        clients, path_clients: of the environment.
        environment, config: as declared.
        fleet: a look at the fleet.
    """
    readers = build_path_readers(clients, path_clients, environment, config, fleet)
    return tuple(read_path(name, read) for name, read in readers.items() if name != "schedule")


def read_path(name: PathName, read: Callable[[], StopPath]) -> StopPath:
    """Return a path; unknown, with what to do, where it could not be read."""
    try:
        return read()
    except TandemError as fault:
        return StopPath(name, "unknown", f"{fault.problem}; {fault.change}")


def fleet_capacity_kind(fleet: FleetState, config: GuardConfig) -> str:
    """Return of which kind the fleet is: what the node group is deployed with comes before what is declared."""
    return fleet.capacity_kind or config.capacity_kind


def read_schedule_path(scheduler: Any, config: GuardConfig, fleet: FleetState) -> StopPath:
    """Return the schedule of the lease's run, which calls EKS without any Lambda.

    Raises:
        ExternalError: it could not be read.
    """
    if "lease" in fleet.unknown:
        return StopPath("schedule", "unknown", "the lease that names it could not be read")
    lease = fleet.lease
    if lease is None or fleet.now >= lease.deadline:
        return StopPath("schedule", "absent", "none: no lease; each start arms its own")
    where = f"schedule {lease.schedule} of {config.schedule_group}"
    parameters = {"Name": lease.schedule, "GroupName": config.schedule_group}
    schedule = call_if_present(scheduler, "GetSchedule", where, **parameters)
    if schedule is None:
        return StopPath("schedule", "unarmed", f"{lease.schedule} is missing")
    match = _AT_EXPRESSION.match(schedule["ScheduleExpression"])
    if match is None or schedule.get("State") != "ENABLED":
        state, expression = schedule.get("State", "?").lower(), schedule["ScheduleExpression"]
        return StopPath("schedule", "unarmed", f"{lease.schedule} is {state}, {expression}")
    at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    return StopPath("schedule", "armed", f"{lease.schedule} calls EKS", at)


def read_reaper_path(
    cloudwatch: Any, functions: Any, environment: Environment, config: GuardConfig, fleet: FleetState
) -> StopPath:
    """Return the reaper, which looks every few minutes.

    Args:
        cloudwatch, functions: boto3's clients of CloudWatch and Lambda.
        environment, config: as declared.
        fleet: what the reaper will act on.

    Raises:
        ExternalError: its figures could not be read.
    """
    span = (fleet.now - SILENCE_LIMIT, fleet.now)
    points = read_statistics(cloudwatch, config, INSTANCES_ALIVE, span, Period=60, Statistics=["SampleCount"])
    passes = [point["Timestamp"] for point in points]
    if not passes:
        return _judge_silent_reaper(functions, environment, fleet.now)
    sentence = f"looked {max(_count_minutes(fleet.now - max(passes)), 0)} min ago, looks every {PASS_MINUTES} min"
    at, why = min(list_stop_times(fleet, config), default=(None, ""))
    if why:
        sentence = f"{sentence}; {'ends' if fleet.is_fenced else 'stops for'} {why}"
    return StopPath("reaper", "armed", sentence, at)


def read_statistics(
    cloudwatch: Any, config: GuardConfig, metric: str, span: tuple[datetime, datetime], **query: Any
) -> list[dict[str, Any]]:
    """Return the datapoints of one of the guard's metrics.

    Args:
        cloudwatch: boto3's client.
        config: of the environment.
        metric: its name.
        span: first moment and last; figures of the minute after the last count too.
        query: Period in seconds, and Statistics.

    Raises:
        ExternalError: they could not be read.
    """
    times = {"StartTime": span[0], "EndTime": span[1] + timedelta(minutes=1)}
    metric_id = {"Namespace": config.namespace, "MetricName": metric}
    where = f"metric {metric} of {config.namespace}"
    answer = call_operation(cloudwatch, "GetMetricStatistics", where, **metric_id, **times, **query)
    return list(answer.get("Datapoints", []))


def _count_minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)


def list_stop_times(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[datetime, str]]:
    """Yield when the reaper will stop the fleet as things stand, and for what; a pass may come minutes later."""
    live_lease, own_instances = fleet.live_lease, fleet.own_instances
    if not own_instances and live_lease is None:
        return
    if fleet.fence is not None and fleet.is_fenced:
        last_start = max([fleet.fence.at, *(instance.launched_at for instance in own_instances)])
        yield max(last_start + config.grace_period, fleet.now), "what is left, by id"
        return
    if fleet.is_ending and fleet.lease and fleet.lease.ending:
        yield fleet.lease.ending + NORMAL_END_LIMIT, "the normal end, where it does not come about"
        return
    for why in plan_stop(fleet, config).reasons:
        yield fleet.now, why
    if live_lease:
        yield live_lease.deadline, "the lease's deadline"
        yield live_lease.created + timedelta(hours=config.max_hours), "the lease's age"
        if live_lease.beats:
            last_beat = max(live_lease.created, fleet.heartbeat or live_lease.created)
            yield last_beat + timedelta(minutes=config.idle_minutes), "the missing heartbeat"
    for instance in own_instances:
        yield instance.launched_at + timedelta(hours=config.max_hours), f"the age of {instance.id}"
        if live_lease is None:
            yield max(instance.launched_at, fleet.now), f"{instance.id}, which no lease covers"
    block_end = fleet.block_ends or config.block_ends
    if block_end is not None:
        yield block_end - BLOCK_MARGIN, "the block's end"


def _judge_silent_reaper(functions: Any, environment: Environment, now: datetime) -> StopPath:
    """Return the reaper that left no figure: a deploy of minutes ago explains that, nothing else does."""
    silence = f"silent: no pass in the last {_count_minutes(SILENCE_LIMIT)} min"
    function = names.guard_function_name(environment, "reap")
    try:
        answer = call_operation(functions, "GetFunctionConfiguration", f"function {function}", FunctionName=function)
        age = now - datetime.fromisoformat(answer["LastModified"])
    except (TandemError, ValueError, TypeError):  # a time without a zone too
        return StopPath("reaper", "unarmed", silence)  # no figure is known, and nothing excuses it
    if not timedelta() <= age < SILENCE_LIMIT:
        return StopPath("reaper", "unarmed", silence)
    sentence = f"deployed {_count_minutes(age)} min ago; its first pass comes within {PASS_MINUTES} min"
    return StopPath("reaper", "unknown", sentence)


def read_budget_path(budgets: Any, environment: Environment, kind: str) -> StopPath:
    """Return the monthly budget, whose notifications stop the fleet or, of a Capacity Block, only tell people.

    Args:
        budgets: boto3's client of AWS Budgets.
        environment: as declared.
        kind: of the fleet's capacity, as deployed.

    Raises:
        ExternalError: it could not be read.
    """
    name, stops_fleet = names.budget_name(environment), kind != "capacity-block"
    parameters = {"AccountId": environment.account, "BudgetName": name}
    try:
        budget = call_operation(budgets, "DescribeBudget", f"budget {name}", **parameters)["Budget"]
        alerts = list(_list_stopping_alerts(budgets, environment)) if stops_fleet else []
    except TandemError as fault:
        if error_code(fault.__cause__) != "NotFoundException":
            raise
        return _judge_missing_budget(environment, stops_fleet=stops_fleet)
    spent_usd = _read_amount(budget.get("CalculatedSpend", {}).get("ActualSpend"), name)
    limit_usd = _read_amount(budget.get("BudgetLimit"), name)
    month_text = f"{spent_usd:,.2f} of {limit_usd:,.2f} USD this month"
    if not stops_fleet:
        return StopPath("budget", "absent", f"{month_text}; only tells people: a block is paid")
    form = (budget.get("BudgetType"), budget.get("TimeUnit"))
    if form != ("COST", "MONTHLY") or not 0 < limit_usd < math.inf:
        form_text = f"{form[0]}, {form[1]}, up to {limit_usd:,.2f} USD"
        return StopPath("budget", "unarmed", f"{name} is of {form_text}: no monthly budget of cost with a limit")
    if not alerts:
        return StopPath("budget", "unarmed", f"{month_text}; it has no alert of actual cost that tells the stop topic")
    # AWS sends each alert once in a period, as soon as its threshold is passed
    thresholds = [_convert_threshold(alert, limit_usd) for alert in alerts if alert.get("NotificationState") != "ALARM"]
    ahead = min((threshold for threshold in thresholds if threshold[0] >= spent_usd), default=None)
    if ahead is None:
        return StopPath("budget", "unarmed", f"{month_text}, {SPENT_NOTE}")
    return StopPath("budget", "armed", f"{month_text}, next at {ahead[1]}; stops the fleet")


def _read_amount(spend: Mapping[str, Any] | None, name: str) -> float:
    """Return an amount in USD, 0 where none is said.

    Raises:
        ExternalError: it is no number.
    """
    amount = (spend or {}).get("Amount", 0)
    try:
        return float(amount)
    except (TypeError, ValueError):
        problem, change = f"an amount is no number: {str(amount)[:40]!r}", "look at it in the console of AWS Budgets"
        raise ExternalError(problem, where=f"budget {name}", change=change) from None


def _judge_missing_budget(environment: Environment, *, stops_fleet: bool) -> StopPath:
    name = names.budget_name(environment)
    if not stops_fleet:
        return StopPath("budget", "absent", f"{name} is missing; it would only tell people: a block is paid")
    if not needs_manual_budget(environment):
        return StopPath("budget", "unarmed", f"{name} is missing")
    why = f"CloudFormation makes none in {environment.region}, and nobody made {name} by hand"
    return StopPath("budget", "absent", f"none: {why} (an older release's had another name)")


def _list_stopping_alerts(budgets: Any, environment: Environment) -> Iterator[Mapping[str, Any]]:
    """Yield the alerts of actual cost of which the stop topic is told; one that only mails somebody stops nothing."""
    name, topic = names.budget_name(environment), stop_topic_arn(environment)
    where, parameters = f"budget {name}", {"AccountId": environment.account, "BudgetName": name}
    token: dict[str, str] = {}
    for _ in range(NOTIFICATION_PAGES):
        operation = "DescribeNotificationsForBudget"
        page = call_operation(budgets, operation, where, MaxResults=100, **parameters, **token)
        for alert in page.get("Notifications", []):
            kind = (alert.get("NotificationType"), alert.get("ComparisonOperator"))
            if kind != ("ACTUAL", "GREATER_THAN") or not isinstance(alert.get("Threshold"), float | int):
                continue
            request = {"Notification": {key: alert[key] for key in _NOTIFICATION_KEYS if key in alert}, **parameters}
            answer = call_operation(budgets, "DescribeSubscribersForNotification", where, **request)
            if any(subscriber.get("Address") == topic for subscriber in answer.get("Subscribers", [])):
                yield alert
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}


def _convert_threshold(alert: Mapping[str, Any], limit_usd: float) -> tuple[float, str]:
    """Return a threshold in USD and as its budget says it; a type that is not said is PERCENTAGE."""
    threshold = float(alert["Threshold"])
    if alert.get("ThresholdType") == "ABSOLUTE_VALUE":
        return threshold, f"{threshold:,.2f} USD"
    return limit_usd * threshold / 100, f"{threshold:g} %"
