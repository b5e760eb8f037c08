"""What an EKS add-on's JSON schema says of a configuration: unknown keys, values of wrong type.

Only these two are looked at. EKS refuses more, such as a text of another form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def find_schema_faults(value: object, schema: Schema) -> list[str]:
    """Return one sentence for each key that a schema does not know, and each value of another type.

    Args:
        value: the configuration.
        schema: of the whole configuration, as EKS gives it; its references are to itself.
    """
    return list(_iterate_faults(value, schema, schema, "configuration"))


def _iterate_faults(value: object, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    schema = _resolve(schema, root)
    types = schema.get("type", ())
    names = [types] if isinstance(types, str) else list(types)
    if names and not any(isinstance(value, _TYPES.get(name, object)) for name in names):
        yield f"{path} is {type(value).__name__}, the schema wants {' or '.join(names)}"
    elif isinstance(value, dict):
        properties = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        for key, item in value.items():
            item_schema = properties.get(key, rest)
            item_path = f"{path}.{key}"
            if item_schema is False:
                yield f"{item_path} is unknown"
            elif isinstance(item_schema, Mapping):
                yield from _iterate_faults(item, item_schema, root, item_path)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                yield from _iterate_faults(item, items, root, f"{path}[{index}]")


def _resolve(schema: Schema, root: Schema) -> Schema:
    """Follow a reference such as `#/definitions/Agent`."""
    while "$ref" in schema:
        target = root
        for word in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target[word]
        schema = target
    return schema
