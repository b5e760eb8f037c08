"""Group capacity: whether there is a budget, and whether it sees what the fleet costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import topic_arn
from tandem.ops.doctor.line import Finding, ok, unknown, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import DeniedError
from tandem.ops.guarded import stop_topic_arn
from tandem.shell_command import quote_command
from tandem.spec import names
from tandem.spec.budgets import (
    BUDGET_THRESHOLDS_PERCENT,
    FORECAST_THRESHOLD_PERCENT,
    by_hand,
    counted_costs,
    counted_tag,
)

# what a member of an organization is told, whatever its identity may do (hashicorp/terraform-provider-aws#37636)
MEMBER = "Linked account doesn't have access to cost allocation tags"


def cost_tag(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the tag by which the budget counts is activated: AWS Billing ignores any other."""
    tag = counted_tag(subject.environment)
    if tag is None:
        yield ok("the budget counts the whole account's instances of the type: the environment declares no tags")
        return
    activate = quote_command(
        "aws", "ce", "update-cost-allocation-tags-status", "--cost-allocation-tags-status",
        f"TagKey={tag},Status=Active",
    )  # fmt: skip
    try:
        found = account.ask("ce", "ListCostAllocationTags", tag, TagKeys=[tag])
    except DeniedError as error:
        if MEMBER not in error.problem:
            raise
        yield unknown(
            f"only the organization's management account sees whether the cost allocation tag {tag} is activated; "
            "until it is, the budget counts nothing and stops nothing", "let whoever has that account see to it",
            activate,
        )  # fmt: skip
        return
    rows = [row for row in (found or {})["CostAllocationTags"] if row["TagKey"] == tag]
    if not rows:
        yield warn(
            f"AWS Billing does not know the tag {tag} yet: the budget counts nothing and stops nothing",
            "deploy, and activate the tag within a day, when AWS Billing lists it", activate,
        )  # fmt: skip
    elif rows[0]["Status"] != "Active":
        yield warn(
            f"the cost allocation tag {tag} is not activated: the budget counts nothing and stops nothing",
            "activate it; it takes up to a day, and what was spent before stays uncounted", activate,
        )  # fmt: skip
    else:
        yield ok(f"the cost allocation tag {tag} is activated: the budget counts this environment's instances")


def budget(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the budget is there where somebody must make it by hand, and that it counts the fleet's instances."""
    environment, name = subject.environment, names.budget(subject.environment)
    answer = account.ask(
        "budgets", "DescribeBudget", name, absent={"NotFoundException"}, AccountId=environment.account, BudgetName=name
    )
    if answer is None and by_hand(environment):
        yield warn(
            f"CloudFormation makes no budget in {environment.region}, and nobody made {name} by hand: two paths stop "
            "the fleet, not three", "make it once, after Guard is deployed", create_budget_command(subject),
        )  # fmt: skip
        return
    if answer is None:
        yield ok(f"there is no {name} yet; the stack Guard makes it")
        return
    costs = {key: sorted(values) for key, values in answer["Budget"].get("CostFilters", {}).items()}
    counted = {key: sorted(values) for key, values in counted_costs(environment, subject.catalogue).items()}
    if costs == counted:
        yield ok(f"{name} counts the fleet's instances and nothing else")
        return
    yield warn(
        f"{name} counts {json.dumps(costs)}, not the fleet's instances alone ({json.dumps(counted)})",
        "delete it and make it again" if by_hand(environment) else "deploy the stack Guard",
        create_budget_command(subject) if by_hand(environment) else "",
    )  # fmt: skip


def create_budget_command(subject: Subject) -> str:
    """Return the command that makes the budget which Guard makes elsewhere."""
    environment = subject.environment
    notifications = [
        *(_notify("ACTUAL", percent, stop_topic_arn(environment)) for percent in BUDGET_THRESHOLDS_PERCENT),
        _notify("FORECASTED", FORECAST_THRESHOLD_PERCENT, topic_arn(environment)),
    ]
    declared = {
        "BudgetName": names.budget(environment), "BudgetType": "COST", "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": f"{environment.guard.budget_usd:.2f}", "Unit": "USD"},
        "CostFilters": counted_costs(environment, subject.catalogue),
    }  # fmt: skip
    return quote_command(
        "aws", "budgets", "create-budget", "--account-id", environment.account, "--budget", json.dumps(declared),
        "--notifications-with-subscribers", json.dumps(notifications),
    )  # fmt: skip


def _notify(kind: str, percent: float, topic: str) -> dict[str, Any]:
    return {
        "Notification": {
            "NotificationType": kind, "ComparisonOperator": "GREATER_THAN", "Threshold": percent,
            "ThresholdType": "PERCENTAGE",
        },
        "Subscribers": [{"SubscriptionType": "SNS", "Address": topic}],
    }  # fmt: skip
