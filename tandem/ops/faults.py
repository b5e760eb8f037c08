"""What goes wrong between an operator's command and AWS, in words for three in the morning.

Invariant: whatever botocore raises leaves this package as an OpsError that names the call and what it was about, and
says what to do. Codes: 2 bad input, 3 the world outside.

Sources: common errors of the EC2, EKS, S3, STS and EventBridge Scheduler API references; botocore.exceptions; the
Service Authorization Reference for the actions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from botocore import exceptions as boto
from botocore import xform_name

from tandem.aws.faults import (
    BOTO_ERRORS,
    PARSER_ERRORS,
    FaultKind,
    classify_fault,
    describe_error,
    error_code,
)

__all__ = [
    "BOTO_ERRORS",
    "IAM_ACTIONS",
    "AccessDeniedError",
    "OperationError",
    "OperationRefusedError",
    "call_operation",
    "convert_error",
    "error_code",
]

THROTTLING_CODES = {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
             "RequestLimitExceeded", "LimitExceededException", "SlowDown"}  # fmt: skip
DENIAL_CODES = {
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthorizationError",
    "Forbidden",
    "403",
    "AllAccessDisabled",
}
# of a request whose time is not AWS's: S3's codes; others' words (IAM user guide, "Troubleshoot Signature Version 4")
CLOCK_SKEW_TEXTS = ("RequestTimeTooSkewed", "RequestInTheFuture", "Signature expired", "Signature not yet current")
EXPIRY_CODES = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
INVALID_CREDENTIAL_CODES = {
    "InvalidToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "IncompleteSignature",
    "OptInRequired",
}
# the action that IAM must allow, where it is not the operation's own name
IAM_ACTIONS = {
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "HeadBucket"): "s3:ListBucket",
    ("s3", "ListObjectVersions"): "s3:ListBucketVersions",
    ("budgets", "DescribeBudget"): "budgets:ViewBudget",
    ("budgets", "DescribeBudgets"): "budgets:ViewBudget",
    ("budgets", "DescribeNotificationsForBudget"): "budgets:ViewBudget",
    ("budgets", "DescribeSubscribersForNotification"): "budgets:ViewBudget",
    ("elbv2", "DescribeLoadBalancers"): "elasticloadbalancing:DescribeLoadBalancers",
    ("elbv2", "DescribeTargetGroups"): "elasticloadbalancing:DescribeTargetGroups",
    ("elbv2", "DescribeTags"): "elasticloadbalancing:DescribeTags",
    ("elb", "DescribeLoadBalancers"): "elasticloadbalancing:DescribeLoadBalancers",
    ("elb", "DescribeTags"): "elasticloadbalancing:DescribeTags",
    ("lambda", "GetFunctionConfiguration"): "lambda:GetFunctionConfiguration",
}


class OperationError(Exception):
    """The world outside failed.

    Args:
        problem: what happened, in one sentence without its full stop.
        where: the account, the node group, the `s3://` address or the like.
        change: what to do about it, in one sentence without its full stop.
    """

    code: ClassVar[int] = 3

    def __init__(self, problem: str, *, where: str, change: str) -> None:
        super().__init__(f"{where}: {problem}; {change}")
        self.problem, self.where, self.change = problem, where, change


class OperationRefusedError(OperationError):
    """The input cannot be used, whatever the world does."""

    code: ClassVar[int] = 2


class AccessDeniedError(OperationError):
    """The credentials may not do it."""


def call_operation(client: Any, operation: str, where: str, **parameters: Any) -> dict[str, Any]:
    """Call one operation of a boto3 client.

    Args:
        client: of boto3.
        operation: as the API reference spells it.
        where: what it is about, for the message.
        parameters: of the call.

    Raises:
        OpsError: it failed; a service's own refusal is in `__cause__`.
    """
    call = getattr(client, xform_name(operation))
    try:
        response: dict[str, Any] = call(**parameters)
    except (*BOTO_ERRORS, *PARSER_ERRORS) as error:
        raise convert_error(
            error, service=client.meta.service_model.service_name, operation=operation, where=where
        ) from error
    return _StrictResponse(response, operation, where)


class _StrictResponse(dict[str, Any]):
    """An answer; botocore reads one that is none of the service's, as of a proxy in between, as an empty one."""

    def __init__(self, response: dict[str, Any], operation: str, where: str) -> None:
        super().__init__(response)
        self.operation, self.where = operation, where

    def __missing__(self, key: str) -> Any:
        raise OperationError(f"{self.operation} was answered without {key}", where=self.where,
                       change="try again; if it stays so, see what answers in the place of AWS (a proxy)")  # fmt: skip


def convert_error(error: BaseException, *, service: str, operation: str, where: str) -> OperationError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, boto.ClientError):
        return _convert_client_error(error, service, operation, where)
    missing_answer = classify_fault(error, operation)
    if missing_answer is None:
        return OperationError(f"{operation} failed ({describe_error(error)})", where=where, change="try again")
    kind, change = _FAULT_CHANGES[missing_answer.kind]
    return kind(missing_answer.problem, where=where, change=change)


def _convert_client_error(error: boto.ClientError, service: str, operation: str, where: str) -> OperationError:
    code, message = error_code(error), str(error.response.get("Error", {}).get("Message", ""))
    error_text = f"{code}: {message}" if message else code
    if code in DENIAL_CODES:
        action = IAM_ACTIONS.get((service, operation), f"{service}:{operation}")
        return AccessDeniedError(f"{operation} is denied ({error_text})", where=where,
                           change=f"allow {action} to this identity, or log in as one that has it")  # fmt: skip
    if any(skew_text in error_text for skew_text in CLOCK_SKEW_TEXTS):
        return OperationError(f"this machine's clock is not AWS's ({error_text})", where=where,
                        change="set the clock (timedatectl, chronyc makestep), then try again")  # fmt: skip
    if code in EXPIRY_CODES:
        return OperationError(f"the credentials have expired ({error_text})", where=where, change="log in again")
    if code in INVALID_CREDENTIAL_CODES:
        return OperationError(f"AWS does not accept these credentials ({error_text})", where=where,
                        change="log in again, and see that the region is enabled for the account")  # fmt: skip
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLING_CODES or status >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        return OperationError(
            f"{operation} failed at every try ({error_text})", where=where, change="wait a minute and try again"
        )
    return OperationError(
        f"{operation} was refused ({error_text})", where=where, change="see this code in the API reference"
    )


_FAULT_CHANGES: dict[FaultKind, tuple[type[OperationError], str]] = {
    "no credentials": (OperationError, "log in, or set AWS_PROFILE (aws sts get-caller-identity shows who you are)"),
    "misconfigured": (OperationRefusedError, "correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region"),
    "unreachable": (
        OperationError,
        "check the region's name, DNS, proxies and the way out of this machine, then try again",
    ),
}
