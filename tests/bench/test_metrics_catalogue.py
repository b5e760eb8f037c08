from __future__ import annotations

import pytest

from tandem.metrics import CATALOGUE, acceptance_position, find_metric

UNITS = {"_ms": {"ms"}, "_per_s": {"tokens/s", "requests/s"}}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_unit_in_a_name_is_the_metrics_unit(name):
    for ending, units in UNITS.items():
        if name.endswith(ending):
            assert find_metric(name).unit in units


@pytest.mark.parametrize(
    "name", ["acceptance_position_0", "acceptance_position_", "ttft", "itl_ms"]
)
def test_each_position_of_a_draft_has_its_metric(name):
    assert acceptance_position(3) == "acceptance_position_3"
    assert "token 3 was accepted" in find_metric("acceptance_position_3").definition
    with pytest.raises(KeyError):
        find_metric(name)
