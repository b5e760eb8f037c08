# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Dashboards: a body that CloudWatch cannot draw is refused, as on AWS, and tags are kept; MiniStack does neither."""

from __future__ import annotations

import json

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from .handlers import taggable

NEEDS = {cloudwatch: ("_dashboards", "_resource_tags", "_validate_alarm_tag_arn"), provisioners: ("_tag_map",)}

_MOST_WIDGETS = 500  # CloudWatch user guide, quotas
_TYPE = "AWS::CloudWatch::Dashboard"


def install(handlers: dict) -> None:
    """Wrap create and update, and let a dashboard's ARN be asked for its tags."""
    own = handlers[_TYPE]
    create, update = own["create"], own["update"]

    def created(logical_id, properties, stack):
        _drawable(properties)
        return _tagged(create(logical_id, properties, stack), properties)

    def updated(physical_id, old, new, stack):
        _drawable(new)
        return _tagged(update(physical_id, old, new, stack), new)

    own.update(create=created, update=updated)
    taggable(_TYPE)
    refuse = cloudwatch._validate_alarm_tag_arn

    def refused(arn, is_json=False, is_cbor=False):
        known = any(arn == board["DashboardArn"] for board in cloudwatch._dashboards.values())
        return None if known else refuse(arn, is_json=is_json, is_cbor=is_cbor)

    cloudwatch._validate_alarm_tag_arn = refused


def _drawable(properties):
    try:
        widgets = json.loads(properties.get("DashboardBody", ""))["widgets"]
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(f"The dashboard body is invalid: {fault}") from fault
    if len(widgets) > _MOST_WIDGETS:
        raise ValueError(f"The dashboard body is invalid: {len(widgets)} widgets, at most {_MOST_WIDGETS}")


def _tagged(outcome, properties):
    arn = cloudwatch._dashboards[outcome[0]]["DashboardArn"]
    cloudwatch._resource_tags[arn] = provisioners._tag_map(properties.get("Tags"))
    return outcome
