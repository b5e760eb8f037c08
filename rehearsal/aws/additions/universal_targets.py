# ruff: noqa: SLF001, ANN001, ANN003, ANN202, PLC0415 - MiniStack is untyped; a call imports what calls need
"""EventBridge Scheduler's universal targets of EKS: really called here, as the schedule's role.

`Input` spells members with a capital: ClusterName, not clusterName as in the EKS API. AWS answers
CreateSchedule with a ValidationException if a required member is missing in that spelling, as two
people recorded on their accounts in 2026. Nobody recorded how AWS treats a deeper member in another
spelling; here the invocation fails, so that somebody sees it. Invariant: a failed call is retried
until its retry policy is exhausted, and is then in its queue.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field

from ministack.core.responses import (
    get_account_id,
    get_region,
    new_uuid,
    set_request_account_id,
    set_request_region,
)
from ministack.services import eventbridge, scheduler

from . import fleet_settings, scheduler_role, service_model

_PREFIX = "arn:aws:scheduler:::aws-sdk:"
# of the prefixes that Scheduler calls read-only, those that EKS has
_READ_PREFIXES = ("get", "describe", "list")
_LOG = logging.getLogger("tandem.universal_targets")


@dataclass
class _TargetInvocation:
    """One firing of one schedule, with its retries."""

    schedule: dict
    target: dict
    account: str
    region: str
    scheduled_at: float
    start_time: float
    execution_id: str = field(default_factory=new_uuid)
    retries: int = 0
    next_at: float = 0.0
    error: tuple[str, str] = ("", "")
    reset_count: int = 0


class _TargetCallError(Exception):
    """The call was not made or was refused: its code and its message."""


_retry_queue: list[_TargetInvocation] = []
_reset_counter = [0]  # an invocation from before the last reset is forgotten, even while it runs


def install(_handlers: dict) -> None:
    """Take over universal targets of schedules from the dispatch, which knows none."""
    invoke_plain = eventbridge._invoke_target

    def invoke_target(target, event, rule, view=None):
        if not target.get("Arn", "").startswith(_PREFIX):
            invoke_plain(target, event, rule, view)
            return
        now = fleet_settings.current_time()
        start_time = scheduler._at_time_epoch(rule.get("ScheduleExpression", "")) or now
        _attempt_call(
            _TargetInvocation(
                rule,
                target,
                get_account_id(),
                get_region(),
                start_time,
                now,
                reset_count=_reset_counter[0],
            )
        )

    eventbridge._invoke_target = invoke_target
    fleet_settings.reset_actions.append(_forget_invocations)


def _forget_invocations():
    _reset_counter[0] += 1
    _retry_queue.clear()


def find_target_fault(target: dict) -> str | None:
    """Return why CreateSchedule refuses a target, or None; check only universal targets of EKS."""
    target_arn = target.get("Arn", "")
    if not target_arn.startswith(f"{_PREFIX}eks:"):
        return None
    operation = _find_operation(target_arn)
    if operation is None:
        return f"{target_arn} is not a supported api for EventBridge Scheduler."
    try:
        input_fields = json.loads(target.get("Input") or "{}")
    except ValueError:
        return "Invalid RequestJson provided. Reason Request payload is not a valid JSON"
    required_names = [
        name[:1].upper() + name[1:] for name in operation.input_shape.required_members
    ]
    absent_names = ", ".join(name for name in required_names if name not in input_fields)
    if absent_names:
        return (
            "Invalid RequestJson provided. Reason Request payload is missing the following"
            f" field(s): {absent_names}."
        )
    return None


def _find_operation(arn):
    action = arn.removeprefix(f"{_PREFIX}eks:")
    name = action[:1].upper() + action[1:]
    model = service_model.load_service("eks")
    if (
        action.startswith(_READ_PREFIXES)
        or action[:1].isupper()
        or name not in model.operation_names
    ):
        return None
    return model.operation_model(name)


def retry_due_invocations() -> None:
    """Retry the calls whose wait is over, and give up those that are too old."""
    now = fleet_settings.current_time()
    for invocation in list(_retry_queue):
        if now - invocation.start_time >= _retry_policy(invocation)["MaximumEventAgeInSeconds"]:
            _retry_queue.remove(invocation)
            _send_to_dead_letters(invocation, "MaximumEventAgeInSeconds")
        elif invocation.next_at <= now:
            _retry_queue.remove(invocation)
            invocation.retries += 1
            _attempt_call(invocation)


def _retry_policy(invocation):
    default_policy = {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185}
    return {**default_policy, **(invocation.target.get("RetryPolicy") or {})}


def _attempt_call(invocation):
    set_request_account_id(invocation.account)
    set_request_region(invocation.region)
    try:
        _call_target(invocation)
    except _TargetCallError as error:
        if invocation.reset_count != _reset_counter[0]:
            return
        invocation.error = error.args
        _LOG.warning("%s failed: %s: %s", invocation.schedule["Arn"], *invocation.error)
        if invocation.retries >= _retry_policy(invocation)["MaximumRetryAttempts"]:
            _send_to_dead_letters(invocation, "MaximumRetryAttempts")
        else:
            invocation.next_at = (
                fleet_settings.current_time()
                + fleet_settings.read_settings().retry_delay_s * 2**invocation.retries
            )
            _retry_queue.append(invocation)


def _call_target(invocation):
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    if not invocation.target["Arn"].startswith(f"{_PREFIX}eks:"):
        raise _TargetCallError(
            "NotRehearsed", "the local endpoint fires universal targets of eks alone"
        )
    operation = _find_operation(invocation.target["Arn"])
    try:
        request = _convert_spelling(
            operation.input_shape, json.loads(invocation.target.get("Input") or "{}"), ""
        )
        client = _create_client(invocation, "eks")
        getattr(client, _to_snake_case(operation.name))(**request)
    except ClientError as error:
        raise _TargetCallError(
            error.response["Error"]["Code"], error.response["Error"]["Message"]
        ) from error
    except (ParamValidationError, ValueError) as error:
        raise _TargetCallError("ValidationException", str(error)) from error
    except BotoCoreError as error:
        raise _TargetCallError("InternalServerException", str(error)) from error


def _to_snake_case(name):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip(
        "_"
    )


def _convert_spelling(shape, value, path):
    """Return the request in the service's own spelling."""
    if shape.type_name == "list" and isinstance(value, list):
        return [_convert_spelling(shape.member, item, path) for item in value]
    if shape.type_name != "structure" or not isinstance(value, dict):
        return value  # a map's keys are the user's own
    unknown = [
        name
        for name in value
        if name[:1].islower() or service_model.to_camel_case(name) not in shape.members
    ]
    if unknown:
        raise ValueError(f"Input has the unknown member {path}{unknown[0]}")
    return {
        service_model.to_camel_case(name): _convert_spelling(
            shape.members[service_model.to_camel_case(name)], item, f"{path}{name}."
        )
        for name, item in value.items()
    }


def _create_client(invocation, service):
    from botocore.config import Config
    from botocore.session import get_session

    session = scheduler_role.create_session(
        invocation.target["RoleArn"], invocation.schedule["GroupName"], invocation.execution_id
    )
    if session is None:
        raise _TargetCallError(
            "AccessDeniedException",
            f"{scheduler_role.SCHEDULER_SERVICE} may not assume {invocation.target['RoleArn']}",
        )
    key, secret, token = session
    client = get_session().create_client(
        service,
        region_name=invocation.region,
        endpoint_url=_endpoint_url(),
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    client.meta.events.register("before-send", _set_tls_header)
    return client


def _set_tls_header(request, **_more):
    """Mark a request as TLS: Scheduler uses it, queues may require it, this machine has none."""
    request.headers["X-Forwarded-Proto"] = "https"


def _endpoint_url():
    return f"http://{os.environ['BIND_HOST']}:{os.environ['GATEWAY_PORT']}"


def _send_to_dead_letters(invocation, condition):
    """Send a failed invocation to its dead-letter queue by the schedule's role, like Scheduler."""
    from botocore.exceptions import BotoCoreError, ClientError

    queue = (invocation.target.get("DeadLetterConfig") or {}).get("Arn")
    if not queue:
        _LOG.warning(
            "%s is dropped after %d retries: it has no dead-letter queue",
            invocation.schedule["Arn"],
            invocation.retries,
        )
        return
    code, message = invocation.error
    attributes = {
        "ERROR_CODE": code,
        "ERROR_MESSAGE": message or code,
        "EXECUTION_ID": invocation.execution_id,
        "EXHAUSTED_RETRY_CONDITION": condition,
        "IS_PAYLOAD_TRUNCATED": "false",
        "RETRY_ATTEMPTS": str(invocation.retries),
        "SCHEDULED_TIME": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(invocation.scheduled_at)),
        "SCHEDULE_ARN": invocation.schedule["Arn"],
        "TARGET_ARN": invocation.target["Arn"],
    }
    account, name = queue.split(":")[4:6]
    try:
        _create_client(invocation, "sqs").send_message(
            QueueUrl=f"{_endpoint_url()}/{account}/{name}",
            MessageBody=invocation.target.get("Input") or "{}",
            MessageAttributes={
                key: {"DataType": "String", "StringValue": value}
                for key, value in attributes.items()
            },
        )
    except (_TargetCallError, BotoCoreError, ClientError):
        _LOG.exception(
            "%s is lost: its dead-letter queue %s does not take it",
            invocation.schedule["Arn"],
            queue,
        )
