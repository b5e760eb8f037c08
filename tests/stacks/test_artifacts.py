"""Artifacts: a closed bucket that outlives its stack."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import KEY, Template, Templates, resources

pytestmark = pytest.mark.cdk

BUCKET = "tandem-post-us-east-2-111122223333"


@pytest.fixture(scope="session")
def artifacts(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Artifacts"]


def buckets(template: Template) -> dict[str, dict[str, Any]]:
    return {found["BucketName"]: found for found in resources(template, "AWS::S3::Bucket")}


@pytest.mark.parametrize("name", [BUCKET, f"{BUCKET}-logs"])
class TestEveryBucket:
    def test_outlives_its_stack(self, artifacts: Template, name: str) -> None:
        (found,) = [
            each
            for each in artifacts["Resources"].values()
            if each.get("Properties", {}).get("BucketName") == name
        ]
        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")

    def test_speaks_tls_only(self, artifacts: Template, name: str) -> None:
        (bucket,) = [
            key
            for key, each in artifacts["Resources"].items()
            if each.get("Properties", {}).get("BucketName") == name
        ]
        (policy,) = resources(artifacts, "AWS::S3::BucketPolicy", Bucket={"Ref": bucket})

        denied = [
            each["Condition"]
            for each in policy["PolicyDocument"]["Statement"]
            if each["Effect"] == "Deny"
        ]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_current_models_never_expire(artifacts: Template) -> None:
    (rule,) = buckets(artifacts)[BUCKET]["LifecycleConfiguration"]["Rules"]
    assert "ExpirationInDays" not in rule


def test_no_template_makes_an_existing_bucket(stacks: Templates) -> None:
    mine = [template for name, template in stacks.items() if name.startswith("existing-bucket-")]
    assert [bucket for template in mine for bucket in resources(template, "AWS::S3::Bucket")] == []


def test_a_customer_key_encrypts_the_bucket_and_not_its_logs(stacks: Templates) -> None:
    found = buckets(stacks["customer-keys-Artifacts"])
    own, logs = (
        found[name]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
        for name in ("tandem-customer-keys-111122223333", "tandem-customer-keys-111122223333-logs")
    )

    assert own["ServerSideEncryptionByDefault"] == {
        "SSEAlgorithm": "aws:kms",
        "KMSMasterKeyID": KEY,
    }
    assert own["BucketKeyEnabled"] is True
    assert logs["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
