import itertools
import re
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest
from observed import (
    JITTER,
    MARGIN,
    STEADY,
    Asked,
    headline,
    observed,
    table,
    with_figures,
)

from tandem.bench.records.manifest import Speculation
from tandem.judge.cells import judge_speed_ups
from tandem.judge.headline import withhold_words
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import (
    ControlCheck,
    OutputEquality,
    RatioEstimate,
    RunControls,
    ShareEstimate,
)

pytestmark = pytest.mark.filterwarnings("error")

STARTS = "Differences between server starts are not covered."
WIDE = (0.7, 1.4, 0.8, 1.2, 0.9, 1.1)
UNCONTROLLED = RunControls()


def run(wide=(), **ratios):
    """A run in which `spec` is so many times as fast in each class."""
    times = {
        name: [
            ms / ratio * by for ms, by in zip(STEADY, WIDE if name in wide else JITTER, strict=True)
        ]
        for name, ratio in ratios.items()
    }
    return table({name: {"base": STEADY, "spec": spec} for name, spec in times.items()})


def equality(result="the same", **changes):
    return OutputEquality(
        variant="spec", by="characters", result=result, sentence=f"Outputs: {result}.", **changes
    )


def lengths(seen, variant, class_=None):
    """The same times with answers of `variant` tokens by spec, of one class or of all."""
    rows = seen.arm_mask("spec") & (
        True if class_ is None else seen.class_ == seen.classes.index(class_)
    )
    tokens = np.where(rows, variant, seen.figures["completion_tokens"])
    tpot_ms = (seen.figures["e2e_ms"] - seen.figures["ttft_ms"]) / (tokens - 1)
    return with_figures(seen, completion_tokens=tokens, tpot_ms=tpot_ms)


def test_the_figure_over_all_prompts_leads_the_sentence():
    verdict_line = headline(run(repeat=2.1, json=1.9, chat=1.0))
    assert re.fullmatch(
        r"End to end, spec is 1\.59 times as fast as base over all prompts \(1\.\d+ to 1\.\d+\); by"
        r" class: faster in "
        r"repeat and json \(estimates 1\.9 to 2\.1 times\); as fast in chat \(to within 5 %\)\."
        r" Outputs are the same\. " + re.escape(STARTS),
        verdict_line.sentence,
    )
    assert (verdict_line.finding, verdict_line.metric) == ("faster", "e2e_ms")
    assert verdict_line.faster == ("repeat at concurrency 4", "json at concurrency 4")
    assert verdict_line.same == ("chat at concurrency 4",)


def test_faster_beside_a_slower_class_is_mixed_and_names_it():
    verdict_line = headline(run(a=2.0, b=2.1, c=1.9, d=0.8))
    assert verdict_line.finding == "mixed"
    assert (
        ", but not in every class: faster in a, b and c (estimates 1.9 to 2.1 times); slower in d"
        " (1.2 times)" in (verdict_line.sentence)
    )


def test_same_over_all_prompts_never_leads_over_a_called_class():
    seen = run(**{"a": 1.3} | {f"c{number}": 1.0 for number in range(30)})
    verdict_line = headline(seen)
    assert verdict_line.finding == "faster"
    assert verdict_line.sentence.startswith(
        "End to end, spec against base by class: faster in a (1.3 times); as fast in c0, "
    )
    assert "; over all prompts as fast, to within 5 %. " in verdict_line.sentence


def test_one_open_class_keeps_the_rest_from_being_the_same():
    verdict_line = headline(run(("b",), a=1.0, b=1.0))
    assert (verdict_line.verdict, verdict_line.same, verdict_line.undecided) == (
        "no evidence",
        ("a at concurrency 4",),
        ("b at concurrency 4",),
    )
    assert "no evidence in b" in verdict_line.sentence
    assert any(
        reason.startswith("b at concurrency 4: speed-up ") for reason in verdict_line.reasons
    )


def test_a_failed_control_voids_whatever_was_found():
    verdict_line = headline(
        run(a=2.0), RunControls(void=("the baseline is 1.31 times as fast as itself",))
    )
    assert verdict_line.verdict == "void"
    assert verdict_line.sentence.startswith(
        "The run is void, so nothing is concluded about spec: the baseline is 1.31"
    )
    assert (
        verdict_line.faster,
        verdict_line.slower,
        verdict_line.same,
        verdict_line.undecided,
    ) == ((), (), (), ())


def failing(share, arm="spec"):
    rows = [
        Asked(
            arm=entry,
            prompt=f"p{number}",
            round=repeat,
            e2e_ms=ms * by * (1.0 if entry == "base" else 0.5),
            error="closed" if entry == arm and (6 * repeat + number) % 10 < 10 * share else None,
        )
        for entry, repeat, (number, (ms, by)) in product(
            ("base", "spec"), range(10), enumerate(zip(STEADY, JITTER, strict=True))
        )
    ]
    return observed(rows)


@pytest.mark.parametrize("arm", ["base", "spec"])
def test_an_arm_with_more_failures_is_not_comparable(arm):
    verdict_line = headline(failing(0.2, arm))
    assert (verdict_line.verdict, verdict_line.faster) == ("not comparable", ())
    counts = {"base": "0 of 60 requests of spec failed, 12 of 60 of base."}
    assert verdict_line.sentence.endswith(
        counts.get(arm, "12 of 60 requests of spec failed, 0 of 60 of base.")
    )


def test_one_failure_of_sixty_is_told_and_takes_the_word():
    seen = failing(0.0)
    failed = seen.failed.copy()
    failed[-1] = True
    object.__setattr__(seen, "failed", failed)
    verdict_line = headline(seen)
    assert verdict_line.finding == "no evidence"
    assert "1 of 60 requests of spec failed, 0 of 60 of base." in verdict_line.reasons


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": RatioEstimate(value=0.5, low=0.45, high=0.55)},
        {"garbage": ShareEstimate(n=6, of=60), "garbage_of_baseline": ShareEstimate(n=0, of=60)},
        {"garbage": ShareEstimate(n=6, of=60)},
    ],
)
def test_an_arm_that_breaks_answers_is_never_just_faster(changes):
    verdict_line = headline(run(a=2.0), equal=(equality("no evidence", **changes),))
    assert verdict_line.verdict == "faster but not the same output (restarts not tested)"


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


def test_answers_of_another_length_are_judged_per_token():
    verdict_line = headline(lengths(run(a=0.5), 640.0))
    assert (verdict_line.finding, verdict_line.metric, verdict_line.output) == (
        "faster",
        "tpot_ms",
        "not the same",
    )
    assert (
        verdict_line.verdict
        == "faster per output token but not the same output (restarts not tested)"
    )
    assert verdict_line.sentence.startswith(
        "Answers of spec are 10 times as long, so end-to-end times are not comparable. Per output"
        " token (TPOT), spec "
    )
    assert re.search(
        r"TPOT\), spec is 4\.\d+ times as fast as base over all prompts \(4\.\d+ to 4\.\d+\)",
        verdict_line.sentence,
    )


def test_one_class_of_shorter_answers_is_not_the_same_output():
    verdict_line = headline(lengths(run(a=2.0, b=1.0), 32.0, "a"))
    assert (verdict_line.metric, verdict_line.output) == ("tpot_ms", "not the same")
    assert "answers of class a are 0.50 times as long." in verdict_line.reasons


@pytest.mark.parametrize(("ratio", "times"), [(10.0, "10"), (0.5, "0.50")])
def test_answers_of_another_length_without_token_counts_are_not_comparable(ratio, times):
    seen = with_figures(run(a=2.0), completion_tokens=np.full(len(run(a=2.0)), np.nan))
    ratios = RatioEstimate(value=ratio, low=0.9 * ratio, high=1.1 * ratio)
    verdict_line = headline(seen, equal=(equality("differs", lengths=ratios),))
    assert verdict_line.verdict == "not comparable"
    assert (
        verdict_line.sentence
        == f"spec and base are not comparable: answers of spec are {times} times as long, and the"
        " servers counted no output tokens."
    )


def test_times_of_other_lengths_have_no_word():
    seen = lengths(run(a=0.5), 640.0)
    speed_ups = judge_speed_ups(RequestPairing(seen), UNCONTROLLED, margin=MARGIN)
    remaining = withhold_words(speed_ups, [headline(seen)])
    words = {cell.metric: cell.verdict for cell in remaining.cells}
    assert (words["e2e_ms"], words["tpot_ms"], remaining.overall[0].deciding.verdict) == (
        "no evidence",
        "faster",
        "no evidence",
    )


@pytest.mark.parametrize("length", [64.0, np.nan])
def test_times_of_one_length_keep_their_words(length):
    seen = lengths(run(a=2.0), length)
    speed_ups = judge_speed_ups(RequestPairing(seen), UNCONTROLLED, margin=MARGIN)
    assert withhold_words(speed_ups, [headline(seen)]) == speed_ups


def test_lengths_that_nobody_counted_are_said_to_be_unknown():
    seen = run(a=2.0)
    unknown = (
        "output tokens were not counted, so whether answers have the same length is not known."
    )
    assert unknown in headline(lengths(seen, np.nan)).reasons
    assert unknown not in headline(seen).reasons


def test_loads_are_named_where_there_are_several():
    rows = [
        Asked(
            arm=arm,
            concurrency=load,
            prompt=f"p{n}",
            round=number,
            e2e_ms=ms * by / (ratio if arm == "spec" else 1),
        )
        for number, (load, ratio), arm, (n, (ms, by)) in itertools.product(
            range(4),
            ((1, 2.0), (8, 1.0)),
            ("base", "spec"),
            enumerate(zip(STEADY, JITTER, strict=True)),
        )
    ]
    sentence = headline(observed(rows)).sentence
    assert (
        "End to end at concurrency 1, spec is 2.00 times as fast as base over all prompts ("
        in sentence
    )
    assert (
        "End to end at concurrency 8, spec is as fast as base over all prompts, to within 5 % ("
        in sentence
    )


def test_an_arm_without_a_request_has_a_sentence():
    sentence = headline(observed([Asked(arm="base", prompt=f"p{n}") for n in range(6)])).sentence
    assert sentence.startswith(
        "End to end, spec is not shown to be faster or slower than base: spec has no answer"
    )
    assert headline(observed([])).sentence.endswith(": the run has no record.")


def test_a_called_metric_is_named_beside_an_open_one():
    seen = run(a=1.0, b=1.0)
    slow_ttft = np.where(seen.arm_mask("spec"), 3.0, 1.0) * seen.figures["ttft_ms"]
    assert (
        " TTFT alone is slower in a and b. "
        in headline(with_figures(seen, ttft_ms=slow_ttft)).sentence
    )


@pytest.mark.parametrize(
    ("method", "speculates"),
    [(None, False), (Speculation(method=None), False), (Speculation(method="eagle"), True)],
)
def test_only_the_manifest_says_that_an_arm_speculates(method, speculates):
    seen = run(a=1.0)
    arms = tuple(msgspec.structs.replace(arm, speculation=method) for arm in seen.run.arms)
    assert (
        headline(replace(seen, run=msgspec.structs.replace(seen.run, arms=arms))).speculates
        is speculates
    )


def test_what_a_check_says_stands_in_the_reasons_cautions_first():
    checks = tuple(
        ControlCheck(name=name, result=result, sentence=f"{name} is {result}")
        for name, result in (
            ("order", "absent"),
            ("start", "passed"),
            ("placement", "caution"),
            ("drift", "passed"),
        )
    )
    assert headline(run(a=2.0), RunControls(checks=checks)).reasons == (
        "placement is caution.",
        "order is absent.",
    )
