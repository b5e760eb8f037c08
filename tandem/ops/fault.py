"""What goes wrong between an operator's command and AWS, in words for three in the morning.

Invariant: whatever botocore raises leaves this package as an OpsError that names the call and what it was about, and
says what to do. Codes: 2 bad input, 3 the world outside.

Sources: common errors of the EC2, EKS, S3, STS and EventBridge Scheduler API references; botocore.exceptions; the
Service Authorization Reference for the actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from botocore import exceptions as boto
from botocore import xform_name
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

RAISED = (boto.ClientError, boto.BotoCoreError, ResponseParserError, HTTPError)
THROTTLED = {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
             "RequestLimitExceeded", "LimitExceededException", "SlowDown"}  # fmt: skip
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "Forbidden", "403",
          "AllAccessDisabled"}  # fmt: skip
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
    try:
        found: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
    except RAISED as error:
        raise fault_of(
            error, service=client.meta.service_model.service_name, operation=operation, where=where
        ) from error
    return found


def code_of(error: BaseException | None) -> str:
    """Return the service's own code of an error, "" where no service answered."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def fault_of(error: BaseException, *, service: str, operation: str, where: str) -> OpsError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, boto.ClientError):
        return _answered(error, service, operation, where)
    said = _brief(error)
    for kinds, make in _UNANSWERED:
        if isinstance(error, kinds):
            return make(operation, said, where)
    return OpsError(f"{operation} failed ({said})", where=where, change="try again")


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _answered(error: boto.ClientError, service: str, operation: str, where: str) -> OpsError:
    code, message = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
    told = f"{code}: {message}" if message else code
    if code in DENIED:
        action = ACTIONS.get((service, operation), f"{service}:{operation}")
        return DeniedError(f"{operation} is denied ({told})", where=where,
                           change=f"allow {action} to this identity, or log in as one that has it")  # fmt: skip
    if code in EXPIRED:
        return OpsError(f"the credentials have expired ({told})", where=where, change="log in again")
    if code in STRANGER:
        return OpsError(f"AWS does not accept these credentials ({told})", where=where,
                        change="log in again, and see that the region is enabled for the account")  # fmt: skip
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLED or status >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        return OpsError(f"{operation} failed at every try ({told})", where=where, change="wait a minute and try again")
    return OpsError(f"{operation} was refused ({told})", where=where, change="see this code in the API reference")


def _no_credentials(_: str, said: str, where: str) -> OpsError:
    return OpsError(f"there are no AWS credentials ({said})", where=where,
                    change="log in, or set AWS_PROFILE (aws sts get-caller-identity shows who you are)")  # fmt: skip


def _misconfigured(_: str, said: str, where: str) -> OpsError:
    return RefusedError(f"the AWS settings cannot be used ({said})", where=where,
                        change="correct AWS_PROFILE, AWS_ENDPOINT_URL and the environment's region")  # fmt: skip


def _unreachable(operation: str, said: str, where: str) -> OpsError:
    return OpsError(f"{operation} reached nobody ({said})", where=where,
                    change="check the region's name, DNS and the way out of this machine, then try again")  # fmt: skip


_UNANSWERED: tuple[tuple[tuple[type[BaseException], ...], Callable[[str, str, str], OpsError]], ...] = (
    ((boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError, boto.MetadataRetrievalError,
      boto.TokenRetrievalError, boto.SSOError), _no_credentials),
    ((boto.NoRegionError, boto.ProfileNotFound, boto.ConfigParseError, boto.InvalidConfigError,
      boto.ParamValidationError, boto.InvalidRegionError, boto.EndpointProviderError,
      boto.InvalidRetryConfigurationError), _misconfigured),
    ((boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, ResponseParserError, HTTPError),
     _unreachable),
)  # fmt: skip
