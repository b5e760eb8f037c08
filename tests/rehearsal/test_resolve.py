"""The second reading of a template's functions."""

from __future__ import annotations

import pytest

from rehearsal.aws.intrinsic_functions import (
    TemplateNames,
    UnknownExpressionError,
    is_condition_true,
    resolve_value,
)

NAMES = TemplateNames(
    physical_ids={"Vpc": "vpc-1", "Bucket": "b"},
    attribute=lambda resource, attribute: f"{resource}/{attribute}",
    parameters={"Zone": "use2-az1"},
    pseudo_parameters={"AWS::Region": "us-east-2"},
    exports={"net-Vpc": "vpc-9"},
    mappings={"Table": {"us-east-2": {"x": "y"}}},
    conditions={
        "Here": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-2"]},
        "There": {"Fn::Not": [{"Condition": "Here"}]},
        "Both": {"Fn::And": [{"Condition": "Here"}, {"Condition": "There"}]},
        "Either": {"Fn::Or": [{"Condition": "Here"}, {"Condition": "There"}]},
    },
)

CASES = {
    "plain": ({"a": [1, "x"]}, {"a": [1, "x"]}),
    "ref to a resource": ({"Ref": "Vpc"}, "vpc-1"),
    "ref to a parameter": ({"Ref": "Zone"}, "use2-az1"),
    "ref to a pseudo parameter": ({"Ref": "AWS::Region"}, "us-east-2"),
    "attribute": ({"Fn::GetAtt": ["Bucket", "Arn"]}, "Bucket/Arn"),
    "attribute as text": ({"Fn::GetAtt": "Bucket.Arn"}, "Bucket/Arn"),
    "join": ({"Fn::Join": ["-", ["a", {"Ref": "Vpc"}]]}, "a-vpc-1"),
    "sub": (
        {"Fn::Sub": "${Bucket.Arn}/*:${AWS::Region}:${!Left}"},
        "Bucket/Arn/*:us-east-2:${Left}",
    ),
    "sub with names of its own": ({"Fn::Sub": ["${A}", {"A": {"Ref": "Vpc"}}]}, "vpc-1"),
    "import": ({"Fn::ImportValue": "net-Vpc"}, "vpc-9"),
    "select of split": ({"Fn::Select": [1, {"Fn::Split": ["/", "a/b"]}]}, "b"),
    "if": ({"Fn::If": ["Here", "yes", "no"]}, "yes"),
    "no value in an object": (
        {"a": {"Fn::If": ["There", 1, {"Ref": "AWS::NoValue"}]}, "b": 2},
        {"b": 2},
    ),
    "no value in a list": ([{"Ref": "AWS::NoValue"}, 1], [1]),
    "map": ({"Fn::FindInMap": ["Table", {"Ref": "AWS::Region"}, "x"]}, "y"),
    "base64": ({"Fn::Base64": "hi"}, "aGk="),
}


@pytest.mark.parametrize(("value", "expected"), CASES.values(), ids=CASES)
def test_a_function_gives_its_value(value, expected):
    assert resolve_value(value, NAMES) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("Here", True), ("There", False), ("Both", False), ("Either", True)]
)
def test_a_condition_holds_or_not(name, expected):
    assert is_condition_true(name, NAMES) is expected


@pytest.mark.parametrize(
    "value", [{"Ref": "Nobody"}, {"Fn::Quantum": 1}, {"Fn::ImportValue": "nothing"}]
)
def test_rejects_what_it_cannot_read(value):
    with pytest.raises(UnknownExpressionError):
        resolve_value(value, NAMES)
