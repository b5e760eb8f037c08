"""The local AWS endpoints that the tests of one process share."""

from __future__ import annotations

import pytest

ACCOUNT = "111122223333"
REGION = "us-east-2"


@pytest.fixture(scope="session")
def endpoint():
    """One where every call is allowed."""
    from rehearsal.aws.endpoint import AwsEndpoint  # noqa: PLC0415 - loads boto3, for a few tests

    with AwsEndpoint(account=ACCOUNT, region=REGION) as running:
        yield running


@pytest.fixture(scope="session")
def enforcing():
    """One where policies bind; its tests are one group."""
    from rehearsal.aws.endpoint import AwsEndpoint  # noqa: PLC0415 - loads boto3, for a few tests

    with AwsEndpoint(account=ACCOUNT, region=REGION, enforces_policies=True) as running:
        yield running
