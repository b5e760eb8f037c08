"""An endpoint that enforces policies: who may write where."""

from __future__ import annotations

import json

import pytest
from doubles.aws_principal import assume_role, create_principal

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

BUCKET = "enforced"
WRITES = {
    "Effect": "Allow",
    "Action": ["s3:PutObject", "s3:GetObject"],
    "Resource": f"arn:aws:s3:::{BUCKET}/models/*",
}
LISTS = {
    "Effect": "Allow",
    "Action": "s3:ListBucket",
    "Resource": f"arn:aws:s3:::{BUCKET}",
    "Condition": {"StringLike": {"s3:prefix": ["models/*"]}},
}


@pytest.fixture(scope="module", autouse=True)
def bucket(enforcing):
    """The bucket in which somebody else's object lies."""
    s3 = enforcing.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    s3.put_object(Bucket=BUCKET, Key="artifacts/k", Body=b"x")


@pytest.fixture(scope="module")
def writer(enforcing):
    return create_principal(enforcing, WRITES, LISTS)


@pytest.fixture(scope="module")
def s3(writer):
    return writer.client("s3")


def test_a_writer_may_not_delete_without_being_allowed_to(s3, refusal):
    s3.put_object(Bucket=BUCKET, Key="models/kept", Body=b"x")
    assert refusal(s3.delete_object, Bucket=BUCKET, Key="models/kept") == "AccessDenied"


def test_a_role_that_trusts_pods_can_be_had(enforcing, refusal):
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
            }
        ],
    }
    iam = enforcing.client("iam")
    role = iam.create_role(RoleName="pods", AssumeRolePolicyDocument=json.dumps(trust))["Role"][
        "Arn"
    ]
    iam.put_role_policy(
        RoleName="pods",
        PolicyName="p",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [WRITES]}),
    )
    s3 = assume_role(enforcing, role).client("s3")
    s3.put_object(Bucket=BUCKET, Key="models/pods", Body=b"x")

    assert refusal(s3.put_object, Bucket=BUCKET, Key="elsewhere", Body=b"x") == "AccessDenied"
