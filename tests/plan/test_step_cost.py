"""The model of a step held against what was published, each row left out in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
import theory
import yaml
from theory_model import compute_error, hold_rows_out, predict_speed_up

from tandem.plan.measurement_rows import PUBLISHED_FILE, load_published
from tandem.plan.step_cost import fit_draft_cost, imply_draft_ms
from tandem.spec.faults import SpecError

ROWS = load_published()
USED = [row for row in ROWS if row.left_out is None]


def change_file(folder: Path, name: str, **fields: object) -> Path:
    data = yaml.safe_load(PUBLISHED_FILE.read_text())
    (row,) = [row for row in data["rows"] if row["name"] == name]
    row.update(fields)
    path = folder / "published.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_the_median_error_is_at_most_15_percent_and_below_both_naive_rules():
    errors = theory.compute_median_errors(list(hold_rows_out(ROWS)))
    assert errors["predicted"] <= 0.15
    assert errors["predicted"] < min(errors["mean_of_others"], errors["tokens_alone"])


def test_every_row_is_used_or_says_why_not():
    assert all((row.tokens is None) == bool(row.left_out) for row in ROWS)
    assert len(USED) >= 4


def test_a_changed_row_moves_its_own_measured_figure_and_only_others_predictions(tmp_path):
    name = USED[0].name
    path = change_file(tmp_path, name, speculative_tpot_ms={"value": 7.0, "source": "eagle3-llama"})
    before, after = ({entry.row.name: entry for entry in hold_rows_out(rows)} for rows in (ROWS, load_published(path)))
    assert before[name].predicted == after[name].predicted
    assert all(before[other].predicted != after[other].predicted for other in before if other != name)


def test_the_cost_of_a_forward_gives_back_the_row_it_was_taken_from():
    row = USED[0]
    predicted = predict_speed_up(row.tokens, row.window, imply_draft_ms(row), row.baseline_tpot_ms.value)
    assert compute_error(predicted, row.speed_up) == pytest.approx(0, abs=1e-12)


def test_a_free_draft_gives_the_tokens_of_a_step():
    assert predict_speed_up(5.217, 7, 0.0, 20.0) == 5.217


def test_rows_that_are_all_left_out_fit_nothing():
    with pytest.raises(ValueError, match="no published row"):
        fit_draft_cost([row for row in ROWS if row.left_out])


@pytest.mark.parametrize("fields", [{"tokens": None}, {"window": 0}, {"speed": 2}])
def test_a_row_that_is_malformed_is_refused(tmp_path, fields):
    with pytest.raises(SpecError):
        load_published(change_file(tmp_path, USED[0].name, **fields))
