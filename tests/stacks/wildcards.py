"""Each `*` of the statements in templates, spelt without the names of one environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.ops.guard_config import object_prefix

Statement = dict[str, Any]


def list_wildcards(
    template: dict[str, Any], place: Environment
) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the actions of each statement with each text in it that has a `*`; people's own
    policies left out."""
    resources = template["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            continue
        for statement in list_statements(resource):
            actions = statement["Action"]
            for text in _texts(statement, resources):
                if "*" in text:
                    yield (
                        frozenset([actions] if isinstance(actions, str) else actions),
                        _spell(text, place),
                    )


def list_statements(value: object) -> Iterator[Statement]:
    """Yield every policy statement anywhere in a template, key and bucket policies included."""
    if isinstance(value, dict):
        if "Effect" in value and "Action" in value:
            yield value
        for part in value.values():
            yield from list_statements(part)
    elif isinstance(value, list):
        for part in value:
            yield from list_statements(part)


def _texts(value: Any, resources: dict[str, Any]) -> Iterator[str]:
    """Yield each text of a statement; a reference to a resource is spelt by its type."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, resources)
    elif not isinstance(value, dict):  # a number, true or false
        return
    elif "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        yield separator.join(text for part in parts for text in _texts(part, resources))
    elif "Fn::GetAtt" in value:
        yield resources[value["Fn::GetAtt"][0]]["Type"]
    else:
        for key, part in value.items():
            if not key.startswith(("Ref", "Fn::")):
                yield from _texts(part, resources)


def _spell(text: str, place: Environment) -> str:
    text = text.replace(names.bucket_name(place), "BUCKET")
    text = text.replace(f"BUCKET/{object_prefix(place)}", "BUCKET/")
    for kind in names.CONTAINER_LOG_KINDS:
        text = text.replace(f"/{kind}:", "/KIND:")
    for value, name in ((place.name, "ENV"), (place.region, "REGION"), (place.account, "ACCOUNT")):
        text = text.replace(value, name)
    return text
