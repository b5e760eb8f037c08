# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Schedules by the endpoint's clock, refused as EventBridge Scheduler refuses them.

MiniStack looks every ten seconds, takes any expression, and remembers firings by name, so a second
schedule of the same name never fires. With this module it looks ten times a second and forgets the
firing with the schedule. Invariant: the creation of a schedule that could never work is refused, as
far as AWS is known to refuse it.
"""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime
from types import SimpleNamespace

from ministack import app
from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import scheduler

from . import (
    event_rules,
    fleet_settings,
    scheduler_role,
    service_model,
    universal_targets,
)

TICK_S = 0.3
_AT_EXPRESSION = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_LIMITS = {"MaximumEventAgeInSeconds": (60, 86400), "MaximumRetryAttempts": (0, 185)}
_tick_lock = threading.Lock()
_originals = {}


def install(_handlers: dict) -> None:
    """Put our clock and our refusals before the service's own functions."""
    for name, replacement in (
        ("_create_schedule", _create_schedule),
        ("_update_schedule", _update_schedule),
        ("_tick_schedules", _tick_schedules),
        ("handle_request", _check_pass_role),
    ):
        _originals[name] = getattr(scheduler, name)
        setattr(scheduler, name, replacement)
    scheduler.time = SimpleNamespace(time=fleet_settings.current_time, sleep=time.sleep)
    scheduler._SCHEDULE_TICK_INTERVAL = TICK_S
    fleet_settings.due_actions.append(_tick_schedules)
    fleet_settings.reset_actions.append(scheduler._schedule_last_fired.clear)


def _tick_schedules():
    with _tick_lock:
        event_rules.forget_stale(scheduler._schedule_last_fired, scheduler._schedules._data)
        _originals["_tick_schedules"]()
        universal_targets.retry_due_invocations()


def _create_schedule(name, fields):
    problem = _find_schedule_fault(fields)
    if problem:
        return scheduler._error(400, "ValidationException", problem)
    _forget_firing(name, fields)
    return _originals["_create_schedule"](name, fields)


def _update_schedule(name, fields):
    problem = _find_schedule_fault(fields)
    if problem:
        return scheduler._error(400, "ValidationException", problem)
    _forget_firing(name, fields)
    return _originals["_update_schedule"](name, fields)


def _forget_firing(name, fields):
    """Forget the firing of a schedule with a new expression, so that it may fire again."""
    key = f"{fields.get('GroupName', 'default')}/{name}"
    if (
        key not in scheduler._schedules
        or scheduler._schedules[key]["ScheduleExpression"] != fields["ScheduleExpression"]
    ):
        scheduler._schedule_last_fired.pop((get_account_id(), get_region(), key), None)


def _find_schedule_fault(fields):
    expression = fields.get("ScheduleExpression") or ""
    target = fields.get("Target") or {}
    if expression.startswith("at(") and not _is_valid_time(expression):
        return f"Invalid Schedule Expression {expression}."
    for name, value in (target.get("RetryPolicy") or {}).items():
        least, most = _LIMITS.get(name, (value, value))
        if not least <= value <= most:
            return f"RetryPolicy.{name} is {value}, wanted: {least} to {most}"
    if app.AUTH and not scheduler_role.can_use_role(
        target.get("RoleArn", ""), fields.get("GroupName", "default")
    ):
        return (
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the"
            " role."
        )
    return universal_targets.find_target_fault(target)


def _is_valid_time(expression):
    match = _AT_EXPRESSION.fullmatch(expression)
    try:
        return bool(match) and bool(datetime.fromisoformat(match[1]))
    except ValueError:
        return False


async def _check_pass_role(method, path, headers, body, query):
    """Refuse a schedule whose caller may not pass its role; plain MiniStack does not check."""
    if app.AUTH and method in ("POST", "PUT") and path.startswith("/schedules/"):
        role = (service_model.parse_object(body or b"{}").get("Target") or {}).get("RoleArn", "*")
        denial = iam_evaluator.enforce(
            extract_access_key_id(headers, query),
            "iam:PassRole",
            "iam",
            get_region(),
            resource_arn=role,
            service_context={"iam:PassedToService": scheduler_role.SCHEDULER_SERVICE},
        )
        if denial:
            message = f"User is not authorized to perform: iam:PassRole on resource: {role}"
            return scheduler._error(403, "AccessDeniedException", message)
    return await _originals["handle_request"](method, path, headers, body, query)
