"""Environments that the policies are written for."""

from __future__ import annotations

import pytest
from committed import environment

from tandem.declarations.environment import HubSettings


@pytest.fixture
def example():
    return environment("post-us-east-2")


@pytest.fixture
def full(example):
    """One that declares all that takes a right: a user, a boundary, a secret."""
    access = example.cluster.access.model_copy(
        update={"viewer": (f"arn:aws:iam::{example.account}:user/somebody",)}
    )
    return example.model_copy(
        update={
            "hub": HubSettings(token_secret="a/token"),  # noqa: S106 - its name
            "bootstrap": example.bootstrap.model_copy(update={"permissions_boundary": "Team"}),
            "cluster": example.cluster.model_copy(update={"access": access}),
        }
    )
