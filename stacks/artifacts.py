"""The Artifacts stack: the bucket of models and compiled artifacts; an existing one needs none."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.stack import EnvironmentStack
from tandem.declarations import names
from tandem.declarations.environment import Environment

# a broken multipart upload costs money until it is aborted; no staging takes a week
UPLOAD_DAYS = 7


class ArtifactsStack(EnvironmentStack):
    """The bucket and the bucket of its access logs; both outlive the stack."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: bucket of models and compiled artifacts",
        )
        access_logs = add_private_bucket(
            Construct(self, "AccessLogs"),
            name=names.log_bucket_name(environment),
            rule=s3.LifecycleRule(
                id="tidy",
                abort_incomplete_multipart_upload_after=Duration.days(UPLOAD_DAYS),
                noncurrent_version_expiration=Duration.days(1),
                expiration=Duration.days(environment.log_retention_days),
            ),
        )
        add_private_bucket(
            Construct(self, "Artifacts"),
            name=names.bucket_name(environment),
            rule=s3.LifecycleRule(
                id="tidy",
                abort_incomplete_multipart_upload_after=Duration.days(UPLOAD_DAYS),
                noncurrent_version_expiration=Duration.days(environment.artifacts.noncurrent_days),
            ),
            access_logs=access_logs,
            key_arn=environment.artifacts.kms_key_arn,
        )


def add_private_bucket(
    scope: Construct,
    *,
    name: str,
    rule: s3.LifecycleRule,
    access_logs: s3.IBucket | None = None,
    key_arn: str | None = None,
) -> s3.Bucket:
    """Add `scope`'s bucket: versioned, encrypted, private, TLS only, kept without its stack."""
    key = kms.Key.from_key_arn(scope, "Key", key_arn) if key_arn else None
    return s3.Bucket(
        scope,
        "Bucket",
        bucket_name=name,
        versioned=True,
        # S3's own keys need no permission; with a customer key a bucket key spares a call of KMS
        # for each object
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        server_access_logs_bucket=access_logs,
        server_access_logs_prefix="access/" if access_logs else None,
        lifecycle_rules=[rule],
        removal_policy=RemovalPolicy.RETAIN,
    )
