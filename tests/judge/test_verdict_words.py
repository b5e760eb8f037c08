"""What a word rests on: the tables of docs/read-verdict.md, row by row."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from observed import (
    EQUAL,
    JITTER,
    MARGIN,
    STEADY,
    Asked,
    Truth,
    drawn,
    headline,
    judge_cells,
    observed,
    table,
)

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.headline import combine_verdict
from tandem.judge.interval import FEWEST_STARTS
from tandem.judge.schema import (
    OutputEquality,
    RunControls,
    TaskQuality,
    VariantFinding,
)
from tandem.report.header import find_tone

PAGE = Path(__file__).parents[2] / "docs" / "read-verdict.md"


def twice_as_fast(rounds=FEWEST_ROUNDS, ratio=2.0, **same):
    spec = [ms / ratio * by for ms, by in zip(STEADY, JITTER, strict=True)]
    return table({"repeat": {"base": STEADY, "spec": spec}}, rounds=rounds, **same)


def started(starts_of_base, starts_of_spec):
    """Each arm with so many starts, of its first rounds; the last start stays for the rest."""
    rows = [
        Asked(
            arm=arm,
            prompt=f"p{prompt}",
            round=number,
            start=f"{arm}@{min(number, starts - 1)}",
            e2e_ms=ms * by * (1 + 0.001 * number) / (2.0 if arm == "spec" else 1.0),
        )
        for number, (arm, starts), (prompt, (ms, by)) in itertools.product(
            range(6),
            (("base", starts_of_base), ("spec", starts_of_spec)),
            enumerate(zip(STEADY, JITTER, strict=True)),
        )
    ]
    return observed(rows)


def words_of_the_page(first, heading):
    rows = PAGE.read_text().partition(f"| {first} | {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE)


def test_the_page_names_every_finding_once():
    assert sorted(words_of_the_page("finding", "rests on")) == sorted(get_args(VariantFinding))


@pytest.mark.parametrize("finding", ["no evidence", "not comparable", "void"])
def test_a_finding_that_calls_nothing_has_no_reservation(finding):
    assert combine_verdict(finding, "not shown", metric="tpot_ms", start_count=1) == finding


@pytest.mark.parametrize(("ratio", "word"), [(2.0, "faster"), (1.0, "same"), (0.5, "slower")])
def test_fewer_than_four_rounds_have_no_word(ratio, word):
    assert headline(twice_as_fast(FEWEST_ROUNDS, ratio)).finding == word
    few = headline(twice_as_fast(FEWEST_ROUNDS - 1, ratio))
    assert (
        few.finding,
        "3 rounds cannot tell" in few.sentence,
        "4 can (--rounds)" in few.sentence,
    ) == (
        "no evidence",
        True,
        True,
    )


@pytest.mark.parametrize(("answers", "word"), [(2, "no evidence"), (3, "faster")])
def test_a_round_counts_with_half_of_its_prompts(answers, word):
    seen = twice_as_fast(4)
    late = (seen.round == 3) & (seen.prompt >= answers)
    cells = judge_cells(replace(seen, failed=late), RunControls(), margin=MARGIN)
    assert next(cell.verdict for cell in cells if cell.metric == "e2e_ms") == word


def test_without_a_recorded_start_the_word_is_of_one_start():
    verdict_line = headline(twice_as_fast())
    assert (verdict_line.verdict, verdict_line.evidence) == (
        "faster (restarts not tested)",
        "one-start",
    )
    assert find_tone(verdict_line).class_ == "good"  # beside the same outputs alone
    assert verdict_line.sentence.endswith("Differences between server starts are not covered.")


def test_a_few_starts_are_counted_in_the_word():
    assert headline(started(3, 2)).verdict == "faster (2 server starts; restarts not covered)"


@pytest.mark.parametrize(
    ("base", "spec", "evidence"),
    [(6, 6, "across-starts"), (5, 6, "one-start"), (6, 5, "one-start"), (1, 1, "one-start")],
)
def test_six_starts_of_each_arm_are_evidence_across_starts(base, spec, evidence):
    assert FEWEST_STARTS == 6
    assert headline(started(base, spec)).evidence == evidence


def test_across_starts_the_word_stands_alone():
    verdict_line = headline(started(6, 6))
    assert verdict_line.verdict == "faster"
    assert "server starts" not in verdict_line.sentence


UNSHOWN = (
    OutputEquality(variant="spec", by="characters", result="no evidence", sentence="Too few."),
)


@pytest.mark.parametrize("equal", [(), UNSHOWN])
def test_outputs_that_are_not_shown_equal_are_in_the_word(equal):
    verdict_line = headline(twice_as_fast(), equal=equal)
    assert verdict_line.verdict == "faster, output not shown to be the same (restarts not tested)"
    assert find_tone(verdict_line).class_ == "caution"


@pytest.mark.parametrize("word", ["loop", "refusal"])
def test_outputs_that_are_mostly_refused_are_not_shown_equal(word):
    verdict_line = headline(twice_as_fast(content=word))
    assert (verdict_line.finding, verdict_line.output, find_tone(verdict_line).class_) == (
        "faster",
        "not shown",
        "caution",
    )


def test_noise_from_round_to_round_is_seldom_called():
    truth = Truth(
        ratio={"spec": dict.fromkeys("abcd", 1.0)}, prompts=8, spread=0.0, start=0.05, told=False
    )
    false = sum(
        headline(drawn(truth, seed)).finding in {"faster", "slower", "mixed"} for seed in range(12)
    )
    assert false <= 1


def find_quality(*words):
    """Tasks of the variant with these words."""
    return tuple(
        TaskQuality(
            variant="spec",
            task=f"task-{index}",
            items=200,
            baseline_right=150,
            variant_right=150,
            only_baseline=0,
            only_variant=0,
            chance=0.0,
            difference=0.0,
            low=-0.02,
            high=0.02,
            p=1.0,
            word=word,
            why="a reason",
        )
        for index, word in enumerate(words)
    )


DIFFERS = (
    OutputEquality(variant="spec", by="characters", result="differs", sentence="Outputs differ."),
)


@pytest.mark.parametrize(
    ("equal", "words", "output"),
    [
        (EQUAL, (), "the same"),
        (EQUAL, ("same",), "the same"),
        (EQUAL, ("worse",), "not the same"),
        (DIFFERS, ("same",), "same quality"),
        (DIFFERS, ("no evidence",), "not the same"),
        (UNSHOWN, ("same",), "same quality"),
        (UNSHOWN, ("no evidence",), "not shown"),
        ((), ("same",), "same quality"),
    ],
)
def test_quality_joins_the_output(equal, words, output):
    assert headline(twice_as_fast(), equal=equal, quality=find_quality(*words)).output == output


def test_same_quality_is_in_the_word_and_green():
    verdict_line = headline(twice_as_fast(), equal=DIFFERS, quality=find_quality("same"))
    assert verdict_line.verdict == "faster at the same quality (restarts not tested)"
    assert find_tone(verdict_line).class_ == "good"


def test_task_that_is_not_the_same_is_a_reason():
    verdict_line = headline(twice_as_fast(), quality=find_quality("worse"))
    assert "quality of task-0: worse: a reason." in verdict_line.reasons
