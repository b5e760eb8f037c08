"""Artifacts: no bucket is made where the operator has one, and ours outlive their stack."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cdk

BUCKET = "AWS::S3::Bucket"


def test_no_template_makes_an_existing_bucket(stacks):
    types = {
        resource["Type"]
        for name, template in stacks.items()
        if name.startswith("spot-unprotected-")
        for resource in template["Resources"].values()
    }
    assert BUCKET not in types


def test_every_bucket_outlives_its_stack(stacks):
    policies = {
        (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for template in stacks.values()
        for resource in template["Resources"].values()
        if resource["Type"] == BUCKET
    }
    assert policies == {("Retain", "Retain")}
