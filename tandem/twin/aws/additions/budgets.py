# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Budgets in CloudFormation, which plain MiniStack has by API only. Nothing is spent here, so none is ever exceeded."""

from __future__ import annotations

from functools import partial

from ministack.core.responses import get_account_id
from ministack.services import budgets
from ministack.services.cloudformation import provisioners

from . import wire
from .handlers import MISSING, handler, replaced, succeeded

NEEDS = {budgets: ("_create_budget", "_delete_budget", "_update_budget"), provisioners: ("_physical_name",)}

_TYPE = "AWS::Budgets::Budget"
_REQUEST = partial(wire.request_shape, "budgets", "CreateBudget")


def install(handlers: dict) -> None:
    """Register the type."""
    handlers[_TYPE] = handler(_create, _update, _delete)


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
