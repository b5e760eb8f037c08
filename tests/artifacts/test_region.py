"""The region that a pod is given reaches boto3, which reads another variable than the rest of
AWS."""

from __future__ import annotations

import os

import pytest

from tandem.artifacts.__main__ import main


@pytest.mark.parametrize(
    ("own_region", "region"), [(None, "eu-north-1"), ("eu-west-3", "eu-west-3")]
)
def test_aws_region_is_the_region_unless_boto3_has_its_own(monkeypatch, own_region, region):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", own_region or "")
    if own_region is None:
        monkeypatch.delenv("AWS_DEFAULT_REGION")

    main(["fetch-tasks", "--bucket", "b", "--folder", "no-such-folder"])

    assert os.environ["AWS_DEFAULT_REGION"] == region
