"""An endpoint that enforces policies: who may write where."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from doubles.aws_principal import RolePrincipal, assume_role, create_principal

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


@pytest.mark.parametrize(
    ("prefix", "allowed"), [("models/a", True), ("artifacts/", False), ("", False)]
)
def test_a_list_is_held_to_its_prefix(s3, prefix, allowed, refusal):
    if allowed:
        assert s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Prefix"] == prefix
    else:
        assert refusal(s3.list_objects_v2, Bucket=BUCKET, Prefix=prefix) == "AccessDenied"


def test_what_a_policy_denies_outweighs_what_it_allows(enforcing, refusal):
    deny = {
        "Effect": "Deny",
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{BUCKET}/models/secret/*",
    }
    s3 = create_principal(enforcing, WRITES, deny).client("s3")
    assert refusal(s3.put_object, Bucket=BUCKET, Key="models/secret/a", Body=b"x") == "AccessDenied"


def test_what_the_policy_of_the_bucket_denies_outweighs_too(enforcing, writer, refusal):
    admin = enforcing.client("s3")
    admin.create_bucket(
        Bucket="denying", CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
    )
    everything = ["arn:aws:s3:::denying", "arn:aws:s3:::denying/*"]
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": everything}
    admin.put_bucket_policy(
        Bucket="denying", Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    )
    s3 = create_principal(
        enforcing, {"Effect": "Allow", "Action": "s3:*", "Resource": everything}
    ).client("s3")
    s3.put_object(Bucket="denying", Key="k", Body=b"x")

    assert refusal(s3.delete_object, Bucket="denying", Key="k") == "AccessDenied"
    assert refusal(writer.client("s3").get_object, Bucket="denying", Key="k") == "AccessDenied"


def test_a_secret_is_read_by_who_is_allowed_to_only(enforcing, writer, refusal):
    arn = enforcing.client("secretsmanager").create_secret(Name="token", SecretString="hf_x")["ARN"]
    reader = create_principal(
        enforcing, {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": arn}
    )

    assert (
        reader.client("secretsmanager").get_secret_value(SecretId="token")["SecretString"] == "hf_x"
    )
    refused = refusal(writer.client("secretsmanager").get_secret_value, SecretId="token")
    assert refused == "AccessDeniedException"


def test_a_wrong_secret_is_refused(writer, refusal):
    forged = RolePrincipal(
        **{**{name: getattr(writer, name) for name in RolePrincipal.__slots__}, "secret": "x"}
    )
    assert (
        refusal(forged.client("s3").get_object, Bucket=BUCKET, Key="models/a")
        == "SignatureDoesNotMatch"
    )


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


def test_a_program_in_another_process_is_the_writer(enforcing, writer, tmp_path):
    script = (
        "import boto3, sys; s3 = boto3.client('s3'); s3.put_object(Bucket='enforced',"
        " Key='models/p', Body=b'x')\ntry: s3.put_object(Bucket='enforced', Key='artifacts/p',"
        " Body=b'x')\nexcept s3.exceptions.ClientError as refused:"
        " print(refused.response['Error']['Code'])"
    )
    said = {**enforcing.client_environment(tmp_path), **writer.environment()}

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **said},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "AccessDenied"
