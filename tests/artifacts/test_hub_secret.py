"""The hub's token: from Secrets Manager into memory, shown by nobody."""

from __future__ import annotations

import json

import pytest
from doubles.fault_proxy.rules import FaultRule, StatusFault

from tandem.artifacts.hub_secret import read_token
from tandem.errors import ExternalError, InputError

pytestmark = pytest.mark.endpoint
VALUE = "hf_" + "Q7" * 17


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        json.dumps({"token": VALUE}),
        json.dumps({"token": f" {VALUE}", "user": "us"}),
    ],
)
def test_token_is_the_plain_text_or_the_json_key_token(secret, text):
    name = secret(SecretString=text)
    assert read_token(name) == VALUE


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"password": VALUE}),
        json.dumps({"token": 7}),
        "{" + VALUE,
        f"{VALUE} x",
        "hf_1",
    ],
    ids=["another key", "a number", "broken json", "a blank", "too short"],
)
def test_what_is_no_token_is_refused_without_showing_it(secret, text):
    name = secret(SecretString=text)

    with pytest.raises(InputError, match=f"secret {name}") as caught:
        read_token(name)

    assert VALUE not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("aws")
def test_a_secret_that_is_not_there_is_refused_by_name():
    with pytest.raises(InputError, match="secret tandem/nowhere: the secret cannot be read"):
        read_token("tandem/nowhere")


def test_a_secret_marked_for_deletion_is_refused(secret, endpoint):
    name = secret(SecretString=VALUE)
    endpoint.client("secretsmanager").delete_secret(SecretId=name)
    with pytest.raises(InputError, match="marked for deletion"):
        read_token(name)


@pytest.fixture
def proxy_secret(secret, proxy, monkeypatch):
    """A secret behind the proxy; its name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    return secret(SecretString=VALUE)


def test_a_denied_secret_names_the_permission(proxy_secret, proxy):
    proxy.use(
        FaultRule(
            service="secretsmanager", fault=StatusFault(status=400, code="AccessDeniedException")
        )
    )
    with pytest.raises(ExternalError, match="the secret cannot be read") as caught:
        read_token(proxy_secret)
    assert "secretsmanager:GetSecretValue" in caught.value.change
