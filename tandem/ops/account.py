"""Whose credentials these are, asked before anything else."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tandem.aws.faults import reject_foreign_answers
from tandem.errors import InputError
from tandem.ops.faults import call_operation, convert_error
from tandem.spec.environment import Environment

MAX_ATTEMPTS = 5
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 60.0


def create_session() -> Any:
    """Return a boto3 session, to be shared by the clients of one command: each reads AWS's own files anew.

    Raises:
        InputError: AWS_PROFILE names none, or AWS's own files cannot be read.
    """
    try:
        return boto3.session.Session()
    except BotoCoreError as error:
        raise convert_error(error, service="sts", operation="Connect", where="AWS_PROFILE") from error


def create_client(environment: Environment, service: str, boto_session: Any = None) -> Any:
    """Return a boto3 client of the environment's region, with credentials and endpoint of boto3's own chain.

    Args:
        environment: as declared.
        service: as boto3 names it.
        boto_session: a boto3 session; None takes a new one.

    Raises:
        ExternalError: the settings of this machine cannot be used.
    """
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        user_agent_extra="tandem-ops",
    )
    try:
        boto_client = (boto_session or create_session()).client(service, region_name=environment.region, config=config)
    except BotoCoreError as error:
        raise convert_error(error, service=service, operation="Connect", where=environment.region) from error
    except ValueError as error:
        raise InputError(f"the AWS settings cannot be used ({error})", where=environment.region,
                           change="correct AWS_ENDPOINT_URL if it is set") from None  # fmt: skip
    reject_foreign_answers(boto_client)
    return boto_client


def require_account(environment: Environment, boto_session: Any = None) -> str:
    """Make sure that the credentials are the environment's account's; return the ARN of who has them.

    Args:
        environment: as declared.
        boto_session: a boto3 session; None takes a new one.

    Raises:
        InputError: there are none, or they are another's.
        ExternalError: STS is out of reach, they have expired and the like.
    """
    where = f"{environment.name} in account {environment.account}"
    identity = call_operation(create_client(environment, "sts", boto_session), "GetCallerIdentity", where)
    if identity["Account"] != environment.account:
        raise InputError(
            f"these credentials are of account {identity['Account']}", where=where,
            change=f"log in to {environment.account} (aws sts get-caller-identity shows who you are), or name the "
            "other environment with --env",
        )  # fmt: skip
    return str(identity["Arn"])
