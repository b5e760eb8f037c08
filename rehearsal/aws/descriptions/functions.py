"""Functions, layers and log groups as their services describe them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import urllib.request
import zipfile

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    require_single,
    tag_list,
)


def _describe_function(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    answer = client("lambda").get_function(FunctionName=physical_id)
    configuration: Properties = answer["Configuration"]
    return {
        **configuration,
        "Arn": configuration["FunctionArn"],
        "Code": _describe_code(client, answer, properties["Code"]),
        "Layers": [layer["Arn"] for layer in configuration.get("Layers", [])],
        "Tags": tag_list(answer.get("Tags", {})),
        "VpcConfig": configuration.get("VpcConfig", {}),
    }


def _describe_code(client: ClientFactory, answer: Properties, code: Properties) -> Properties | str:
    """Describe the deployed code: as the object that the template names, or as its own text."""
    digest = answer["Configuration"]["CodeSha256"]
    if "S3Key" in code:
        return code if digest == _object_digest(client, code) else f"an archive of SHA-256 {digest}"
    with urllib.request.urlopen(answer["Code"]["Location"], timeout=30) as archive:  # noqa: S310  # Lambda's own link
        files = zipfile.ZipFile(io.BytesIO(archive.read()))
    return {"ZipFile": files.read(files.namelist()[0]).decode()}


def _object_digest(client: ClientFactory, code: Properties) -> str:
    body = client("s3").get_object(Bucket=code["S3Bucket"], Key=code["S3Key"])["Body"]
    digest = hashlib.sha256()
    for chunk in iter(lambda: body.read(1 << 20), b""):
        digest.update(chunk)
    return base64.b64encode(digest.digest()).decode()


def _describe_layer(client: ClientFactory, physical_id: str, properties: Properties) -> Properties:
    answer: Properties = client("lambda").get_layer_version_by_arn(Arn=physical_id)
    content = properties["Content"]
    digest = answer["Content"]["CodeSha256"]
    is_same = digest == _object_digest(client, content)
    return {
        **answer,
        "Content": content if is_same else f"an archive of SHA-256 {digest}",
        "LayerName": physical_id.split(":")[-2],
        "LayerVersionArn": answer["LayerVersionArn"],
    }


def _describe_permission(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    function = properties["FunctionName"]
    statements = json.loads(client("lambda").get_policy(FunctionName=function)["Policy"])[
        "Statement"
    ]
    statement = require_single(
        [item for item in statements if item["Sid"] == physical_id.rsplit("|", 1)[-1]], physical_id
    )
    principal = statement["Principal"]
    conditions = statement.get("Condition", {})
    return {
        "Action": statement["Action"],
        "FunctionName": function,
        "Principal": principal if isinstance(principal, str) else next(iter(principal.values())),
        "SourceArn": conditions.get("ArnLike", {}).get("AWS:SourceArn"),
        "SourceAccount": conditions.get("StringEquals", {}).get("AWS:SourceAccount"),
    }


def _describe_log_group(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    logs = client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=physical_id)["logGroups"]
    log_group = require_single(
        [group for group in groups if group["logGroupName"] == physical_id], physical_id
    )
    tags = logs.list_tags_log_group(logGroupName=physical_id)["tags"]
    return {
        "LogGroupName": log_group["logGroupName"],
        "RetentionInDays": log_group.get("retentionInDays"),
        "KmsKeyId": log_group.get("kmsKeyId"),
        "LogGroupClass": log_group.get("logGroupClass"),
        "Arn": log_group["arn"],
        "Tags": tag_list(tags),
    }


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::Lambda::Function": _describe_function,
    "AWS::Lambda::LayerVersion": _describe_layer,
    "AWS::Lambda::Permission": _describe_permission,
    "AWS::Logs::LogGroup": _describe_log_group,
}
