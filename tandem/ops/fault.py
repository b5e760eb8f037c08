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

from tandem.aws_fault import PARSER_ERRORS, RAISED, Kind, brief, code_of, unanswered

__all__ = ["ACTIONS", "RAISED", "DeniedError", "OpsError", "RefusedError", "ask", "code_of", "fault_of"]

THROTTLED = {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
             "RequestLimitExceeded", "LimitExceededException", "SlowDown"}  # fmt: skip
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "Forbidden", "403",
          "AllAccessDisabled"}  # fmt: skip
# of a request whose time is not AWS's: S3's codes; others' words (IAM user guide, "Troubleshoot Signature Version 4")
ANOTHER_TIME = ("RequestTimeTooSkewed", "RequestInTheFuture", "Signature expired", "Signature not yet current")
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
STRANGER = {"InvalidToken", "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure",
            "SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken",
            "MissingAuthenticationTokenException", "IncompleteSignature", "OptInRequired"}  # fmt: skip
# the action that IAM must allow, where it is not the operation's own name
ACTIONS = {
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


class OpsError(Exception):
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


class RefusedError(OpsError):
    """The input cannot be used, whatever the world does."""

    code: ClassVar[int] = 2


class DeniedError(OpsError):
    """The credentials may not do it."""


def ask(client: Any, operation: str, where: str, **parameters: Any) -> dict[str, Any]:
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
        found: dict[str, Any] = call(**parameters)
    except (*RAISED, *PARSER_ERRORS) as error:
        raise fault_of(
            error, service=client.meta.service_model.service_name, operation=operation, where=where
        ) from error
    return _Answer(found, operation, where)


class _Answer(dict[str, Any]):
    """An answer; botocore reads one that is none of the service's, as of a proxy in between, as an empty one."""

    def __init__(self, found: dict[str, Any], operation: str, where: str) -> None:
        super().__init__(found)
        self.operation, self.where = operation, where

    def __missing__(self, key: str) -> Any:
        raise OpsError(f"{self.operation} was answered without {key}", where=self.where,
                       change="try again; if it stays so, see what answers in the place of AWS (a proxy)")  # fmt: skip


def fault_of(error: BaseException, *, service: str, operation: str, where: str) -> OpsError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, boto.ClientError):
        return _answered(error, service, operation, where)
    silent = unanswered(error, operation)
    if silent is None:
        return OpsError(f"{operation} failed ({brief(error)})", where=where, change="try again")
    kind, change = _CHANGES[silent.kind]
    return kind(silent.problem, where=where, change=change)


def _answered(error: boto.ClientError, service: str, operation: str, where: str) -> OpsError:
    code, message = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
    told = f"{code}: {message}" if message else code
    if code in DENIED:
        action = ACTIONS.get((service, operation), f"{service}:{operation}")
        return DeniedError(f"{operation} is denied ({told})", where=where,
                           change=f"allow {action} to this identity, or log in as one that has it")  # fmt: skip
    if any(said in told for said in ANOTHER_TIME):
        return OpsError(f"this machine's clock is not AWS's ({told})", where=where,
                        change="set the clock (timedatectl, chronyc makestep), then try again")  # fmt: skip
    if code in EXPIRED:
        return OpsError(f"the credentials have expired ({told})", where=where, change="log in again")
    if code in STRANGER:
        return OpsError(f"AWS does not accept these credentials ({told})", where=where,
                        change="log in again, and see that the region is enabled for the account")  # fmt: skip
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLED or status >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        return OpsError(f"{operation} failed at every try ({told})", where=where, change="wait a minute and try again")
    return OpsError(f"{operation} was refused ({told})", where=where, change="see this code in the API reference")


_CHANGES: dict[Kind, tuple[type[OpsError], str]] = {
    "no credentials": (OpsError, "log in, or set AWS_PROFILE (aws sts get-caller-identity shows who you are)"),
    "misconfigured": (RefusedError, "correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region"),
    "unreachable": (OpsError, "check the region's name, DNS, proxies and the way out of this machine, then try again"),
}
