"""Names as codes, and rows in groups."""

from __future__ import annotations

import numpy as np

from tandem.bench.figures.row_groups import NO_NAME, RowGroups, encode_names


def test_first_names_lead_and_the_others_are_sorted():
    names, codes = encode_names(["c", "a", "b", "a"], first_names=("b", "z"))
    assert (names, codes.tolist()) == (("b", "a", "c"), [2, 1, 0, 1])


def test_a_required_name_needs_no_row():
    assert encode_names(["a"], ("z", "a"), ("z",))[0] == ("z", "a")


def test_none_is_no_name_and_last_in_a_pair():
    names, codes = encode_names([(None, 2.5), (4, None), None])
    assert (names, codes.tolist()) == (((4, None), (None, 2.5)), [1, 0, NO_NAME])


def test_groups_of_one_name_are_joined():
    groups = RowGroups(["a", "b", "c"], np.array([0, 1, 2, 1])).rename(["x", "y", "x"])
    assert dict(zip(groups.keys, groups.sum(np.ones(4)).tolist(), strict=True)) == {"x": 2, "y": 2}


def test_values_are_split_by_group_without_nan():
    groups = RowGroups(["a", "b"], np.array([1, 0, 1]))
    parts = {key: part.tolist() for key, part in groups.split(np.array([1.0, np.nan, 3.0]))}
    assert parts == {"a": [], "b": [1.0, 3.0]}
