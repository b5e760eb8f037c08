"""What an add-on's JSON schema says of a configuration."""

from __future__ import annotations

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


def test_a_configuration_that_fits_has_no_fault():
    configuration = {"agent": {"replicas": 2}, "names": ["a"], "labels": {"team": "ml"}}

    assert find_schema_faults(configuration, SCHEMA) == []


def test_an_unknown_key_is_named_by_its_path():
    assert find_schema_faults({"agents": {}}, SCHEMA) == ["configuration.agents is unknown"]


def test_a_value_behind_a_reference_is_checked():
    faults = find_schema_faults({"agent": {"replicas": "2"}}, SCHEMA)

    assert faults == ["configuration.agent.replicas is str, the schema wants integer"]


def test_an_item_of_a_list_is_checked():
    faults = find_schema_faults({"names": ["a", 1]}, SCHEMA)

    assert faults == ["configuration.names[1] is int, the schema wants string"]


def test_a_key_of_any_name_has_the_type_of_the_rest():
    faults = find_schema_faults({"labels": {"team": 1}}, SCHEMA)

    assert faults == ["configuration.labels.team is int, the schema wants string"]
