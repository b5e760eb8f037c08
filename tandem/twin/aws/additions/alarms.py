# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Alarms of metric math, composite alarms in CloudFormation, and the alarm that mutes a composite.

MiniStack refuses metric math in a template, drops what it does not evaluate, and knows composite alarms by API only,
without their suppressor. Here every property of an alarm is kept as the API's own model has it. Metric math is kept and
not evaluated; a composite evaluates its rule, and tells nobody while its suppressor is in alarm. The waits before and
after that are kept and not kept to.
"""

from __future__ import annotations

from functools import partial

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from . import wire
from .handlers import handler, replaced, succeeded, taggable

NEEDS = {
    cloudwatch: (
        "_alarm_name_from_local_arn", "_alarms", "_composite_alarms", "_delete_alarms", "_dispatch_alarm_actions",
        "_error", "_put_composite_alarm", "_resource_tags",
    ),
    provisioners: ("_cw_metric_alarm_record", "_physical_name", "_tag_map"),
}  # fmt: skip

_TYPE = "AWS::CloudWatch::CompositeAlarm"
_METRIC = partial(wire.request_shape, "cloudwatch", "PutMetricAlarm")
_COMPOSITE = partial(wire.request_shape, "cloudwatch", "PutCompositeAlarm")
_SUPPRESSOR = "ActionsSuppressor"
_WAITS = ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
# what an alarm of metric math has in its queries and not itself
_OF_ONE_METRIC = ("MetricName", "Namespace", "Dimensions", "Period", "Statistic", "ExtendedStatistic", "Unit")


def install(handlers: dict) -> None:
    """Keep whole records, and add the composite's type."""
    record = provisioners._cw_metric_alarm_record
    provisioners._cw_metric_alarm_record = lambda name, properties: _whole(record, name, properties)
    _suppressed()
    handlers[_TYPE] = handler(_create, _update, _delete)
    taggable(_TYPE)


def _whole(record, name, properties):
    said = wire.shaped(_METRIC(), _untagged(properties), "AWS::CloudWatch::Alarm")
    if "Metrics" not in said:
        return {**record(name, properties), **said, "AlarmName": name}
    stand_in = {**properties, "MetricName": "none", "Namespace": "none", "Metrics": None}
    base = {key: value for key, value in record(name, stand_in).items() if key not in _OF_ONE_METRIC}
    return {**base, **said, "AlarmName": name}


def _untagged(properties):
    return {key: value for key, value in properties.items() if key != "Tags"}


def _suppressed():
    """Keep a composite's suppressor, and let it silence the composite's actions."""
    put, dispatch = cloudwatch._put_composite_alarm, cloudwatch._dispatch_alarm_actions

    def kept(params, data, is_cbor, is_json=False):
        said = {key: data[key] for key in (_SUPPRESSOR, *_WAITS) if key in data}
        refusal = _refusal(said)
        if refusal:
            return cloudwatch._error("ValidationError", refusal, 400, use_json=is_json, use_cbor=is_cbor)
        answer = put(params, data, is_cbor, is_json)
        if data.get("AlarmName") in cloudwatch._composite_alarms:
            cloudwatch._composite_alarms[data["AlarmName"]].update(said)
        return answer

    def dispatched(alarm, old_state, new_state, reason):
        suppressor = _state(alarm.get(_SUPPRESSOR))
        alarm.pop("ActionsSuppressedBy", None)
        if suppressor == "ALARM":
            alarm["ActionsSuppressedBy"] = "Alarm"
            return
        dispatch(alarm, old_state, new_state, reason)

    cloudwatch._put_composite_alarm, cloudwatch._dispatch_alarm_actions = kept, dispatched


def _refusal(said):
    """Why CloudWatch refuses the suppressor, or nothing."""
    if _SUPPRESSOR not in said:
        return "ActionsSuppressor is missing" if said else None
    if not all(wait in said for wait in _WAITS):
        return "ActionsSuppressor takes a WaitPeriod and an ExtensionPeriod"
    return None if _state(said[_SUPPRESSOR]) else f"the suppressor alarm {said[_SUPPRESSOR]} does not exist"


def _state(reference):
    """The state of the alarm of this name or ARN; None where there is none."""
    if not reference:
        return None
    name = cloudwatch._alarm_name_from_local_arn(reference) if reference.startswith("arn:") else reference
    alarm = cloudwatch._alarms.get(name) or cloudwatch._composite_alarms.get(name)
    return alarm["StateValue"] if alarm else None


def _create(logical_id, properties, stack):
    name = properties.get("AlarmName") or provisioners._physical_name(stack, logical_id, max_len=255)
    return _put(name, properties)


def _put(name, properties):
    said = wire.shaped(_COMPOSITE(), _untagged(properties), _TYPE)
    succeeded(cloudwatch._put_composite_alarm({}, {**said, "AlarmName": name}, False, True))  # its own
    record = cloudwatch._composite_alarms[name]
    for key in (_SUPPRESSOR, *_WAITS):
        if key not in said:
            record.pop(key, None)
    cloudwatch._resource_tags[record["AlarmArn"]] = provisioners._tag_map(properties.get("Tags"))
    return name, {"Arn": record["AlarmArn"]}


def _update(physical_id, old, new, stack, logical_id=None):
    if old.get("AlarmName") != new.get("AlarmName"):
        return replaced(_create)(physical_id, old, new, stack, logical_id)
    return _put(physical_id, new)


def _delete(physical_id, _properties):
    succeeded(cloudwatch._delete_alarms({}, {"AlarmNames": [physical_id]}, False, True))  # its own
