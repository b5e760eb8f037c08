"""Quantities and variables are read back as the API stores them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rehearsal.cluster.quantities import format_quantity, parse_quantity
from rehearsal.cluster.store import ObjectStore

START = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture
def store():
    return ObjectStore(lambda: START)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("1.5", 1.5),
        ("2Ki", 2048),
        ("3G", 3e9),
    ],
)
def test_quantity_is_read(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["2Zi", "", "1.2.3", "1e3"])
def test_word_is_no_quantity(text):
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


# each pair is what resource.ParseQuantity of Kubernetes 1.36.2 and json.Marshal make of the first
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Gi", "1Ti"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1000G", "1T"),
        ("0Gi", "0"),
    ],
)
def test_quantity_is_stored_in_canonical_form(text, canonical):
    assert format_quantity(text) == canonical


def build_spec() -> dict:
    box = {"name": "main", "resources": {"requests": {"memory": "2048Mi"}, "limits": {"cpu": 1}}}
    box["env"] = [{"name": "EMPTY", "value": ""}, {"name": "FULL", "value": "1024Gi"}]
    return {"containers": [box], "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1024Gi"}}]}


def test_pod_template_is_read_back_in_canonical_form(store):
    store.create_object(
        "deployments",
        "post",
        {"metadata": {"name": "arm"}, "spec": {"template": {"spec": build_spec()}}},
    )
    spec = store.get_object("deployments", "post", "arm")["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"memory": "2Gi"},
        "limits": {"cpu": "1"},
    }
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"] == "1Ti"
