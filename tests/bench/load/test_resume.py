"""What a resumed run knows of its first part."""

from __future__ import annotations

import pytest
from measured import arm, failed, record, run_manifest, write_run

from tandem.bench.load.resume import continue_manifest, read_history
from tandem.errors import InputError


def test_a_request_that_an_interrupt_cut_is_not_done(tmp_path):
    cut = failed(request_id="r-1", error="interrupted")
    history = read_history(write_run(tmp_path, [record(request_id="r-0~2"), cut]), print)
    assert (history.done_ids, history.interrupt_counts) == ({"r-0"}, {"r-1": 1})


def test_spent_time_is_that_of_each_turn_once(tmp_path):
    beside = record(request_id="r-1", start_s=1000.1)
    later = record(request_id="r-2", start_s=5000.0, round=1)
    assert read_history(
        write_run(tmp_path, [record(), beside, later]), print
    ).spent_s == pytest.approx(0.4 + 0.3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seed": 2}, "seed was 1 when this run began and is 2 now"),
        ({"environment": "test"}, 'environment was null when this run began and is "test" now'),
        (
            {"arms": (arm("base", role="baseline", simulated=True), arm("spec"))},
            r"arms\[base\].simulated was false when this run began and is true now",
        ),
    ],
    ids=["seed", "environment", "simulated"],
)
def test_another_setting_is_refused_by_its_name(tmp_path, changes, problem):
    with pytest.raises(InputError, match=problem):
        continue_manifest(run_manifest(), run_manifest(**changes), tmp_path)
