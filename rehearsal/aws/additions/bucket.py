# ruff: noqa: SLF001, ANN001, ANN003, ANN202 - MiniStack is untyped and has no public interface
"""Buckets with all template properties, by MiniStack's S3 calls; a full bucket is not deleted."""

from __future__ import annotations

from ministack.core.responses import get_account_id, get_region
from ministack.services import s3
from ministack.services.cloudformation import provisioners

from . import service_model
from .handlers import add_stack_tags, require_success, wrap_changes

# Properties that MiniStack's own handler applies (it drops the canned ACL, which fidelity.py says).
# A template may have these, those of `_CONFIGURATIONS`, and Tags.
_MINISTACK_PROPERTIES = {
    "AccessControl",
    "BucketName",
    "CorsConfiguration",
    "NotificationConfiguration",
    "PublicAccessBlockConfiguration",
    "VersioningConfiguration",
    "WebsiteConfiguration",
}


def install(handlers: dict) -> None:
    """Wrap the bucket's handlers and add the refusals."""
    bucket = handlers["AWS::S3::Bucket"]
    wrap_changes(bucket, before=_refuse_unknown, after=_configure_bucket)
    bucket["delete"] = _delete_bucket
    _install_policy_check(handlers)
    _install_account_key()
    add_stack_tags("AWS::S3::Bucket")


def _refuse_unknown(properties):
    unknown = sorted(properties.keys() - _MINISTACK_PROPERTIES - _CONFIGURATIONS.keys() - {"Tags"})
    if unknown:
        raise ValueError(f"Encountered unsupported property {unknown[0]} in AWS::S3::Bucket")
    return properties


def _configure_bucket(name, old, new, _attributes):
    if old and "VersioningConfiguration" in new:
        s3._bucket_versioning[name] = new["VersioningConfiguration"]["Status"]
    for property_, (put, operation, build_request, delete) in _CONFIGURATIONS.items():
        if property_ in new:
            require_success(
                put(
                    name,
                    service_model.build_s3_body(
                        operation, {"Bucket": name, **build_request(new[property_])}
                    ),
                )
            )
        elif property_ in old:
            delete(name)
    tags = {
        key: value
        for key, value in s3._bucket_tags.get(name, {}).items()
        if key not in _tag_map(old)
    }
    s3._bucket_tags[name] = {**tags, **_tag_map(new)}


def _tag_map(properties):
    return provisioners._tag_map(properties.get("Tags"))


def _delete_bucket(physical_id, _properties):
    """Delete a bucket as S3 does: with objects or versions it stays, the stack DELETE_FAILED."""
    if physical_id in s3._buckets:
        require_success(s3._delete_bucket(physical_id))


def _install_policy_check(handlers):
    policy = handlers["AWS::S3::BucketPolicy"]
    create = policy["create"]

    def create_with_check(logical_id, properties, stack):
        if properties["Bucket"] not in s3._buckets:
            raise ValueError("The specified bucket does not exist")
        if properties["Bucket"] in s3._bucket_policies:
            raise ValueError(f"The bucket policy already exists on bucket {properties['Bucket']}.")
        return create(logical_id, properties, stack)

    policy["create"] = create_with_check


def _install_account_key():
    """Use the account's key `aws/s3` for a KMS write that names none; the CDK CLI publishes so."""
    resolve = s3._resolve_sse_write_headers
    header = "x-amz-server-side-encryption"

    def resolve_with_account_key(headers, bucket):
        if headers.get(header) == "aws:kms" and not headers.get(f"{header}-aws-kms-key-id"):
            key = f"arn:aws:kms:{get_region()}:{get_account_id()}:alias/aws/s3"
            headers = {**headers, f"{header}-aws-kms-key-id": key}
        return resolve(headers, bucket)

    s3._resolve_sse_write_headers = resolve_with_account_key


def _encryption_request(configuration):
    rules = [
        _rename_keys(rule, ServerSideEncryptionByDefault="ApplyServerSideEncryptionByDefault")
        for rule in configuration["ServerSideEncryptionConfiguration"]
    ]
    for rule in rules:
        if "BucketKeyEnabled" in rule:
            rule["BucketKeyEnabled"] = str(rule["BucketKeyEnabled"]).lower() == "true"
    return {"ServerSideEncryptionConfiguration": {"Rules": rules}}


def _logging_request(configuration):
    target = {
        "TargetBucket": configuration["DestinationBucketName"],
        "TargetPrefix": configuration.get("LogFilePrefix", ""),
    }
    return {"BucketLoggingStatus": {"LoggingEnabled": target}}


def _lifecycle_request(configuration):
    return {
        "LifecycleConfiguration": {
            "Rules": [_convert_lifecycle_rule(rule) for rule in configuration["Rules"]]
        }
    }


def _convert_lifecycle_rule(rule):
    """Return a rule with the API's nesting; CloudFormation spells it flat."""
    api_names = {
        "Id": "ID",
        "Status": "Status",
        "AbortIncompleteMultipartUpload": "AbortIncompleteMultipartUpload",
        "NoncurrentVersionExpiration": "NoncurrentVersionExpiration",
    }
    flat_names = {
        "Prefix",
        "ExpirationInDays",
        "ExpiredObjectDeleteMarker",
    }
    unknown = sorted(rule.keys() - api_names.keys() - flat_names)
    if unknown:
        raise ValueError(
            f"Encountered unsupported property {unknown[0]} in LifecycleConfiguration.Rules"
        )
    api_rule = {
        api_names[name]: _convert_numbers(value)
        for name, value in rule.items()
        if name in api_names
    }
    api_rule["Filter"] = {"Prefix": rule.get("Prefix", "")}
    if "ExpirationInDays" in rule:
        api_rule["Expiration"] = {"Days": int(rule["ExpirationInDays"])}
    if "ExpiredObjectDeleteMarker" in rule:
        api_rule["Expiration"] = {
            "ExpiredObjectDeleteMarker": str(rule["ExpiredObjectDeleteMarker"]).lower() == "true"
        }
    return api_rule


def _convert_numbers(value):
    if not isinstance(value, dict):
        return value
    return {name: int(item) if str(item).isdigit() else item for name, item in value.items()}


def _rename_keys(value, **names):
    return {names.get(name, name): item for name, item in value.items()}


def _remove_logging(name):
    s3._bucket_logging_config.pop(name, None)


_CONFIGURATIONS = {
    "BucketEncryption": (
        s3._put_bucket_encryption,
        "PutBucketEncryption",
        _encryption_request,
        s3._delete_bucket_encryption,
    ),
    "LifecycleConfiguration": (
        s3._put_bucket_lifecycle,
        "PutBucketLifecycleConfiguration",
        _lifecycle_request,
        s3._delete_bucket_lifecycle,
    ),
    "LoggingConfiguration": (
        s3._put_bucket_logging,
        "PutBucketLogging",
        _logging_request,
        _remove_logging,
    ),
    "OwnershipControls": (
        s3._put_bucket_ownership_controls,
        "PutBucketOwnershipControls",
        lambda said: {"OwnershipControls": {"Rules": said["Rules"]}},
        s3._delete_bucket_ownership_controls,
    ),
}
