"""What S3 or the way to it refused, as a fault that says what to do.

Invariant: whatever botocore raises becomes an ArtifactError that names the object, so no command ends in a
traceback because of S3.

Sources: the error codes of the S3 API reference ("Error responses"), the messages of access denied errors (S3 user
guide, "Troubleshoot access denied (403 Forbidden) errors"), botocore.exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import SSLError as BrokenTlsError

from tandem.artifacts.fault import ArtifactError, RefusedError, WorldError
from tandem.aws_fault import brief, unanswered
from tandem.aws_fault import code_of as reason
from tandem.spec.names import BENCH_ACCOUNT, COMPILE_ACCOUNT, SERVE_ACCOUNT, STAGE_ACCOUNT

__all__ = ["ACTIONS", "AGAIN", "RAISED", "Asked", "fault_of", "reason"]

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
    "ListParts": "s3:ListMultipartUploadParts",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}
ON_BUCKET = {"ListMultipartUploads", "ListObjectsV2"}  # their resource is the bucket; the prefix is a condition
READ = {"HeadObject", "GetObject", "ListObjectsV2"}
# what botocore raises; TLS that breaks within a body it lets through as urllib3 says it
RAISED = (boto.ClientError, boto.BotoCoreError, ResponseParserError, BrokenTlsError)
AGAIN = "run the same command again: what was finished is kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
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


def fault_of(error: BaseException, asked: Asked) -> ArtifactError:
    """Return the fault that an error of botocore means."""
    if isinstance(error, ArtifactError):
        return error
    if isinstance(error, boto.ClientError):
        if error.operation_name.startswith("AssumeRole"):  # of STS, before S3 was asked anything
            return _bad_credentials(reason(error), brief(error), asked)
        return _answered(error, asked)
    return _unanswered(error, asked)


def _answered(error: boto.ClientError, asked: Asked) -> ArtifactError:
    """Read the answer of the service."""
    code = reason(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(error.response.get("Error", {}).get("Message", ""))
    for codes, said in _ANSWERS:
        if code in codes:
            return said(code, message, asked)
    if status >= 500:  # noqa: PLR2004 - of HTTP: the server's own
        return _busy(code, message, asked)
    told = f"S3 refused {asked.operation} with {code} ({message})"
    return WorldError(told, where=asked.url, change="see the S3 API reference for this code")


def _no_bucket(_code: str, _message: str, asked: Asked) -> ArtifactError:
    return RefusedError(
        f"the bucket {asked.bucket} does not exist", where=asked.url,
        change="deploy the environment's Artifacts stack, or correct the bucket's name (--bucket)",
    )  # fmt: skip


def _bad_name(code: str, message: str, asked: Asked) -> ArtifactError:
    return RefusedError(f"S3 takes no such name ({code}: {message})", where=asked.url, change="correct the name")


def _denied(_code: str, message: str, asked: Asked) -> ArtifactError:
    key_action = re.search(r"kms:\w+", message)
    if key_action:
        return _key_denied(key_action[0], asked)
    told = f"S3 denies {asked.operation}" + (f" ({message})" if message not in {"", "Access Denied"} else "")
    writes = ACTIONS.get(asked.operation) == "s3:PutObject"
    if writes and "explicit deny in a resource-based policy" in message:
        return WorldError(
            f"{told}: the bucket's policy forbids this write, as it does where it demands an encryption key other "
            "than the bucket's default", where=asked.url,
            change="wrong key encryption: make the key that the policy demands the bucket's default encryption, "
            "Tandem writes with the default alone",
        )  # fmt: skip
    return WorldError(told, where=asked.url, change=_allow(asked))


def _allow(asked: Asked) -> str:
    """Say which action is missing, on what, and which service account's role should have it."""
    action = ACTIONS.get(asked.operation, f"s3:{asked.operation}")
    prefix = f"{asked.key.partition('/')[0]}/" if asked.key else ""
    resource = f"arn:aws:s3:::{asked.bucket}"
    if asked.operation in ON_BUCKET:
        resource += f" for the prefix {prefix}*" if prefix else ""
    else:
        resource += f"/{prefix}*"
    accounts = {"models/": STAGE_ACCOUNT, "artifacts/": COMPILE_ACCOUNT, "results/": BENCH_ACCOUNT}
    if asked.operation in READ and prefix != "results/":
        holder = f"the role of service account {SERVE_ACCOUNT}, {STAGE_ACCOUNT} or {COMPILE_ACCOUNT}"
    elif asked.operation == "DeleteObjects":
        holder = "an operator's role (no service account may delete)"
    else:
        holder = f"the role of service account {accounts.get(prefix, f'{STAGE_ACCOUNT} or {COMPILE_ACCOUNT}')}"
    return (
        f"{action} on {resource} is missing for this identity: run as {holder} has it, or deploy the environment's "
        "Cluster stack again; a bucket policy that denies is the bucket owner's to change"
    )


def _key_denied(action: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"the bucket's encryption key denies {action} during {asked.operation}", where=asked.url,
        change=f"allow {action} for this role in the key's policy and in IAM, or let the bucket encrypt with "
        "SSE-S3, which needs no key permissions",
    )  # fmt: skip


def _key_broken(code: str, message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"the bucket's encryption key cannot be used ({code}: {message})", where=asked.url,
        change="enable the key, or set the bucket's default encryption to one that exists",
    )  # fmt: skip


def _busy(code: str, _message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"S3 answered {asked.operation} with {code} at every try",
        where=asked.url,
        change=f"wait a minute, then {AGAIN}",
    )


def _skewed(_code: str, message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"this machine's clock differs too much from S3's ({message})", where=asked.url,
        change="set the clock (chronyc tracking on the node tells by how much), then run again",
    )  # fmt: skip


def _bad_credentials(code: str, message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"S3 does not accept these credentials ({code}: {message})", where=asked.url,
        change="in a pod: check the Pod Identity association of its service account and restart it; by hand: log in "
        "again (aws sts get-caller-identity shows who you are)",
    )  # fmt: skip


def _digest(code: str, message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"what arrived is not what was to be sent ({code}: {message}): the file changed while it was sent, or the "
        "connection or this disk corrupts data", where=asked.url,
        change="make sure that nothing writes to the file; then run again, on another node if it repeats",
    )  # fmt: skip


def _archived(code: str, message: str, asked: Asked) -> ArtifactError:
    return WorldError(
        f"the object was moved to an archive class ({code}: {message})", where=asked.url,
        change="restore it, and take models/ and artifacts/ out of the lifecycle rule that archives",
    )  # fmt: skip


def _elsewhere(code: str, message: str, asked: Asked) -> ArtifactError:
    return RefusedError(
        f"the bucket is in another region ({code}: {message})", where=asked.url,
        change="set AWS_REGION to the bucket's region",
    )  # fmt: skip


def _object_gone(code: str, _message: str, asked: Asked) -> ArtifactError:
    return WorldError(f"there is no such object ({code})", where=asked.url, change="run the job that makes it")


_ANSWERS: tuple[tuple[frozenset[str], Callable[[str, str, Asked], ArtifactError]], ...] = (
    (frozenset({"NoSuchBucket"}), _no_bucket),
    (frozenset({"InvalidBucketName", "KeyTooLongError"}), _bad_name),
    (frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"}), _denied),
    (frozenset({"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable",
                "InternalError", "RequestTimeout", "500", "502", "503", "504"}), _busy),
    (frozenset({"RequestTimeTooSkewed", "RequestExpired"}), _skewed),
    (frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "InvalidAccessKeyId",
                "SignatureDoesNotMatch", "TokenRefreshRequired"}), _bad_credentials),
    (frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch"}), _digest),
    (frozenset({"InvalidObjectState"}), _archived),
    (frozenset({"PermanentRedirect", "301", "AuthorizationHeaderMalformed"}), _elsewhere),
    (frozenset({"NoSuchKey", "404"}), _object_gone),
    (frozenset({"KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException",
                "KMS.InvalidKeyUsageException"}), _key_broken),
)  # fmt: skip


def _unanswered(error: BaseException, asked: Asked) -> ArtifactError:
    """Say why nobody answered, or not to the end."""
    if isinstance(error, _CUT_SHORT):
        return WorldError(f"the connection ended within the data ({brief(error)})", where=asked.url, change=AGAIN)
    silent = unanswered(error, asked.operation)
    if silent is None:
        return WorldError(f"{asked.operation} failed: {brief(error)}", where=asked.url, change=AGAIN)
    if silent.kind == "unreachable":
        return WorldError(
            f"S3 cannot be reached ({brief(error)})", where=asked.url,
            change=f"check the VPC's S3 endpoint, the pod's network policy and DNS; then {AGAIN}",
        )  # fmt: skip
    if silent.kind == "misconfigured":
        change = "set AWS_REGION, and correct AWS_PROFILE and AWS_ENDPOINT_URL if they are set"
        return RefusedError(silent.problem, where=asked.url, change=change)
    return WorldError(
        silent.problem, where=asked.url,
        change="in a pod: its service account has no Pod Identity association in this namespace, or the "
        "eks-pod-identity-agent add-on does not run on this node; by hand: log in (aws sts get-caller-identity)",
    )  # fmt: skip


# within the data of an object; what ends before it is out of reach
_CUT_SHORT = (ResponseParserError, boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError,
              boto.ConnectionClosedError, BrokenTlsError)  # fmt: skip
