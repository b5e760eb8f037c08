"""What an add-on's JSON schema says of a configuration."""

from __future__ import annotations

import pytest

from tandem.ops.doctor.addon_schema import find_schema_faults

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "agent": {"$ref": "#/definitions/Agent"},
        "names": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "definitions": {"Agent": {"type": "object", "properties": {"replicas": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("configuration", "faults"),
    [
        ({"agent": {"replicas": 2}, "names": ["a"], "labels": {"team": "ml"}}, []),
        ({"agents": {}}, ["agents is unknown"]),
        ({"agent": {"replicas": "2"}}, ["agent.replicas is str, the schema wants integer"]),
        ({"names": ["a", 1]}, ["names[1] is int, the schema wants string"]),
        ({"labels": {"team": 1}}, ["labels.team is int, the schema wants string"]),
    ],
    ids=["fits", "unknown key", "behind a reference", "item of a list", "key of any name"],
)
def test_a_fault_is_named_by_its_path(configuration, faults):
    assert find_schema_faults(configuration, SCHEMA) == [
        f"configuration.{fault}" for fault in faults
    ]
