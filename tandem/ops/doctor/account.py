"""The account, as these credentials see it.

Invariant: no client of this module sends a call that was not allowed to the account, whoever holds the client; these
are `calls.CALLS`, unless something else is said where an account is made.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Any

from tandem.ops.account import client, session
from tandem.ops.doctor.calls import CALLS, Call, known, resources
from tandem.ops.fault import DeniedError, OpsError, ask, code_of, fault_of
from tandem.ops.row_pages import iterate_rows
from tandem.spec.environment import Environment


class UncalledError(Exception):
    """A program asked for more than the doctor may: a fault of ours, not of the account."""


class Account:
    """Asks, and tells what is absent from what could not be seen.

    Args:
        environment: whose account and region are asked.
        shared: a boto3 session; None takes a new one.
        calls: that may be made.
    """

    def __init__(self, environment: Environment, shared: Any = None, calls: Iterable[Call] = CALLS) -> None:
        self.environment, self._session = environment, shared
        self._calls = {(call.service, call.operation) for call in calls}
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str, region: str = "") -> Any:
        """Return a client that refuses every call but the allowed; made once, for boto3 makes them one at a time.

        Raises:
            OpsError: the settings of this machine cannot be used.
        """
        place = region or self.environment.region
        with self._lock:
            if (service, place) not in self._clients:
                self._session = self._session or session()
                made = client(self.environment.model_copy(update={"region": place}), service, self._session)
                made.meta.events.register("before-call", self._only_allowed)
                self._clients[service, place] = made
            return self._clients[service, place]

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
            DeniedError: these credentials may not; which action on which resource may be added is in it.
            OpsError: nobody answered, or not in these terms.
        """
        try:
            return ask(self.client(service, region), operation, where, **parameters)
        except OpsError as error:
            if code_of(error.__cause__) in absent:
                return None
            raise self._named(error, service, operation) from error.__cause__

    def every(self, service: str, operation: str, key: str, where: str, **parameters: Any) -> list[Any]:
        """Make one call for all pages of its list.

        Raises:
            DeniedError: as `ask`.
            OpsError: as `ask`.
        """
        try:
            return list(iterate_rows(self.client(service), operation, key, where, **parameters))
        except OpsError as error:
            raise self._named(error, service, operation) from error.__cause__

    def explain(self, error: BaseException, service: str, operation: str, where: str) -> OpsError:
        """Return the fault of a call that another module made with a client of this account."""
        return self._named(fault_of(error, service=service, operation=operation, where=where), service, operation)

    def _named(self, error: OpsError, service: str, operation: str) -> OpsError:
        """Return the fault with the action and the resource that a policy lacks; GetCallerIdentity takes no right."""
        if isinstance(error, DeniedError) and known(service, operation).action:
            return self.denied(service, operation, error)
        return error

    def denied(self, service: str, operation: str, error: OpsError) -> DeniedError:
        """Return a refusal that says what to add to a policy."""
        action = known(service, operation).action
        on = ", ".join(resources(self.environment, action))
        return DeniedError(
            error.problem, where=error.where, change=f"add {action} on {on} to the policy of this identity"
        )

    def _only_allowed(self, model: Any, **_: Any) -> None:
        service, operation = str(model.service_model.service_name), str(model.name)
        if (service, operation) not in self._calls:
            raise UncalledError(f"{service} {operation} is no call of the doctor's")
