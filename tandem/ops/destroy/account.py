"""One account and region as a teardown asks them: a client of each service, made once, and pages put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tandem.ops.account import create_client, create_session
from tandem.ops.faults import call_if_present, call_operation
from tandem.ops.row_pages import iterate_rows
from tandem.spec import names
from tandem.spec.environment import Environment


def build_client_factory() -> Callable[[Environment, str], Any]:
    """Return what makes clients of one session: each session reads AWS's own files anew."""
    boto_session = create_session()
    return lambda environment, service: create_client(environment, service, boto_session)


@dataclass(slots=True, kw_only=True)
class AccountClients:
    """What is asked of AWS about one environment.

    Args:
        environment: whose account and region.
        create_client: of a boto3 client, by environment and service.
        adopted_stacks: names of untagged stacks that the operator says are this environment's.
    """

    environment: Environment
    create_client: Callable[[Environment, str], Any] = field(default_factory=build_client_factory)
    adopted_stacks: frozenset[str] = frozenset()
    _clients: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """Return the environment's name."""
        return self.environment.name

    @property
    def cluster(self) -> str:
        """Return the EKS cluster's name."""
        return names.cluster_name(self.environment)

    def client(self, service: str) -> Any:
        """Return the one client of a service.

        Raises:
            ExternalError: the settings of this machine cannot be used.
        """
        if service not in self._clients:
            self._clients[service] = self.create_client(self.environment, service)
        return self._clients[service]

    def ask(self, service: str, operation: str, where: str, **parameters: Any) -> dict[str, Any]:
        """Call one operation.

        Raises:
            ExternalError: it failed.
        """
        return call_operation(self.client(service), operation, where, **parameters)

    def find(self, service: str, operation: str, where: str, *, absent: Collection[str], **parameters: Any) -> Any:
        """Call one operation; return None where the service says that there is no such thing.

        Raises:
            TandemError: it failed for another reason.
        """
        return call_if_present(self.client(service), operation, where, absent=absent, **parameters)

    def list_rows(self, service: str, operation: str, key: str, where: str, **parameters: Any) -> Iterator[Any]:
        """Return what stands under `key` of every page, asked page by page.

        Raises:
            ExternalError: a page failed, or the list does not end.
        """
        return iterate_rows(self.client(service), operation, key, where, **parameters)


def tags_of(rows: list[dict[str, str]] | None) -> dict[str, str]:
    """Return tags as a mapping; services spell their keys differently."""
    return {str(row.get("Key", row.get("TagKey"))): str(row.get("Value", row.get("TagValue"))) for row in rows or []}
