"""What S3 or the way to it refused, as a fault that says what to do.

Invariant: whatever botocore raises becomes an TandemError that names the object, so no command ends in a
traceback because of S3.

Sources: the error codes of the S3 API reference ("Error responses"), the messages of access denied errors (S3 user
guide, "Troubleshoot access denied (403 Forbidden) errors"), botocore.exceptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import SSLError as BrokenTlsError

from tandem.aws.faults import classify_fault, describe_error
from tandem.aws.faults import error_code as reason
from tandem.errors import ExternalError, InputError, TandemError
from tandem.spec.names import BENCH_ACCOUNT, COMPILE_ACCOUNT, SERVE_ACCOUNT, STAGE_ACCOUNT

__all__ = ["ACTIONS", "RETRY_ADVICE", "S3_ERRORS", "S3Request", "convert_error", "reason"]

# operation of the API -> the action that IAM must allow (service authorization reference of S3)
ACTIONS = {
    "HeadObject": "s3:GetObject",
    "GetObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}
BUCKET_OPERATIONS = {"ListMultipartUploads", "ListObjectsV2"}  # their resource is the bucket; the prefix is a condition
READ_OPERATIONS = {"HeadObject", "GetObject", "ListObjectsV2"}
# what botocore raises; TLS that breaks within a body it lets through as urllib3 says it
S3_ERRORS = (boto.ClientError, boto.BotoCoreError, ResponseParserError, BrokenTlsError)
RETRY_ADVICE = "run the same command again: what was finished is kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Request:
    """What was asked of S3 when it failed.

    Args:
        operation: as the API reference spells it.
        bucket, key: the key may be a prefix; empty for the bucket itself.
    """

    operation: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        """Return the object's `s3://` address."""
        return f"s3://{self.bucket}/{self.key}"


def convert_error(error: BaseException, request: S3Request) -> TandemError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, TandemError):
        return error
    if isinstance(error, boto.ClientError):
        if error.operation_name.startswith("AssumeRole"):  # of STS, before S3 was asked anything
            return ExternalError(
                f"S3 does not accept these credentials ({reason(error)}: {describe_error(error)})", where=request.url,
                change=_CREDENTIALS_ADVICE,
            )  # fmt: skip
        return _convert_answer(error, request)
    return _build_connection_fault(error, request)


def _convert_answer(error: boto.ClientError, request: S3Request) -> TandemError:
    """Read the answer of the service."""
    code = reason(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(error.response.get("Error", {}).get("Message", ""))
    if code in _DENIAL_CODES:
        return _build_denial_fault(message, request)
    for codes, fault_class, problem, change in _ANSWER_FAULTS:
        if code in codes:
            values = {"code": code, "message": message, "bucket": request.bucket, "operation": request.operation}
            return fault_class(problem.format(**values), where=request.url, change=change)
    if status >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        problem = f"S3 answered {request.operation} with {code} at every try"
        return ExternalError(problem, where=request.url, change=f"wait a minute, then {RETRY_ADVICE}")
    problem = f"S3 refused {request.operation} with {code} ({message})"
    return ExternalError(problem, where=request.url, change="see the S3 API reference for this code")


def _build_denial_fault(message: str, request: S3Request) -> TandemError:
    kms_action = re.search(r"kms:\w+", message)
    if kms_action:
        return _build_key_denial_fault(kms_action[0], request)
    problem = f"S3 denies {request.operation}" + (f" ({message})" if message not in {"", "Access Denied"} else "")
    is_write = ACTIONS.get(request.operation) == "s3:PutObject"
    if is_write and "explicit deny in a resource-based policy" in message:
        return ExternalError(
            f"{problem}: the bucket's policy forbids this write, as it does where it demands an encryption key other "
            "than the bucket's default", where=request.url,
            change="wrong key encryption: make the key that the policy demands the bucket's default encryption, "
            "Tandem writes with the default alone",
        )  # fmt: skip
    return ExternalError(problem, where=request.url, change=_describe_permission(request))


def _describe_permission(request: S3Request) -> str:
    """Say which action is missing, on what, and which service account's role should have it."""
    action = ACTIONS.get(request.operation, f"s3:{request.operation}")
    prefix = f"{request.key.partition('/')[0]}/" if request.key else ""
    resource = f"arn:aws:s3:::{request.bucket}"
    if request.operation in BUCKET_OPERATIONS:
        resource += f" for the prefix {prefix}*" if prefix else ""
    else:
        resource += f"/{prefix}*"
    accounts = {"models/": STAGE_ACCOUNT, "artifacts/": COMPILE_ACCOUNT, "results/": BENCH_ACCOUNT}
    if request.operation in READ_OPERATIONS and prefix != "results/":
        holder = f"the role of service account {SERVE_ACCOUNT}, {STAGE_ACCOUNT} or {COMPILE_ACCOUNT}"
    elif request.operation == "DeleteObjects":
        holder = "an operator's role (no service account may delete)"
    else:
        holder = f"the role of service account {accounts.get(prefix, f'{STAGE_ACCOUNT} or {COMPILE_ACCOUNT}')}"
    return (
        f"{action} on {resource} is missing for this identity: run as {holder} has it, or deploy the environment's "
        "Cluster stack again; a bucket policy that denies is the bucket owner's to change"
    )


def _build_key_denial_fault(action: str, request: S3Request) -> TandemError:
    return ExternalError(
        f"the bucket's encryption key denies {action} during {request.operation}", where=request.url,
        change=f"allow {action} for this role in the key's policy and in IAM, or let the bucket encrypt with "
        "SSE-S3, which needs no key permissions",
    )  # fmt: skip


_CREDENTIALS_ADVICE = (
    "in a pod: check the Pod Identity association of its service account and restart it; by hand: log in again "
    "(aws sts get-caller-identity shows who you are)"
)
_DENIAL_CODES = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"}

# codes -> the fault, its sentence and what to do
_ANSWER_FAULTS: tuple[tuple[set[str], type[TandemError], str, str], ...] = (
    ({"NoSuchBucket"}, InputError, "the bucket {bucket} does not exist",
     "deploy the environment's Artifacts stack, or correct the bucket's name (--bucket)"),
    ({"InvalidBucketName", "KeyTooLongError"}, InputError, "S3 takes no such name ({code}: {message})",
     "correct the name"),
    ({"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "InternalError",
      "RequestTimeout", "500", "502", "503", "504"}, ExternalError, "S3 answered {operation} with {code} at every try",
     f"wait a minute, then {RETRY_ADVICE}"),
    ({"RequestTimeTooSkewed", "RequestExpired"}, ExternalError,
     "this machine's clock differs too much from S3's ({message})",
     "set the clock (chronyc tracking on the node tells by how much), then run again"),
    ({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch",
      "TokenRefreshRequired"}, ExternalError, "S3 does not accept these credentials ({code}: {message})",
     _CREDENTIALS_ADVICE),
    ({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch"}, ExternalError,
     ("what arrived is not what was to be sent ({code}: {message}): the file changed while it was sent, or the "
     "connection or this disk corrupts data"),
     "make sure that nothing writes to the file; then run again, on another node if it repeats"),
    ({"InvalidObjectState"}, ExternalError, "the object was moved to an archive class ({code}: {message})",
     "restore it, and take models/ and artifacts/ out of the lifecycle rule that archives"),
    ({"PermanentRedirect", "301", "AuthorizationHeaderMalformed"}, InputError,
     "the bucket is in another region ({code}: {message})", "set AWS_REGION to the bucket's region"),
    ({"NoSuchKey", "404"}, ExternalError, "there is no such object ({code})", "run the job that makes it"),
    ({"KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException",
      "KMS.InvalidKeyUsageException"}, ExternalError,
     "the bucket's encryption key cannot be used ({code}: {message})",
     "enable the key, or set the bucket's default encryption to one that exists"),
)  # fmt: skip


def _build_connection_fault(error: BaseException, request: S3Request) -> TandemError:
    """Say why nobody answered, or not to the end."""
    if isinstance(error, _PARTIAL_BODY_ERRORS):
        return ExternalError(
            f"the connection ended within the data ({describe_error(error)})", where=request.url, change=RETRY_ADVICE
        )
    cause = classify_fault(error, request.operation)
    if cause is None:
        return ExternalError(
            f"{request.operation} failed: {describe_error(error)}", where=request.url, change=RETRY_ADVICE
        )
    if cause.kind == "unreachable":
        return ExternalError(
            f"S3 cannot be reached ({describe_error(error)})", where=request.url,
            change=f"check the VPC's S3 endpoint, the pod's network policy and DNS; then {RETRY_ADVICE}",
        )  # fmt: skip
    if cause.kind == "misconfigured":
        change = "set AWS_REGION, and correct AWS_PROFILE and AWS_ENDPOINT_URL if they are set"
        return InputError(cause.problem, where=request.url, change=change)
    return ExternalError(
        cause.problem, where=request.url,
        change="in a pod: its service account has no Pod Identity association in this namespace, or the "
        "eks-pod-identity-agent add-on does not run on this node; by hand: log in (aws sts get-caller-identity)",
    )  # fmt: skip


# within the data of an object; what ends before it is out of reach
_PARTIAL_BODY_ERRORS = (
    ResponseParserError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.ReadTimeoutError,
    boto.ConnectionClosedError,
    BrokenTlsError,
)
