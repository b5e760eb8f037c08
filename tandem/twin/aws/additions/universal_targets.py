# ruff: noqa: SLF001, ANN001, ANN003, ANN202, PLC0415 - MiniStack is untyped; a call imports what calls need
"""EventBridge Scheduler's universal targets of EKS: the call is really made, as the schedule's role.

`Input` spells members with a capital, ClusterName and not clusterName as the EKS API has it: AWS answers
CreateSchedule with a ValidationException where a required one is missing in that spelling, as two people recorded on
their accounts in 2026. What AWS does with a deeper member in another spelling nobody recorded; here the invocation
fails, so that it cannot pass unseen.
Invariant: a call that failed is made again until its retry policy is exhausted, and then stands in its queue.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field

from ministack.core.responses import get_account_id, get_region, new_uuid, set_request_account_id, set_request_region
from ministack.services import eventbridge, scheduler

from . import fleet_knobs, scheduler_role, wire

NEEDS = {
    eventbridge: ("_invoke_target",),
    scheduler: ("_at_time_epoch",),
}

_PREFIX = "arn:aws:scheduler:::aws-sdk:"
_READS = ("get", "describe", "list")  # of the prefixes that Scheduler calls read-only, those that EKS has
_LOG = logging.getLogger("tandem.universal_targets")


@dataclass
class _Invocation:
    """One firing of one schedule, with its retries."""

    schedule: dict
    target: dict
    account: str
    region: str
    scheduled_at: float
    began_at: float
    identity: str = field(default_factory=new_uuid)
    retries: int = 0
    next_at: float = 0.0
    fault: tuple[str, str] = ("", "")
    resets: int = 0


class _FailedError(Exception):
    """The call was not made or was refused; its code and its words."""


_waiting: list[_Invocation] = []
_resets = [0]  # what began before the last one is forgotten, though it be under way


def install(_handlers: dict) -> None:
    """Take universal targets of schedules over from the dispatch that knows none."""
    invoke = eventbridge._invoke_target

    def invoked(target, event, rule, view=None):
        if not target.get("Arn", "").startswith(_PREFIX):
            invoke(target, event, rule, view)
            return
        now = fleet_knobs.now()
        at = scheduler._at_time_epoch(rule.get("ScheduleExpression", "")) or now
        _attempt(_Invocation(rule, target, get_account_id(), get_region(), at, now, resets=_resets[0]))

    eventbridge._invoke_target = invoked
    fleet_knobs.forget.append(_forget)


def _forget():
    _resets[0] += 1
    _waiting.clear()


def refusal(target: dict) -> str | None:
    """Why CreateSchedule refuses a target, or None; only universal targets of EKS are looked into."""
    said = target.get("Arn", "")
    if not said.startswith(f"{_PREFIX}eks:"):
        return None
    operation = _operation(said)
    if operation is None:
        return f"{said} is not a supported api for EventBridge Scheduler."
    try:
        given = json.loads(target.get("Input") or "{}")
    except ValueError:
        return "Invalid RequestJson provided. Reason Request payload is not a valid JSON"
    required = [name[:1].upper() + name[1:] for name in operation.input_shape.required_members]
    missing = ", ".join(name for name in required if name not in given)
    if missing:
        return f"Invalid RequestJson provided. Reason Request payload is missing the following field(s): {missing}."
    return None


def _operation(arn):
    action = arn.removeprefix(f"{_PREFIX}eks:")
    name = action[:1].upper() + action[1:]
    model = wire.service("eks")
    if action.startswith(_READS) or action[:1].isupper() or name not in model.operation_names:
        return None
    return model.operation_model(name)


def retry() -> None:
    """Make again the calls whose wait is over, and give up those that are too old."""
    now = fleet_knobs.now()
    for one in list(_waiting):
        if now - one.began_at >= _policy(one)["MaximumEventAgeInSeconds"]:
            _waiting.remove(one)
            _bury(one, "MaximumEventAgeInSeconds")
        elif one.next_at <= now:
            _waiting.remove(one)
            one.retries += 1
            _attempt(one)


def _policy(one):
    usual = {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185}
    return {**usual, **(one.target.get("RetryPolicy") or {})}


def _attempt(one):
    set_request_account_id(one.account)
    set_request_region(one.region)
    try:
        _call(one)
    except _FailedError as fault:
        if one.resets != _resets[0]:
            return
        one.fault = fault.args
        _LOG.warning("%s failed: %s: %s", one.schedule["Arn"], *one.fault)
        if one.retries >= _policy(one)["MaximumRetryAttempts"]:
            _bury(one, "MaximumRetryAttempts")
        else:
            one.next_at = fleet_knobs.now() + fleet_knobs.of().retry_delay_s * 2**one.retries
            _waiting.append(one)


def _call(one):
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    if not one.target["Arn"].startswith(f"{_PREFIX}eks:"):
        raise _FailedError("NotRehearsed", "the local endpoint fires universal targets of eks alone")
    operation = _operation(one.target["Arn"])
    try:
        said = _spelt(operation.input_shape, json.loads(one.target.get("Input") or "{}"), "")
        client = _client(one, "eks")
        getattr(client, _snake(operation.name))(**said)
    except ClientError as fault:
        raise _FailedError(fault.response["Error"]["Code"], fault.response["Error"]["Message"]) from fault
    except (ParamValidationError, ValueError) as fault:
        raise _FailedError("ValidationException", str(fault)) from fault
    except BotoCoreError as fault:
        raise _FailedError("InternalServerException", str(fault)) from fault


def _snake(name):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")


def _spelt(shape, value, where):
    """The request in the service's own spelling."""
    if shape.type_name == "list" and isinstance(value, list):
        return [_spelt(shape.member, item, where) for item in value]
    if shape.type_name != "structure" or not isinstance(value, dict):
        return value  # a map's keys are the user's own
    unknown = [name for name in value if name[:1].islower() or wire.camel(name) not in shape.members]
    if unknown:
        raise ValueError(f"Input has the unknown member {where}{unknown[0]}")
    return {
        wire.camel(name): _spelt(shape.members[wire.camel(name)], item, f"{where}{name}.")
        for name, item in value.items()
    }


def _client(one, service):
    from botocore.config import Config
    from botocore.session import get_session

    session = scheduler_role.session(one.target["RoleArn"], one.schedule["GroupName"], one.identity)
    if session is None:
        raise _FailedError("AccessDeniedException", f"{scheduler_role.SERVICE} may not assume {one.target['RoleArn']}")
    key, secret, token = session
    client = get_session().create_client(
        service, region_name=one.region, endpoint_url=_endpoint(), aws_access_key_id=key, aws_secret_access_key=secret,
        aws_session_token=token, config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )  # fmt: skip
    client.meta.events.register("before-send", _over_tls)
    return client


def _over_tls(request, **_more):
    """Scheduler calls by TLS; a queue's policy may refuse all else, and there is none on this machine."""
    request.headers["X-Forwarded-Proto"] = "https"


def _endpoint():
    return f"http://{os.environ['BIND_HOST']}:{os.environ['GATEWAY_PORT']}"


def _bury(one, condition):
    """Send what failed to its dead-letter queue, with the schedule's role as Scheduler does."""
    from botocore.exceptions import BotoCoreError, ClientError

    queue = (one.target.get("DeadLetterConfig") or {}).get("Arn")
    if not queue:
        _LOG.warning("%s is dropped after %d retries: it has no dead-letter queue", one.schedule["Arn"], one.retries)
        return
    code, message = one.fault
    attributes = {
        "ERROR_CODE": code, "ERROR_MESSAGE": message or code, "EXECUTION_ID": one.identity,
        "EXHAUSTED_RETRY_CONDITION": condition, "IS_PAYLOAD_TRUNCATED": "false", "RETRY_ATTEMPTS": str(one.retries),
        "SCHEDULED_TIME": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.scheduled_at)),
        "SCHEDULE_ARN": one.schedule["Arn"], "TARGET_ARN": one.target["Arn"],
    }  # fmt: skip
    account, name = queue.split(":")[4:6]
    try:
        _client(one, "sqs").send_message(
            QueueUrl=f"{_endpoint()}/{account}/{name}", MessageBody=one.target.get("Input") or "{}",
            MessageAttributes={key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()},
        )  # fmt: skip
    except (_FailedError, BotoCoreError, ClientError):
        _LOG.exception("%s is lost: its dead-letter queue %s does not take it", one.schedule["Arn"], queue)
