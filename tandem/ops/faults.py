"""Faults between an operator's command and AWS, in words for three in the morning.

Invariant: any error of botocore leaves this package as a TandemError that names the call and its
subject, and says what to do.

Sources: the Service Authorization Reference for the actions; tandem/aws/faults.py for the kinds of
faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore import xform_name

from tandem.aws.faults import FaultKind, error_code, explain_fault
from tandem.errors import ExternalError, InputError, TandemError
from tandem.guard.values import CALL_ERRORS

# the action that IAM must allow, if it is not the operation's name
IAM_ACTIONS = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:DeleteObjects": "s3:DeleteObject",
    "budgets:DescribeBudget": "budgets:ViewBudget",
    "budgets:DescribeBudgets": "budgets:ViewBudget",
    "budgets:DescribeNotificationsForBudget": "budgets:ViewBudget",
    "budgets:DescribeSubscribersForNotification": "budgets:ViewBudget",
    "lambda:Invoke": "lambda:InvokeFunction",
    "sts:GetCallerIdentity": "",  # IAM requires no right (STS API reference, GetCallerIdentity)
}
_ABSENT_WORDS = (
    "ResourceNotFoundException NotFoundException NotFound NoSuchEntity NoSuchEntityException"
    " NoSuchBucket 404 ParameterNotFound RepositoryNotFoundException ImageNotFoundException"
    " InvalidSubnetID.NotFound QueueDoesNotExist InvalidCapacityReservationId.NotFound"
    " InvalidCapacityReservationId.Malformed AWS.SimpleQueueService.NonExistentQueue"
)
ABSENT_CODES = frozenset(_ABSENT_WORDS.split())
"""Codes with which services say that there is no such thing."""

# IAM's name of a service, if boto3's is another
_SERVICE_PREFIXES = dict.fromkeys(("elb", "elbv2"), "elasticloadbalancing") | {
    "service-quotas": "servicequotas"
}


class AwsCall(NamedTuple):
    """One call of one service.

    Args:
        service: as boto3 names it.
        operation: as the API reference spells it.
    """

    service: str
    operation: str

    @property
    def action(self) -> str:
        """The action that IAM checks for the call; empty for a call that needs no right."""
        name = f"{_SERVICE_PREFIXES.get(self.service, self.service)}:{self.operation}"
        return IAM_ACTIONS.get(name, name)


def list_calls(*rows: str) -> tuple[AwsCall, ...]:
    """Return the calls of rows that each name a service and then its operations."""
    calls = []
    for service, *operations in map(str.split, rows):
        calls += [AwsCall(service, operation) for operation in operations]
    return tuple(calls)


class AccessDeniedError(ExternalError):
    """The credentials do not allow the call."""


def call_operation(client: Any, operation: str, where: str, **parameters: Any) -> dict[str, Any]:
    """Call one operation of a boto3 client.

    Args:
        client: of boto3.
        operation: as the API reference spells it.
        where: subject of the call, for the message.
        parameters: of the call.

    Raises:
        TandemError: the call failed; a service's refusal is in `__cause__`.
    """
    call = getattr(client, xform_name(operation))
    with convert_errors(client.meta.service_model.service_name, operation, where):
        response: dict[str, Any] = call(**parameters)
    return _StrictResponse(response, operation, where)


def call_if_present(
    client: Any,
    operation: str,
    where: str,
    absent: Collection[str] = ABSENT_CODES,
    **parameters: Any,
) -> dict[str, Any] | None:
    """Call one operation; return None if the service answers with a code of `absent`.

    Raises:
        TandemError: the call failed for another reason.
    """
    try:
        return call_operation(client, operation, where, **parameters)
    except TandemError as error:
        if error_code(error.__cause__) in absent:
            return None
        raise


class _StrictResponse(dict[str, Any]):
    """An answer; botocore reads a foreign one, such as a proxy's, as empty."""

    def __init__(self, response: dict[str, Any], operation: str, where: str) -> None:
        super().__init__(response)
        self.operation = operation
        self.where = where

    def __missing__(self, key: str) -> Any:
        raise ExternalError(
            f"{self.operation} was answered without {key}",
            where=self.where,
            change="try again; if it stays so, see what answers in the place of AWS (a proxy)",
        )


@contextmanager
def convert_errors(service: str, operation: str, where: str) -> Iterator[None]:
    """Turn an error of a call into what an operator is told.

    Raises:
        TandemError: the call failed; a service's refusal is in `__cause__`.
    """
    try:
        yield
    except CALL_ERRORS as error:
        raise convert_error(error, service=service, operation=operation, where=where) from error


def convert_error(error: BaseException, *, service: str, operation: str, where: str) -> TandemError:
    """Return the fault for an error of botocore."""
    fault = explain_fault(error, operation)
    if fault.kind == "denied":
        action = AwsCall(service, operation).action or f"{service}:{operation}"
        return AccessDeniedError(
            fault.problem,
            where=where,
            change=f"allow {action} to this identity, or log in as one that has it",
        )
    kind = InputError if fault.kind == "misconfigured" else ExternalError
    return kind(fault.problem, where=where, change=_FAULT_CHANGES.get(fault.kind, _REFUSAL_CHANGE))


_REFUSAL_CHANGE = "see this code in the API reference"
_FAULT_CHANGES: dict[FaultKind, str] = {
    "no credentials": "log in, or set AWS_PROFILE (aws sts get-caller-identity shows who you are)",
    "misconfigured": ("correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region"),
    "unreachable": (
        "check the region's name, DNS, proxies and the way out of this machine, then try again"
    ),
    "clock": "set the clock (timedatectl, chronyc makestep), then try again",
    "expired": "log in again",
    "foreign": "log in again, and see that the region is enabled for the account",
    "busy": "wait a minute and try again",
}
