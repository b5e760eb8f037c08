"""The second reading of a template's functions."""

from __future__ import annotations

import pytest

from rehearsal.aws.intrinsic_functions import (
    TemplateNames,
    UnknownExpressionError,
    resolve_value,
)

NAMES = TemplateNames(
    physical_ids={"Vpc": "vpc-1", "Bucket": "b"},
    attribute=lambda resource, attribute: f"{resource}/{attribute}",
    parameters={"Zone": "use2-az1"},
    pseudo_parameters={"AWS::Region": "us-east-2"},
    exports={"net-Vpc": "vpc-9"},
)

CASES = {
    "plain": ({"a": [1, "x"]}, {"a": [1, "x"]}),
    "ref to a parameter": ({"Ref": "Zone"}, "use2-az1"),
    "ref to a pseudo parameter": ({"Ref": "AWS::Region"}, "us-east-2"),
    "attribute": ({"Fn::GetAtt": ["Bucket", "Arn"]}, "Bucket/Arn"),
    "join": ({"Fn::Join": ["-", ["a", {"Ref": "Vpc"}]]}, "a-vpc-1"),
    "import": ({"Fn::ImportValue": "net-Vpc"}, "vpc-9"),
    "base64": ({"Fn::Base64": "hi"}, "aGk="),
}


@pytest.mark.parametrize(("value", "expected"), CASES.values(), ids=CASES)
def test_a_function_gives_its_value(value, expected):
    assert resolve_value(value, NAMES) == expected


@pytest.mark.parametrize(
    "value", [{"Ref": "Nobody"}, {"Fn::Sub": "x"}, {"Fn::ImportValue": "nothing"}]
)
def test_rejects_what_it_cannot_read(value):
    with pytest.raises(UnknownExpressionError):
        resolve_value(value, NAMES)
