# ruff: noqa: ANN001, ANN201, ANN202, PLC0415 - MiniStack is untyped; what few requests need is imported by them
"""Converts between a template's values and the wire format by botocore's own service models.

MiniStack parses and prints a subset of the fields by hand. This module adds the other fields for
whole shapes at once: a field is either in the service's model, and then kept, or is refused by
name.
"""

from __future__ import annotations

import json
from functools import cache
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.model import ServiceModel

_NUMBER_TYPES = {"integer": int, "long": int, "double": float, "float": float}


@cache
def load_service(name: str):
    """Return a service's model, read at first use, because EC2's alone takes 0.1 s."""
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


@cache
def request_shape(service_name: str, operation: str, *path: str):
    """Return the shape at `path`, e.g. `("ec2", "CreateLaunchTemplate", "LaunchTemplateData")`."""
    return _descend_shape(load_service(service_name).operation_model(operation).input_shape, path)


@cache
def answer_shape(service_name: str, operation: str, *path: str):
    """Return the shape at `path` of an operation's answer; in a list, go to its member."""
    return _descend_shape(load_service(service_name).operation_model(operation).output_shape, path)


def _descend_shape(shape, path):
    for name in path:
        shape = shape.members[name]
        while shape.type_name == "list":
            shape = shape.member
    return shape


def convert_value(shape, value, path: str, convert_name=lambda name: name):
    """Return a template's value as the API spells and types it.

    Raises:
        ValueError: the template has a property without a member in the shape, as CloudFormation
            refuses it.
    """
    if shape.type_name == "structure":
        return _convert_structure(shape, value, path, convert_name)
    if shape.type_name == "list":
        return [convert_value(shape.member, item, path, convert_name) for item in value]
    if shape.type_name == "map":
        return (
            dict(value) if isinstance(value, dict) else {tag["Key"]: tag["Value"] for tag in value}
        )
    if shape.type_name == "boolean":
        return str(value).lower() == "true"
    if shape.type_name in _NUMBER_TYPES:
        return _NUMBER_TYPES[shape.type_name](value)
    return value if isinstance(value, str) else str(value)


def _convert_structure(shape, value, path, convert_name):
    unknown = sorted(name for name in value if convert_name(name) not in shape.members)
    if unknown:
        raise ValueError(f"Encountered unsupported property {unknown[0]} in {path}")
    return {
        convert_name(name): convert_value(
            shape.members[convert_name(name)], item, f"{path}.{name}", convert_name
        )
        for name, item in value.items()
    }


def parse_object(document) -> dict:
    """Return a JSON object from text, bytes or an object; empty if it is none."""
    try:
        content = document if isinstance(document, dict) else json.loads(document)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def to_camel_case(name: str) -> str:
    """Return the EKS API's spelling of a template's property name."""
    return name[:1].lower() + name[1:]


def parse_ec2_parameters(shape, parameters: dict, prefix: str):
    """Return the value of the EC2 query parameters below `prefix`; None if there are none."""
    if shape.type_name == "structure":
        members = {}
        for name, member in shape.members.items():
            member_prefix = f"{prefix}.{_query_name(member, name)}"
            if any(key.startswith(member_prefix) for key in parameters):
                members[name] = parse_ec2_parameters(member, parameters, member_prefix)
        return {name: value for name, value in members.items() if value is not None} or None
    if shape.type_name == "list":
        items = []
        while (
            item := parse_ec2_parameters(shape.member, parameters, f"{prefix}.{len(items) + 1}")
        ) is not None:
            items.append(item)
        return items or None
    value = parameters.get(prefix)
    if value is None:
        return None
    return convert_value(shape, value[0] if isinstance(value, list) else value, prefix)


def _query_name(member, name):
    query_name = member.serialization.get("queryName") or member.serialization.get("name", name)
    return query_name[:1].upper() + query_name[1:]


def format_ec2_xml(shape, value: dict) -> str:
    """Return a structure's members as EC2 prints them, without those that its shape lacks."""
    return "".join(
        _format_ec2_element(member, member.serialization.get("name", name), value[name])
        for name, member in shape.members.items()
        if value.get(name) is not None
    )


def _format_ec2_element(shape, tag, value):
    if shape.type_name == "structure":
        return f"<{tag}>{format_ec2_xml(shape, value)}</{tag}>"
    if shape.type_name == "list":
        items = "".join(_format_ec2_element(shape.member, "item", item) for item in value)
        return f"<{tag}>{items}</{tag}>"
    text = str(value).lower() if shape.type_name == "boolean" else str(value)
    return f"<{tag}>{escape(text)}</{tag}>"


def build_s3_body(operation: str, request: dict) -> bytes:
    """Return the XML body that an SDK would send for this S3 request."""
    from botocore import serialize

    serializer = serialize.create_serializer("rest-xml", include_validation=False)
    body = serializer.serialize_to_request(request, load_service("s3").operation_model(operation))[
        "body"
    ]
    return body if isinstance(body, bytes) else body.encode()
