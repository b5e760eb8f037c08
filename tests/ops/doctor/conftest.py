"""One endpoint for all tests of a worker; for each test an environment of its own that lacks
nothing."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from committed import environment
from doctor_world import ACCOUNT, NOW, REGION, RESERVATION, ZONE, Offers, Session, World, good_facts
from doubles.fault_proxy.proxy import FaultProxy

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.declarations.environment import CapacityBlock, ClusterAccess

ROLES = ("PlatformAdmin", "Operator", "MlEngineer", "Viewer")


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """The endpoint, what it lacks, and a fault proxy before both."""
    with (
        AwsEndpoint(account=ACCOUNT, region=REGION) as endpoint,
        Offers(good_facts(), endpoint).served() as offers,
        FaultProxy(offers.url) as proxy,
    ):
        iam = endpoint.client("iam")
        for role in ROLES:
            iam.create_role(RoleName=role, AssumeRolePolicyDocument="{}")
        iam.create_role(RoleName="Tuner", Path="/team/ml/", AssumeRolePolicyDocument="{}")
        iam.create_user(UserName="somebody")
        endpoint.client("ssm").put_parameter(
            Name="/cdk-bootstrap/tandem/version", Value="32", Type="String"
        )
        yield SimpleNamespace(
            endpoint=endpoint,
            offers=offers,
            proxy=proxy,
            session=Session(),
            home=tmp_path_factory.mktemp("home"),
        )


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let the SDK try again at once."""
    monkeypatch.setattr(
        "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01
    )


@pytest.fixture
def world(place, monkeypatch):
    """A healthy account, and an environment in it that was never deployed."""
    variables = {"AWS_ENDPOINT_URL": place.proxy.url, "AWS_ENDPOINT_URL_S3": place.proxy.url}
    for name, value in {**place.endpoint.client_environment(place.home), **variables}.items():
        monkeypatch.setenv(name, value)
    place.offers.facts = good_facts()
    place.proxy.use()
    place.proxy.forget()
    example = environment("post-us-east-2")
    world = World(
        endpoint=place.endpoint,
        proxy=place.proxy,
        offers=place.offers,
        session=place.session,
        environment=example,
    )
    starts = NOW.replace(hour=11, minute=30)
    ends = NOW.replace(day=23, hour=11, minute=30)
    world.change(
        name=f"doc-{uuid.uuid4().hex[:8]}",
        account=ACCOUNT,
        capacity={
            "reservation_id": RESERVATION,
            "zone": ZONE,
            "usd_per_hour_date": NOW.date(),
            "block": CapacityBlock.model_construct(starts=starts, ends=ends),
        },
        cluster={
            "access": ClusterAccess.model_construct(
                admin=(f"arn:aws:iam::{ACCOUNT}:role/PlatformAdmin",),
                operator=(f"arn:aws:iam::{ACCOUNT}:role/Operator",),
                engineer=(),
                viewer=(),
            )
        },
    )
    yield world
    place.proxy.use()
