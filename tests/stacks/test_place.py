"""Where an environment is, in ARNs."""

from __future__ import annotations

import pytest

from stacks.policy import AwsLocation


@pytest.mark.parametrize(
    ("region", "partition"), [("us-east-2", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_the_partition_follows_the_region(region: str, partition: str) -> None:
    arn = AwsLocation(account="210987654321", region=region).cluster_arn("tandem-a")

    assert arn == f"arn:{partition}:eks:{region}:210987654321:cluster/tandem-a"
