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

from tandem.errors import ExternalError, TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.observe import BLOCK_MARGIN, NORMAL_END_LIMIT, FleetState
from tandem.guard.pass_metrics import INSTANCES_ALIVE, PASS_MINUTES
from tandem.guard.plan import plan_stop
from tandem.ops.account import create_client
from tandem.ops.caller import ShortTimeoutSession
from tandem.ops.faults import call_if_present, call_operation, error_code
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


def read_schedule_path(scheduler: Any, config: GuardConfig, fleet: FleetState) -> StopPath:
    """Return the schedule of the lease's run, which calls EKS without any Lambda.

    Raises:
        ExternalError: it could not be read.
    """
    if "lease" in fleet.unknown:
        return StopPath(name="schedule", state="unknown", sentence="the lease that names it could not be read")
    lease = fleet.lease
    if lease is None or fleet.now >= lease.deadline:
        return StopPath(name="schedule", state="absent", sentence="none: no lease; each start arms its own")
    where = f"schedule {lease.schedule} of {config.schedule_group}"
    schedule = call_if_present(
        scheduler, "GetSchedule", where, absent={"ResourceNotFoundException"}, Name=lease.schedule,
        GroupName=config.schedule_group,
    )  # fmt: skip
    if schedule is None:
        return StopPath(name="schedule", state="unarmed", sentence=f"{lease.schedule} is missing")
    match = _AT_EXPRESSION.match(schedule["ScheduleExpression"])
    if match is None or schedule.get("State") != "ENABLED":
        sentence = f"{lease.schedule} is {schedule.get('State', '?').lower()}, {schedule['ScheduleExpression']}"
        return StopPath(name="schedule", state="unarmed", sentence=sentence)
    at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    return StopPath(name="schedule", state="armed", at=at, sentence=f"{lease.schedule} calls EKS")


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
    statistics = call_operation(
        cloudwatch, "GetMetricStatistics", f"metric {INSTANCES_ALIVE} of {config.namespace}",
        Namespace=config.namespace, MetricName=INSTANCES_ALIVE, StartTime=fleet.now - SILENCE_LIMIT,
        EndTime=fleet.now + timedelta(minutes=1), Period=60, Statistics=["SampleCount"],
    )  # fmt: skip
    passes = [point["Timestamp"] for point in statistics.get("Datapoints", [])]
    if not passes:
        return _judge_silent_reaper(functions, environment, fleet.now)
    next_stop = min(list_stop_times(fleet, config), default=None)
    why = (
        f"; ends {next_stop[1]}"
        if fleet.is_fenced and next_stop
        else f"; stops for {next_stop[1]}"
        if next_stop
        else ""
    )
    ago = max(int((fleet.now - max(passes)).total_seconds() // 60), 0)
    return StopPath(
        name="reaper", state="armed", at=next_stop[0] if next_stop else None,
        sentence=f"looked {ago} min ago, looks every {PASS_MINUTES} min{why}",
    )  # fmt: skip


def list_stop_times(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[datetime, str]]:
    """Yield when the reaper will stop the fleet as things stand, and for what; a pass may come minutes later."""
    live_lease, own_instances = fleet.live_lease, fleet.own_instances
    if not own_instances and live_lease is None:
        return
    if fleet.fence is not None and fleet.is_fenced:
        terminate_at = (
            max([fleet.fence.at, *(instance.launched_at for instance in own_instances)]) + config.grace_period
        )
        yield max(terminate_at, fleet.now), "what is left, by id"
        return
    if fleet.is_ending and fleet.lease and fleet.lease.ending:
        yield fleet.lease.ending + NORMAL_END_LIMIT, "the normal end, where it does not come about"
        return
    for why in plan_stop(fleet, config).reasons:
        yield fleet.now, why
    if live_lease:
        max_end = live_lease.created + timedelta(hours=config.max_hours)
        yield live_lease.deadline, "the lease's deadline"
        yield max_end, "the lease's age"
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
    minutes = int(SILENCE_LIMIT.total_seconds() // 60)
    silent_path = StopPath(name="reaper", state="unarmed", sentence=f"silent: no pass in the last {minutes} min")
    function = names.guard_function_name(environment, "reap")
    try:
        configuration = call_operation(
            functions, "GetFunctionConfiguration", f"function {function}", FunctionName=function
        )
        deployed_at = datetime.fromisoformat(configuration["LastModified"])
    except (TandemError, ValueError, TypeError):
        return silent_path  # no figure is known, and nothing excuses it
    if deployed_at.tzinfo is None or not timedelta() <= now - deployed_at < SILENCE_LIMIT:
        return silent_path
    ago = int((now - deployed_at).total_seconds() // 60)
    return StopPath(
        name="reaper", state="unknown",
        sentence=f"deployed {ago} min ago; its first pass comes within {PASS_MINUTES} min",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return cls(
            budgets=create_client(environment, "budgets", short_session),
            functions=create_client(environment, "lambda", short_session),
        )


def read_standing_paths(
    clients: AwsClients, path_clients: PathClients, environment: Environment, config: GuardConfig, fleet: FleetState
) -> tuple[StopPath, ...]:
    """Return the two paths that stand before a start, reaper and budget; never raises for AWS.

    Args:
        clients, path_clients: of the environment.
        environment, config: as declared.
        fleet: a look at the fleet.
    """
    return tuple(
        read_path(name, read)
        for name, read in build_path_readers(clients, path_clients, environment, config, fleet).items()
        if name != "schedule"
    )


def build_path_readers(
    clients: AwsClients, path_clients: PathClients, environment: Environment, config: GuardConfig, fleet: FleetState
) -> dict[PathName, Callable[[], StopPath]]:
    """Return what reads each path, by its name."""
    return {
        "schedule": lambda: read_schedule_path(clients.scheduler, config, fleet),
        "reaper": lambda: read_reaper_path(clients.cloudwatch, path_clients.functions, environment, config, fleet),
        "budget": lambda: read_budget_path(path_clients.budgets, environment, fleet_capacity_kind(fleet, config)),
    }


def read_path(name: PathName, read: Callable[[], StopPath]) -> StopPath:
    """Return a path; unknown, with what to do, where it could not be read."""
    try:
        return read()
    except TandemError as fault:
        return StopPath(name=name, state="unknown", sentence=f"{fault.problem}; {fault.change}")


def fleet_capacity_kind(fleet: FleetState, config: GuardConfig) -> str:
    """Return of which kind the fleet is: what the node group is deployed with comes before what is declared."""
    return fleet.capacity_kind or config.capacity_kind


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
    try:
        answer = call_operation(
            budgets, "DescribeBudget", f"budget {name}", AccountId=environment.account, BudgetName=name
        )
        alerts = list(_list_stopping_alerts(budgets, environment)) if stops_fleet else []
    except TandemError as fault:
        if error_code(fault.__cause__) == "NotFoundException":
            return _judge_missing_budget(environment, stops_fleet=stops_fleet)
        raise
    budget = answer["Budget"]
    spent_usd = _read_amount(budget.get("CalculatedSpend", {}).get("ActualSpend"), name)
    limit_usd = _read_amount(budget.get("BudgetLimit"), name)
    budget_form = (budget.get("BudgetType"), budget.get("TimeUnit"))
    month_text = f"{spent_usd:,.2f} of {limit_usd:,.2f} USD this month"
    if not stops_fleet:
        return StopPath(name="budget", state="absent", sentence=f"{month_text}; only tells people: a block is paid")
    if budget_form != ("COST", "MONTHLY") or not 0 < limit_usd < math.inf:
        problem = (
            f"{name} is of {budget_form[0]}, {budget_form[1]}, up to {limit_usd:,.2f} USD: no monthly "
            "budget of cost with a limit"
        )
        return StopPath(name="budget", state="unarmed", sentence=problem)
    return _judge_alerts(alerts, spent_usd, limit_usd, month_text)


def _read_amount(spend: Mapping[str, Any] | None, name: str) -> float:
    """Return an amount in USD, 0 where none is said.

    Raises:
        ExternalError: it is no number.
    """
    amount = (spend or {}).get("Amount", 0)
    try:
        return float(amount)
    except (TypeError, ValueError):
        raise ExternalError(f"an amount is no number: {str(amount)[:40]!r}", where=f"budget {name}",
                       change="look at it in the console of AWS Budgets") from None  # fmt: skip


def _judge_missing_budget(environment: Environment, *, stops_fleet: bool) -> StopPath:
    name = names.budget_name(environment)
    if not stops_fleet:
        return StopPath(
            name="budget", state="absent", sentence=f"{name} is missing; it would only tell people: a block is paid"
        )  # fmt: skip
    if needs_manual_budget(environment):
        sentence = (f"none: CloudFormation makes none in {environment.region}, and nobody made {name} by hand (an "
                    "older release's had another name)")  # fmt: skip
        return StopPath(name="budget", state="absent", sentence=sentence)
    return StopPath(name="budget", state="unarmed", sentence=f"{name} is missing")


def _list_notifications(budgets: Any, environment: Environment) -> Iterator[Mapping[str, Any]]:
    name, token = names.budget_name(environment), ""
    for _ in range(NOTIFICATION_PAGES):
        page = call_operation(
            budgets, "DescribeNotificationsForBudget", f"budget {name}", AccountId=environment.account, BudgetName=name,
            MaxResults=100, **({"NextToken": token} if token else {}),
        )  # fmt: skip
        yield from page.get("Notifications", [])
        token = page.get("NextToken", "")
        if not token:
            return


def _list_stopping_alerts(budgets: Any, environment: Environment) -> Iterator[Mapping[str, Any]]:
    """Yield the alerts of actual cost of which the stop topic is told; one that only mails somebody stops nothing."""
    name, topic = names.budget_name(environment), stop_topic_arn(environment)
    for alert in _list_notifications(budgets, environment):
        is_of_spent_cost = (alert.get("NotificationType"), alert.get("ComparisonOperator")) == (
            "ACTUAL",
            "GREATER_THAN",
        )
        if not is_of_spent_cost or not isinstance(alert.get("Threshold"), float | int):
            continue
        notification = {key: alert[key] for key in _NOTIFICATION_KEYS if key in alert}
        answer = call_operation(
            budgets, "DescribeSubscribersForNotification", f"budget {name}", AccountId=environment.account,
            BudgetName=name, Notification=notification,
        )  # fmt: skip
        if any(subscriber.get("Address") == topic for subscriber in answer.get("Subscribers", [])):
            yield alert


def _judge_alerts(alerts: list[Mapping[str, Any]], spent_usd: float, limit_usd: float, month_text: str) -> StopPath:
    """Return whether an alert is still to come: AWS sends each once in a period, as soon as its threshold is passed."""
    if not alerts:
        sentence = f"{month_text}; it has no alert of actual cost that tells the stop topic"
        return StopPath(name="budget", state="unarmed", sentence=sentence)
    pending_alerts = [alert for alert in alerts if alert.get("NotificationState") != "ALARM"]
    thresholds = [_convert_threshold(alert, limit_usd) for alert in pending_alerts]
    pending_thresholds = sorted(threshold for threshold in thresholds if threshold[0] >= spent_usd)
    if not pending_thresholds:
        return StopPath(name="budget", state="unarmed", sentence=f"{month_text}, {SPENT_NOTE}")
    return StopPath(
        name="budget", state="armed", sentence=f"{month_text}, next at {pending_thresholds[0][1]}; stops the fleet"
    )


def _convert_threshold(alert: Mapping[str, Any], limit_usd: float) -> tuple[float, str]:
    """Return a threshold in USD and as its budget says it; a type that is not said is PERCENTAGE."""
    threshold = float(alert["Threshold"])
    if alert.get("ThresholdType") == "ABSOLUTE_VALUE":
        return threshold, f"{threshold:,.2f} USD"
    return limit_usd * threshold / 100, f"{threshold:g} %"
