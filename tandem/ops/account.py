"""Whose credentials these are, asked before anything else."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tandem.aws_fault import watch_answers
from tandem.ops.fault import RefusedError, ask, fault_of
from tandem.spec.environment import Environment

ATTEMPTS = 5
CONNECT_S, READ_S = 10.0, 60.0


def session() -> Any:
    """Return a boto3 session, to be shared by the clients of one command: each reads AWS's own files anew.

    Raises:
        RefusedError: AWS_PROFILE names none, or AWS's own files cannot be read.
    """
    try:
        return boto3.session.Session()
    except BotoCoreError as error:
        raise fault_of(error, service="sts", operation="Connect", where="AWS_PROFILE") from error


def client(environment: Environment, service: str, shared: Any = None) -> Any:
    """Return a boto3 client of the environment's region, with credentials and endpoint of boto3's own chain.

    Args:
        environment: as declared.
        service: as boto3 names it.
        shared: a boto3 session; None takes a new one.

    Raises:
        OpsError: the settings of this machine cannot be used.
    """
    config = Config(
        connect_timeout=CONNECT_S, read_timeout=READ_S, retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        user_agent_extra="tandem-ops",
    )  # fmt: skip
    try:
        made = (shared or session()).client(service, region_name=environment.region, config=config)
    except BotoCoreError as error:
        raise fault_of(error, service=service, operation="Connect", where=environment.region) from error
    except ValueError as error:
        raise RefusedError(f"the AWS settings cannot be used ({error})", where=environment.region,
                           change="correct AWS_ENDPOINT_URL if it is set") from None  # fmt: skip
    watch_answers(made)
    return made


def require_account(environment: Environment, shared: Any = None) -> str:
    """Make sure that the credentials are the environment's account's; return the ARN of who has them.

    Args:
        environment: as declared.
        shared: a boto3 session; None takes a new one.

    Raises:
        RefusedError: there are none, or they are another's.
        OpsError: STS is out of reach, they have expired and the like.
    """
    where = f"{environment.name} in account {environment.account}"
    found = ask(client(environment, "sts", shared), "GetCallerIdentity", where)
    if found["Account"] != environment.account:
        raise RefusedError(
            f"these credentials are of account {found['Account']}", where=where,
            change=f"log in to {environment.account} (aws sts get-caller-identity shows who you are), or name the "
            "other environment with --env",
        )  # fmt: skip
    return str(found["Arn"])
