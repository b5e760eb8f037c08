"""Every type of our stacks is deployed, described and held; a loss is found."""

from __future__ import annotations

import pytest

from rehearsal.aws.descriptions import DESCRIBE
from rehearsal.aws.fidelity import FIDELITY, FidelityLevel, UnknownTypeError

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

RARER_TYPES = {
    "AWS::Lambda::LayerVersion",  # needs an archive: below
    "Custom::TandemImage",  # needs a source to build: test_rehearsal.py
}


def test_every_resource_is_as_its_template_says(everything):
    assert {name: item.differences for name, item in everything.items() if item.differences} == {}


def test_every_property_is_held_or_said_to_be_unseen(everything, templates):
    resources = {}
    for template in templates.values():
        resources |= template["Resources"]
    seen_properties = {
        name: set(item.matching_properties) | set(item.unverifiable_properties) - {"*"}
        for name, item in everything.items()
    }
    assert seen_properties == {name: set(row["Properties"]) for name, row in resources.items()}


def test_the_templates_have_every_type_of_the_table_but_rarer_ones(everything):
    assert {item.type for item in everything.values()} == set(FIDELITY) - RARER_TYPES


def test_every_type_that_is_not_only_recorded_can_be_described():
    assert {
        name for name, row in FIDELITY.items() if row.level is not FidelityLevel.RECORDED
    } == set(DESCRIBE)


def test_a_known_service_without_a_row_is_an_error_and_not_skipped(deploy, check_resources):
    stack = deploy({"Stream": {"Type": "AWS::Kinesis::Stream", "Properties": {"ShardCount": 1}}})
    with pytest.raises(UnknownTypeError, match="AWS::Kinesis::Stream"):
        check_resources(stack.name)


BUCKET = {
    "Type": "AWS::S3::Bucket",
    "Properties": {
        "LifecycleConfiguration": {
            "Rules": [
                {
                    "Id": "tidy",
                    "Status": "Enabled",
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
                }
            ]
        },
        "VersioningConfiguration": {"Status": "Enabled"},
    },
}


def test_a_setting_changed_behind_cloudformation_differs(endpoint, deploy, check_resources):
    stack = deploy({"Bucket": BUCKET})
    bucket = check_resources(stack.name)["Bucket"].physical_id
    endpoint.client("s3").put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Suspended"}
    )

    (difference,) = check_resources(stack.name)["Bucket"].differences

    assert (difference.property_path, difference.template_value, difference.actual_value) == (
        "VersioningConfiguration.Status",
        "Enabled",
        "Suspended",
    )


def test_a_property_that_the_endpoint_ignores_differs(deploy, check_resources):
    stack = deploy(
        {
            "Vpc": {
                "Type": "AWS::EC2::VPC",
                "Properties": {"CidrBlock": "10.0.0.0/16", "Colour": "blue"},
            }
        }
    )
    assert [part.property_path for part in check_resources(stack.name)["Vpc"].differences] == [
        "Colour"
    ]


def test_code_in_a_bucket_is_held_by_its_digest(endpoint, deploy, check_resources):
    place = {"S3Bucket": "code-of-a-layer", "S3Key": "layer.zip"}
    s3 = endpoint.client("s3")
    s3.create_bucket(
        Bucket=place["S3Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
    )
    s3.put_object(Bucket=place["S3Bucket"], Key=place["S3Key"], Body=b"an archive")
    stack = deploy(
        {"Layer": {"Type": "AWS::Lambda::LayerVersion", "Properties": {"Content": place}}}
    )
    before = check_resources(stack.name)["Layer"].differences
    s3.put_object(Bucket=place["S3Bucket"], Key=place["S3Key"], Body=b"something else")

    assert (
        before,
        [part.property_path for part in check_resources(stack.name)["Layer"].differences],
    ) == (
        (),
        ["Content"],
    )
