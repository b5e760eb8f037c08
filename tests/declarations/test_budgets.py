"""The monthly budget: its amount, whose cost it counts, and who hears of it."""

from __future__ import annotations

import pytest
from committed import environment, known

from tandem.declarations.budgets import (
    budget_cost_filters,
    build_budget_request,
    compute_budget_usd,
    compute_run_usd,
)

BLOCK_PLACE = environment("post-us-east-2")


def test_a_spot_node_is_paid_twenty_minutes_beside_its_replacement():
    spot_place = environment("dev-trn2-3xlarge")
    capacity = spot_place.capacity.model_copy(update={"usd_per_hour": 3.0, "nodes": 2})
    guard = spot_place.guard.model_copy(update={"max_hours": 4})
    spot_place = spot_place.model_copy(update={"capacity": capacity, "guard": guard})

    assert compute_run_usd(spot_place) == pytest.approx(3.0 * 2 * 4 + 3.0 * 2 / 3)


def test_an_undeclared_budget_pays_seven_runs_in_whole_usd():
    guard = BLOCK_PLACE.guard.model_copy(update={"max_hours": 8, "budget_usd": None})
    undeclared_place = BLOCK_PLACE.model_copy(update={"guard": guard})

    # 7 runs of 8 hours at 35.76 USD are 2002.56 USD
    assert compute_budget_usd(undeclared_place) == 2003


def test_a_region_without_billing_code_counts_by_the_tag_alone():
    unknown_place = BLOCK_PLACE.model_copy(update={"region": "xx-nowhere-1"})

    assert list(budget_cost_filters(unknown_place, known())) == ["TagKeyValue"]


def test_a_forecast_reaches_people_and_never_the_stop():
    request = build_budget_request(
        BLOCK_PLACE, known(), stop_topic_arn="stop", people_topic_arn="people"
    )
    forecast_topics = [
        row["Subscribers"][0]["Address"]
        for row in request["NotificationsWithSubscribers"]
        if row["Notification"]["NotificationType"] == "FORECASTED"
    ]

    assert forecast_topics == ["people"]
