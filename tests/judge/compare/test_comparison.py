"""Two runs beside each other. What a control finds of a run is stated here: it has tests of its
own."""

import dataclasses
import itertools

import msgspec
import numpy as np
import pytest
from observed import Asked, observed

from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.manifest import SuiteEntry
from tandem.errors import InputError
from tandem.judge.compare import comparison as module
from tandem.judge.compare.comparison import compare_tables
from tandem.judge.schema import BottleneckRound, NoiseFloor, RatioEstimate, RunControls

C4 = LoadLevel(concurrency=4)
METRICS = ("tpot_ms", "e2e_ms", "ttft_ms", "output_tokens_per_s")


def floors(ratio):
    return RunControls(
        floors=tuple(
            NoiseFloor(
                class_="repeat",
                load=C4,
                metric=metric,
                speed_up=RatioEstimate(value=1.0),
                ratio=ratio,
            )
            for metric in METRICS
        )
    )


@pytest.fixture(autouse=True)
def controls_by_day(monkeypatch):
    """What the controls find, by the day of a run; floors of 1 % unless a test says other."""
    by_day = {}
    monkeypatch.setattr(
        module, "check_controls", lambda seen: by_day.get(seen.run.created_utc[:10], floors(1.01))
    )
    return by_day


def ask_prompts(day, times_ms, *, class_="repeat", rounds=4, answers=None):
    """Twelve prompts of a class in each round, each arm's time spread over prompts and jittered by
    a share of 1 %.

    `answers` has fields of each arm's requests.
    """
    rng = np.random.default_rng(day)
    return [
        Asked(
            arm=arm,
            class_=class_,
            prompt=f"{class_}-{number}",
            round=round_,
            e2e_ms=ms * (1 + number / 10) * float(np.exp(rng.normal(0, 0.01))),
            **(answers or {}).get(arm, {}),
        )
        for round_, (arm, ms), number in itertools.product(
            range(rounds), times_ms.items(), range(12)
        )
    ]


def run(day, spec=500.0, base=1000.0, requests=(), arms=("base", "spec"), answers=None, **changes):
    """Four rounds of `repeat`, and the other requests."""
    own = ask_prompts(day, dict(zip(arms, (base, spec), strict=True)), answers=answers)
    return observed(
        [*own, *requests], arms=arms, created_utc=f"2026-11-{day:02}T00:00:00Z", **changes
    )


def row(before, after, metric="e2e_ms", kind="figure"):
    comparison = compare_tables(before, after, margin=0.05)
    return next(
        entry
        for entry in comparison.rows
        if (entry.kind, entry.arm, entry.metric) == (kind, "spec", metric)
    )


def answered(**fields):
    return {"answers": {"base": fields, "spec": fields}}


@pytest.mark.parametrize(
    ("both", "later", "metric", "word"),
    [
        ({}, {"spec": 250.0}, "e2e_ms", "faster"),
        ({}, {"spec": 250.0}, "output_tokens_per_s", "faster"),
        ({}, {}, "e2e_ms", "same"),
        (answered(content="garbage"), {"spec": 250.0}, "e2e_ms", "faster"),
        ({}, {"spec": 125.0, "answers": {"spec": {"tokens": 32.0}}}, "tpot_ms", "faster"),
    ],
    ids=[
        "time",
        "rate",
        "same",
        "broken alike",
        "time of a token",
    ],
)
def test_word_of_an_arm_s_own_figure(both, later, metric, word):
    assert row(run(1, **both), run(2, **{**both, **later}), metric=metric).verdict == word


@pytest.mark.parametrize("kind", ["figure", "gain"])
def test_survivors_of_one_run_are_not_called(kind):
    lost = [
        Asked(arm="spec", prompt=f"repeat-{number}", repeat=1, error="closed")
        for number in range(12)
    ]
    figure = row(run(1), run(2, spec=250.0, requests=lost), kind=kind)
    assert figure.speed_up.low > 1.5
    assert figure.verdict == "no evidence"
    assert "12 of 60 requests of" in figure.why


def test_without_both_floors_nothing_is_called(controls_by_day):
    controls_by_day["2026-11-02"] = RunControls()
    comparison = compare_tables(run(1), run(2, spec=250.0), margin=0.05)
    assert {entry.verdict for entry in comparison.rows} == {"no evidence"}
    assert "--control-rounds" in comparison.rows[0].why


@pytest.mark.parametrize(("rounds", "word"), [(3, "no evidence"), (4, "faster")])
def test_a_class_of_fewer_than_four_rounds_is_not_called(rounds, word, controls_by_day):
    both_floors = [
        msgspec.structs.replace(floor, class_=class_)
        for floor, class_ in itertools.product(floors(1.01).floors, ("repeat", "json"))
    ]
    controls_by_day["2026-11-01"] = controls_by_day["2026-11-02"] = RunControls(
        floors=tuple(both_floors)
    )
    days = [
        with_two_classes(day, spec, second="json", rounds=rounds)
        for day, spec in ((1, 500.0), (2, 250.0))
    ]
    words = {
        (entry.kind, entry.class_): entry.verdict
        for entry in compare_tables(*days, margin=0.05).rows
        if (entry.arm, entry.metric) == ("spec", "e2e_ms")
    }
    assert (words["figure", "repeat"], words["gain", "repeat"]) == ("faster", "faster")
    assert (words["figure", "json"], words["gain", "json"]) == (word, word)


def test_a_gain_without_a_shared_round_is_not_called():
    def shift_rounds(seen):
        return dataclasses.replace(seen, round=seen.round + 4 * seen.arm_mask("spec"))

    assert row(shift_rounds(run(1)), run(2, spec=250.0), kind="gain").verdict == "no evidence"


def test_a_difference_inside_both_floors_together_is_not_called(controls_by_day):
    controls_by_day["2026-11-01"] = controls_by_day["2026-11-02"] = floors(1.2)
    below = row(run(1), run(2, spec=400.0))
    beyond = row(run(1), run(2, spec=300.0))
    assert below.noise_floor == pytest.approx(1.44)
    assert (below.verdict, beyond.verdict) == ("no evidence", "faster")


def test_the_gain_over_the_baseline_is_free_of_the_day():
    slow_day = run(2, spec=600.0, base=1200.0)
    assert row(run(1), slow_day).verdict == "slower"
    gain = row(run(1), slow_day, kind="gain")
    assert gain.verdict == "same"
    assert (gain.before, gain.after) == (pytest.approx(2.0, rel=0.02), pytest.approx(2.0, rel=0.02))


def test_baselines_of_two_names_compare_no_gains():
    comparison = compare_tables(run(1), run(2, arms=("old", "spec")), margin=0.05)
    assert {entry.kind for entry in comparison.rows} == {"figure"}
    assert any("the baselines are base and old" in note for note in comparison.notes)


@pytest.mark.parametrize("kind", ["figure", "gain"])
@pytest.mark.parametrize("word", ["garbage", "empty", "loop", "refusal"])
def test_answers_that_the_later_run_breaks_are_not_called_faster(kind, word):
    figure = row(run(1), run(2, spec=250.0, answers={"spec": {"content": word}}), kind=kind)
    assert figure.verdict == "no evidence"
    assert "the content check refused 48 of 48 answers of " in figure.why


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "figure",
            (
                "the later answers are 0.50 times as long (0.50 to 0.50), so their times are not"
                " those of the same"
            ),
        ),
        (
            "gain",
            (
                "beside its baseline's, the later answers are 0.50 times as long (0.50 to 0.50), so"
                " their times are"
            ),
        ),
    ],
)
def test_a_shorter_time_of_shorter_answers_is_not_called_faster(kind, sentence):
    figure = row(run(1), run(2, spec=250.0, answers={"spec": {"tokens": 32.0}}), kind=kind)
    assert figure.verdict == "no evidence"
    assert figure.why.startswith(sentence)


def test_lengths_that_nobody_counted_are_said_to_be_unknown():
    no_count = {"answers": {"spec": {"tokens": float("nan")}}}
    comparison = compare_tables(run(1), run(2, spec=250.0, **no_count), margin=0.05)
    assert (
        "tokens of spec were not counted in both runs: whether its answers are of one length is not"
        " known" in (comparison.notes)
    )
    assert not any("tokens of base" in note for note in comparison.notes)


def test_rounds_that_a_control_marked_are_left_out(controls_by_day):
    late = [
        Asked(arm="spec", prompt=f"repeat-{number}", round=7, e2e_ms=9_000) for number in range(12)
    ]
    controls_by_day["2026-11-02"] = msgspec.structs.replace(
        floors(1.01), marked=(BottleneckRound(round=7, sentence="the client was busy"),)
    )
    assert row(run(1), run(2, requests=late)).verdict == "same"


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"temperature": 0.7}, "temperature"), ({"schedule": "simultaneous"}, "schedule")],
)
def test_runs_that_were_asked_differently_are_compared_and_not_called(changes, what):
    comparison = compare_tables(run(1), run(2, spec=250.0, **changes), margin=0.05)
    assert [difference.what for difference in comparison.differences if difference.blocks] == [what]
    assert {entry.verdict for entry in comparison.rows} == {"no evidence"}


def suite_entry(name):
    return SuiteEntry(name=name, sha256="2" * 64, prompts=24, classes=("repeat",))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lambda: run(2, suites=(suite_entry("a"),)), "no suite in common"),
        (lambda: run(2, suites=(suite_entry("real"),)), "suite real has other content"),
    ],
)
def test_what_cannot_be_compared_is_refused(after, words):
    with pytest.raises(InputError, match=words):
        compare_tables(run(1), after(), margin=0.05)


def test_outputs_of_both_runs_are_counted_where_they_are_identical():
    assert compare_tables(run(1), run(2, temperature=0.7), margin=0.05).outputs == ()
    second = [Asked(arm="spec", prompt="q", text=text) for text in ("x", "y")]
    comparison = compare_tables(
        run(1, requests=second[:1]), run(2, requests=second[1:]), margin=0.05
    )
    assert [
        (output.arm, output.identical.n, output.identical.of) for output in comparison.outputs
    ] == [
        ("base", 12, 12),
        ("spec", 12, 13),
    ]


def test_a_void_run_calls_nothing_and_says_why(controls_by_day):
    controls_by_day["2026-11-01"] = RunControls(void=("the baseline differs from itself",))
    comparison = compare_tables(run(1), run(2, spec=250.0), margin=0.05)
    assert comparison.before.void == ("the baseline differs from itself",)
    assert {entry.verdict for entry in comparison.rows} == {"no evidence"}


def with_two_classes(day, spec, second="all", rounds=4):
    """A run of `repeat` and of a second class, twelve prompts each."""
    times_ms = {"base": 1000.0, "spec": spec}
    requests = ask_prompts(day, times_ms, class_=second, rounds=rounds)
    return run(day, spec=spec, requests=requests)


def test_all_classes_together_have_a_floor_of_their_own(controls_by_day):
    floor = NoiseFloor(
        class_="all", load=C4, metric="e2e_ms", speed_up=RatioEstimate(value=1.0), ratio=1.02
    )
    controls = msgspec.structs.replace(floors(1.01), overall_floors=(floor,))
    controls_by_day |= {f"2026-11-{day:02}": controls for day in (1, 2)}
    comparison = compare_tables(with_two_classes(1, 500.0), with_two_classes(2, 250.0), margin=0.05)
    (figure,) = [
        entry for entry in comparison.overall if (entry.kind, entry.arm) == ("figure", "spec")
    ]
    assert (figure.prompts, figure.verdict, round(figure.noise_floor, 4)) == (24, "faster", 1.0404)


def test_survivors_of_a_class_bar_all_prompts():
    later = with_two_classes(2, 250.0)
    rows = np.flatnonzero((later.arm == 1) & (later.class_ == 0))[:8]
    failed = dataclasses.replace(later, failed=later.failed | np.isin(np.arange(len(later)), rows))
    comparison = compare_tables(with_two_classes(1, 500.0), failed, margin=0.05)
    (figure,) = [
        entry for entry in comparison.overall if (entry.kind, entry.arm) == ("figure", "spec")
    ]
    assert figure.verdict == "no evidence"
    assert figure.why.endswith("only survivors could be compared (class repeat)")
