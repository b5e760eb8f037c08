"""Connect to AWS, store a run's results, and turn AWS's faults into advice.

Invariant: every error of botocore leaves this package as a TandemError that names the call and the
object. botocore itself retries, so a request whose answer was lost may be sent twice. S3 checks
every object against its SHA-256; nothing is deleted.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from tandem.aws.client_config import build_client_config
from tandem.aws.faults import BOTO_ERRORS, explain_fault
from tandem.errors import ExternalError, InputError, TandemError, convert_os_errors

# two parts at once: a bench that still measures needs nearly all of the network and the processor
TRANSFER = TransferConfig(
    multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=2
)
EXTRA_ARGS = {"ChecksumAlgorithm": "SHA256", "ContentType": "application/json"}
RETRY_ADVICE = "the records are kept: run `tandem bench publish` again, it completes what is left"
# operation -> action that IAM must allow (Service Authorization Reference)
_ACTIONS = {
    "PutMetricData": (
        "cloudwatch:PutMetricData with the condition cloudwatch:namespace = the namespace named"
        " here"
    ),
    "ListObjectsV2": "s3:ListBucket",
    "GetObject": "s3:GetObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    **dict.fromkeys(
        ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
        "s3:PutObject",
    ),
}
# kind of a fault -> advice
_CHANGES = {
    "busy": "wait a few minutes",
    "clock": "set the clock (chronyc tracking tells by how much)",
    "denied": (
        "{action} is missing for this identity: run with the role of service account tandem-bench,"
        " or allow it"
    ),
    "expired": "log in again",
    "foreign": (
        "in a pod: check its Pod Identity association; by hand: log in again, and enable the"
        " account's region"
    ),
    "no bucket": "deploy the environment's Artifacts stack",
    "other region": "correct `region` of the environment, or the bucket's name",
    "no credentials": (
        "in a pod: its service account has no Pod Identity association; by hand: log in"
    ),
    "misconfigured": "correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region",
    "unreachable": (
        "check the region's name, DNS, the VPC's endpoints monitoring, sts and s3,"
        " and the network policy"
    ),
}
_INPUT_KINDS = {"misconfigured", "other region"}


@dataclass(frozen=True)
class PublishClients:
    """boto3's clients."""

    cloudwatch: Any
    s3: Any
    sts: Any


def connect(
    region: str, *, connect_s: float = 10.0, read_s: float = 60.0, attempts: int = 5
) -> PublishClients:
    """Return clients with credentials and endpoints from boto3's own chain of settings.

    Args:
        region: of the environment; AWS_REGION is not read.
        connect_s: limit of a connection, in seconds.
        read_s: limit of an answer, in seconds.
        attempts: most requests of one call.

    Raises:
        InputError: the settings cannot be used.
    """
    config = build_client_config(
        connect_s=connect_s,
        read_s=read_s,
        attempts=attempts,
        tcp_keepalive=True,
        user_agent_extra="tandem-publish",
    )
    try:
        return PublishClients(
            *(
                boto3.client(service, region_name=region, config=config)
                for service in ("cloudwatch", "s3", "sts")
            )
        )
    except BotoCoreError as error:
        raise convert_error(error, "Connect", region) from error
    except ValueError as error:  # of an endpoint's URL
        raise InputError(
            f"the AWS settings cannot be used ({error})",
            where=region,
            change="correct AWS_ENDPOINT_URL if it is set",
        ) from error


def convert_error(error: BaseException, operation: str, where: str) -> TandemError:
    """Return the fault for an error of botocore.

    Args:
        error: one of BOTO_ERRORS.
        operation: as the API reference spells it; a ClientError has its own.
        where: the object, namespace or region of the call.
    """
    kind, problem = explain_fault(error, operation)
    operation = error.operation_name if isinstance(error, ClientError) else operation
    change = _CHANGES.get(kind, "see this code in the API reference")
    if kind in _INPUT_KINDS:
        return InputError(problem, where=where, change=change)
    change = change.format(action=_ACTIONS.get(operation, operation))
    return ExternalError(problem, where=where, change=f"{change}; {RETRY_ADVICE}")


@contextlib.contextmanager
def translate_errors(operation: str, where: str) -> Iterator[None]:
    """Raise every error of botocore as a TandemError.

    Args:
        operation: as the API reference spells it.
        where: the object, namespace or account of the call.
    """
    try:
        yield
    except BOTO_ERRORS as error:
        raise convert_error(error, operation, where) from error


def require_account(clients: PublishClients, account: str, environment: str) -> None:
    """Check that the credentials are of the environment's account.

    Raises:
        InputError: the credentials are of another account.
        ExternalError: there are no credentials, they have expired, STS is out of reach and the
            like.
    """
    where = f"{environment} in account {account}"
    with translate_errors("GetCallerIdentity", where):
        caller_account = clients.sts.get_caller_identity()["Account"]
    if caller_account != account:
        raise InputError(
            f"these credentials are of account {caller_account}",
            where=where,
            change=(
                f"log in to {account} (aws sts get-caller-identity shows who you are), or name the"
                " other environment with --env"
            ),
        )


class ResultStore:
    """The objects of a run; methods raise TandemError if S3 denies, fails or cannot be reached.

    Args:
        s3: boto3's client.
        bucket: of the environment.
        prefix: results/<experiment>/<run id>/
    """

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix
        self._url = f"s3://{bucket}/{prefix}"

    def list_sizes(self) -> dict[str, int]:
        """Return the bytes of every object, by its name below the prefix."""
        with translate_errors("ListObjectsV2", self._url):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            sizes = {}
            for page in pages:
                for row in page.get("Contents", ()):
                    sizes[row["Key"].removeprefix(self._prefix)] = row["Size"]
            return sizes

    def store(self, name: str, file: BinaryIO) -> None:
        """Store a file, a large one in parts."""
        with translate_errors("PutObject", self._url + name):
            self._s3.upload_fileobj(
                file, self._bucket, self._prefix + name, Config=TRANSFER, ExtraArgs=EXTRA_ARGS
            )

    def store_ranges(self, name: str, path: Path, ranges: Sequence[tuple[int, int]]) -> None:
        """Store ranges of a file's bytes as one object; an unreadable file is a TandemError too."""
        change = "see that it is there and may be read, then publish again"
        with tempfile.TemporaryFile() as joined_file:
            with (
                convert_os_errors("the file cannot be read", path, change, ExternalError),
                path.open("rb") as file,
            ):
                for first, end in ranges:
                    file.seek(first)
                    joined_file.write(file.read(end - first))
            joined_file.seek(0)
            self.store(name, joined_file)
