"""One account for operators' commands: credentials, clients made once, paged lists.

Invariant: a list ends, although a service, or a proxy in its place, may send the same token for
ever.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tandem.aws.client_config import COMMAND_CLIENT_CONFIG
from tandem.aws.faults import reject_foreign_answers
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.errors import InputError
from tandem.guard.config import AwsClients
from tandem.guard.pager import iterate_pages
from tandem.ops.faults import call_if_present, call_operation, convert_error, convert_errors
from tandem.shell_command import quote_command

MAX_PAGES = 10_000  # of a bucket's versions, a thousand a page
GUARD_SERVICES = ("s3", "eks", "ec2", "sns", "cloudwatch", "scheduler", "autoscaling")


def create_session() -> Any:
    """Return a boto3 session that a command's clients share, as each reads AWS's files again.

    Raises:
        InputError: AWS_PROFILE names no profile, or AWS's files cannot be read.
    """
    with _convert_setting_errors("AWS_PROFILE"):
        return boto3.session.Session()


def create_client(
    environment: Environment,
    service: str,
    boto_session: Any = None,
    region: str = "",
    config: Config = COMMAND_CLIENT_CONFIG,
) -> Any:
    """Return a boto3 client with credentials and endpoint from boto3's chain.

    Args:
        environment: as declared.
        service: as boto3 names it.
        boto_session: a boto3 session; None makes a new one.
        region: if another than the environment's.
        config: how long to wait for AWS, and how often to repeat a call.

    Raises:
        ExternalError: the settings of this machine cannot be used.
    """
    region = region or environment.region
    with _convert_setting_errors(region):
        boto_client = (boto_session or create_session()).client(
            service, region_name=region, config=config
        )
    reject_foreign_answers(boto_client)
    return boto_client


def create_guard_clients(environment: Environment, boto_session: Any) -> AwsClients:
    """Return the guard's clients, which give up in time.

    Raises:
        InputError, ExternalError: the settings of this machine cannot be used.
    """
    with _convert_setting_errors(environment.region):
        return AwsClients.create(environment.region, boto_session)


@contextmanager
def _convert_setting_errors(where: str) -> Iterator[None]:
    """Turn boto3's errors about this machine's settings into one that says what to correct."""
    try:
        yield
    except BotoCoreError as error:
        raise convert_error(error, service="sts", operation="Connect", where=where) from error
    except ValueError as error:
        raise InputError(
            f"the AWS settings cannot be used ({error})",
            where=where,
            change="correct AWS_ENDPOINT_URL if it is set",
        ) from None


def require_account(
    environment: Environment, boto_session: Any = None, config: Config = COMMAND_CLIENT_CONFIG
) -> str:
    """Check that the credentials are of the environment's account; return the ARN of their owner.

    Args:
        environment: as declared.
        boto_session, config: as for `create_client`.

    Raises:
        InputError: there are no credentials, or they are of another account.
        ExternalError: STS cannot be reached, the credentials have expired and the like.
    """
    where = f"{environment.name} in account {environment.account}"
    sts = create_client(environment, "sts", boto_session, config=config)
    identity = call_operation(sts, "GetCallerIdentity", where)
    if identity["Account"] != environment.account:
        raise InputError(
            f"these credentials are of account {identity['Account']}",
            where=where,
            change=f"log in to {environment.account}, or name the other environment with --env",
        )
    return str(identity["Arn"])


class AccountClients:
    """The clients of one environment's account, each made once; several threads may use them.

    Args:
        environment: gives account and region.
        boto_session: a boto3 session; None makes a new one.
    """

    def __init__(self, environment: Environment, boto_session: Any = None) -> None:
        self.environment = environment
        self.name = environment.name
        self.cluster = names.cluster_name(environment)
        self._session = boto_session
        self._clients = dict[tuple[str, str], Any]()
        self._lock = threading.Lock()

    def client(self, service: str, region: str = "") -> Any:
        """Return the one client of a service; boto3 makes them one at a time.

        Raises:
            ExternalError: the settings of this machine cannot be used.
        """
        with self._lock:
            if (service, region) not in self._clients:
                self._session = self._session or create_session()
                self._clients[service, region] = create_client(
                    self.environment, service, self._session, region
                )
            return self._clients[service, region]

    def guard_clients(self, *services: str) -> AwsClients:
        """Return the guard's clients, with these services or all."""
        boto_clients: dict[str, Any] = dict.fromkeys(GUARD_SERVICES)
        boto_clients |= {service: self.client(service) for service in services or GUARD_SERVICES}
        return AwsClients(**boto_clients)

    def ask(
        self, service: str, operation: str, where: str, *, region: str = "", **parameters: Any
    ) -> dict[str, Any]:
        """Call one operation.

        Args:
            service, operation: as boto3 and the API reference name them.
            where: subject of the call, for messages.
            region: if another than the environment's.
            parameters: of the call.

        Raises:
            TandemError: the call failed; a service's refusal is in `__cause__`.
        """
        return call_operation(self.client(service, region), operation, where, **parameters)

    def find(
        self, service: str, operation: str, where: str, *, region: str = "", **parameters: Any
    ) -> dict[str, Any] | None:
        """Call one operation; return None if the service says that there is no such thing.

        Args:
            service, operation, where, region: as for `ask`.
            parameters: of the call; `absent` has the codes that say so, if they are other than
                ABSENT_CODES.

        Raises:
            TandemError: the call failed for another reason.
        """
        return call_if_present(self.client(service, region), operation, where, **parameters)

    def list_rows(
        self, service: str, operation: str, key: str, where: str, **parameters: Any
    ) -> Iterator[Any]:
        """Yield the rows under `key` of every page, page by page.

        Raises:
            TandemError: a page failed, or the list does not end.
        """
        return iterate_rows(self.client(service), operation, key, where, **parameters)


def read_node_group(eks: Any, environment: Environment) -> dict[str, Any] | None:
    """Return the environment's node group as EKS describes it; None if there is none.

    Raises:
        ExternalError: EKS did not answer.
    """
    cluster = names.cluster_name(environment)
    node_group = names.node_group_name(environment)
    where = f"node group {node_group} of cluster {cluster}"
    answer = call_if_present(
        eks, "DescribeNodegroup", where, clusterName=cluster, nodegroupName=node_group
    )
    return answer["nodegroup"] if answer else None


def tags_of(rows: list[dict[str, str]] | None) -> dict[str, str]:
    """Return tags as a mapping; services spell their keys differently."""
    return {
        str(row.get("Key", row.get("TagKey"))): str(row.get("Value", row.get("TagValue")))
        for row in rows or []
    }


def build_aws_command(words: str, **flags: str | Collection[str]) -> str:
    """Return a command of the AWS CLI.

    Args:
        words: service and verb, and flags that need no quotes.
        flags: values by the flag's name, with underscores for hyphens; several values of one flag
            as a collection.
    """
    values = []
    for name, value in flags.items():
        values.append(f"--{name.replace('_', '-')}")
        values += [value] if isinstance(value, str) else value
    return quote_command("aws", *words.split(), *values)


def iterate_rows(
    client: Any, operation: str, key: str, where: str, **parameters: Any
) -> Iterator[Any]:
    """Yield the rows under `key` of every page of a list, whatever a service calls its token.

    Args:
        client: of boto3.
        operation: as the API reference spells it.
        key: of the rows in an answer.
        where: subject of the call, for the message.
        parameters: of the call.

    Raises:
        ExternalError: a page failed, or the list does not end; a service's refusal is in
            `__cause__`.
    """
    name = xform_name(operation)
    if not client.can_paginate(name):
        yield from call_operation(client, operation, where, **parameters).get(key) or []
        return
    with convert_errors(client.meta.service_model.service_name, operation, where):
        for page in iterate_pages(client, name, max_pages=MAX_PAGES, **parameters):
            yield from page.get(key) or []
