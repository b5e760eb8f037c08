"""Group capacity: whether there is a budget, and whether it sees what the fleet costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import topic_arn
from tandem.ops.doctor.check_result import CheckFinding, ok_finding, unknown_finding, warn_finding
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import stop_topic_arn
from tandem.shell_command import quote_command
from tandem.spec import names
from tandem.spec.budgets import (
    BUDGET_THRESHOLDS_PERCENT,
    FORECAST_THRESHOLD_PERCENT,
    budget_cost_filters,
    budget_tag_key,
    needs_manual_budget,
)

# what a member of an organization is told, whatever its identity may do (hashicorp/terraform-provider-aws#37636)
MEMBER_ACCOUNT_TEXT = "Linked account doesn't have access to cost allocation tags"


def check_cost_tag(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the tag by which the budget counts is activated: AWS Billing ignores any other."""
    tag = budget_tag_key(context.environment)
    if tag is None:
        yield ok_finding(
            "the budget counts the whole account's instances of the type: the environment declares no tags"
        )
        return
    activate_command = quote_command(
        "aws", "ce", "update-cost-allocation-tags-status", "--cost-allocation-tags-status",
        f"TagKey={tag},Status=Active",
    )  # fmt: skip
    try:
        response = account.ask("ce", "ListCostAllocationTags", tag, TagKeys=[tag])
    except AccessDeniedError as error:
        if MEMBER_ACCOUNT_TEXT not in error.problem:
            raise
        yield unknown_finding(
            f"only the organization's management account sees whether the cost allocation tag {tag} is activated; "
            "until it is, the budget counts nothing and stops nothing", "let whoever has that account see to it",
            activate_command,
        )  # fmt: skip
        return
    rows = [row for row in (response or {})["CostAllocationTags"] if row["TagKey"] == tag]
    if not rows:
        yield warn_finding(
            f"AWS Billing does not know the tag {tag} yet: the budget counts nothing and stops nothing",
            "deploy, and activate the tag within a day, when AWS Billing lists it", activate_command,
        )  # fmt: skip
    elif rows[0]["Status"] != "Active":
        yield warn_finding(
            f"the cost allocation tag {tag} is not activated: the budget counts nothing and stops nothing",
            "activate it; it takes up to a day, and what was spent before stays uncounted", activate_command,
        )  # fmt: skip
    else:
        yield ok_finding(f"the cost allocation tag {tag} is activated: the budget counts this environment's instances")


def check_budget(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the budget is there where somebody must make it by hand, and that it counts the fleet's instances."""
    environment, name = context.environment, names.budget_name(context.environment)
    answer = account.ask(
        "budgets", "DescribeBudget", name, absent={"NotFoundException"}, AccountId=environment.account, BudgetName=name
    )
    if answer is None and needs_manual_budget(environment):
        yield warn_finding(
            f"CloudFormation makes no budget in {environment.region}, and nobody made {name} by hand: two paths stop "
            "the fleet, not three", "make it once, after Guard is deployed", build_create_budget_command(context),
        )  # fmt: skip
        return
    if answer is None:
        yield ok_finding(f"there is no {name} yet; the stack Guard makes it")
        return
    actual_filters = {key: sorted(values) for key, values in answer["Budget"].get("CostFilters", {}).items()}
    expected_filters = {
        key: sorted(values) for key, values in budget_cost_filters(environment, context.catalogue).items()
    }
    if actual_filters == expected_filters:
        yield ok_finding(f"{name} counts the fleet's instances and nothing else")
        return
    yield warn_finding(
        f"{name} counts {json.dumps(actual_filters)}, not the fleet's instances alone ({json.dumps(expected_filters)})",
        "delete it and make it again" if needs_manual_budget(environment) else "deploy the stack Guard",
        build_create_budget_command(context) if needs_manual_budget(environment) else "",
    )  # fmt: skip


def build_create_budget_command(context: DoctorContext) -> str:
    """Return the command that makes the budget which Guard makes elsewhere."""
    environment = context.environment
    notifications = [
        *(_build_notification("ACTUAL", percent, stop_topic_arn(environment)) for percent in BUDGET_THRESHOLDS_PERCENT),
        _build_notification("FORECASTED", FORECAST_THRESHOLD_PERCENT, topic_arn(environment)),
    ]
    budget_request = {
        "BudgetName": names.budget_name(environment), "BudgetType": "COST", "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": f"{environment.guard.budget_usd:.2f}", "Unit": "USD"},
        "CostFilters": budget_cost_filters(environment, context.catalogue),
    }  # fmt: skip
    return quote_command(
        "aws", "budgets", "create-budget", "--account-id", environment.account, "--budget", json.dumps(budget_request),
        "--notifications-with-subscribers", json.dumps(notifications),
    )  # fmt: skip


def _build_notification(kind: str, percent: float, topic: str) -> dict[str, Any]:
    return {
        "Notification": {
            "NotificationType": kind, "ComparisonOperator": "GREATER_THAN", "Threshold": percent,
            "ThresholdType": "PERCENTAGE",
        },
        "Subscribers": [{"SubscriptionType": "SNS", "Address": topic}],
    }  # fmt: skip
