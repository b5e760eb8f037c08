"""What keeps boto3 from an answer, in three kinds that need three different people, and the sentence for each.

Which exception is of which kind stands here once; what to do about a kind is said by whoever asked, because a pod, an
operator and a pipeline do different things about it.
Invariant: an answer of a service, however bad, is none of these.

Source: botocore.exceptions, of botocore 1.44.5.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

RAISED = (boto.ClientError, boto.BotoCoreError, ResponseParserError, HTTPError)  # all that a call of boto3 may end in

Kind = Literal["no credentials", "misconfigured", "unreachable"]
_KINDS: tuple[tuple[Kind, tuple[type[BaseException], ...], str], ...] = (
    ("no credentials", (
        boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError,
        boto.MetadataRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.RefreshWithMFAUnsupportedError,
    ), "there are no AWS credentials ({said})"),
    ("misconfigured", (
        boto.NoRegionError, boto.ProfileNotFound, boto.ConfigParseError, boto.InvalidConfigError,
        boto.ParamValidationError, boto.InvalidRegionError, boto.EndpointProviderError,
        boto.InvalidRetryConfigurationError, boto.InvalidProxiesConfigError,
    ), "the AWS settings cannot be used ({said})"),
    ("unreachable", (
        boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, ResponseParserError, HTTPError,
    ), "{operation} reached nobody ({said})"),
)  # fmt: skip


class Unanswered(NamedTuple):
    """Why nobody answered.

    Args:
        kind: who has to look after it.
        problem: what happened, in one sentence without its full stop.
    """

    kind: Kind
    problem: str


def unanswered(error: BaseException, operation: str) -> Unanswered | None:
    """Return why nobody answered, None where it is none of the known kinds.

    Args:
        error: of boto3.
        operation: as the API reference spells it.
    """
    for kind, classes, sentence in _KINDS:
        if isinstance(error, classes):
            return Unanswered(kind, sentence.format(operation=operation, said=brief(error)))
    return None


def code_of(error: BaseException | None) -> str:
    """Return the service's own code of an error, "" where no service answered."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def brief(error: BaseException) -> str:
    """Return an error in one line, its class where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
