"""Faults of S3 and of the connection to S3, each with advice.

Invariant: every error of botocore becomes a TandemError that names the object, so no command ends
in a traceback because of S3.

Sources: the error codes of the S3 API reference ("Error responses"), the messages of access denied
errors (S3 user guide, "Troubleshoot access denied (403 Forbidden) errors"), botocore.exceptions.
"""

from __future__ import annotations

import re

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import SSLError as BrokenTlsError

from tandem.aws.faults import FaultKind, describe_error, error_code, explain_fault
from tandem.errors import ExternalError, InputError, TandemError

# operation of the API -> action that IAM must allow (service authorization reference of S3)
ACTIONS = {
    **dict.fromkeys(("HeadObject", "GetObject"), "s3:GetObject"),
    **dict.fromkeys(
        ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
        "s3:PutObject",
    ),
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}
# errors of botocore; for broken TLS within a body botocore lets urllib3's error through
S3_ERRORS = (boto.ClientError, boto.BotoCoreError, ResponseParserError, BrokenTlsError)
RETRY_ADVICE = "run the same command again: what was finished is kept"
# errors within the data of an object; an earlier end counts as unreachable
_PARTIAL_BODY_ERRORS = (
    ResponseParserError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.ReadTimeoutError,
    boto.ConnectionClosedError,
    BrokenTlsError,
)
_CREDENTIALS_ADVICE = (
    "in a pod: check its account's Pod Identity association and the node's eks-pod-identity-agent,"
    " restart the pod; by hand: log in (aws sts get-caller-identity shows who you are)"
)
_DEFAULT_FAULT = (ExternalError, "see the S3 API reference for this code")
# kind of the shared table -> the fault, and the advice
_KIND_FAULTS: dict[FaultKind, tuple[type[TandemError], str]] = {
    "busy": (ExternalError, f"wait a minute, then {RETRY_ADVICE}"),
    "clock": (
        ExternalError,
        "set the clock (chronyc tracking on the node tells by how much), then run again",
    ),
    "no bucket": (
        InputError,
        "deploy the environment's Artifacts stack, or correct the bucket's name (--bucket)",
    ),
    "other region": (InputError, "set AWS_REGION to the bucket's region"),
    "misconfigured": (
        InputError,
        "set AWS_REGION; correct AWS_PROFILE and AWS_ENDPOINT_URL if they are set",
    ),
    "unreachable": (
        ExternalError,
        f"check S3's VPC endpoint, the network policy and DNS; then {RETRY_ADVICE}",
    ),
    **dict.fromkeys(("expired", "foreign", "no credentials"), (ExternalError, _CREDENTIALS_ADVICE)),
}


def convert_error(error: BaseException, operation: str, bucket: str, key: str) -> TandemError:
    """Return the fault for an error of botocore.

    Args:
        error: of botocore, or a fault already.
        operation: as the API reference spells it.
        bucket, key: of the request; the key may be a prefix, and is empty for the bucket itself.
    """
    if isinstance(error, TandemError):
        return error
    where = f"s3://{bucket}/{key}"
    description = describe_error(error)
    if isinstance(error, _PARTIAL_BODY_ERRORS):
        return ExternalError(
            f"the connection ended within the data ({description})",
            where=where,
            change=RETRY_ADVICE,
        )
    fault = explain_fault(error, operation)
    # of STS, before any request to S3
    if str(getattr(error, "operation_name", "")).startswith("AssumeRole"):
        return ExternalError(
            f"AWS does not accept these credentials ({description})",
            where=where,
            change=_CREDENTIALS_ADVICE,
        )
    # for a KMS key the message has the action; for HEAD there is no message
    if fault.kind == "denied":
        kms_action = re.search(r"kms:\w+", description)
        action = kms_action[0] if kms_action else ACTIONS.get(operation, f"s3:{operation}")
        change = (
            f"allow {action} for this identity, or run as a role that has it (docs/artifacts.md,"
            " Rights); a bucket policy that denies, as one that asks for an encryption key, is the"
            " owner's to change"
        )
        return ExternalError(fault.problem, where=where, change=change)
    if error_code(error) in {"NoSuchKey", "404"}:
        return ExternalError(
            f"there is no such object ({description})",
            where=where,
            change="run the job that makes it",
        )
    fault_class, change = _KIND_FAULTS.get(fault.kind, _DEFAULT_FAULT)
    return fault_class(fault.problem, where=where, change=change)
