"""Functions, layers, log groups and parameters as their services describe them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import urllib.request
import zipfile
from typing import Any

from tandem.twin.aws.describe.form import Client, Describe, Properties, one, tag_list


def _function(client: Client, physical_id: str, properties: Properties) -> Properties:
    found = client("lambda").get_function(FunctionName=physical_id)
    configuration: Properties = found["Configuration"]
    return {
        **configuration,
        "Arn": configuration["FunctionArn"],
        "Code": _code(client, found, properties["Code"]),
        "Layers": [layer["Arn"] for layer in configuration.get("Layers", [])],
        "Tags": tag_list(found.get("Tags", {})),
        "VpcConfig": configuration.get("VpcConfig", {}),
    }


def _code(client: Client, found: Properties, said: Properties) -> Properties | str:
    """Code is held by what is there: the very object that the template names, or the text that it carries."""
    digest = found["Configuration"]["CodeSha256"]
    if "S3Key" in said:
        return said if digest == _digest(client, said) else f"an archive of SHA-256 {digest}"
    with urllib.request.urlopen(found["Code"]["Location"], timeout=30) as archive:  # noqa: S310  # Lambda's own link
        files = zipfile.ZipFile(io.BytesIO(archive.read()))
    return {"ZipFile": files.read(files.namelist()[0]).decode()}


def _digest(client: Client, said: Properties) -> str:
    body = client("s3").get_object(Bucket=said["S3Bucket"], Key=said["S3Key"])["Body"]
    found = hashlib.sha256()
    for chunk in iter(lambda: body.read(1 << 20), b""):
        found.update(chunk)
    return base64.b64encode(found.digest()).decode()


def _layer(client: Client, physical_id: str, properties: Properties) -> Properties:
    found: Properties = client("lambda").get_layer_version_by_arn(Arn=physical_id)
    said = properties["Content"]
    digest = found["Content"]["CodeSha256"]
    same = digest == _digest(client, said)
    return {
        **found,
        "Content": said if same else f"an archive of SHA-256 {digest}",
        "LayerName": physical_id.split(":")[-2],
        "LayerVersionArn": found["LayerVersionArn"],
    }


def _permission(client: Client, physical_id: str, properties: Properties) -> Properties:
    function = properties["FunctionName"]
    statements = json.loads(client("lambda").get_policy(FunctionName=function)["Policy"])["Statement"]
    found = one([item for item in statements if item["Sid"] == physical_id.rsplit("|", 1)[-1]], physical_id)
    principal = found["Principal"]
    conditions = found.get("Condition", {})
    return {
        "Action": found["Action"],
        "FunctionName": function,
        "Principal": principal if isinstance(principal, str) else next(iter(principal.values())),
        "SourceArn": conditions.get("ArnLike", {}).get("AWS:SourceArn"),
        "SourceAccount": conditions.get("StringEquals", {}).get("AWS:SourceAccount"),
    }


def _log_group(client: Client, physical_id: str, _properties: Properties) -> Properties:
    logs = client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=physical_id)["logGroups"]
    found = one([group for group in groups if group["logGroupName"] == physical_id], physical_id)
    tags = logs.list_tags_log_group(logGroupName=physical_id)["tags"]
    return {
        "LogGroupName": found["logGroupName"],
        "RetentionInDays": found.get("retentionInDays"),
        "KmsKeyId": found.get("kmsKeyId"),
        "LogGroupClass": found.get("logGroupClass"),
        "Arn": found["arn"],
        "Tags": tag_list(tags),
    }


def _parameter(client: Client, physical_id: str, _properties: Properties) -> Properties:
    ssm = client("ssm")
    found: Properties = ssm.get_parameter(Name=physical_id, WithDecryption=True)["Parameter"]
    record = one(_described_parameters(ssm, physical_id), physical_id)
    tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=physical_id)["TagList"]
    return {**record, **found, "Tags": {tag["Key"]: tag["Value"] for tag in tags}}


def _described_parameters(ssm: Any, name: str) -> list[Any]:
    found: list[Any] = ssm.describe_parameters(
        ParameterFilters=[{"Key": "Name", "Option": "Equals", "Values": [name]}]
    )["Parameters"]
    return found


DESCRIBE: dict[str, Describe] = {
    "AWS::Lambda::Function": _function,
    "AWS::Lambda::LayerVersion": _layer,
    "AWS::Lambda::Permission": _permission,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::SSM::Parameter": _parameter,
}
