"""One endpoint for all teardowns of a worker; each has an environment of its own name."""

from __future__ import annotations

import itertools

import pytest
from small_stacks import ACCOUNT, Change, Small, declared

from rehearsal.aws.endpoint import AwsEndpoint


@pytest.fixture(scope="session")
def endpoint():
    with AwsEndpoint(account=ACCOUNT, region="us-east-2") as running:
        yield running


@pytest.fixture(scope="session")
def numbers():
    return itertools.count(1)


@pytest.fixture
def small(endpoint, numbers, tmp_path):
    """An environment that is declared and not yet deployed."""

    def make(name: str = "", change: Change = lambda _: None) -> Small:
        environment = declared(tmp_path, name or f"small{next(numbers)}x", change)
        return Small(environment=environment, endpoint=endpoint, folder=tmp_path)

    return make
