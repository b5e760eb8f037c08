"""The model of a step held against what was published, each pair of servers left out in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
import theory
import yaml

from tandem.declarations.faults import SpecError
from tandem.plan.measurement_rows import PUBLISHED_FILE, SERVED_DENSE, RowKind, load_published
from tandem.plan.step_cost import (
    find_objection,
    fit_step_cost,
    fit_verified_share,
    hold_rows_out,
    imply_draft_ms,
    predict_range,
)

ROWS = load_published()
USED = [row for row in ROWS if row.left_out is None]
KINDS = list(dict.fromkeys(row.kind for row in USED))
EXPERTS = RowKind("mixture of experts", "sequential", is_served=True)


def change_file(folder: Path, name: str, **fields: object) -> Path:
    data = yaml.safe_load(PUBLISHED_FILE.read_text())
    (row,) = [row for row in data["rows"] if row["name"] == name]
    row.update(fields)
    path = folder / "published.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def find_row(name):
    (row,) = [row for row in ROWS if row.name == name]
    return row


def test_each_range_of_a_kind_with_numbers_contains_its_row():
    held_rows = [
        row_out for row_out in hold_rows_out(ROWS) if not find_objection(ROWS, row_out.row.kind)
    ]
    assert {row_out.row.pair for row_out in held_rows} == {
        "llama-3.1-8b-eagle3",
        "llama-3.3-70b-fused",
    }
    assert all(row_out.is_within for row_out in held_rows)


def test_rows_of_one_pair_do_not_predict_each_other():
    predictions = {row_out.row.name: row_out.predicted for row_out in hold_rows_out(ROWS)}
    cost = fit_step_cost([row for row in ROWS if row.pair != "llama-3.3-70b-fused"], SERVED_DENSE)
    assert predictions["llama-3.3-70b-fused-earlier"] == predict_range(
        find_row("llama-3.3-70b-fused-earlier"), cost
    )


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind != SERVED_DENSE], ids=lambda kind: kind.words
)
def test_a_kind_of_one_pair_has_no_number(kind):
    assert find_objection(ROWS, kind).startswith("one pair of servers was published (")
    assert [
        row_out.predicted
        for row_out in hold_rows_out(ROWS)
        if row_out.row.kind == kind and row_out.predicted
    ] == []


def test_a_kind_that_nobody_published_has_no_number():
    kind = RowKind("dense", "parallel", is_served=True)
    assert find_objection(ROWS, kind).startswith("no pair of servers was published")
    with pytest.raises(ValueError, match="no published row of this kind"):
        fit_step_cost(ROWS, kind)


def test_a_kind_whose_pairs_contradict_each_other_has_no_number():
    slow = find_row("gpt-oss-120b-eagle3").model_copy(
        update={"name": "slow", "pair": "slow", "tokens": 7.0}
    )
    assert find_objection([*ROWS, slow], EXPERTS).startswith("the published rows do not predict ")


def test_a_lower_assumed_acceptance_is_noticed():
    objections = {}
    for tokens in (5.9, 5.6):
        names = [row.model_copy(update={"tokens": tokens}) if row.assumed else row for row in ROWS]
        objections[tokens] = bool(find_objection(names, SERVED_DENSE))
    assert objections == {5.9: False, 5.6: True}


def test_a_verified_token_costs_what_p_eagle_says():
    rows = [row for row in USED if "july-17" in row.name]
    assert fit_verified_share(ROWS, "mixture of experts") == pytest.approx(6.3 / 19.2, abs=0.01)
    assert fit_verified_share(rows, "mixture of experts") == pytest.approx(0.40, abs=0.01)


def test_rows_of_another_implementation_fit_no_served_kind():
    slow = find_row("llama-3.1-8b-eagle3").model_copy(update={"pair": "slow", "tokens": 9.0})
    native, foreign = (
        [*ROWS, slow.model_copy(update={"implementation": name})] for name in ("native", "other")
    )
    assert fit_step_cost(native, SERVED_DENSE) != fit_step_cost(ROWS, SERVED_DENSE)
    assert fit_step_cost(foreign, SERVED_DENSE) == fit_step_cost(ROWS, SERVED_DENSE)


def test_every_row_is_used_or_says_why_not():
    assert all((row.tokens is None) == bool(row.left_out) for row in ROWS)
    assert len(USED) >= 21


def test_the_cost_of_a_forward_gives_back_its_row():
    row = find_row("llama-3.1-8b-eagle3")
    cost = fit_step_cost([row], SERVED_DENSE)
    assert predict_range(row, cost).middle == pytest.approx(row.speed_up)
    assert cost.draft_ms == imply_draft_ms(row, 0.0)


def test_few_tokens_gain_at_no_plain_tpot():
    assert fit_step_cost(ROWS, SERVED_DENSE).find_gain_tpot(1.2, 3, 3) is None


@pytest.mark.parametrize("fields", [{"tokens": None}, {"window": 0}])
def test_a_row_that_is_malformed_is_refused(tmp_path, fields):
    with pytest.raises(SpecError):
        load_published(change_file(tmp_path, USED[0].name, **fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "forecast 1.22 to 2.44: contains it"),
        ({"speculative_tpot_ms": {"value": 2.0, "source": "eagle3-llama"}}, "MISSES IT"),
        ({"concurrency": 8}, "no number: nobody published a load above 2"),
        ({"target": "mixture of experts"}, "no number: one pair of servers was published"),
    ],
)
def test_a_row_of_ones_own_is_compared_with_the_published(tmp_path, fields, words):
    lines = list(theory.compare_rows(change_file(tmp_path, "llama-3.1-8b-eagle3", **fields)))
    assert lines[0].startswith("llama-3.1-8b-eagle3: measured ")
    assert words in lines[0]
