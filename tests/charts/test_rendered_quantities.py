"""Every rendered quantity stands as the API server stores it, so that no apply reports a change for
ever.

Source: apimachinery pkg/api/resource/quantity.go, 1.36, `Quantity` and `CanonicalizeBytes`: the
format follows the suffix; there is no fraction, and the suffix is the largest that loses nothing. A
binary quantity that is below 1024, or no whole number, is stored as a decimal one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from chart_cases import CATALOGUE, DECLARED, EXPERIMENTS, everything, render_charts
from test_server_side_apply import definition, definitions

from charts import build_charts

Object = dict[str, Any]
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def store_quantity(text: str) -> str:
    """Return a quantity as the API server would store it."""
    number, suffix = re.fullmatch(r"([-+]?[\d.]+)([A-Za-z]*)", text).groups()
    if suffix in DECIMAL:
        return spell_largest(Fraction(number) * Fraction(1000) ** DECIMAL[suffix], 1000, DECIMAL)

    value = Fraction(number) * 1024 ** BINARY[suffix]
    if value.denominator != 1 or abs(value) < 1024:
        return spell_largest(value, 1000, DECIMAL)
    return spell_largest(value, 1024, {"": 0, **BINARY})


def spell_largest(value: Fraction, base: int, suffixes: dict[str, int]) -> str:
    if value == 0:
        return "0"
    for suffix, power in sorted(suffixes.items(), key=lambda row: -row[1]):
        number = value / Fraction(base) ** power
        if number.denominator == 1:
            return f"{number}{suffix}"
    raise AssertionError(f"{value} is finer than a quantity can be")


def list_quantities(value: Any, schema: Object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each quantity of a value, by the schema of its kind."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name == QUANTITY:
        yield path, value
        return
    result = definitions()[name] if name else schema
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from list_quantities(item, result.get("items", {}), f"{path}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            field = (
                result.get("properties", {}).get(key) or result.get("additionalProperties") or {}
            )
            yield from list_quantities(
                item, field if isinstance(field, dict) else {}, f"{path}/{key}"
            )


def list_rendered(bodies: list[Object]) -> list[tuple[str, str]]:
    return [
        (f"{body['kind']} {body['metadata']['name']}{path}", text)
        for body in bodies
        for path, text in list_quantities(body, {"$ref": definition(body) or ""})
    ]


@pytest.mark.parametrize("environment", DECLARED)
def test_a_rendered_quantity_is_stored_as_it_stands(environment: str) -> None:
    quantities = list_rendered(everything(environment))
    fields = {path.rpartition("/")[2] for path, _ in quantities}
    assert {"cpu", "memory", "ephemeral-storage", "sizeLimit", "storage"} < fields
    assert [(path, text) for path, text in quantities if store_quantity(text) != text] == []


def test_a_server_with_a_tebibyte_is_stored_as_it_stands() -> None:
    experiment = EXPERIMENTS["post"]
    serving = experiment.serving.model_copy(update={"memory_gib": 1024})
    large = experiment.model_copy(update={"serving": serving})
    charts = render_charts(build_charts(DECLARED["post-us-east-2"], large, CATALOGUE))

    texts = {
        text for _, text in list_rendered([body for bodies in charts.values() for body in bodies])
    }
    assert {text for text in texts if store_quantity(text) != text} == set()


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Gi", "1Ti"),
        ("0.5Ki", "512"),
    ],
)
def test_quantities_that_are_stored_otherwise(written: str, stored: str) -> None:
    """The first two are the examples of the source."""
    assert store_quantity(written) == stored
