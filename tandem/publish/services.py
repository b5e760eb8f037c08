"""The services of AWS that a publisher asks, and every call it makes of them.

Invariant: no SDK sends a PutMetricData twice; only this package decides that, because the call is not idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tandem.publish.fault import BOTO_ERRORS, Asked, RefusedError, fault_of

CALLS = (
    ("sts", "GetCallerIdentity"),
    ("cloudwatch", "PutMetricData"),
    ("cloudwatch", "GetMetricData"),
    ("s3", "ListObjectsV2"),
    ("s3", "GetObject"),
    ("s3", "PutObject"),
    ("s3", "CreateMultipartUpload"),
    ("s3", "UploadPart"),
    ("s3", "CompleteMultipartUpload"),
    ("s3", "AbortMultipartUpload"),
)
"""Service and operation of every call; GetCallerIdentity needs no right, the multipart ones s3:PutObject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long one call may take.

    Args:
        connect_s, read_s: of one request.
        attempts: of a call that may be sent twice.
    """

    connect_s: float = 10.0
    read_s: float = 60.0
    attempts: int = 5


@dataclass(frozen=True, slots=True)
class Services:
    """boto3's clients; that of CloudWatch sends each request once."""

    cloudwatch: Any
    s3: Any
    sts: Any


def connect(region: str, limits: Limits) -> Services:
    """Return clients with credentials and endpoints from boto3's own chain of settings.

    Args:
        region: of the environment; AWS_REGION is not asked.
        limits: of each call.

    Raises:
        RefusedError: the settings cannot be used.
    """

    def config(attempts: int) -> Config:
        return Config(
            connect_timeout=limits.connect_s, read_timeout=limits.read_s, tcp_keepalive=True,
            user_agent_extra="tandem-publish", retries={"mode": "standard", "total_max_attempts": attempts},
        )  # fmt: skip

    try:
        return Services(
            cloudwatch=boto3.client("cloudwatch", region_name=region, config=config(1)),
            s3=boto3.client("s3", region_name=region, config=config(limits.attempts)),
            sts=boto3.client("sts", region_name=region, config=config(limits.attempts)),
        )
    except BotoCoreError as error:
        raise fault_of(error, Asked(operation="Connect", where=region)) from None
    except ValueError as error:
        raise RefusedError(f"the AWS settings cannot be used ({error})", where=region,
                           change="correct AWS_ENDPOINT_URL if it is set") from None  # fmt: skip


def require_account(services: Services, account: str, environment: str) -> None:
    """Make sure that the credentials are the environment's account's.

    Raises:
        RefusedError: they are another's.
        PublishError: there are none, they have expired, STS is out of reach and the like.
    """
    where = f"{environment} in account {account}"
    try:
        found = services.sts.get_caller_identity()["Account"]
    except BOTO_ERRORS as error:
        raise fault_of(error, Asked(operation="GetCallerIdentity", where=where)) from None
    if found != account:
        raise RefusedError(
            f"these credentials are of account {found}", where=where,
            change=f"log in to {account} (aws sts get-caller-identity shows who you are), or name the other "
            "environment with --env",
        )  # fmt: skip
