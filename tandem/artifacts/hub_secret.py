"""The hub's token: read from Secrets Manager into memory, and shown by no message."""

from __future__ import annotations

import json
import re

import boto3

from tandem.aws.client_config import SECRET_CLIENT_CONFIG
from tandem.aws.faults import BOTO_ERRORS, error_code, explain_fault
from tandem.errors import ExternalError, InputError

# the environment variable that holds the secret's name, never its value
SECRET_NAME_VARIABLE = "TANDEM_HUB_TOKEN_SECRET"  # noqa: S105
# characters of a header: an error would show a line break in the token
_TOKEN = re.compile(r"[\x21-\x7e]{8,}")


def read_token(name: str) -> str:
    """Return the token in a secret: its plain text, or `token` of a JSON object.

    In a pod boto3's chain takes the credentials of Pod Identity.

    Args:
        name: name or ARN of the secret.

    Raises:
        InputError: there is no such secret, or it holds no token.
        ExternalError: Secrets Manager refuses or cannot be reached.
    """
    where = f"secret {name}"
    try:
        text = (
            boto3.client("secretsmanager", config=SECRET_CLIENT_CONFIG)
            .get_secret_value(SecretId=name)
            .get("SecretString")
        )
    except BOTO_ERRORS as error:
        is_input = error_code(error) in {"ResourceNotFoundException", "InvalidRequestException"}
        problem = f"the secret cannot be read: {explain_fault(error, 'GetSecretValue').problem}"
        raise (InputError if is_input else ExternalError)(
            problem,
            where=where,
            change=(
                "create or restore it with the hub's token, or declare its right name; allow this"
                " pod's role secretsmanager:GetSecretValue on it, and kms:Decrypt where the key is"
                " your own"
            ),
        ) from None
    if isinstance(text, str) and text.lstrip().startswith("{"):
        try:
            text = json.loads(text).get("token")
        except ValueError:  # its message would quote the text
            text = None
    if not isinstance(text, str) or not _TOKEN.fullmatch(text.strip()):
        problem = (
            "the secret does not hold a token:"
            " a text of at least 8 characters without blanks or line breaks"
        )
        raise InputError(
            problem, where=where, change='store the token alone as plain text, or {"token": "..."}'
        )
    return text.strip()
