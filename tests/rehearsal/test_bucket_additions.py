"""Buckets beyond plain MiniStack, seen through boto3."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


def bucket(policy="Delete", **properties):
    return {
        "Bucket": {"Type": "AWS::S3::Bucket", "DeletionPolicy": policy, "Properties": properties}
    }


def test_a_bucket_with_an_object_does_not_delete(endpoint, deploy, delete, check_resources):
    stack = deploy(bucket())
    endpoint.client("s3").put_object(
        Bucket=check_resources(stack.name)["Bucket"].physical_id, Key="k", Body=b"x"
    )
    assert delete(stack) == "DELETE_FAILED"


def test_a_retained_bucket_is_adopted_with_its_objects(endpoint, deploy, delete, change_set):
    resources = bucket("Retain", BucketName="adopted")
    delete(deploy(resources))
    endpoint.client("s3").put_object(Bucket="adopted", Key="k", Body=b"x")

    assert change_set(resources, adopt=True) == "CREATE_COMPLETE"
    assert endpoint.client("s3").get_object(Bucket="adopted", Key="k")["Body"].read() == b"x"


@pytest.mark.parametrize(
    "properties", [{"Colour": "blue"}, {"LifecycleConfiguration": {"Rules": [{"Colour": 1}]}}]
)
def test_rejects_a_bucket_property_that_would_be_lost(deploy, properties):
    assert any(
        "unsupported property Colour" in reason for reason in deploy(bucket(**properties)).reasons
    )
