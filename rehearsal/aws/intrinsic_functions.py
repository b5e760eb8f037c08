"""Resolves the intrinsic functions in a deployed stack's template.

The endpoint resolves the same template when it deploys. This is a second, independent reading: the
check of a described resource then finds a value that the endpoint resolved wrongly.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NO_VALUE = object()  # AWS::NoValue: the property is not there


class UnknownExpressionError(ValueError):
    """A function or reference that this reading does not know."""


@dataclass(frozen=True, kw_only=True)
class TemplateNames:
    """Names that a template's expressions can refer to.

    Args:
        attribute: logical id and attribute name to the value of the described resource.
    """

    physical_ids: Mapping[str, str]
    attribute: Callable[[str, str], Any]
    parameters: Mapping[str, str]
    pseudo_parameters: Mapping[str, str]
    exports: Mapping[str, str]
    mappings: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)


def resolve_value(value: Any, names: TemplateNames) -> Any:
    """Return `value` with every function replaced by its result.

    Raises:
        UnknownExpressionError: a function or a name is unknown here; a rehearsal must not skip it.
    """
    if isinstance(value, list):
        items = (resolve_value(item, names) for item in value)
        return [item for item in items if item is not NO_VALUE]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](argument, names)
        if function.startswith("Fn::"):
            raise UnknownExpressionError(f"no reading of {function}")
    members = {key: resolve_value(item, names) for key, item in value.items()}
    return {key: item for key, item in members.items() if item is not NO_VALUE}


def is_condition_true(name: str, names: TemplateNames) -> bool:
    """Return whether the template's condition of this name is true."""
    return bool(_evaluate_condition(names.conditions[name], names))


def _resolve_ref(name: str, names: TemplateNames) -> Any:
    if name == "AWS::NoValue":
        return NO_VALUE
    for values in (names.pseudo_parameters, names.parameters, names.physical_ids):
        if name in values:
            return values[name]
    raise UnknownExpressionError(f"Ref to {name}, which the stack does not have")


def _resolve_attribute(argument: Any, names: TemplateNames) -> Any:
    resource, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
    return names.attribute(resource, str(resolve_value(attribute, names)))


def _resolve_join(argument: Any, names: TemplateNames) -> str:
    separator, parts = argument
    return str(separator).join(str(part) for part in resolve_value(parts, names))


def _resolve_sub(argument: Any, names: TemplateNames) -> str:
    text, local = argument if isinstance(argument, list) else (argument, {})

    def replace_reference(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("!"):
            return f"${{{name[1:]}}}"
        if name in local:
            return str(resolve_value(local[name], names))
        return str(_resolve_attribute(name, names) if "." in name else _resolve_ref(name, names))

    return re.sub(r"\$\{([^}]+)\}", replace_reference, text)


def _resolve_import(argument: Any, names: TemplateNames) -> str:
    name = str(resolve_value(argument, names))
    if name not in names.exports:
        raise UnknownExpressionError(f"no stack exports {name}")
    return names.exports[name]


def _resolve_select(argument: Any, names: TemplateNames) -> Any:
    index, items = argument
    return resolve_value(items, names)[int(resolve_value(index, names))]


def _resolve_split(argument: Any, names: TemplateNames) -> list[str]:
    separator, text = argument
    return str(resolve_value(text, names)).split(separator)


def _resolve_if(argument: Any, names: TemplateNames) -> Any:
    name, true_value, false_value = argument
    return resolve_value(true_value if is_condition_true(name, names) else false_value, names)


def _resolve_map(argument: Any, names: TemplateNames) -> Any:
    table, first, second = (resolve_value(item, names) for item in argument[:3])
    return names.mappings[table][first][second]


def _resolve_base64(argument: Any, names: TemplateNames) -> str:
    return base64.b64encode(str(resolve_value(argument, names)).encode()).decode()


def _evaluate_condition(value: Any, names: TemplateNames) -> Any:
    ((function, argument),) = value.items()
    match function:
        case "Condition":
            return is_condition_true(argument, names)
        case "Fn::Equals":
            first, second = (resolve_value(item, names) for item in argument)
            return str(first) == str(second)
        case "Fn::And":
            return all(_evaluate_condition(item, names) for item in argument)
        case "Fn::Or":
            return any(_evaluate_condition(item, names) for item in argument)
        case "Fn::Not":
            return not _evaluate_condition(argument[0], names)
    raise UnknownExpressionError(f"no reading of the condition function {function}")


_FUNCTIONS: Mapping[str, Callable[[Any, TemplateNames], Any]] = {
    "Ref": _resolve_ref,
    "Fn::GetAtt": _resolve_attribute,
    "Fn::Join": _resolve_join,
    "Fn::Sub": _resolve_sub,
    "Fn::ImportValue": _resolve_import,
    "Fn::Select": _resolve_select,
    "Fn::Split": _resolve_split,
    "Fn::If": _resolve_if,
    "Fn::FindInMap": _resolve_map,
    "Fn::Base64": _resolve_base64,
}
