"""The three independent paths that stop a fleet: their state and their next action.

Each path is judged by its traces: the schedule as Scheduler reads it back, the reaper by the
figures of its last pass, the budget by its description and notifications in AWS Budgets.

Sources: AWS Billing and Cost Management API reference, DescribeNotificationsForBudget and
Notification (at most ten a budget; ALARM: the threshold was passed); AWS Lambda API reference,
GetFunctionConfiguration (LastModified).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tandem.aws.client_config import GUARD_CLIENT_CONFIG
from tandem.declarations import names
from tandem.declarations.arns import build_stop_topic_arn
from tandem.declarations.budgets import needs_manual_budget
from tandem.declarations.environment import Environment
from tandem.errors import TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.guard.pass_metrics import INSTANCES_ALIVE, PASS_MINUTES
from tandem.guard.plan import foretell_stop
from tandem.ops.account import create_client, iterate_rows
from tandem.ops.faults import call_if_present, call_operation

# three missed passes, and CloudWatch's own delay
SILENCE_LIMIT = timedelta(minutes=4 * PASS_MINUTES)
SPENT_NOTE = "spent: no further alert this month"
# these name an alert
_NOTIFICATION_KEYS = ("NotificationType", "ComparisonOperator", "Threshold", "ThresholdType")
PathName = Literal["schedule", "reaper", "budget"]
PathState = Literal["armed", "unarmed", "absent", "unknown"]
_AT_EXPRESSION = re.compile(r"^at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)$")


@dataclass(frozen=True)
class StopPath:
    """One path.

    Args:
        name: schedule, reaper or budget.
        state: armed: it would act; unarmed: it should act and would not; absent: it has nothing to
            stop, or cannot exist here; unknown: its state cannot be read now.
        sentence: why, in a few words.
        at: time of its next action, as things stand; None: nothing that is known now makes it act.
    """

    name: PathName
    state: PathState
    sentence: str
    at: datetime | None = None


def read_stop_paths(
    clients: AwsClients,
    boto_session: Any,
    environment: Environment,
    config: GuardConfig,
    fleet: FleetState,
) -> tuple[tuple[StopPath, ...], dict[str, str]]:
    """Return the three paths, and why one could not be read, by its name; never raise for AWS.

    The clients give up soon: AWS Budgets has one endpoint for all regions and none inside a VPC.
    Without a way to it, the path is unknown and nobody waits.

    Args:
        clients: of the environment.
        boto_session: a boto3 session.
        environment, config: as declared.
        fleet: a look at the fleet.
    """
    budgets = create_client(environment, "budgets", boto_session, config=GUARD_CLIENT_CONFIG)
    functions = create_client(environment, "lambda", boto_session, config=GUARD_CLIENT_CONFIG)
    readers: dict[PathName, Callable[[], StopPath]] = {
        "schedule": lambda: read_schedule_path(clients.scheduler, config, fleet),
        "reaper": lambda: read_reaper_path(
            clients.cloudwatch, functions, environment, config, fleet
        ),
        "budget": lambda: read_budget_path(
            budgets, environment, fleet_capacity_kind(fleet, config)
        ),
    }
    paths = []
    unknown = {}
    for name, read in readers.items():
        try:
            paths.append(read())
        except TandemError as fault:
            unknown[str(name)] = f"{fault.problem}; {fault.change}"
            paths.append(StopPath(name, "unknown", unknown[name]))
    return tuple(paths), unknown


def fleet_capacity_kind(fleet: FleetState, config: GuardConfig) -> str:
    """Return the fleet's kind of capacity: the deployed node group's, else the declared."""
    return fleet.capacity_kind or config.capacity_kind


def read_schedule_path(scheduler: Any, config: GuardConfig, fleet: FleetState) -> StopPath:
    """Return the path of the lease's schedule, which calls EKS without any Lambda.

    Raises:
        ExternalError: the schedule could not be read.
    """
    if "lease" in fleet.unknown:
        return StopPath("schedule", "unknown", "the lease that names it could not be read")
    lease = fleet.lease
    if lease is None or fleet.now >= lease.deadline:
        return StopPath("schedule", "absent", "none: no lease; each start arms its own")
    where = f"schedule {lease.schedule} of {config.schedule_group}"
    schedule = call_if_present(
        scheduler, "GetSchedule", where, Name=lease.schedule, GroupName=config.schedule_group
    )
    if schedule is None:
        return StopPath("schedule", "unarmed", f"{lease.schedule} is missing")
    match = _AT_EXPRESSION.match(schedule["ScheduleExpression"])
    if match is None or schedule.get("State") != "ENABLED":
        state = schedule.get("State", "?").lower()
        expression = schedule["ScheduleExpression"]
        return StopPath("schedule", "unarmed", f"{lease.schedule} is {state}, {expression}")
    at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    return StopPath("schedule", "armed", f"{lease.schedule} calls EKS", at)


def read_reaper_path(
    cloudwatch: Any,
    functions: Any,
    environment: Environment,
    config: GuardConfig,
    fleet: FleetState,
) -> StopPath:
    """Return the path of the reaper, which looks every few minutes.

    Args:
        cloudwatch, functions: boto3's clients of CloudWatch and Lambda.
        environment, config: as declared.
        fleet: on which the reaper will act.

    Raises:
        ExternalError: its figures could not be read.
    """
    span = (fleet.now - SILENCE_LIMIT, fleet.now)
    points = read_statistics(
        cloudwatch, config, INSTANCES_ALIVE, span, Period=60, Statistics=["SampleCount"]
    )
    passes = [point["Timestamp"] for point in points]
    if not passes:
        return _judge_silent_reaper(functions, environment, fleet.now)
    sentence = (
        f"looked {max(_count_minutes(fleet.now - max(passes)), 0)} min ago, looks every"
        f" {PASS_MINUTES} min"
    )
    next_stop = foretell_stop(fleet, config)
    if next_stop is None:
        return StopPath("reaper", "armed", sentence)
    at, reason = next_stop
    return StopPath("reaper", "armed", f"{sentence}; acts because {reason}", at)


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
        ExternalError: the datapoints could not be read.
    """
    where = f"metric {metric} of {config.namespace}"
    answer = call_operation(
        cloudwatch,
        "GetMetricStatistics",
        where,
        Namespace=config.namespace,
        MetricName=metric,
        StartTime=span[0],
        EndTime=span[1] + timedelta(minutes=1),
        **query,
    )
    return list(answer.get("Datapoints", []))


def _count_minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)


def _judge_silent_reaper(functions: Any, environment: Environment, now: datetime) -> StopPath:
    """Return the path of a reaper without figures: only a deploy some minutes ago excuses it."""
    silence = f"silent: no pass in the last {_count_minutes(SILENCE_LIMIT)} min"
    function = names.guard_function_name(environment, "reap")
    try:
        answer = call_operation(
            functions, "GetFunctionConfiguration", f"function {function}", FunctionName=function
        )
        age = now - datetime.fromisoformat(answer["LastModified"])
    except (TandemError, ValueError, TypeError):  # also for a time without a zone
        return StopPath("reaper", "unarmed", silence)  # no figure is known, and nothing excuses it
    if not timedelta() <= age < SILENCE_LIMIT:
        return StopPath("reaper", "unarmed", silence)
    sentence = (
        f"deployed {_count_minutes(age)} min ago; its first pass comes within {PASS_MINUTES} min"
    )
    return StopPath("reaper", "unknown", sentence)


def read_budget_path(budgets: Any, environment: Environment, kind: str) -> StopPath:
    """Return the path of the monthly budget, which stops the fleet or, for a block, notifies.

    Args:
        budgets: boto3's client of AWS Budgets.
        environment: as declared.
        kind: of the fleet's capacity, as deployed.

    Raises:
        ExternalError: the budget could not be read.
    """
    name = names.budget_name(environment)
    if kind == "capacity-block":
        return StopPath("budget", "absent", f"{name} only tells people: a block is paid")
    answer = call_if_present(
        budgets, "DescribeBudget", f"budget {name}", AccountId=environment.account, BudgetName=name
    )
    if answer is None and needs_manual_budget(environment):
        reason = f"CloudFormation makes none in {environment.region}, and nobody created it by hand"
        return StopPath("budget", "absent", f"{name} is missing: {reason}")
    if answer is None:
        return StopPath("budget", "unarmed", f"{name} is missing")
    return _judge_budget(budgets, environment, answer["Budget"])


def _judge_budget(budgets: Any, environment: Environment, budget: Mapping[str, Any]) -> StopPath:
    name = names.budget_name(environment)
    limit_usd = float(budget.get("BudgetLimit", {}).get("Amount", 0))
    kind = budget.get("BudgetType")
    period = budget.get("TimeUnit")
    if kind != "COST" or period != "MONTHLY" or limit_usd <= 0:
        form_text = f"{kind}, {period}, up to {limit_usd:,.2f} USD"
        sentence = f"{name} is of {form_text}: no monthly budget of cost with a limit"
        return StopPath("budget", "unarmed", sentence)

    spend = budget.get("CalculatedSpend", {}).get("ActualSpend", {})
    spent_usd = float(spend.get("Amount", 0))
    month_text = f"{spent_usd:,.2f} of {limit_usd:,.2f} USD this month"
    alerts = list(_list_stopping_alerts(budgets, environment))
    if not alerts:
        sentence = f"{month_text}; it has no alert of actual cost that tells the stop topic"
        return StopPath("budget", "unarmed", sentence)
    next_usd = _find_next_alert_usd(alerts, spent_usd, limit_usd)
    if next_usd is None:
        return StopPath("budget", "unarmed", f"{month_text}, {SPENT_NOTE}")
    return StopPath("budget", "armed", f"{month_text}; at {next_usd:,.2f} USD it stops the fleet")


def _find_next_alert_usd(
    alerts: Iterable[Mapping[str, Any]], spent_usd: float, limit_usd: float
) -> float | None:
    """Return the USD at which AWS sends the next alert; None if each is sent.

    AWS sends each once in a period, as soon as its threshold is passed.
    """
    thresholds_usd = []
    for alert in alerts:
        is_percentage = alert.get("ThresholdType") != "ABSOLUTE_VALUE"  # the default
        threshold_usd = alert["Threshold"] * (limit_usd / 100 if is_percentage else 1)
        if alert.get("NotificationState") != "ALARM" and threshold_usd >= spent_usd:
            thresholds_usd.append(threshold_usd)
    return min(thresholds_usd, default=None)


def _list_stopping_alerts(budgets: Any, environment: Environment) -> Iterator[Mapping[str, Any]]:
    """Yield alerts of actual cost that notify the stop topic; mail alone stops nothing."""
    where = f"budget {names.budget_name(environment)}"
    parameters = {"AccountId": environment.account, "BudgetName": names.budget_name(environment)}
    for alert in iterate_rows(
        budgets, "DescribeNotificationsForBudget", "Notifications", where, **parameters
    ):
        if (alert["NotificationType"], alert["ComparisonOperator"]) == ("ACTUAL", "GREATER_THAN"):
            answer = call_operation(
                budgets,
                "DescribeSubscribersForNotification",
                where,
                Notification={key: alert[key] for key in _NOTIFICATION_KEYS if key in alert},
                **parameters,
            )
            if any(
                subscriber.get("Address") == build_stop_topic_arn(environment)
                for subscriber in answer["Subscribers"]
            ):
                yield alert
