"""When the reaper will act, as far as a look can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from fleet_seen import NOW, SPOT, fence, instance, lease, seen

from tandem.declarations.arns import build_stop_topic_arn
from tandem.errors import TandemError
from tandem.guard.plan import foretell_stop
from tandem.ops.guard_config import build_guard_config
from tandem.ops.reservation import read_reservation
from tandem.ops.stop_paths import StopPath, read_budget_path, read_reaper_path, read_schedule_path

LIMITS = build_guard_config(SPOT)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


BEATS = seen(instance(), lease=lease(beats=True))
RESERVATION = "cr-0123456789abcdef0"
BLOCK_ENDS = seen(instance(), lease=lease(minutes=60), block_ends=NOW + minutes(90))


@pytest.mark.parametrize(
    ("look", "at", "why"),
    [
        (seen(instance(), lease=lease(minutes=60)), 60, "the lease of run r1 ends at"),
        (
            seen(instance(minutes=7.5 * 60), lease=lease(minutes=60)),
            30,
            "an instance is older than 8 hours",
        ),
        (seen(instance(minutes=10)), 0, "instances live without a lease"),
        (
            replace(BEATS, heartbeat=NOW - minutes(10)),
            20,
            "run r1 has not beaten since 2026-11-21T11:50:00Z",
        ),
        (replace(BEATS, heartbeat=None), 0, "run r1 has not beaten since 2026-11-21T11:30:00Z"),
        (BLOCK_ENDS, 45, "the Capacity Block ends at"),
        (
            seen(instance(), lease=lease(ending=NOW - minutes(10))),
            20,
            "run r1 has been ending since",
        ),
        (seen(instance(minutes=60), fence=fence(minutes=2)), 8, "what is left is ended by id"),
        (seen(instance(minutes=60), fence=fence(minutes=30)), 0, "what is left is ended by id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_reason_of_the_reaper_is_foretold(look, at, why):
    foretold_at, reason = foretell_stop(look, LIMITS) or (None, "")
    assert (foretold_at, reason[: len(why)]) == (NOW + minutes(at), why)


@pytest.mark.parametrize("look", [seen(), seen(instance(minutes=600, ours=False), fence=fence())])
def test_nothing_stops_a_parked_or_foreign_fleet(look):
    assert foretell_stop(look, LIMITS) is None


# the reservation: answers have the form of botocore's own model; nobody has recorded one


def boto_client(service: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-2",
        aws_access_key_id="x",
        aws_secret_access_key="y",  # noqa: S106
    )


def test_unknown_reservation_is_none_and_a_denial_names_its_right():
    ec2 = boto_client("ec2")
    with Stubber(ec2) as stub:
        stub.add_client_error(
            "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound"
        )
        stub.add_client_error("describe_capacity_reservations", "UnauthorizedOperation")

        assert read_reservation(ec2, RESERVATION) is None
        with pytest.raises(TandemError, match="allow ec2:DescribeCapacityReservations"):
            read_reservation(ec2, RESERVATION)
        assert read_reservation(ec2, "") is None  # bought by the hour


# the budget and the reaper: answers have the form of botocore's own models; nobody has recorded one


STOPS = {"SubscriptionType": "SNS", "Address": build_stop_topic_arn(SPOT)}


def budget_path(
    spent: float,
    *alerts: dict[str, Any],
    pages: int = 1,
    subscriber: dict[str, str] = STOPS,
    **changes: Any,
) -> StopPath:
    """Return the path of a budget of 2,000 USD with these alerts."""
    budgets = boto_client("budgets")
    money = {
        "BudgetName": "b",
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
        "CalculatedSpend": {"ActualSpend": {"Amount": str(spent), "Unit": "USD"}},
        **changes,
    }
    with Stubber(budgets) as stub:
        stub.add_response("describe_budget", {"Budget": money})
        for number in range(1, pages):
            empty = {"Notifications": [], "NextToken": f"page {number}"}
            stub.add_response("describe_notifications_for_budget", empty)
        stub.add_response("describe_notifications_for_budget", {"Notifications": alerts})
        for alert_row in alerts:
            if (alert_row["NotificationType"], alert_row["ComparisonOperator"]) == (
                "ACTUAL",
                "GREATER_THAN",
            ):
                stub.add_response(
                    "describe_subscribers_for_notification", {"Subscribers": [subscriber]}
                )
        return read_budget_path(budgets, SPOT, "spot")


def alert(threshold: float, **changes: str) -> dict[str, Any]:
    return {
        "NotificationType": "ACTUAL",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": threshold,
        "ThresholdType": "PERCENTAGE",
        "NotificationState": "OK",
        **changes,
    }


IN_USD = alert(2500, ThresholdType="ABSOLUTE_VALUE")
FORECAST = alert(100, NotificationType="FORECASTED")
BELOW = alert(100, ComparisonOperator="LESS_THAN")
MAIL = {"subscriber": {"SubscriptionType": "EMAIL", "Address": "oncall@example.com"}}
NO_LIMIT = {"BudgetLimit": {"Amount": "0", "Unit": "USD"}}
NO_ALERT = "no alert of actual cost that tells the stop topic"
OTHER_FORM = "no monthly budget of cost with a limit"


@pytest.mark.parametrize(
    ("spent", "alerts", "changes", "state", "words"),
    [
        (150, [alert(100)], {}, "armed", "150.00 of 2,000.00 USD this month; at 2,000.00 USD it"),
        (2100, [alert(100), alert(150), alert(125)], {}, "armed", "at 2,500.00 USD it stops"),
        (2100, [IN_USD], {}, "armed", "at 2,500.00 USD it stops the fleet"),
        (10, [alert(100)], {"pages": 2}, "armed", "at 2,000.00 USD it stops the fleet"),
        (2001, [alert(100)], {}, "unarmed", "spent: no further alert this month"),
        (1500, [alert(100, NotificationState="ALARM")], {}, "unarmed", "spent: no further alert"),
        (2600, [IN_USD, alert(100)], {}, "unarmed", "spent: no further alert"),
        (10, [], {}, "unarmed", NO_ALERT),
        (10, [FORECAST], {}, "unarmed", NO_ALERT),
        (10, [BELOW], {}, "unarmed", NO_ALERT),
        (10, [alert(100)], MAIL, "unarmed", NO_ALERT),
        (10, [alert(100)], {"BudgetType": "USAGE"}, "unarmed", OTHER_FORM),
        (10, [alert(100)], {"TimeUnit": "ANNUALLY"}, "unarmed", OTHER_FORM),
        (10, [alert(100)], NO_LIMIT, "unarmed", OTHER_FORM),
    ],
)
def test_a_budget_is_armed_while_an_alert_that_stops_is_ahead(spent, alerts, changes, state, words):
    path = budget_path(spent, *alerts, **changes)
    assert path.state == state
    assert words in path.sentence


def test_a_budget_stops_no_paid_block_so_it_is_absent():
    path = read_budget_path(None, SPOT, "capacity-block")
    assert path.state == "absent"
    assert "only tells people: a block is paid" in path.sentence


@pytest.mark.parametrize(
    ("region", "state", "words"),
    [
        ("us-east-2", "unarmed", "is missing"),
        ("eu-north-1", "absent", "CloudFormation makes none in eu-north-1"),
    ],
)
def test_a_missing_budget_is_absent_where_no_deploy_makes_one(region, state, words):
    budgets = boto_client("budgets")
    with Stubber(budgets) as stub:
        stub.add_client_error("describe_budget", "NotFoundException")

        path = read_budget_path(budgets, SPOT.model_copy(update={"region": region}), "spot")

    assert path.state == state
    assert words in path.sentence


def test_a_budget_that_cannot_be_asked_names_the_right():
    budgets = boto_client("budgets")
    with Stubber(budgets) as stub:
        stub.add_client_error("describe_budget", "AccessDeniedException")

        with pytest.raises(TandemError, match="budgets:ViewBudget"):
            read_budget_path(budgets, SPOT, "spot")


def reaper_path(modified: str | None) -> StopPath:
    """Return the path of a reaper without any figure, whose function was changed then; None: there
    is no function."""
    cloudwatch = boto_client("cloudwatch")
    functions = boto_client("lambda")
    with Stubber(cloudwatch) as stub, Stubber(functions) as functions_stub:
        stub.add_response("get_metric_statistics", {"Datapoints": []})
        if modified is None:
            functions_stub.add_client_error(
                "get_function_configuration", "ResourceNotFoundException"
            )
        else:
            functions_stub.add_response("get_function_configuration", {"LastModified": modified})
        return read_reaper_path(cloudwatch, functions, SPOT, LIMITS, seen())


@pytest.mark.parametrize(
    ("modified", "state", "words"),
    [
        (
            "2026-11-21T11:57:00.000+0000",
            "unknown",
            "deployed 3 min ago; its first pass comes within 5 min",
        ),
        ("2026-11-21T11:40:00.000+0000", "unarmed", "silent: no pass in the last 20 min"),
        ("2026-11-21T12:30:00.000+0000", "unarmed", "silent"),
        ("yesterday", "unarmed", "silent"),
        (None, "unarmed", "silent"),
    ],
)
def test_silent_reaper_is_excused_by_a_fresh_deploy(modified, state, words):
    path = reaper_path(modified)
    assert path.state == state
    assert words in path.sentence


def test_schedule_is_absent_without_a_lease():
    assert read_schedule_path(None, LIMITS, seen()).state == "absent"


def test_an_unknown_lease_leaves_its_schedule_unknown():
    assert read_schedule_path(None, LIMITS, seen(unknown={"lease": "denied"})).state == "unknown"
