# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Alarms of metric math, composite alarms in CloudFormation, and the alarm that mutes a composite.

MiniStack refuses metric math in a template and drops properties that it does not evaluate. It knows
composite alarms by API only, without their suppressor. This module keeps every property of an alarm
as the API's own model has it. It keeps metric math without evaluating it. A composite evaluates its
rule, and notifies nobody while its suppressor is in alarm. The waits before and after that are kept
but have no effect.
"""

from __future__ import annotations

from functools import partial

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from . import service_model
from .handlers import (
    add_stack_tags,
    build_handler,
    build_replacing_update,
    require_success,
)

_TYPE = "AWS::CloudWatch::CompositeAlarm"
_METRIC_SHAPE = partial(service_model.request_shape, "cloudwatch", "PutMetricAlarm")
_COMPOSITE_SHAPE = partial(service_model.request_shape, "cloudwatch", "PutCompositeAlarm")
_SUPPRESSOR = "ActionsSuppressor"
_WAIT_FIELDS = ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
# fields that an alarm of metric math has in its queries and not itself
_SINGLE_METRIC_FIELDS = (
    "MetricName",
    "Namespace",
    "Dimensions",
    "Period",
    "Statistic",
    "ExtendedStatistic",
    "Unit",
)


def install(handlers: dict) -> None:
    """Keep whole records, and add the composite's type."""
    record = provisioners._cw_metric_alarm_record
    provisioners._cw_metric_alarm_record = lambda name, properties: _complete_record(
        record, name, properties
    )
    _install_suppression()
    handlers[_TYPE] = build_handler(_create_composite, _update_composite, _delete_composite)
    add_stack_tags(_TYPE)


def _complete_record(record, name, properties):
    request = service_model.convert_value(
        _METRIC_SHAPE(), _without_tags(properties), "AWS::CloudWatch::Alarm"
    )
    if "Metrics" not in request:
        return {**record(name, properties), **request, "AlarmName": name}
    single_metric = {**properties, "MetricName": "none", "Namespace": "none", "Metrics": None}
    base = {
        key: value
        for key, value in record(name, single_metric).items()
        if key not in _SINGLE_METRIC_FIELDS
    }
    return {**base, **request, "AlarmName": name}


def _without_tags(properties):
    return {key: value for key, value in properties.items() if key != "Tags"}


def _install_suppression():
    """Keep a composite's suppressor, and let the suppressor silence the composite's actions."""
    put_alarm = cloudwatch._put_composite_alarm
    dispatch_actions = cloudwatch._dispatch_alarm_actions

    def put_with_suppressor(params, data, is_cbor, is_json=False):
        suppressor_fields = {key: data[key] for key in (_SUPPRESSOR, *_WAIT_FIELDS) if key in data}
        refusal = _find_suppressor_fault(suppressor_fields)
        if refusal:
            return cloudwatch._error(
                "ValidationError", refusal, 400, use_json=is_json, use_cbor=is_cbor
            )
        answer = put_alarm(params, data, is_cbor, is_json)
        if data.get("AlarmName") in cloudwatch._composite_alarms:
            cloudwatch._composite_alarms[data["AlarmName"]].update(suppressor_fields)
        return answer

    def dispatch_unless_suppressed(alarm, old_state, new_state, reason):
        suppressor = _alarm_state(alarm.get(_SUPPRESSOR))
        alarm.pop("ActionsSuppressedBy", None)
        if suppressor == "ALARM":
            alarm["ActionsSuppressedBy"] = "Alarm"
            return
        dispatch_actions(alarm, old_state, new_state, reason)

    cloudwatch._put_composite_alarm = put_with_suppressor
    cloudwatch._dispatch_alarm_actions = dispatch_unless_suppressed


def _find_suppressor_fault(suppressor_fields):
    """Return why CloudWatch refuses the suppressor, or nothing."""
    if _SUPPRESSOR not in suppressor_fields:
        return "ActionsSuppressor is missing" if suppressor_fields else None
    if not all(wait in suppressor_fields for wait in _WAIT_FIELDS):
        return "ActionsSuppressor takes a WaitPeriod and an ExtensionPeriod"
    return (
        None
        if _alarm_state(suppressor_fields[_SUPPRESSOR])
        else f"the suppressor alarm {suppressor_fields[_SUPPRESSOR]} does not exist"
    )


def _alarm_state(reference):
    """Return the state of the alarm of this name or ARN; None if there is none."""
    if not reference:
        return None
    name = (
        cloudwatch._alarm_name_from_local_arn(reference)
        if reference.startswith("arn:")
        else reference
    )
    alarm = cloudwatch._alarms.get(name) or cloudwatch._composite_alarms.get(name)
    return alarm["StateValue"] if alarm else None


def _create_composite(logical_id, properties, stack):
    name = properties.get("AlarmName") or provisioners._physical_name(
        stack, logical_id, max_len=255
    )
    return _put_composite(name, properties)


def _put_composite(name, properties):
    request = service_model.convert_value(_COMPOSITE_SHAPE(), _without_tags(properties), _TYPE)
    # its own
    require_success(
        cloudwatch._put_composite_alarm({}, {**request, "AlarmName": name}, False, True)
    )
    record = cloudwatch._composite_alarms[name]
    for key in (_SUPPRESSOR, *_WAIT_FIELDS):
        if key not in request:
            record.pop(key, None)
    cloudwatch._resource_tags[record["AlarmArn"]] = provisioners._tag_map(properties.get("Tags"))
    return name, {"Arn": record["AlarmArn"]}


def _update_composite(physical_id, old, new, stack, logical_id=None):
    if old.get("AlarmName") != new.get("AlarmName"):
        return build_replacing_update(_create_composite)(physical_id, old, new, stack, logical_id)
    return _put_composite(physical_id, new)


def _delete_composite(physical_id, _properties):
    # its own
    require_success(cloudwatch._delete_alarms({}, {"AlarmNames": [physical_id]}, False, True))
