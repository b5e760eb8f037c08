# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Dashboards: refuses bodies that CloudWatch cannot draw and keeps tags; MiniStack does neither."""

from __future__ import annotations

import json

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from .handlers import add_stack_tags, wrap_changes

_MAX_WIDGETS = 500  # CloudWatch user guide, quotas
_TYPE = "AWS::CloudWatch::Dashboard"


def install(handlers: dict) -> None:
    """Wrap create and update, and accept a dashboard's ARN in a query for tags."""
    wrap_changes(handlers[_TYPE], before=_check_body, after=_store_tags)
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
    return properties


def _store_tags(name, _old, new, _attributes):
    arn = cloudwatch._dashboards[name]["DashboardArn"]
    cloudwatch._resource_tags[arn] = provisioners._tag_map(new.get("Tags"))
