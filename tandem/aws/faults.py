"""Errors of boto3 by who handles them: no answer at all, or an answer that refuses.

This file alone assigns exceptions and codes to kinds. The caller says what to do about a kind,
because a pod, an operator and a pipeline do different things about it. Invariant: `classify_fault`
knows the reasons for no answer, `explain_fault` also the answers of services. An answer of
something else, e.g. of a proxy, is no answer of a service.

Sources: botocore.exceptions, of botocore 1.44.5; the common errors of the API references of S3,
STS, CloudWatch, EC2, EKS and EventBridge Scheduler.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

BOTO_ERRORS = (
    boto.ClientError,
    boto.BotoCoreError,
    ResponseParserError,
    HTTPError,
)  # all errors of a boto3 call
# errors of botocore's parsers for well-formed XML or JSON of no service; only around the call
# itself
PARSER_ERRORS = (KeyError, AttributeError, TypeError, UnicodeDecodeError)
# the least HTTP statuses of an error; a redirect is no answer either
MIN_SERVER_ERROR_STATUS = 500
MIN_FAILURE_STATUS = 300
HEAD_BYTES = 1024  # of a body; here an HTML page shows what it is


class ForeignAnswerError(boto.BotoCoreError):  # type: ignore[misc]  # botocore is untyped
    """Something other than the service answered: a proxy, a captive portal, another server."""

    fmt = "HTTP {status} with {form}"


FaultKind = Literal[
    "no credentials",
    "misconfigured",
    "unreachable",
    "busy",
    "clock",
    "denied",
    "expired",
    "foreign",
    "invalid",
    "no bucket",
    "other region",
    "refused",
]
_FAULT_KINDS: tuple[tuple[FaultKind, tuple[type[BaseException], ...], str], ...] = (
    (
        "no credentials",
        (
            boto.NoCredentialsError,
            boto.PartialCredentialsError,
            boto.CredentialRetrievalError,
            boto.MetadataRetrievalError,
            boto.TokenRetrievalError,
            boto.SSOError,
            boto.RefreshWithMFAUnsupportedError,
        ),
        "there are no AWS credentials ({said})",
    ),
    (
        "misconfigured",
        (
            boto.NoRegionError,
            boto.ProfileNotFound,
            boto.ConfigParseError,
            boto.InvalidConfigError,
            boto.ParamValidationError,
            boto.InvalidRegionError,
            boto.EndpointProviderError,
            boto.InvalidRetryConfigurationError,
            boto.InvalidProxiesConfigError,
        ),
        "the AWS settings cannot be used ({said})",
    ),
    (
        "unreachable",
        (
            ForeignAnswerError,
            ResponseParserError,
            *PARSER_ERRORS,
        ),
        "{operation} was answered by something that is not AWS ({said})",
    ),
    (
        "unreachable",
        (
            boto.HTTPClientError,
            boto.ConnectionError,
            boto.IncompleteReadError,
            HTTPError,
        ),
        "{operation} got no answer ({said})",
    ),
)


class AwsFault(NamedTuple):
    """Fault of a boto3 call.

    Args:
        kind: of the person who must handle it; `foreign`: the credentials are none of AWS's,
            `refused`: any other code.
        problem: what happened, in one sentence without its full stop.
    """

    kind: FaultKind
    problem: str


def classify_fault(error: BaseException, operation: str) -> AwsFault | None:
    """Return why no service answered, None if the reason is none of the known kinds.

    Args:
        error: of boto3.
        operation: as the API reference spells it.
    """
    for kind, classes, sentence in _FAULT_KINDS:
        if isinstance(error, classes):
            return AwsFault(kind, sentence.format(operation=operation, said=describe_error(error)))
    return None


_ANSWER_KINDS: tuple[tuple[FaultKind, frozenset[str], str], ...] = (
    (
        "busy",
        frozenset(
            {
                "Throttling",
                "ThrottlingException",
                "ThrottledException",
                "TooManyRequestsException",
                "RequestThrottled",
                "RequestThrottledException",
                "RequestLimitExceeded",
                "LimitExceeded",
                "LimitExceededFault",
                "LimitExceededException",
                "SlowDown",
                "RequestTimeout",
            }
        ),
        "{operation} failed at every try ({said})",
    ),
    (
        "clock",
        frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"}),
        "this machine's clock differs too much from AWS's ({said})",
    ),
    (
        "denied",
        frozenset(
            {
                "AccessDenied",
                "AccessDeniedException",
                "UnauthorizedOperation",
                "AuthorizationError",
                "Forbidden",
                "403",
                "AllAccessDisabled",
                "AccountProblem",
            }
        ),
        "{operation} is denied ({said})",
    ),
    (
        "expired",
        frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}),
        "the credentials have expired ({said})",
    ),
    (
        "foreign",
        frozenset(
            {
                "AuthFailure",
                "InvalidToken",
                "InvalidAccessKeyId",
                "InvalidClientTokenId",
                "UnrecognizedClientException",
                "SignatureDoesNotMatch",
                "InvalidSignatureException",
                "MissingAuthenticationToken",
                "MissingAuthenticationTokenException",
                "IncompleteSignature",
                "NotSignedUp",
                "OptInRequired",
            }
        ),
        "AWS does not accept these credentials ({said})",
    ),
    (
        "invalid",
        frozenset(
            {
                "InvalidParameterValue",
                "InvalidParameterValueException",
                "InvalidParameterCombination",
                "InvalidParameterCombinationException",
                "MissingParameter",
                "MissingRequiredParameterException",
                "ValidationError",
                "ValidationException",
                "InvalidFormat",
                "InvalidFormatFault",
                "MalformedInput",
                "SerializationException",
            }
        ),
        "{operation} was refused ({said})",
    ),
    (
        "no bucket",
        frozenset({"NoSuchBucket", "InvalidBucketName"}),
        "the bucket does not exist ({said})",
    ),
    (
        "other region",
        frozenset(
            {
                "PermanentRedirect",
                "301",
                "AuthorizationHeaderMalformed",
                "IllegalLocationConstraintException",
            }
        ),
        "the bucket is in another region ({said})",
    ),
)
ANSWER_CODES = {kind: codes for kind, codes, _ in _ANSWER_KINDS}
"""The codes of services, by kind."""
# of a signature whose time differs from AWS's (IAM user guide, "Troubleshoot Signature Version 4")
_CLOCK_SENTENCES = ("Signature expired", "Signature not yet current")


def explain_fault(error: BaseException, operation: str) -> AwsFault:
    """Return the meaning of any error of boto3, including an answer of the service.

    Args:
        error: of boto3.
        operation: as the API reference spells it; an answer has its own.
    """
    if not isinstance(error, boto.ClientError):
        problem = f"{operation} failed: {describe_error(error)}"
        return classify_fault(error, operation) or AwsFault("refused", problem)
    code = error_code(error)
    message = error.response.get("Error", {}).get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= MIN_SERVER_ERROR_STATUS:
        code = "SlowDown"  # the server's own failure, whatever its code
    elif any(sentence in str(message) for sentence in _CLOCK_SENTENCES):
        code = "RequestExpired"
    kind, sentence = next(
        ((kind, sentence) for kind, codes, sentence in _ANSWER_KINDS if code in codes),
        ("refused", "{operation} was refused ({said})"),
    )
    description = f"{error_code(error)}: {message}" if message else error_code(error)
    return AwsFault(kind, sentence.format(operation=error.operation_name, said=description))


def error_code(error: BaseException | None) -> str:
    """Return the service's own code of an error, "" if no service answered."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return ""


def describe_error(error: BaseException) -> str:
    """Return an error in one line, its class if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def reject_foreign_answers(client: Any) -> None:
    """Make a client of boto3 refuse answers that are not its service's.

    Without this an HTML page is an empty list for every service that speaks JSON, and for EC2.

    Args:
        client: of boto3; it then raises ForeignAnswerError.
    """
    client.meta.events.register(
        "before-parse", _refuse_foreign_answer, unique_id="tandem-foreign-answer"
    )


def _refuse_foreign_answer(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Refuse a body that is not of the service's protocol; botocore repeats a server fault."""
    status = response_dict["status_code"]
    body = response_dict["body"]
    is_success = status < MIN_FAILURE_STATUS
    is_outage = status >= MIN_SERVER_ERROR_STATUS
    shape = operation_model.output_shape
    service = operation_model.service_model
    payload = shape.serialization.get("payload") if shape is not None else None
    # content of somebody, e.g. of an object or of a function's answer, may be anything
    is_content = payload is not None and shape.members[payload].type_name != "structure"
    if not isinstance(body, bytes) or not body or (is_success and is_content):
        return
    # an older botocore, e.g. a Lambda's own, knows only the declared protocol; some services refuse
    # in another form
    protocol = str(
        getattr(service, "resolved_protocol", None) or service.metadata.get("protocol", "")
    )
    body_form = _name_foreign_form(body, protocol if is_success or is_outage else "")
    if body_form and is_outage:
        # e.g. of a load balancer: botocore tries again, then reports the status
        response_dict["body"] = b""
    elif body_form:
        raise ForeignAnswerError(status=status, form=body_form)


def _name_foreign_form(body: bytes, protocol: str) -> str:
    """Return the form of a body that no service of this protocol sends; else an empty text."""
    head = body[:HEAD_BYTES].lstrip().lower()
    if head.startswith(b"<!doctype html") or b"<html" in head:
        return "an HTML page"
    first_byte = {
        "json": b"{",
        "rest-json": b"{",
        "query": b"<",
        "ec2": b"<",
        "rest-xml": b"<",
    }.get(protocol, b"")
    if head.startswith(first_byte):
        return ""
    return "a body that is no JSON object" if first_byte == b"{" else "a body that is no XML"
