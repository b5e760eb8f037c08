from itertools import product

import numpy as np
import pytest
from observed import JITTER, MARGIN, STEADY, Asked, headline, judge_cells, observed, table, with_figures

from tandem.judge.schema import ControlCheck, OutputEquality, RatioEstimate, RunControls, ShareEstimate

pytestmark = pytest.mark.filterwarnings("error")

WITHIN = "Within the starts that were measured, "
WIDE = (0.7, 1.4, 0.8, 1.2, 0.9, 1.1)
UNCONTROLLED = RunControls()


def run(wide=(), **ratios):
    """A run in which `spec` is so many times as fast in each class."""
    times = {
        name: [ms / ratio * by for ms, by in zip(STEADY, WIDE if name in wide else JITTER, strict=True)]
        for name, ratio in ratios.items()
    }
    return table({name: {"base": STEADY, "spec": spec} for name, spec in times.items()})


def equality(result="the same", **changes):
    return OutputEquality(variant="spec", by="characters", result=result, sentence=f"Outputs: {result}.", **changes)


def lengths(seen, variant=32.0, class_=None):
    """The same with answers of `variant` tokens by spec, of one class or of all."""
    rows = seen.arm_mask("spec") & (True if class_ is None else seen.class_ == seen.classes.index(class_))
    return with_figures(seen, completion_tokens=np.where(rows, variant, seen.figures["completion_tokens"]))


def test_the_sentence_says_what_a_manager_asks():
    found = headline(run(repeat=2.1, json=1.9, chat=1.0))
    assert found.sentence == (
        f"{WITHIN}spec against base: repeat and json prompts 1.9 to 2.1 times as fast; chat prompts as fast "
        "(to within 5 %); outputs are the same."
    )
    assert (found.finding, found.metric) == ("faster", "e2e_ms")
    assert found.faster == ("repeat at concurrency 4", "json at concurrency 4")
    assert found.same == ("chat at concurrency 4",)


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ({"a": 2.0, "b": 1.0}, "faster"),
        ({"a": 0.5, "b": 1.0}, "slower"),
        ({"a": 2.0, "b": 0.5}, "mixed"),
        ({"a": 1.0, "b": 1.0}, "same"),
    ],
)
def test_the_word_is_of_all_classes_together(ratios, word):
    assert headline(run(**ratios)).finding == word


def test_one_open_class_keeps_the_rest_from_being_the_same():
    found = headline(run(("b",), a=1.0, b=1.0))
    assert (found.verdict, found.same, found.undecided) == (
        "no evidence", ("a at concurrency 4",), ("b at concurrency 4",),
    )  # fmt: skip
    assert "for b prompts there is no evidence" in found.sentence
    assert any(reason.startswith("b at concurrency 4: speed-up ") for reason in found.reasons)


def test_a_failed_control_voids_whatever_was_found():
    found = headline(run(a=2.0), RunControls(void=("the baseline is 1.31 times as fast as itself",)))
    assert found.verdict == "void"
    assert found.sentence.startswith("The run is void, so nothing is concluded of spec: the baseline is 1.31")
    assert (found.faster, found.slower, found.same, found.undecided) == ((), (), (), ())


def test_no_cell_of_a_void_run_is_called():
    seen = run(a=2.0)
    found = judge_cells(seen, RunControls(void=("drift",)), margin=MARGIN)
    assert {(cell.verdict, cell.why) for cell in found} == {("no evidence", "void: drift")}
    assert all(cell.speed_up is not None for cell in found)


def failing(share, arm="spec"):
    rows = [
        Asked(arm=one, prompt=f"p{number}", round=repeat, e2e_ms=ms * by * (1.0 if one == "base" else 0.5),
              error="closed" if one == arm and (6 * repeat + number) % 10 < 10 * share else None)
        for one, repeat, (number, (ms, by)) in product(
            ("base", "spec"), range(10), enumerate(zip(STEADY, JITTER, strict=True))
        )
    ]  # fmt: skip
    return observed(rows)


@pytest.mark.parametrize("arm", ["base", "spec"])
def test_an_arm_that_fails_what_the_other_answers_cannot_be_compared(arm):
    found = headline(failing(0.2, arm))
    assert (found.verdict, found.faster) == ("not comparable", ())
    counts = {"base": "0 of 60 requests of spec failed, 12 of 60 of base."}
    assert found.sentence.endswith(counts.get(arm, "12 of 60 requests of spec failed, 0 of 60 of base."))


def test_one_failure_is_told_and_does_not_bar_a_verdict():
    seen = failing(0.0)
    failed = seen.failed.copy()
    failed[-1] = True
    object.__setattr__(seen, "failed", failed)
    found = headline(seen)
    assert found.finding == "faster"
    assert "1 of 60 requests of spec failed, 0 of 60 of base." in found.reasons


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": RatioEstimate(value=0.5, low=0.45, high=0.55)},
        {"lengths": RatioEstimate(value=2.0, low=1.9, high=2.1)},
        {"garbage": ShareEstimate(n=6, of=60), "garbage_of_baseline": ShareEstimate(n=0, of=60)},
        {"garbage": ShareEstimate(n=6, of=60)},
    ],
)
def test_an_arm_that_cuts_rambles_or_breaks_its_answers_is_never_just_faster(changes):
    found = headline(run(a=2.0), equal=(equality("no evidence", **changes),))
    assert found.verdict == "faster within one start but not the same output"


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": RatioEstimate(value=0.9, low=0.8, high=1.01)},
        {"lengths": RatioEstimate(value=0.97, low=0.96, high=0.98)},
        {"garbage": ShareEstimate(n=6, of=60), "garbage_of_baseline": ShareEstimate(n=6, of=60)},
    ],
)
def test_lengths_and_broken_answers_as_the_baselines_own_change_nothing(changes):
    assert headline(run(a=2.0), equal=(equality(**changes),)).finding == "faster"


def test_one_class_of_shorter_answers_is_not_the_same_output():
    found = headline(lengths(run(a=2.0, b=1.0), 32.0, "a"))
    assert found.verdict == "faster within one start but not the same output"
    assert "answers to a prompts are 0.50 times as long: see their TPOT." in found.reasons


def test_equal_times_of_shorter_answers_are_not_the_same():
    found = headline(lengths(run(a=1.0)))
    assert (found.verdict, found.same, found.undecided) == ("no evidence", (), ("a at concurrency 4",))


def test_longer_answers_do_not_hide_that_a_user_waits_longer():
    found = headline(lengths(run(a=0.5), 128.0))
    assert found.finding == "slower"
    assert any(reason.startswith("answers to a prompts are 2.00 times as long") for reason in found.reasons)


def test_lengths_whose_interval_reaches_the_margin_are_no_other_lengths():
    seen = run(a=2.0)
    shares = np.array([0.7, 1.1, 0.8, 1.05, 0.9, 0.85])
    tokens = np.where(seen.arm_mask("spec"), 64 * np.tile(shares, 8), 64.0)
    assert headline(with_figures(seen, completion_tokens=tokens)).finding == "faster"


def test_a_range_is_of_intervals_and_not_of_estimates():
    seen = run(("a",), a=3.0)
    (cell,) = (cell for cell in judge_cells(seen, UNCONTROLLED, margin=MARGIN) if cell.metric == "e2e_ms")
    assert cell.speed_up.high > 1.1 * cell.speed_up.value
    assert f"a prompts {cell.speed_up.low:.1f} to {cell.speed_up.high:.1f} times as fast" in headline(seen).sentence


def test_lengths_that_nobody_counted_are_said_to_be_unknown():
    seen, unknown = run(a=2.0), "no server counted tokens of 3 prompts: whether answers are of one length is not known."
    assert unknown in headline(lengths(seen, np.nan)).reasons
    assert unknown not in headline(seen).reasons


def test_loads_are_named_where_there_are_several():
    rows = [
        Asked(arm=arm, concurrency=load, prompt=f"p{n}", round=number, e2e_ms=ms * by / (ratio if arm == "spec" else 1))
        for number in range(4) for load, ratio in ((1, 2.0), (8, 1.0)) for arm in ("base", "spec")
        for n, (ms, by) in enumerate(zip(STEADY, JITTER, strict=True))
    ]  # fmt: skip
    assert headline(observed(rows)).sentence.startswith(
        f"{WITHIN}spec against base: repeat (concurrency 1) prompts 2.0 times as fast; repeat (concurrency 8) prompts"
    )


def test_many_classes_are_counted_and_not_all_named():
    found = headline(run(**{f"c{number}": 2.0 for number in range(60)}))
    assert found.sentence.startswith(f"{WITHIN}spec against base: c0, c1, c2 and 57 more prompts 2.0 times as fast;")
    assert len(found.faster) == 60


def test_what_a_check_says_stands_in_the_reasons_cautions_first():
    checks = tuple(
        ControlCheck(name=name, result=result, sentence=f"{name} is {result}")
        for name, result in (("order", "absent"), ("start", "passed"), ("placement", "caution"), ("drift", "passed"))
    )
    assert headline(run(a=2.0), RunControls(checks=checks)).reasons == ("placement is caution.", "order is absent.")


def test_an_arm_without_a_request_has_a_sentence():
    sentence = headline(observed([Asked(arm="base", prompt=f"p{n}") for n in range(6)])).sentence
    assert sentence.startswith("There is no evidence whether spec is faster or slower than base: spec has no answer")
    assert headline(observed([])).sentence.endswith(": the run has no record.")


def test_what_keeps_every_class_undecided_is_said():
    found = headline(table({name: {"base": [1000.0], "spec": [500.0]} for name in "ab"}))
    assert found.sentence == (
        "There is no evidence whether spec is faster or slower than base: both arms answered 1 prompt; an interval "
        "needs 3."
    )
