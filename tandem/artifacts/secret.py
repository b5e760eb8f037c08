"""The hub's token, from Secrets Manager into memory and nowhere else.

Invariant: the token is in no manifest, argument, environment variable, file, log line or message: a `HubToken` shows
itself as the name of its secret.

In a pod the credentials are those of Pod Identity, by boto3's own chain.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import NoReturn

from tandem.errors import ExternalError, InputError

# the environment variable that holds the secret's name, never its value
SECRET_NAME_VARIABLE = "TANDEM_HUB_TOKEN_SECRET"  # noqa: S105
_TOKEN_PATTERN = re.compile(
    r"[\x21-\x7e]{8,}"
)  # what may stand in a header: a line break in it would be shown by an error
_DENIAL_CODES = ("AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "InvalidSignatureException")


@dataclass(frozen=True, slots=True)
class HubToken:
    """A hub token.

    Args:
        secret: the name of the secret it came from; what is shown.
        value: the token itself; never shown.
    """

    secret: str
    value: str = field(repr=False)


def secret_name() -> str | None:
    """Return the name of the secret that this environment declares; None without one."""
    return os.environ.get(SECRET_NAME_VARIABLE) or None


def read_token(name: str) -> HubToken:
    """Return the token in a secret: its plain text, or `token` of a JSON object.

    Args:
        name: name or ARN of the secret.

    Raises:
        InputError: there is no such secret, or what it holds is no token.
        ExternalError: Secrets Manager refuses or cannot be reached.
    """
    where = f"secret {name}"
    text = _read_secret_text(name, where)
    token = _parse_token(text, where)
    if not _TOKEN_PATTERN.fullmatch(token):
        raise InputError(
            "what the secret holds is no token: it is too short, or has blanks or line breaks inside", where=where,
            change="store the token alone as plain text, or as JSON with the one key token",
        )  # fmt: skip
    return HubToken(name, token)


def _parse_token(text: str, where: str) -> str:
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        token = json.loads(text).get("token")
    except ValueError:  # its message would quote the text
        token = None
    if not isinstance(token, str):
        raise InputError(
            "the secret is JSON without a text under token", where=where,
            change='store {"token": "..."}, or the token alone as plain text',
        )  # fmt: skip
    return token.strip()


def _read_secret_text(name: str, where: str) -> str:
    import boto3  # noqa: PLC0415 - a present model needs none of it
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    client_config = Config(retries={"mode": "standard"}, connect_timeout=10, read_timeout=20)
    try:
        answer = boto3.client("secretsmanager", config=client_config).get_secret_value(SecretId=name)
    except ClientError as error:
        _raise_secret_fault(error.response["Error"].get("Code", ""), error.response["Error"].get("Message", ""), where)
    except BotoCoreError as error:
        raise ExternalError(
            f"the secret cannot be read: {type(error).__name__}: {error}", where=where,
            change="check the pod's identity, its region and its way to Secrets Manager",
        ) from None  # fmt: skip
    text = answer.get("SecretString")
    if not isinstance(text, str):
        raise InputError("the secret is binary", where=where, change="store the token as text")
    return text


def _raise_secret_fault(code: str, message: str, where: str) -> NoReturn:
    if code == "ResourceNotFoundException":
        raise InputError(
            "there is no such secret in this account and region, or it has no value yet", where=where,
            change="create it with the hub's token, or declare its right name for the environment",
        ) from None  # fmt: skip
    if code == "InvalidRequestException":
        raise InputError(
            f"the secret cannot be read: {message or code}", where=where,
            change="restore it, if it is marked for deletion",
        ) from None  # fmt: skip
    if code in _DENIAL_CODES:
        raise ExternalError(
            f"reading the secret is denied ({code})", where=where,
            change="allow secretsmanager:GetSecretValue on it, and kms:Decrypt on its key if that is not the AWS "
            "managed one, to the role of the service account of this pod",
        ) from None  # fmt: skip
    raise ExternalError(
        f"Secrets Manager answers {code}: {message}", where=where,
        change="run the job again; if it stays, look at the service's health and the secret's key",
    ) from None  # fmt: skip
