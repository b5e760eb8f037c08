"""What goes wrong between a run's folder and AWS, in words an operator can act on at night.

Invariant: whatever botocore raises leaves this package as a PublishError that names the call and the object; the
records stay in the folder, and the same command again completes what is left. Codes: 2 bad input, 3 the world outside.

Sources: common errors of the CloudWatch, STS and S3 API references; botocore.exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from tandem.aws.faults import BOTO_ERRORS, FaultKind, classify_fault, describe_error, error_code

__all__ = [
    "AGAIN",
    "BOTO_ERRORS",
    "Asked",
    "PublishError",
    "RefusedError",
    "error_code",
    "fault_of",
    "outcome",
    "status_of",
]

AGAIN = "the records are kept: run `tandem bench publish` again, it completes what is left and sends nothing twice"

THROTTLED = {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestThrottled",
             "RequestThrottledException", "RequestLimitExceeded", "LimitExceeded", "LimitExceededFault",
             "LimitExceededException", "SlowDown"}  # fmt: skip
# of CloudWatch: the request itself was read and found wrong
INVALID = {"InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination",
           "InvalidParameterCombinationException", "MissingParameter", "MissingRequiredParameterException",
           "ValidationError", "ValidationException", "InvalidFormat", "InvalidFormatFault", "MalformedInput",
           "SerializationException"}  # fmt: skip
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "Forbidden", "403", "AllAccessDisabled"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
CLOCK = {"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"}
STRANGER = {"InvalidToken", "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException",
            "SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken",
            "MissingAuthenticationTokenException", "IncompleteSignature", "NotSignedUp", "OptInRequired"}  # fmt: skip
ELSEWHERE = {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
NO_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
# operation -> the action that IAM must allow (Service Authorization Reference); PutObject's family is one right
ACTIONS = {
    "PutMetricData": "cloudwatch:PutMetricData",
    "GetMetricData": "cloudwatch:GetMetricData",
    "ListObjectsV2": "s3:ListBucket",
    "GetObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
}


class PublishError(Exception):
    """The world outside failed; what was recorded is kept.

    Args:
        problem: what happened, in one sentence without its full stop.
        where: the file, `s3://` address, namespace or region.
        change: what to do about it, in one sentence without its full stop.
    """

    code: ClassVar[int] = 3

    def __init__(self, problem: str, *, where: str, change: str = AGAIN) -> None:
        super().__init__(f"{where}: {problem}; {change}" if where else f"{problem}; {change}")
        self.problem, self.where, self.change = problem, where, change


class RefusedError(PublishError):
    """The input cannot be used, whatever the world does."""

    code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of AWS when it failed.

    Args:
        operation: as the API reference spells it.
        where: object or namespace it was about.
    """

    operation: str
    where: str


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error, 0 where no service answered."""
    response = getattr(error, "response", None)
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return int(found)


def outcome(error: BaseException) -> Literal["not done", "invalid", "stop", "unknown"]:
    """Return what is certain of a PutMetricData that ended in `error`.

    `not done`: it was not, and may be asked again; `invalid`: it was not, and never will be; `stop`: it was not, and
    nothing else will be either; `unknown`: it may have been done, and must not be asked again before it is read back.
    """
    if isinstance(error, boto.ClientError):
        code, status = error_code(error), status_of(error)
        if code in THROTTLED and status < 500:  # noqa: PLR2004 - of HTTP: refused at the door, not the server's own fault
            return "not done"
        if not 400 <= status < 500 or status == 408 or code == "RequestTimeout":  # noqa: PLR2004 - of HTTP
            return "unknown"
        return "invalid" if code in INVALID else "stop"
    if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)):
        return "not done"  # no connection was made, so no request was sent
    if isinstance(error, (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, ResponseParserError,
                          HTTPError)):  # fmt: skip
        return "unknown"
    return "stop"  # before a request was made: no credentials, no region, parameters of a wrong kind


def fault_of(error: BaseException, asked: Asked) -> PublishError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, PublishError):
        return error
    if isinstance(error, boto.ClientError):
        return _answered(error, asked)
    silent = classify_fault(error, asked.operation)
    if silent is None:
        return PublishError(f"{asked.operation} failed: {describe_error(error)}", where=asked.where)
    kind, change = _CHANGES[silent.kind]
    return kind(silent.problem, where=asked.where, change=change)


def _answered(error: boto.ClientError, asked: Asked) -> PublishError:
    code, message = error_code(error), str(error.response.get("Error", {}).get("Message", ""))
    told = f"{code}: {message}" if message else code
    asked = Asked(operation=error.operation_name, where=asked.where)
    if code in CLOCK or "Signature expired" in message or "Signature not yet current" in message:
        return PublishError(
            f"this machine's clock differs too much from AWS's ({told})", where=asked.where,
            change=f"set the clock (chronyc tracking tells by how much); {AGAIN}",
        )  # fmt: skip
    for codes, said in _ANSWERS:
        if code in codes:
            return said(told, asked)
    if status_of(error) >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        return _busy(told, asked)
    return PublishError(f"{asked.operation} was refused ({told})", where=asked.where,
                        change=f"see this code in the API reference; {AGAIN}")  # fmt: skip


def _busy(told: str, asked: Asked) -> PublishError:
    return PublishError(f"{asked.operation} failed at every try ({told})", where=asked.where,
                        change=f"wait a few minutes; {AGAIN}")  # fmt: skip


def _denied(told: str, asked: Asked) -> PublishError:
    action = ACTIONS.get(asked.operation, asked.operation)
    limits = {"PutMetricData": " with the condition cloudwatch:namespace = the namespace named here",
              "GetMetricData": " on *, for it takes no narrower resource"}.get(asked.operation, "")  # fmt: skip
    return PublishError(
        f"{asked.operation} is denied ({told})", where=asked.where,
        change=f"{action}{limits} is missing for this identity: run with the role of service account tandem-bench, or "
        f"allow it; {AGAIN}",
    )  # fmt: skip


def _expired(told: str, asked: Asked) -> PublishError:
    return PublishError(f"the credentials have expired ({told})", where=asked.where,
                        change=f"log in again; {AGAIN}")  # fmt: skip


def _stranger(told: str, asked: Asked) -> PublishError:
    return PublishError(
        f"AWS does not accept these credentials ({told})", where=asked.where,
        change="in a pod: check the Pod Identity association of its service account; by hand: log in again (aws sts "
        f"get-caller-identity shows who you are), and see that the region is enabled for the account; {AGAIN}",
    )  # fmt: skip


def _elsewhere(told: str, asked: Asked) -> PublishError:
    return RefusedError(f"the bucket is in another region ({told})", where=asked.where,
                        change="correct `region` of the environment, or the bucket's name")  # fmt: skip


def _no_bucket(told: str, asked: Asked) -> PublishError:
    return PublishError(f"the bucket does not exist ({told})", where=asked.where,
                        change=f"deploy the environment's Artifacts stack; {AGAIN}")  # fmt: skip


_ANSWERS: tuple[tuple[set[str], Callable[[str, Asked], PublishError]], ...] = (
    (THROTTLED, _busy), (DENIED, _denied), (EXPIRED, _expired), (STRANGER, _stranger), (ELSEWHERE, _elsewhere),
    (NO_BUCKET, _no_bucket),
)  # fmt: skip


_CHANGES: dict[FaultKind, tuple[type[PublishError], str]] = {
    "no credentials": (
        PublishError, f"in a pod: its service account has no Pod Identity association; by hand: log in; {AGAIN}",
    ),
    "misconfigured": (RefusedError, "correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region"),
    "unreachable": (
        PublishError,
        f"check the region's name, DNS, the VPC's endpoints monitoring, sts and s3, and the network policy; {AGAIN}",
    ),
}  # fmt: skip
