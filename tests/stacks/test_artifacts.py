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


def test_both_buckets_have_the_names_that_manifests_know(artifacts: Template) -> None:
    assert sorted(buckets(artifacts)) == [BUCKET, f"{BUCKET}-logs"]


@pytest.mark.parametrize("name", [BUCKET, f"{BUCKET}-logs"])
class TestEveryBucket:
    def test_keeps_versions(self, artifacts: Template, name: str) -> None:
        assert buckets(artifacts)[name]["VersioningConfiguration"] == {"Status": "Enabled"}

    def test_is_encrypted(self, artifacts: Template, name: str) -> None:
        (rule,) = buckets(artifacts)[name]["BucketEncryption"]["ServerSideEncryptionConfiguration"]

        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}

    def test_is_never_public(self, artifacts: Template, name: str) -> None:
        block = buckets(artifacts)[name]["PublicAccessBlockConfiguration"]

        assert set(block.values()) == {True}
        assert len(block) == 4

    def test_belongs_to_its_owner(self, artifacts: Template, name: str) -> None:
        (rule,) = buckets(artifacts)[name]["OwnershipControls"]["Rules"]

        assert rule["ObjectOwnership"] == "BucketOwnerEnforced"

    def test_gives_up_broken_uploads(self, artifacts: Template, name: str) -> None:
        (rule,) = buckets(artifacts)[name]["LifecycleConfiguration"]["Rules"]

        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}

    def test_outlives_its_stack(self, artifacts: Template, name: str) -> None:
        (found,) = [
            each for each in artifacts["Resources"].values() if each.get("Properties", {}).get("BucketName") == name
        ]

        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")

    def test_speaks_tls_only(self, artifacts: Template, name: str) -> None:
        (bucket,) = [
            key for key, each in artifacts["Resources"].items() if each.get("Properties", {}).get("BucketName") == name
        ]
        (policy,) = [
            each["PolicyDocument"]["Statement"]
            for each in resources(artifacts, "AWS::S3::BucketPolicy")
            if each["Bucket"] == {"Ref": bucket}
        ]

        denied = [statement["Condition"] for statement in policy if statement["Effect"] == "Deny"]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_old_versions_go_after_the_declared_days(artifacts: Template) -> None:
    (rule,) = buckets(artifacts)[BUCKET]["LifecycleConfiguration"]["Rules"]

    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}


def test_current_models_never_expire(artifacts: Template) -> None:
    (rule,) = buckets(artifacts)[BUCKET]["LifecycleConfiguration"]["Rules"]

    assert "ExpirationInDays" not in rule


def test_access_is_logged_to_the_other_bucket(artifacts: Template) -> None:
    target = buckets(artifacts)[BUCKET]["LoggingConfiguration"]["DestinationBucketName"]["Ref"]

    assert artifacts["Resources"][target]["Properties"]["BucketName"] == f"{BUCKET}-logs"


def test_access_logs_go_after_the_declared_days(artifacts: Template) -> None:
    (rule,) = buckets(artifacts)[f"{BUCKET}-logs"]["LifecycleConfiguration"]["Rules"]

    assert rule["ExpirationInDays"] == 90


def test_an_existing_bucket_has_no_stack(stacks: Templates) -> None:
    assert "existing-bucket-Artifacts" not in stacks


def test_no_template_makes_an_existing_bucket(stacks: Templates) -> None:
    mine = [template for name, template in stacks.items() if name.startswith("existing-bucket-")]

    assert [bucket for template in mine for bucket in resources(template, "AWS::S3::Bucket")] == []


def test_a_customer_key_encrypts_the_bucket_and_not_its_logs(stacks: Templates) -> None:
    found = buckets(stacks["customer-keys-Artifacts"])
    own, logs = (
        found[name]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
        for name in ("tandem-customer-keys-111122223333", "tandem-customer-keys-111122223333-logs")
    )

    assert own["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    assert own["BucketKeyEnabled"] is True
    assert logs["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
