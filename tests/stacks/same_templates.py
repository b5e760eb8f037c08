"""Two templates held against each other by what CloudFormation would make, not by how it is
written.

Logical ids, the order of resources, and the order in DependsOn mean nothing. A statement's one
action may be a text or a list; an id of a statement says nothing. Everything else is a difference.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Any

Template = dict[str, Any]
MADE = ("Type", "Properties", "DeletionPolicy", "UpdateReplacePolicy", "Condition")
ONE_OR_MANY = {"Action", "NotAction", "Resource", "NotResource", "Service", "AWS", "Statement"}
SECTIONS = {"Conditions", "Description", "Mappings", "Metadata", "Outputs", "Parameters", "Rules"}
ASSET = re.compile(r"<asset-\d+>")


def read_frozen(text: str) -> Template:
    """Return the template of a golden file, where each resource stands on a line of its own."""
    lines: Template = json.loads(text)
    resources = {key: value for key, value in lines.items() if key not in SECTIONS}
    return {"Resources": resources} | {
        key: value for key, value in lines.items() if key in SECTIONS
    }


def list_differences(before: Template, after: Template) -> list[str]:
    """Return the resources and other parts of one template that the other has not, each after `-`
    or `+`."""
    old = count_parts(before)
    new = count_parts(after)
    return [f"- {part}" for part in (old - new).elements()] + [
        f"+ {part}" for part in (new - old).elements()
    ]


def count_parts(template: Template) -> Counter[str]:
    """Return each resource and each other part of a template as text, without logical ids."""
    names = name_resources(template)
    resources = [
        write(resource, names)
        + " after "
        + str(sorted(names[id_] for id_ in list_dependencies(resource)))
        for resource in template["Resources"].values()
    ]
    rest = [
        f"{key}: {write_value(value, names)}"
        for key, value in template.items()
        if key != "Resources"
    ]
    return Counter(resources + rest)


def list_dependencies(resource: Template) -> list[str]:
    waits = resource.get("DependsOn", [])
    return [waits] if isinstance(waits, str) else waits


def name_resources(template: Template) -> dict[str, str]:
    """Return logical id -> a name made of the resource's type, properties and what they refer
    to."""
    resources: dict[str, Template] = template["Resources"]
    names = {id_: resource["Type"] for id_, resource in resources.items()}
    # as far as two alike resources differ in what a third, which they name, refers to
    for _ in range(3):
        texts = {id_: write(resource, names) for id_, resource in resources.items()}
        names = {
            id_: f"{resource['Type']} {hashlib.sha256(texts[id_].encode()).hexdigest()[:8]}"
            for id_, resource in resources.items()
        }
    return names


def write(resource: Template, names: dict[str, str]) -> str:
    return write_value({key: resource[key] for key in MADE if key in resource}, names)


def write_value(value: Any, names: dict[str, str]) -> str:
    return ASSET.sub("<asset>", json.dumps(simplify(value, names), sort_keys=True))


def simplify(value: Any, names: dict[str, str]) -> Any:
    """Return a value with names for logical ids, and one way to write what can be written in
    two."""
    if isinstance(value, list):
        return [simplify(part, names) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"Ref"}:
        return {"Ref": names.get(value["Ref"], value["Ref"])}
    if value.keys() == {"Fn::GetAtt"}:
        id_, attribute = value["Fn::GetAtt"]
        return {"Fn::GetAtt": [names[id_], attribute]}
    simple = {key: simplify(part, names) for key, part in value.items()}
    if "Effect" in simple:
        simple.pop("Sid", None)
    for key in ONE_OR_MANY & simple.keys():
        if not isinstance(simple[key], list):
            simple[key] = [simple[key]]
    return simple
