# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Budgets in CloudFormation (plain MiniStack: API only), and bounds for listing notifications.

The endpoint spends nothing, so no budget is ever exceeded.
"""

from __future__ import annotations

from functools import partial

from ministack.core.responses import error_response_json, get_account_id
from ministack.services import budgets
from ministack.services.cloudformation import provisioners

from . import service_model
from .handlers import (
    NOT_FOUND_STATUS,
    build_handler,
    build_replacing_update,
    require_success,
)

MAX_PAGE_SIZE = 100  # AWS Billing API reference, DescribeNotificationsForBudget, MaxResults

_TYPE = "AWS::Budgets::Budget"
_REQUEST_SHAPE = partial(service_model.request_shape, "budgets", "CreateBudget")


def install(handlers: dict) -> None:
    """Register the type, and enforce the bounds of a listing of notifications."""
    handlers[_TYPE] = build_handler(_create_budget, _update_budget, _delete_budget)
    budgets._DISPATCH["DescribeNotificationsForBudget"] = _list_notifications


def _list_notifications(data):
    """Refuse page sizes and tokens as AWS does; MiniStack cuts sizes, and restarts for tokens."""
    size = data.get("MaxResults", MAX_PAGE_SIZE)
    token = data.get("NextToken")
    if not 1 <= size <= MAX_PAGE_SIZE:
        return budgets._err_invalid(f"MaxResults is {size}, not within 1 and {MAX_PAGE_SIZE}")
    notification_count = len(budgets._notification_store.get(data.get("BudgetName"), []))
    if token is not None and not (token.isdecimal() and 0 < int(token) < notification_count):
        return error_response_json(
            "InvalidNextTokenException", "The pagination token is invalid.", 400
        )
    return budgets._describe_notifications_for_budget(data)


def _build_request(properties, name):
    request = service_model.convert_value(_REQUEST_SHAPE(), properties, _TYPE)
    return {
        **request,
        "AccountId": get_account_id(),
        "Budget": {**request["Budget"], "BudgetName": name},
    }


def _create_budget(logical_id, properties, stack):
    name = properties["Budget"].get("BudgetName") or provisioners._physical_name(
        stack, logical_id, max_len=100
    )
    require_success(budgets._create_budget(_build_request(properties, name)))
    return name, {}


def _update_budget(physical_id, old, new, stack, logical_id=None):
    """Change a budget in place; changed notifications need another budget, as on AWS."""
    has_new_name = new["Budget"].get("BudgetName", physical_id) != physical_id
    if has_new_name or any(
        old.get(name) != new.get(name) for name in old.keys() | new.keys() if name != "Budget"
    ):
        return build_replacing_update(_create_budget)(physical_id, old, new, stack, logical_id)
    budget = _build_request(new, physical_id)["Budget"]
    require_success(budgets._update_budget({"AccountId": get_account_id(), "NewBudget": budget}))
    return physical_id, {}


def _delete_budget(physical_id, _properties):
    answer = budgets._delete_budget({"AccountId": get_account_id(), "BudgetName": physical_id})
    if answer[0] < NOT_FOUND_STATUS and b"doesn't exist" not in answer[2]:
        require_success(answer)
