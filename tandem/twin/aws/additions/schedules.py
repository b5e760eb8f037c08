# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Schedules by the endpoint's clock, refused where EventBridge Scheduler refuses them.

MiniStack looks every ten seconds, takes any expression, and remembers by name what it has fired, so that a second
schedule of the same name never fires. Here it looks ten times a second and forgets with the schedule.
Invariant: a schedule that could never do its work is refused when it is made, as far as AWS is known to refuse it.
"""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime
from functools import partial
from types import SimpleNamespace

from ministack import app
from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import scheduler
from ministack.services.cloudformation import provisioners

from . import event_rules, fleet_knobs, scheduler_role, universal_targets, wire
from .handlers import REFUSED, replaced, succeeded

NEEDS = {
    app: ("AUTH",),
    iam_evaluator: ("enforce",),
    provisioners: ("_physical_name",),
    scheduler: (
        "_SCHEDULE_TICK_INTERVAL", "_create_schedule", "_error", "_schedule_arn", "_schedule_last_fired", "_schedules",
        "_tick_schedules", "_update_schedule", "handle_request", "time",
    ),
}  # fmt: skip

TICK_S = 0.1
_TYPE = "AWS::Scheduler::Schedule"
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_LIMITS = {"MaximumEventAgeInSeconds": (60, 86400), "MaximumRetryAttempts": (0, 185)}
_REQUEST = partial(wire.request_shape, "scheduler", "CreateSchedule")
_ticking = threading.Lock()
_originals = {}


def install(handlers: dict) -> None:
    """Put our clock and our refusals before the service's own functions, and let templates meet them too."""
    for name, ours in (("_create_schedule", _create), ("_update_schedule", _update), ("_tick_schedules", _tick),
                       ("handle_request", _handle)):  # fmt: skip
        _originals[name] = getattr(scheduler, name)
        setattr(scheduler, name, ours)
    scheduler.time = SimpleNamespace(time=fleet_knobs.now, sleep=time.sleep)
    scheduler._SCHEDULE_TICK_INTERVAL = TICK_S
    fleet_knobs.due.append(_tick)
    fleet_knobs.forget.append(scheduler._schedule_last_fired.clear)
    handlers[_TYPE].update(create=_create_by_stack, update=_update_by_stack, update_with_logical_id=True)


def _tick():
    with _ticking:
        event_rules.forget_stale(scheduler._schedule_last_fired, scheduler._schedules._data)
        _originals["_tick_schedules"]()
        universal_targets.retry()


def _create(name, said):
    refusal = _refusal(said)
    if refusal:
        return scheduler._error(400, "ValidationException", refusal)
    _forget(name, said)
    return _originals["_create_schedule"](name, said)


def _update(name, said):
    refusal = _refusal(said)
    if refusal:
        return scheduler._error(400, "ValidationException", refusal)
    _forget(name, said)
    return _originals["_update_schedule"](name, said)


def _forget(name, said):
    """An expression that is written anew may fire anew."""
    key = f"{said.get('GroupName', 'default')}/{name}"
    if key not in scheduler._schedules or scheduler._schedules[key]["ScheduleExpression"] != said["ScheduleExpression"]:
        scheduler._schedule_last_fired.pop((get_account_id(), get_region(), key), None)


def _refusal(said):
    expression, target = said.get("ScheduleExpression") or "", said.get("Target") or {}
    if expression.startswith("at(") and not _moment(expression):
        return f"Invalid Schedule Expression {expression}."
    for name, value in (target.get("RetryPolicy") or {}).items():
        least, most = _LIMITS.get(name, (value, value))
        if not least <= value <= most:
            return f"RetryPolicy.{name} is {value}, wanted: {least} to {most}"
    if app.AUTH and not scheduler_role.trusted(target.get("RoleArn", ""), said.get("GroupName", "default")):
        return "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
    return universal_targets.refusal(target)


def _moment(expression):
    found = _AT.fullmatch(expression)
    try:
        return bool(found) and bool(datetime.fromisoformat(found[1]))
    except ValueError:
        return False


async def _handle(method, path, headers, body, query):
    """Who makes a schedule must be allowed to pass its role to Scheduler, which plain MiniStack does not ask."""
    if app.AUTH and method in ("POST", "PUT") and path.startswith("/schedules/"):
        role = (wire.loaded(body or b"{}").get("Target") or {}).get("RoleArn", "*")
        denied = iam_evaluator.enforce(
            extract_access_key_id(headers, query), "iam:PassRole", "iam", get_region(), resource_arn=role,
            service_context={"iam:PassedToService": scheduler_role.SERVICE},
        )  # fmt: skip
        if denied:
            message = f"User is not authorized to perform: iam:PassRole on resource: {role}"
            return scheduler._error(403, "AccessDeniedException", message)
    return await _originals["handle_request"](method, path, headers, body, query)


def _said(properties):
    return {**wire.shaped(_REQUEST(), properties, _TYPE), "GroupName": properties.get("GroupName", "default")}


def _create_by_stack(logical_id, properties, stack):
    said = _said(properties)
    name = said.pop("Name", None) or provisioners._physical_name(stack, logical_id, max_len=64)
    succeeded(scheduler._create_schedule(name, said))
    return name, {"Arn": scheduler._schedule_arn(said["GroupName"], name)}


def _update_by_stack(physical_id, old, new, stack, logical_id=None):
    if any(old.get(name) != new.get(name) for name in ("Name", "GroupName")):
        return replaced(_create_by_stack)(physical_id, old, new, stack, logical_id)
    said = _said(new)
    said.pop("Name", None)
    answer = scheduler._update_schedule(physical_id, said)
    if answer[0] >= REFUSED:
        succeeded(answer)
    return physical_id, {"Arn": scheduler._schedule_arn(said["GroupName"], physical_id)}
