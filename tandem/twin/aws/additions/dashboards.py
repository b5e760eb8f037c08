# ruff: noqa: ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Dashboards whose body CloudWatch would not draw are refused, as AWS does; MiniStack takes any text."""

from __future__ import annotations

import json

NEEDS: dict = {}

_MOST_WIDGETS = 500  # CloudWatch user guide, quotas
_TYPE = "AWS::CloudWatch::Dashboard"


def install(handlers: dict) -> None:
    """Wrap create and update."""
    own = handlers[_TYPE]
    create, update = own["create"], own["update"]

    def created(logical_id, properties, stack):
        _drawable(properties)
        return create(logical_id, properties, stack)

    def updated(physical_id, old, new, stack):
        _drawable(new)
        return update(physical_id, old, new, stack)

    own.update(create=created, update=updated)


def _drawable(properties):
    try:
        widgets = json.loads(properties.get("DashboardBody", ""))["widgets"]
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(f"The dashboard body is invalid: {fault}") from fault
    if len(widgets) > _MOST_WIDGETS:
        raise ValueError(f"The dashboard body is invalid: {len(widgets)} widgets, at most {_MOST_WIDGETS}")
