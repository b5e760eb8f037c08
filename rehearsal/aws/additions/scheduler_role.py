# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The role with which EventBridge Scheduler makes its calls.

Invariant: if the endpoint enforces policies, Scheduler may do only what the schedule's role may do,
and gets a role only if the role trusts Scheduler.
"""

from __future__ import annotations

import time

from ministack import app
from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.services import iam, sts

from . import service_model

SCHEDULER_SERVICE = "scheduler.amazonaws.com"


def install(_handlers: dict) -> None:
    """Do nothing: no function needs a wrapper."""


def can_use_role(role: str, group: str) -> bool:
    """Return whether the role is there and lets Scheduler assume it for schedules of this group."""
    record = iam._roles.get(role.rsplit("/", 1)[-1])
    if record is None or record["Arn"] != role:
        return False
    group_arn = f"arn:aws:scheduler:{get_region()}:{get_account_id()}:schedule-group/{group}"
    context = iam_evaluator.EvalContext(
        principal_arn=SCHEDULER_SERVICE,
        principal_type="Service",
        principal_account=get_account_id(),
        action="sts:AssumeRole",
        resource_arn=role,
        region=get_region(),
        service_context={"aws:sourceaccount": get_account_id(), "aws:sourcearn": group_arn},
    )
    return any(
        _can_assume_role(statement, context)
        for statement in _policy_statements(record["AssumeRolePolicyDocument"])
    )


def _policy_statements(document):
    statements = service_model.parse_object(document).get("Statement", [])
    return [statements] if isinstance(statements, dict) else statements


def _can_assume_role(statement, context):
    actions = statement.get("Action", [])
    action_names = [actions] if isinstance(actions, str) else actions
    return (
        statement.get("Effect") == "Allow"
        and any(action in ("sts:AssumeRole", "sts:*", "*") for action in action_names)
        and iam_evaluator._service_principal_matches(statement.get("Principal"), SCHEDULER_SERVICE)
        and iam_evaluator._conditions_met(statement.get("Condition", {}), context)
    )


def create_session(role: str, group: str, name: str) -> tuple | None:
    """Return access key, secret and token of the role's session; None if it distrusts Scheduler.

    Without enforcement every caller is the account itself, and so is Scheduler.
    """
    if not app.AUTH:
        return get_account_id(), "local", None
    if not can_use_role(role, group):
        return None
    key = sts._gen_session_access_key()
    secret = sts._gen_secret()
    token = sts._gen_session_token()
    sts.register_session(
        key,
        {
            "Arn": f"arn:aws:sts::{get_account_id()}:assumed-role/{role.rsplit('/', 1)[-1]}/{name}",
            "UserId": f"AROA:{name}",
            "SecretAccessKey": secret,
            "SessionToken": token,
            "Expiration": time.time() + 900,
            "AccountId": get_account_id(),
            "PrincipalType": "AssumedRole",
        },
    )
    return key, secret, token
