import itertools

import pytest
from observed import (
    JITTER,
    MARGIN,
    STEADY,
    Asked,
    Truth,
    drawn,
    judge_cells,
    observed,
    table,
)

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.pairs import JUDGED_METRICS
from tandem.judge.schema import NoiseFloor, RatioEstimate, RunControls

pytestmark = pytest.mark.filterwarnings("error")

UNCONTROLLED = RunControls()
ASKED = LoadLevel(concurrency=4)


def judged(seen, controls=UNCONTROLLED, metric="e2e_ms", **options):
    cells = judge_cells(seen, controls, **{"margin": MARGIN, **options})
    return {(cell.variant, cell.class_): cell for cell in cells if cell.metric == metric}


def one(seen, controls=UNCONTROLLED, **options):
    (cell,) = judged(seen, controls, "e2e_ms", **options).values()
    return cell


def at(ratio, jitter=JITTER, **more):
    """Six prompts whose variant is `ratio` times as fast, a little more or less."""
    return table(
        {
            "repeat": {
                "base": STEADY,
                "spec": [ms / ratio * by for ms, by in zip(STEADY, jitter, strict=True)],
            }
        },
        **more,
    )


def floor(ratio, metric="e2e_ms", class_="repeat", load=ASKED):
    return NoiseFloor(
        class_=class_, load=load, metric=metric, speed_up=RatioEstimate(value=1.0), ratio=ratio
    )


def floored(ratio):
    return RunControls(floors=tuple(floor(ratio, metric) for metric in JUDGED_METRICS))


def test_a_variant_of_half_the_time_is_faster():
    cell = one(at(2.0), floored(1.02))
    assert cell.verdict == "faster"
    assert cell.speed_up is not None
    assert cell.speed_up.value == pytest.approx(2.0, rel=0.01)
    assert cell.why.startswith("speed-up 2.00 (")
    assert cell.why.endswith("p < 0.001, corrected for 6 tests; beyond the noise floor of 1.020")


@pytest.mark.parametrize(
    ("ratio", "word"),
    [(1.3, "faster"), (1.1, "no evidence"), (0.9, "no evidence"), (0.8, "slower")],
)
def test_what_the_baseline_differs_from_itself_by_is_never_called(ratio, word):
    cell = one(at(ratio), floored(1.2))
    assert cell.adjusted_p < 0.05
    assert (cell.verdict, cell.noise_floor) == (word, 1.2)
    assert word != "no evidence" or "); within the noise floor of 1.20" in cell.why
    assert (word == "no evidence") == cell.why.endswith(
        "; what would decide it is not known: more control rounds may lower the floor"
    )


def test_a_floor_of_another_cell_is_not_this_ones():
    second = (
        floor(9.0, "ttft_ms"),
        floor(9.0, class_="chat"),
        floor(9.0, load=LoadLevel(concurrency=1)),
    )
    assert one(at(2.0), RunControls(floors=second)).noise_floor is None


def test_a_wide_interval_says_what_would_decide_it():
    cell = one(at(1.0, (0.7, 1.4, 0.8, 1.2, 0.9, 1.1)))
    assert cell.verdict == "no evidence"
    assert cell.more_prompts > 6
    assert "), not significant (p = 1.0, corrected for 6 tests); " in cell.why
    assert f"about {cell.more_prompts:,} prompts in all would decide it" in cell.why


def test_cells_of_every_variant_count_as_one_family():
    seen = drawn(Truth(ratio={"spec": {"repeat": 1.0}, "other": {"repeat": 1.0}}), seed=2)
    cells = judge_cells(seen, RunControls(), margin=MARGIN)
    assert len(cells) == 2 * len(JUDGED_METRICS)
    least = min(cells, key=lambda cell: cell.p)
    assert least.adjusted_p == pytest.approx(min(12 * least.p, 1.0))


def why(seen, **of):
    cell = judged(seen, metric="e2e_ms")[of.get("variant", "spec"), of.get("class_", "repeat")]
    assert cell.verdict == "no evidence"
    assert cell.p is cell.adjusted_p is cell.detectable is cell.more_prompts is None
    return cell.why


@pytest.mark.parametrize(
    ("base", "spec", "reason"),
    [
        ({}, None, "spec has no answer with e2e_ms here in a round that counts"),
        (None, {}, "base has no answer with e2e_ms here in a round that counts"),
        ({}, {"error": "closed"}, "spec has no answer with e2e_ms here in a round that counts"),
        ({}, {"round": 1}, "both arms answered 0 prompts; an interval needs 3"),
    ],
)
def test_what_keeps_a_cell_from_an_estimate_is_named(base, spec, reason):
    arms = {name: fields for name, fields in (("base", base), ("spec", spec)) if fields is not None}
    rows = [
        Asked(arm=arm, prompt=f"p{n}", **fields)
        for (arm, fields), n in itertools.product(arms.items(), range(6))
    ]
    others = [
        Asked(arm=arm, class_="chat", prompt=f"c{n}", round=number, e2e_ms=ms * STEADY[n])
        for number, (arm, ms), n in itertools.product(
            range(4), (("base", 1.0), ("spec", 0.5)), range(6)
        )
    ]
    assert why(observed([*rows, *others])) == reason
    bars_all = spec == {"error": "closed"}  # then the whole run compares survivors
    assert (judged(observed([*rows, *others]))["spec", "chat"].verdict == "faster") is not bars_all


def test_a_run_without_a_record_has_no_cell():
    assert judge_cells(observed([]), RunControls(), margin=MARGIN) == ()


def test_at_a_true_ratio_of_1_few_reports_call():
    truth = Truth(ratio={"spec": {"a": 1.0, "b": 1.0}}, spread=0.15)
    reports = [judge_cells(drawn(truth, seed), UNCONTROLLED, margin=MARGIN) for seed in range(16)]
    assert (
        sum(any(cell.verdict in {"faster", "slower"} for cell in report) for report in reports) <= 2
    )
