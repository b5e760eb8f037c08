# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Dashboards: refuses bodies that CloudWatch cannot draw and keeps tags; MiniStack does neither."""

from __future__ import annotations

import json

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from .handlers import add_stack_tags

NEEDS = {
    cloudwatch: ("_dashboards", "_resource_tags", "_validate_alarm_tag_arn"),
    provisioners: ("_tag_map",),
}

_MAX_WIDGETS = 500  # CloudWatch user guide, quotas
_TYPE = "AWS::CloudWatch::Dashboard"


def install(handlers: dict) -> None:
    """Wrap create and update, and accept a dashboard's ARN in a query for tags."""
    type_handlers = handlers[_TYPE]
    create = type_handlers["create"]
    update = type_handlers["update"]

    def create_with_tags(logical_id, properties, stack):
        _check_body(properties)
        return _store_tags(create(logical_id, properties, stack), properties)

    def update_with_tags(physical_id, old, new, stack):
        _check_body(new)
        return _store_tags(update(physical_id, old, new, stack), new)

    type_handlers.update(create=create_with_tags, update=update_with_tags)
    add_stack_tags(_TYPE)
    validate_arn = cloudwatch._validate_alarm_tag_arn

    def validate_dashboard_arn(arn, is_json=False, is_cbor=False):
        is_dashboard = any(
            arn == dashboard["DashboardArn"] for dashboard in cloudwatch._dashboards.values()
        )
        return None if is_dashboard else validate_arn(arn, is_json=is_json, is_cbor=is_cbor)

    cloudwatch._validate_alarm_tag_arn = validate_dashboard_arn


def _check_body(properties):
    try:
        widgets = json.loads(properties.get("DashboardBody", ""))["widgets"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"The dashboard body is invalid: {error}") from error
    if len(widgets) > _MAX_WIDGETS:
        raise ValueError(
            f"The dashboard body is invalid: {len(widgets)} widgets, at most {_MAX_WIDGETS}"
        )


def _store_tags(outcome, properties):
    arn = cloudwatch._dashboards[outcome[0]]["DashboardArn"]
    cloudwatch._resource_tags[arn] = provisioners._tag_map(properties.get("Tags"))
    return outcome
