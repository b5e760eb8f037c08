"""Resolves the intrinsic functions in a deployed stack's template.

The endpoint resolves the same template when it deploys. This is a second, independent reading: the
check of a described resource then finds a value that the endpoint resolved wrongly. It knows the
functions that templates of ours have; others, and conditions, are refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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


def resolve_value(value: Any, names: TemplateNames) -> Any:
    """Return `value` with every function replaced by its result.

    Raises:
        UnknownExpressionError: a function or a name is unknown here; a rehearsal must not skip it.
    """
    if isinstance(value, list):
        return [resolve_value(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](argument, names)
        if function.startswith("Fn::"):
            raise UnknownExpressionError(f"no reading of {function}")
    return {key: resolve_value(item, names) for key, item in value.items()}


def _resolve_ref(name: str, names: TemplateNames) -> Any:
    for values in (names.pseudo_parameters, names.parameters, names.physical_ids):
        if name in values:
            return values[name]
    raise UnknownExpressionError(f"Ref to {name}, which the stack does not have")


def _resolve_attribute(argument: Any, names: TemplateNames) -> Any:
    resource, attribute = argument
    return names.attribute(resource, attribute)


def _resolve_join(argument: Any, names: TemplateNames) -> str:
    separator, parts = argument
    return str(separator).join(str(part) for part in resolve_value(parts, names))


def _resolve_import(argument: Any, names: TemplateNames) -> str:
    name = str(resolve_value(argument, names))
    if name not in names.exports:
        raise UnknownExpressionError(f"no stack exports {name}")
    return names.exports[name]


def _resolve_base64(argument: Any, names: TemplateNames) -> str:
    return base64.b64encode(str(resolve_value(argument, names)).encode()).decode()


_FUNCTIONS: Mapping[str, Callable[[Any, TemplateNames], Any]] = {
    "Ref": _resolve_ref,
    "Fn::GetAtt": _resolve_attribute,
    "Fn::Join": _resolve_join,
    "Fn::ImportValue": _resolve_import,
    "Fn::Base64": _resolve_base64,
}
