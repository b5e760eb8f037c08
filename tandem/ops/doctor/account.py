"""The account, as these credentials see it.

Invariant: no client of this module sends a call that was not allowed to the account, whoever holds the client; these
are `DOCTOR_CALLS`, unless something else is said where an account is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tandem.errors import TandemError
from tandem.ops.account import AccountClients
from tandem.ops.doctor.call_policy import DOCTOR_CALLS, list_action_arns
from tandem.ops.faults import AccessDeniedError, AwsCall, convert_error
from tandem.spec.environment import Environment


class UnlistedCallError(Exception):
    """A program asked for more than the doctor may: a fault of ours, not of the account."""


class AllowlistedAccount(AccountClients):
    """Asks no other calls than these; a denial says what to add to a policy.

    Args:
        environment: whose account and region are asked.
        boto_session: a boto3 session; None takes a new one.
        calls: that may be made.
    """

    def __init__(
        self, environment: Environment, boto_session: Any = None, calls: Iterable[AwsCall] = DOCTOR_CALLS
    ) -> None:
        super().__init__(environment, boto_session)
        self._calls = set(calls)

    def create_client(self, service: str, region: str) -> Any:
        """Return a client that refuses every call but the allowed."""
        boto_client = super().create_client(service, region)
        boto_client.meta.events.register("before-call", self._refuse_unlisted_call)
        return boto_client

    def _refuse_unlisted_call(self, model: Any, **_: Any) -> None:
        service, operation = str(model.service_model.service_name), str(model.name)
        if (service, operation) not in self._calls:
            raise UnlistedCallError(f"{service} {operation} is no call of the doctor's")

    def convert_error(self, error: BaseException, service: str, operation: str, where: str) -> TandemError:
        """Return the fault of a call that another module made with a client of this account."""
        fault = convert_error(error, service=service, operation=operation, where=where)
        return self.explain_fault(fault, service, operation)

    def explain_fault(self, error: TandemError, service: str, operation: str) -> TandemError:
        """Return the fault with the action and the resource that a policy lacks; GetCallerIdentity takes no right."""
        if not isinstance(error, AccessDeniedError) or not AwsCall(service, operation).action:
            return error
        return AccessDeniedError(
            error.problem, where=error.where, change=self.describe_missing_right(service, operation)
        )

    def describe_missing_right(self, service: str, operation: str) -> str:
        """Return what to add to the policy of who asks, so that a call is allowed."""
        action = AwsCall(service, operation).action
        arns = ", ".join(list_action_arns(self.environment, action))
        return f"add {action} on {arns} to the policy of this identity"
