"""Texts of a verdict's figures, the same in a terminal and on the page."""

from __future__ import annotations

from typing import get_args

import example_verdict as example
import msgspec
import pytest

from tandem.bench.figures.request_table import read_request_table
from tandem.judge import text_format
from tandem.judge.schema import (
    OutputEquality,
    RatioEstimate,
    ShareEstimate,
    VariantFinding,
)


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    return example.verdict(
        read_request_table(example.run(tmp_path_factory.mktemp("run") / "run", prompts=4))
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"identical": ShareEstimate(n=72, of=72)}, "Output: identical in 72 of 72 pairs."),
        (
            {"identical": ShareEstimate(n=0, of=1)},
            "Output: differs in 1 of 1 pair; the baseline was not compared with itself.",
        ),
        (
            {"identical": ShareEstimate(n=9, of=9), "failed_pairs": 3},
            "Output: identical in 9 of 9 pairs; 3 pairs not compared (one side failed).",
        ),
        (
            {"silent_pairs": 1},
            "Output: not compared: no pair of answers has any; 1 pair not compared (no output).",
        ),
    ],
)
def test_one_line_tells_of_the_output(verdict, changes, line):
    fields = {
        "variant": example.VARIANT,
        "by": "token ids",
        "result": "no evidence",
        "sentence": "",
        **changes,
    }
    changed_verdict = msgspec.structs.replace(verdict, equality=(OutputEquality(**fields),))
    assert text_format.describe_output(changed_verdict, verdict.headlines[0]) == line


def test_an_output_that_nobody_compared_is_said_to_be_so(verdict):
    changed_verdict = msgspec.structs.replace(verdict, equality=())
    assert (
        text_format.describe_output(changed_verdict, verdict.headlines[0])
        == "Output: not compared."
    )


@pytest.mark.parametrize(
    ("requests", "line"),
    [
        (
            72,
            "72 requests of spec: a slow or failing request rarer than 1 in 24 may not show here.",
        ),
        (5, "5 requests of spec: too few to see slow or failing requests that are not the rule."),
        (0, ""),
    ],
)
def test_a_run_says_what_it_cannot_have_seen(verdict, requests, line):
    headline = msgspec.structs.replace(verdict.headlines[0], variant="spec", requests=requests)
    assert text_format.describe_rare_requests(headline) == line


@pytest.mark.parametrize(
    ("output", "evidence", "words"),
    [
        ("not the same", "across-starts", "why the outputs differ"),
        ("not shown", "across-starts", "--record token-ids"),
        ("the same", "one-start", "6 starts"),
        ("the same", "across-starts", "Serve the classes that are faster"),
    ],
)
def test_faster_asks_first_for_what_its_word_lacks(verdict, output, evidence, words):
    headline = msgspec.structs.replace(
        verdict.headlines[0], finding="faster", output=output, evidence=evidence
    )
    assert words in text_format.describe_next_step(headline, verdict)


@pytest.mark.parametrize("finding", get_args(VariantFinding))
def test_no_next_step_speaks_of_speculation_unless_the_manifest_does(verdict, finding):
    headline = msgspec.structs.replace(verdict.headlines[0], finding=finding)
    step = text_format.describe_next_step(headline, verdict)
    assert step
    assert [word for word in ("draft", "specul", "window") if word in step] == []


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (
            RatioEstimate(value=1.19, low=1.15, high=1.23),
            "1.19 times as fast as base (1.15 to 1.23)",
        ),
        (
            RatioEstimate(value=0.25, low=0.13, high=0.56),
            "4.00 times slower than base (1.79 to 7.69)",
        ),
        (
            RatioEstimate(value=0.97, low=0.91, high=1.03),
            "0.97 times as fast as base (0.91 to 1.03)",
        ),
        (RatioEstimate(value=2.0), "2.00 times as fast as base"),
    ],
)
def test_a_ratio_wholly_below_1_is_times_slower(ratio, words):
    standard = " than base" if "slower" in words else " as base"
    assert text_format.describe_ratio(ratio, standard) == words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.0, "0.00"),
        (0.0042, "0.0042"),
        (12.34, "12.3"),
        (2154.4, "2,154"),
        (float("nan"), "-"),
    ],
)
def test_a_figure_is_written_to_three_digits(value, expected):
    assert text_format.format_number(value) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, "100 %"), (0.0, "0 %"), (0.999, "99.90 %"), (0.001, "0.10 %"), (0.5, "50 %")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share, expected):
    assert text_format.format_percent(share) == expected
