# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Budgets in CloudFormation, which plain MiniStack has by API only, and the bounds of a listing of notifications.

Nothing is spent here, so no budget is ever exceeded.
"""

from __future__ import annotations

from functools import partial

from ministack.core.responses import error_response_json, get_account_id
from ministack.services import budgets
from ministack.services.cloudformation import provisioners

from . import wire
from .handlers import MISSING, handler, replaced, succeeded

NEEDS = {
    budgets: (
        "_DISPATCH", "_create_budget", "_delete_budget", "_describe_notifications_for_budget", "_err_invalid",
        "_notification_store", "_update_budget",
    ),
    provisioners: ("_physical_name",),
}  # fmt: skip

MOST_OF_A_PAGE = 100  # AWS Billing API reference, DescribeNotificationsForBudget, MaxResults

_TYPE = "AWS::Budgets::Budget"
_REQUEST = partial(wire.request_shape, "budgets", "CreateBudget")


def install(handlers: dict) -> None:
    """Register the type, and hold a listing of notifications to its bounds."""
    handlers[_TYPE] = handler(_create, _update, _delete)
    budgets._DISPATCH["DescribeNotificationsForBudget"] = _list_notifications


def _list_notifications(data):
    """Refuse a page size and a token that AWS refuses; MiniStack cuts the one, and begins anew for the other."""
    size, token = data.get("MaxResults", MOST_OF_A_PAGE), data.get("NextToken")
    if not 1 <= size <= MOST_OF_A_PAGE:
        return budgets._err_invalid(f"MaxResults is {size}, not within 1 and {MOST_OF_A_PAGE}")
    stored = len(budgets._notification_store.get(data.get("BudgetName"), []))
    if token is not None and not (token.isdecimal() and 0 < int(token) < stored):
        return error_response_json("InvalidNextTokenException", "The pagination token is invalid.", 400)
    return budgets._describe_notifications_for_budget(data)


def _said(properties, name):
    said = wire.shaped(_REQUEST(), properties, _TYPE)
    return {**said, "AccountId": get_account_id(), "Budget": {**said["Budget"], "BudgetName": name}}


def _create(logical_id, properties, stack):
    name = properties["Budget"].get("BudgetName") or provisioners._physical_name(stack, logical_id, max_len=100)
    succeeded(budgets._create_budget(_said(properties, name)))
    return name, {}


def _update(physical_id, old, new, stack, logical_id=None):
    """The budget itself is changed in place; who is told, and of what, only by another budget, as on AWS."""
    named = new["Budget"].get("BudgetName", physical_id) != physical_id
    if named or any(old.get(name) != new.get(name) for name in old.keys() | new.keys() if name != "Budget"):
        return replaced(_create)(physical_id, old, new, stack, logical_id)
    budget = _said(new, physical_id)["Budget"]
    succeeded(budgets._update_budget({"AccountId": get_account_id(), "NewBudget": budget}))
    return physical_id, {}


def _delete(physical_id, _properties):
    answer = budgets._delete_budget({"AccountId": get_account_id(), "BudgetName": physical_id})
    if answer[0] < MISSING and b"doesn't exist" not in answer[2]:
        succeeded(answer)
