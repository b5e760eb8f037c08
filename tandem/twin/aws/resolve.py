"""What a deployed stack's template says once its intrinsic functions have their values.

The endpoint resolves the same template when it deploys; this is a second, independent reading, so that a value which
the endpoint resolved wrongly is found when the resource is described.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NOTHING = object()  # AWS::NoValue: the property is not there


class UnresolvedError(ValueError):
    """A function or reference that this reading does not know."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a template's expressions can refer to.

    Args:
        attribute: logical id and attribute name to the value of the described resource.
    """

    physical: Mapping[str, str]
    attribute: Callable[[str, str], Any]
    parameters: Mapping[str, str]
    pseudo: Mapping[str, str]
    exports: Mapping[str, str]
    mappings: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)


def resolved(value: Any, names: Names) -> Any:
    """`value` with every function replaced by what it gives.

    Raises:
        UnresolvedError: a function or a name that is unknown here; a rehearsal must not skip it.
    """
    if isinstance(value, list):
        items = (resolved(item, names) for item in value)
        return [item for item in items if item is not NOTHING]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](argument, names)
        if function.startswith("Fn::"):
            raise UnresolvedError(f"no reading of {function}")
    members = {key: resolved(item, names) for key, item in value.items()}
    return {key: item for key, item in members.items() if item is not NOTHING}


def holds(name: str, names: Names) -> bool:
    """Whether the template's condition of this name is true."""
    return bool(_condition(names.conditions[name], names))


def _ref(name: str, names: Names) -> Any:
    if name == "AWS::NoValue":
        return NOTHING
    for known in (names.pseudo, names.parameters, names.physical):
        if name in known:
            return known[name]
    raise UnresolvedError(f"Ref to {name}, which the stack does not have")


def _get_att(argument: Any, names: Names) -> Any:
    resource, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
    return names.attribute(resource, str(resolved(attribute, names)))


def _join(argument: Any, names: Names) -> str:
    separator, parts = argument
    return str(separator).join(str(part) for part in resolved(parts, names))


def _sub(argument: Any, names: Names) -> str:
    text, local = argument if isinstance(argument, list) else (argument, {})

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("!"):
            return f"${{{name[1:]}}}"
        if name in local:
            return str(resolved(local[name], names))
        return str(_get_att(name, names) if "." in name else _ref(name, names))

    return re.sub(r"\$\{([^}]+)\}", value, text)


def _import_value(argument: Any, names: Names) -> str:
    name = str(resolved(argument, names))
    if name not in names.exports:
        raise UnresolvedError(f"no stack exports {name}")
    return names.exports[name]


def _select(argument: Any, names: Names) -> Any:
    index, items = argument
    return resolved(items, names)[int(resolved(index, names))]


def _split(argument: Any, names: Names) -> list[str]:
    separator, text = argument
    return str(resolved(text, names)).split(separator)


def _if(argument: Any, names: Names) -> Any:
    name, yes, no = argument
    return resolved(yes if holds(name, names) else no, names)


def _find_in_map(argument: Any, names: Names) -> Any:
    table, first, second = (resolved(item, names) for item in argument[:3])
    return names.mappings[table][first][second]


def _base64(argument: Any, names: Names) -> str:
    return base64.b64encode(str(resolved(argument, names)).encode()).decode()


def _condition(value: Any, names: Names) -> Any:
    ((function, argument),) = value.items()
    match function:
        case "Condition":
            return holds(argument, names)
        case "Fn::Equals":
            first, second = (resolved(item, names) for item in argument)
            return str(first) == str(second)
        case "Fn::And":
            return all(_condition(item, names) for item in argument)
        case "Fn::Or":
            return any(_condition(item, names) for item in argument)
        case "Fn::Not":
            return not _condition(argument[0], names)
    raise UnresolvedError(f"no reading of the condition function {function}")


_FUNCTIONS: Mapping[str, Callable[[Any, Names], Any]] = {
    "Ref": _ref,
    "Fn::GetAtt": _get_att,
    "Fn::Join": _join,
    "Fn::Sub": _sub,
    "Fn::ImportValue": _import_value,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::If": _if,
    "Fn::FindInMap": _find_in_map,
    "Fn::Base64": _base64,
}
