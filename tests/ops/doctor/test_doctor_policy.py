"""The policy that the doctor prints, held by an endpoint that enforces policies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from committed import environment
from doctor_world import (
    ACCOUNT,
    REGION,
    RESERVATION,
    Offers,
    World,
    bucket,
    cluster,
    good_facts,
    node_group,
)
from doubles.aws_principal import create_principal

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.declarations.environment import ClusterAccess, HubSettings
from tandem.ops.people.policies import build_command_policy

ROLE = f"arn:aws:iam::{ACCOUNT}:role/Operator"
USER = f"arn:aws:iam::{ACCOUNT}:user/somebody"


@pytest.fixture(scope="module")
def enforcing():
    """A deployed environment at an endpoint where policies bind."""
    example = environment("post-us-east-2")
    with ExitStack() as stack:
        endpoint = stack.enter_context(
            AwsEndpoint(account=ACCOUNT, region=REGION, enforces_policies=True)
        )
        offers = stack.enter_context(Offers(good_facts(), endpoint).served())
        world = World(
            endpoint=endpoint, proxy=None, offers=offers, session=None, environment=example
        )  # type: ignore[arg-type]
        world.change(
            name="enforced",
            account=ACCOUNT,
            hub=HubSettings(token_secret="a/token"),  # noqa: S106 - its name
            capacity={"reservation_id": RESERVATION},
            cluster={
                "access": ClusterAccess.model_construct(
                    admin=(ROLE, USER), operator=(), engineer=(), viewer=()
                )
            },
        )
        endpoint.client("iam").create_role(RoleName="Operator", AssumeRolePolicyDocument="{}")
        endpoint.client("iam").create_user(UserName="somebody")
        endpoint.client("secretsmanager").create_secret(Name="a/token", SecretString="none")
        for make in (cluster, node_group, bucket):
            make(world)
        yield world


@pytest.fixture
def levels(enforcing, monkeypatch, tmp_path):
    """Examine as somebody with these statements; the levels of each check."""

    def act(*statements: Mapping[str, Any]) -> dict[str, set[str]]:
        who = create_principal(enforcing.endpoint, *statements)
        variables = who.environment(enforcing.offers.url)
        for name, value in {**enforcing.endpoint.client_environment(tmp_path), **variables}.items():
            monkeypatch.setenv(name, value)
        levels: dict[str, set[str]] = {}
        for line in enforcing.lines():
            levels.setdefault(line.check, set()).add(line.level)
        return levels

    return act


def test_with_the_printed_policy_everything_is_seen(enforcing, levels):
    levels = levels(*build_command_policy(enforcing.environment, "doctor")["Statement"])
    assert {check for check, check_levels in levels.items() if "unknown" in check_levels} == set()
