"""The account, as these credentials see it.

Invariant: no client of this module sends a call that was not allowed to the account, whoever holds the client; these
are `DOCTOR_CALLS`, unless something else is said where an account is made.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Any

from tandem.errors import TandemError
from tandem.ops.account import create_client, create_session
from tandem.ops.doctor.call_policy import DOCTOR_CALLS, AwsCall, list_action_arns
from tandem.ops.faults import AccessDeniedError, call_operation, convert_error, error_code
from tandem.ops.row_pages import iterate_rows
from tandem.spec.environment import Environment


class UnlistedCallError(Exception):
    """A program asked for more than the doctor may: a fault of ours, not of the account."""


class AllowlistedAccount:
    """Asks, and tells what is absent from what could not be seen.

    Args:
        environment: whose account and region are asked.
        boto_session: a boto3 session; None takes a new one.
        calls: that may be made.
    """

    def __init__(
        self, environment: Environment, boto_session: Any = None, calls: Iterable[AwsCall] = DOCTOR_CALLS
    ) -> None:
        self.environment, self._session = environment, boto_session
        self._calls = set(calls)
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str, region: str = "") -> Any:
        """Return a client that refuses every call but the allowed; made once, for boto3 makes them one at a time.

        Raises:
            ExternalError: the settings of this machine cannot be used.
        """
        region_name = region or self.environment.region
        with self._lock:
            if (service, region_name) not in self._clients:
                self._session = self._session or create_session()
                boto_client = create_client(
                    self.environment.model_copy(update={"region": region_name}), service, self._session
                )
                boto_client.meta.events.register("before-call", self._refuse_unlisted_call)
                self._clients[service, region_name] = boto_client
            return self._clients[service, region_name]

    def ask(
        self,
        service: str,
        operation: str,
        where: str,
        *,
        absent: Collection[str] = (),
        region: str = "",
        **parameters: Any,
    ) -> dict[str, Any] | None:
        """Make one call.

        Args:
            where: what it is about, for messages.
            absent: codes with which the service says that there is no such thing.
            region: another than the environment's.

        Returns:
            The answer, None where what was asked for is absent.

        Raises:
            AccessDeniedError: these credentials may not; which action on which resource may be added is in it.
            ExternalError: nobody answered, or not in these terms.
        """
        try:
            return call_operation(self.client(service, region), operation, where, **parameters)
        except TandemError as error:
            if error_code(error.__cause__) in absent:
                return None
            raise self._add_missing_right(error, service, operation) from error.__cause__

    def list_rows(self, service: str, operation: str, key: str, where: str, **parameters: Any) -> list[Any]:
        """Make one call for all pages of its list.

        Raises:
            AccessDeniedError: as `call_operation`.
            ExternalError: as `call_operation`.
        """
        try:
            return list(iterate_rows(self.client(service), operation, key, where, **parameters))
        except TandemError as error:
            raise self._add_missing_right(error, service, operation) from error.__cause__

    def convert_error(self, error: BaseException, service: str, operation: str, where: str) -> TandemError:
        """Return the fault of a call that another module made with a client of this account."""
        return self._add_missing_right(
            convert_error(error, service=service, operation=operation, where=where), service, operation
        )

    def _add_missing_right(self, error: TandemError, service: str, operation: str) -> TandemError:
        """Return the fault with the action and the resource that a policy lacks; GetCallerIdentity takes no right."""
        if isinstance(error, AccessDeniedError) and AwsCall(service, operation).action:
            return self.build_denial(service, operation, error)
        return error

    def build_denial(self, service: str, operation: str, error: TandemError) -> AccessDeniedError:
        """Return a refusal that says what to add to a policy."""
        action = AwsCall(service, operation).action
        arns_text = ", ".join(list_action_arns(self.environment, action))
        return AccessDeniedError(
            error.problem, where=error.where, change=f"add {action} on {arns_text} to the policy of this identity"
        )

    def _refuse_unlisted_call(self, model: Any, **_: Any) -> None:
        service, operation = str(model.service_model.service_name), str(model.name)
        if (service, operation) not in self._calls:
            raise UnlistedCallError(f"{service} {operation} is no call of the doctor's")
