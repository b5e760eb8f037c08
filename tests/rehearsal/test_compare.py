"""What counts as a difference between a template and a description."""

from __future__ import annotations

import pytest

from rehearsal.aws.differences import find_differences

SAME = {
    "more is described": ({"a": 1}, {"a": 1, "default": 2}),
    "a number as text": ({"a": "1"}, {"a": 1}),
    "objects in another order": ([{"a": 1}, {"a": 2}], [{"a": 2, "x": 0}, {"a": 1}]),
    "tags of AWS beside ours": (
        [{"Key": "k", "Value": "v"}],
        [{"Key": "a", "Value": ""}, {"Key": "k", "Value": "v"}],
    ),
    "a document as text": ({"Policy": {"a": ["b"]}}, {"Policy": '{"a": ["b"]}'}),
}
DIFFERENT = {
    "another value": ({"a": 1}, {"a": 2}, "a"),
    "an absent one": ({"a": {"b": 1}}, {"a": {}}, "a.b"),
    "one item more": (["a"], ["a", "b"], ""),
    "deep in a list": ({"l": [{"a": {"b": 1}}]}, {"l": [{"a": {"b": 2}}]}, "l[].a.b"),
    "the same item twice": (["a", "a"], ["a", "b"], "[]"),
    "text that is no document": ({"a": {"b": 1}}, {"a": "{no"}, "a"),
}


@pytest.mark.parametrize(("template", "actual"), SAME.values(), ids=SAME)
def test_no_difference(template, actual):
    assert list(find_differences(template, actual, "")) == []


@pytest.mark.parametrize(("template", "actual", "where"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_named_by_its_place(template, actual, where):
    assert [part.property_path for part in find_differences(template, actual, "")] == [where]
