"""The monthly budget of the fleet's instances: what was spent stops the fleet, what is forecast tells people.

Invariant: the notifications are the same for every kind of capacity, because CloudFormation makes a new budget for
another list of them, and cannot where the name stays (docs/decisions/0018). The stop function knows that a Capacity
Block's money is spent already, tells people, and stops nothing.
"""

from __future__ import annotations

from aws_cdk import aws_budgets as budgets
from constructs import Construct

from tandem.spec import names
from tandem.spec.budgets import BUDGET_THRESHOLDS_PERCENT, FORECAST_THRESHOLD_PERCENT, budget_cost_filters
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment


class MonthlyBudget(Construct):
    """A cost budget of `guard.budget_usd`.

    Args:
        stop_topic_arn: notified at each of BUDGET_THRESHOLDS_PERCENT of the actual cost.
        people_topic_arn: notified when the forecast is above the budget.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, stop_topic_arn: str, people_topic_arn: str
    ) -> None:
        super().__init__(scope, id_)
        budgets.CfnBudget(
            self, "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=names.budget_name(environment), budget_type="COST", time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=environment.guard.budget_usd, unit="USD"),
                cost_filters=budget_cost_filters(environment, load_catalogue()),
            ),
            notifications_with_subscribers=[
                *(_build_notification("ACTUAL", percent, stop_topic_arn) for percent in BUDGET_THRESHOLDS_PERCENT),
                _build_notification("FORECASTED", FORECAST_THRESHOLD_PERCENT, people_topic_arn),
            ],
            resource_tags=[
                budgets.CfnBudget.ResourceTagProperty(key=key, value=value)
                for key, value in sorted(names.resource_tags(environment).items())
            ],
        )  # fmt: skip


def _build_notification(
    kind: str, percent: float, topic_arn: str
) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            comparison_operator="GREATER_THAN", notification_type=kind, threshold=percent, threshold_type="PERCENTAGE"
        ),
        subscribers=[budgets.CfnBudget.SubscriberProperty(address=topic_arn, subscription_type="SNS")],
    )
