"""A request below the caller's own id, where policies bind: what people's policies say, held by the
endpoint."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from committed import environment
from doubles.aws_principal import create_principal
from twin_looking import client

from tandem.declarations.environment import BucketSettings
from tandem.ops.people.policies import build_command_policy

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]
BUCKET = "requests-of-people"


@pytest.fixture(scope="module")
def place(enforcing):
    """An environment whose bucket is there."""
    client(enforcing, "s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": enforcing.region}
    )
    base = environment("post-us-east-2")
    return base.model_copy(
        update={"account": enforcing.account, "artifacts": BucketSettings(existing_bucket=BUCKET)}
    )


def write(who, key: str) -> bool:
    """Whether somebody may write a key."""
    try:
        who.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"{}")
    except ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDenied"  # noqa: PT017
        return False
    return True


def test_who_may_run_writes_requests_below_the_own_id_alone(enforcing, place):
    """Two people with the same policy: the key proves which of them asks."""
    statements = build_command_policy(place, "run")["Statement"]
    anna = create_principal(enforcing, *statements)
    bert = create_principal(enforcing, *statements)
    prefix = f"guard/{place.account}/{place.region}/{place.name}/requests"
    ids = {
        name: who.client("sts").get_caller_identity()["UserId"]
        for name, who in (("anna", anna), ("bert", bert))
    }

    assert ids["anna"] != ids["bert"]
    assert [write(anna, f"{prefix}/{ids[name]}/run-1.json") for name in ids] == [True, False]
    assert [write(bert, f"{prefix}/{ids[name]}/run-1.json") for name in ids] == [False, True]
    assert not write(anna, f"{prefix}/${{aws:userid}}/run-1.json")
    assert not write(anna, f"{prefix}/run-1.json")


@pytest.mark.usefixtures("place")
def test_a_variable_without_a_value_admits_nothing(enforcing):
    statement = {
        "Effect": "Allow",
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{BUCKET}/${{aws:nothing}}*",
    }
    assert not write(create_principal(enforcing, statement), "anything")
