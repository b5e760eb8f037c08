"""The form in which the API stores objects: canonical quantities, and no empty value of a variable.

Source: apimachinery pkg/api/resource/quantity.go (ParseQuantity, CanonicalizeBytes) and the tag
`omitempty` of EnvVar.value. Left out: signs, exponents, and the parser's short cut that keeps
`1.500` as it is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

_DECIMAL_SUFFIXES = {
    -9: "n",
    -6: "u",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_UNITS = {suffix: Fraction(10) ** power for power, suffix in _DECIMAL_SUFFIXES.items()} | {
    suffix: Fraction(1024) ** power for power, suffix in enumerate(_BINARY_SUFFIXES)
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")
_SMALLEST_POWER = -9
_QUANTITY_MAPS = {"requests", "limits", "allocatable", "capacity", "hard", "used"}
_FREE_MAPS = {"metadata", "data", "binaryData", "stringData", "matchLabels", "nodeSelector"}


@cache
def parse_quantity(text: str | float) -> Fraction:
    """Return a quantity such as `500m`, `1.5` or `2Gi` as a number.

    Raises:
        ValueError: the text is no quantity.
    """
    match = _QUANTITY.fullmatch(str(text))
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a quantity: {text}")
    return Fraction(match[1]) * _UNITS[match[2]]


@lru_cache(maxsize=1024, typed=True)
def format_quantity(text: str | float) -> str:
    """Return a quantity as the API writes it: the largest suffix with which it is a whole number.

    Raises:
        ValueError: the text is no quantity.
    """
    value = parse_quantity(text)
    if value == 0:
        return "0"

    is_binary = str(text).endswith("i")
    if is_binary and value >= _UNITS["Ki"] and value.denominator == 1:
        power = 0
        while value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
            value /= 1024
            power += 1
        return f"{value}{_BINARY_SUFFIXES[power]}"

    number = math.ceil(value / _UNITS["n"])  # a smaller part of the smallest unit is a whole one
    power = _SMALLEST_POWER
    while number % 1000 == 0 and power < max(_DECIMAL_SUFFIXES):
        number //= 1000
        power += 3
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


def normalize_object(value: Any) -> Any:
    """Return an object as the API returns it; what is no quantity stays as it is."""
    if isinstance(value, list):
        return [normalize_object(part) for part in value]
    if not isinstance(value, dict):
        return value

    normal: dict[str, Any] = {}
    for key, part in value.items():
        if key in _FREE_MAPS:
            normal[key] = part
        elif key in _QUANTITY_MAPS and isinstance(part, dict):
            normal[key] = {name: _normalize_amount(amount) for name, amount in part.items()}
        elif key == "sizeLimit":
            normal[key] = _normalize_amount(part)
        elif key == "env" and isinstance(part, list):
            normal[key] = [_drop_empty_value(normalize_object(row)) for row in part]
        else:
            normal[key] = normalize_object(part)
    return normal


def _normalize_amount(amount: Any) -> Any:
    try:
        return format_quantity(amount)
    except ValueError:
        return normalize_object(amount)


def _drop_empty_value(row: Any) -> Any:
    if isinstance(row, Mapping) and row.get("value") == "":
        return {key: part for key, part in row.items() if key != "value"}
    return row
