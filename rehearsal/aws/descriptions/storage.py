"""Buckets and keys as S3 and KMS describe them."""

from __future__ import annotations

import json
from typing import Any

from rehearsal.aws.descriptions.conversion import (
    AbsentResourceError,
    ClientFactory,
    DescribeFunction,
    Properties,
    call_or_none,
)


def _describe_bucket(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    s3 = client("s3")
    s3.head_bucket(Bucket=physical_id)
    tags = call_or_none(lambda: s3.get_bucket_tagging(Bucket=physical_id), "NoSuchTagSet")
    block = call_or_none(
        lambda: s3.get_public_access_block(Bucket=physical_id),
        "NoSuchPublicAccessBlockConfiguration",
    )
    return {
        "BucketName": physical_id,
        "Arn": f"arn:aws:s3:::{physical_id}",
        "DomainName": f"{physical_id}.s3.amazonaws.com",
        "RegionalDomainName": f"{physical_id}.s3.{s3.meta.region_name}.amazonaws.com",
        "BucketEncryption": _describe_encryption(s3, physical_id),
        "LifecycleConfiguration": _describe_lifecycle(s3, physical_id),
        "LoggingConfiguration": _describe_logging(s3, physical_id),
        "OwnershipControls": s3.get_bucket_ownership_controls(Bucket=physical_id)[
            "OwnershipControls"
        ],
        "PublicAccessBlockConfiguration": block and block["PublicAccessBlockConfiguration"],
        "Tags": tags["TagSet"] if tags else [],
        "VersioningConfiguration": {
            "Status": s3.get_bucket_versioning(Bucket=physical_id).get("Status")
        },
    }


def _describe_encryption(s3: Any, bucket: str) -> Properties:
    encryption = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
    rules = [
        {**rule, "ServerSideEncryptionByDefault": rule.get("ApplyServerSideEncryptionByDefault")}
        for rule in encryption["Rules"]
    ]
    return {"ServerSideEncryptionConfiguration": rules}


def _describe_logging(s3: Any, bucket: str) -> Properties:
    logging = s3.get_bucket_logging(Bucket=bucket).get("LoggingEnabled", {})
    return {
        "DestinationBucketName": logging.get("TargetBucket"),
        "LogFilePrefix": logging.get("TargetPrefix"),
    }


def _describe_lifecycle(s3: Any, bucket: str) -> Properties:
    lifecycle = call_or_none(
        lambda: s3.get_bucket_lifecycle_configuration(Bucket=bucket), "NoSuchLifecycleConfiguration"
    )
    return {
        "Rules": [_convert_lifecycle_rule(rule) for rule in lifecycle["Rules"]] if lifecycle else []
    }


def _convert_lifecycle_rule(rule: Properties) -> Properties:
    expiration = rule.get("Expiration", {})
    return {
        **rule,
        "Id": rule.get("ID"),
        "Prefix": rule.get("Filter", {}).get("Prefix", rule.get("Prefix")),
        "ExpirationInDays": expiration.get("Days"),
        "ExpiredObjectDeleteMarker": expiration.get("ExpiredObjectDeleteMarker"),
    }


def _describe_bucket_policy(
    client: ClientFactory, _physical_id: str, properties: Properties
) -> Properties:
    bucket = properties["Bucket"]
    return {
        "Bucket": bucket,
        "PolicyDocument": json.loads(client("s3").get_bucket_policy(Bucket=bucket)["Policy"]),
    }


def _describe_key(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    kms = client("kms")
    key = kms.describe_key(KeyId=physical_id)["KeyMetadata"]
    rotation = kms.get_key_rotation_status(KeyId=physical_id)
    tags = kms.list_resource_tags(KeyId=physical_id)["Tags"]
    return {
        **key,
        "EnableKeyRotation": rotation["KeyRotationEnabled"],
        "RotationPeriodInDays": rotation.get("RotationPeriodInDays"),
        "KeyPolicy": json.loads(
            kms.get_key_policy(KeyId=physical_id, PolicyName="default")["Policy"]
        ),
        "Tags": [{"Key": tag["TagKey"], "Value": tag["TagValue"]} for tag in tags],
    }


def _describe_alias(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    kms = client("kms")
    for page in kms.get_paginator("list_aliases").paginate():
        for alias in page["Aliases"]:
            if alias["AliasName"] == physical_id:
                arn = kms.describe_key(KeyId=alias["TargetKeyId"])["KeyMetadata"]["Arn"]
                return {
                    "AliasName": alias["AliasName"],
                    "TargetKeyId": alias["TargetKeyId"],
                    "KeyArn": arn,
                }
    raise AbsentResourceError(physical_id)


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::S3::Bucket": _describe_bucket,
    "AWS::S3::BucketPolicy": _describe_bucket_policy,
    "AWS::KMS::Key": _describe_key,
    "AWS::KMS::Alias": _describe_alias,
}
