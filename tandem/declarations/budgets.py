"""Where CloudFormation makes a monthly budget, and whose cost it counts.

Sources: the registry's schemas as cfn-lint has them (a test compares them with this list); AWS
Billing user guide, "Activating user-defined cost allocation tags"; AWS Cost Management API
reference, Budget, CostFilters.
"""

from __future__ import annotations

import math
from typing import Any

from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import RUNS_PER_MONTH, Environment

# Regions whose CloudFormation has no AWS::Budgets::Budget. There the budget is made by hand
# (docs/runbook.md).
REGIONS_WITHOUT_BUDGETS = frozenset(
    {
        "af-south-1",
        "ap-east-1",
        "ap-east-2",
        "ap-northeast-3",
        "ap-south-2",
        "ap-southeast-3",
        "ap-southeast-4",
        "ap-southeast-5",
        "ap-southeast-6",
        "ap-southeast-7",
        "ca-west-1",
        "eu-central-2",
        "eu-north-1",
        "eu-south-1",
        "eu-south-2",
        "il-central-1",
        "me-central-1",
        "mx-central-1",
        "us-gov-east-1",
        "us-gov-west-1",
    }
)


# The actual cost as shares of `guard.budget_usd`; each notifies the stop topic. AWS Budgets sends
# each notification once in a month, so a fleet that is raised again after a stop is stopped by the
# next threshold. A budget takes ten notifications (AWS Billing API reference, Notification). If
# this list changes, `names.budget_name` must change too (docs/decisions/0018).
BUDGET_THRESHOLDS_PERCENT = (100, 125, 150, 200, 300)
FORECAST_THRESHOLD_PERCENT = 100  # of the forecast cost; it notifies people


def needs_manual_budget(environment: Environment) -> bool:
    """Whether somebody must make the budget, because CloudFormation has none in the region."""
    return environment.region in REGIONS_WITHOUT_BUDGETS


# How long a spot node may live next to its replacement: EKS starts that one when EC2 recommends to
# rebalance, and ends the node once it is ready (EKS user guide, "Managed node groups", capacity
# types). The guard gives both this time before it calls one of them excess (tandem/guard/plan.py,
# REPLACEMENT_GRACES).
SPOT_OVERLAP_HOURS = 20 / 60


def compute_run_usd(environment: Environment) -> float:
    """Return the USD of one run of `guard.max_hours` on all nodes, spot ones replaced once."""
    capacity = environment.capacity
    overlap_hours = SPOT_OVERLAP_HOURS if capacity.kind == "spot" else 0.0
    return capacity.usd_per_hour * capacity.nodes * (environment.guard.max_hours + overlap_hours)


def compute_budget_usd(environment: Environment) -> float:
    """Return the monthly budget, whole USD: declared, or RUNS_PER_MONTH of `guard.max_hours`."""
    declared_usd = environment.guard.budget_usd
    if declared_usd is not None:
        return declared_usd
    return float(max(1, math.ceil(RUNS_PER_MONTH * compute_run_usd(environment))))


# How an hour of a running instance is billed, whatever the kind of its capacity. The fee of a
# Capacity Block has a usage type of its own and no tag of an instance (CapacityBlockFee;
# grafana/cloudcost-exporter@0b04135c pkg/aws/client/billing.go): the budget never counts it.
INSTANCE_USAGE = ("BoxUsage", "SpotUsage")


def budget_cost_filters(environment: Environment, catalogue: Catalogue) -> dict[str, list[str]]:
    """Return the budget's cost filters: the fleet's instance hours, and nothing that runs parked.

    A cost must match each key, and one value of it. Budgets sees a tag only once it is activated as
    a cost allocation tag; until then it sees no cost, and this path stops nothing. Where the
    region's billing code is not known, the tag alone bounds the budget, which then stops the fleet
    too early rather than never; the rule `billing-code` says so.
    """
    filters = {"TagKeyValue": [f"user:{names.OWNER_TAG}${environment.name}"]}
    code = catalogue.offerings.billing_codes.get(environment.region)
    if code is not None:
        filters["UsageType"] = [
            f"{code.value}-{kind}:{environment.capacity.instance_type}" for kind in INSTANCE_USAGE
        ]
    return filters


def build_budget_request(
    environment: Environment, catalogue: Catalogue, *, stop_topic_arn: str, people_topic_arn: str
) -> dict[str, Any]:
    """Return the fleet instances' budget: what was spent stops the fleet, a forecast tells people.

    The members are spelt as AWS Budgets' CreateBudget and CloudFormation's AWS::Budgets::Budget
    both have them.

    The notifications are the same for every kind of capacity, because CloudFormation makes a new
    budget for another list of them, and cannot where the name stays (docs/decisions/0018). The stop
    function knows that a Capacity Block's money is spent already, tells people, and stops nothing.
    """
    alerts = [("ACTUAL", percent, stop_topic_arn) for percent in BUDGET_THRESHOLDS_PERCENT]
    alerts.append(("FORECASTED", FORECAST_THRESHOLD_PERCENT, people_topic_arn))
    form = {"ComparisonOperator": "GREATER_THAN", "ThresholdType": "PERCENTAGE"}
    budget = {
        "BudgetName": names.budget_name(environment),
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": compute_budget_usd(environment), "Unit": "USD"},
        "CostFilters": budget_cost_filters(environment, catalogue),
    }
    notifications: list[dict[str, Any]] = [
        {
            "Notification": {**form, "NotificationType": kind, "Threshold": percent},
            "Subscribers": [{"SubscriptionType": "SNS", "Address": topic_arn}],
        }
        for kind, percent, topic_arn in alerts
    ]
    return {"Budget": budget, "NotificationsWithSubscribers": notifications}
