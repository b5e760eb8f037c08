"""The copy in which an environment is rehearsed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shipped import load_shipped

from rehearsal.aws.sandbox import FICTITIOUS_ACCOUNT, create_prerequisites, create_sandbox

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sandbox(tmp_path):
    return create_sandbox("post-us-east-2", ROOT / "environments", ROOT / "experiments", tmp_path)


def test_the_original_account_is_nowhere_in_the_copy(sandbox):
    assert "111122223333" not in sandbox.file.read_text()


def test_a_reservation_has_the_form_of_one_and_no_placeholder(sandbox):
    reservation = sandbox.environment.capacity.reservation_id
    assert re.fullmatch(r"cr-[0-9a-f]{17}", reservation)
    assert not sandbox.environment.capacity.awaits_reservation


def test_a_renewal_changes_the_reservation_and_nothing_else(sandbox):
    before = sandbox.environment
    reservation = sandbox.renew_reservation()

    expected = before.model_dump() | {
        "capacity": before.capacity.model_dump() | {"reservation_id": reservation}
    }
    assert sandbox.environment.model_dump() == expected
    assert reservation != before.capacity.reservation_id


def test_spot_nodes_get_no_reservation(tmp_path):
    name = next(
        name
        for name, file in load_shipped().environments.items()
        if file.record.capacity.kind == "spot"
    )

    assert (
        create_sandbox(
            name, ROOT / "environments", ROOT / "experiments", tmp_path
        ).environment.capacity.reservation_id
        is None
    )


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_what_an_environment_takes_as_given_is_made(endpoint, sandbox):
    subnets = [{"id": f"subnet-0123456{n}", "zone": f"use2-az{n}"} for n in (1, 3)]
    network = {
        "kind": "existing",
        "vpc_id": "vpc-01234567",
        "cidr": "10.42.0.0/16",
        "subnets": subnets,
    }

    def change(document):
        document.update(network=network, artifacts={"existing_bucket": "ours-already"})
        document["bootstrap"] = {"qualifier": "tandem", "permissions_boundary": "Boundary"}

    sandbox.edit(change)
    create_prerequisites(sandbox, endpoint.client)

    own_network = sandbox.environment.network
    rows = endpoint.client("ec2").describe_subnets(
        SubnetIds=[item.id for item in own_network.subnets]
    )["Subnets"]
    assert {item["AvailabilityZoneId"] for item in rows} == {"use2-az1", "use2-az3"}
    assert {item["VpcId"] for item in rows} == {own_network.vpc_id}
    assert endpoint.client("s3").head_bucket(Bucket="ours-already")
    assert endpoint.client("iam").get_policy(
        PolicyArn=f"arn:aws:iam::{FICTITIOUS_ACCOUNT}:policy/Boundary"
    )
