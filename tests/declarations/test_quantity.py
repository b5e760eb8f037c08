"""Quantities in the form that Kubernetes stores, by the examples of its own source."""

from __future__ import annotations

import pytest

from tandem.declarations.quantity import spell_count, spell_gib, spell_mib, spell_thousandths


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (0, "0"),
        (480, "480Mi"),
        (1536, "1536Mi"),
        (2048, "2Gi"),
        (3 * 1024, "3Gi"),
        (1024 * 1024, "1Ti"),
    ],
)
def test_a_size_has_the_largest_suffix_that_loses_nothing(mib, expected):
    assert spell_mib(mib) == expected


@pytest.mark.parametrize(
    ("gib", "expected"), [(1, "1Gi"), (700, "700Gi"), (1024, "1Ti"), (1536, "1536Gi")]
)
def test_a_size_in_gib(gib, expected):
    assert spell_gib(gib) == expected


@pytest.mark.parametrize(
    ("thousandths", "expected"),
    [(0, "0"), (250, "250m"), (1000, "1"), (1500, "1500m"), (45_000, "45")],
)
def test_processors_have_no_fraction(thousandths, expected):
    assert spell_thousandths(thousandths) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (1008, "1008")]
)
def test_a_thousand_is_stored_as_1k(count, expected):
    assert spell_count(count) == expected
