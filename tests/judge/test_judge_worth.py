"""A speed is worth nothing where neither arm gives text; what one arm breaks alone is for equality
to find."""

import itertools

import pytest
from observed import Asked, headline, judge_cells, observed

from tandem.judge.comparability import explain_invalidity
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import RunControls


def run(spec, base, of=12):
    """Twelve prompts in four rounds, `spec` twice as fast; the content check refuses the first `of`
    of each arm."""
    return observed(
        [
            Asked(
                arm=arm,
                prompt=f"p{number:02}",
                round=round_,
                e2e_ms=ms + number,
                content=word if number < of else "ok",
            )
            for round_, (arm, ms, word), number in itertools.product(
                range(4), (("base", 1000.0, base), ("spec", 500.0, spec)), range(12)
            )
        ]
    )


@pytest.mark.parametrize("word", ["garbage", "empty"])
def test_a_variant_does_not_win_where_neither_arm_gives_text(word):
    verdict_line = headline(run(word, word))
    assert (verdict_line.verdict, verdict_line.faster) == ("no evidence", ())
    assert (
        verdict_line.sentence
        == "End to end, spec is not shown to be faster or slower than base: 48 of 48 answers of"
        " spec and 48 of 48 answers of base are empty or garbage, and a speed is worth nothing"
        " where the text is none."
    )


def test_no_cell_is_called_where_neither_arm_gives_text():
    seen = run("garbage", "garbage")
    assert {cell.verdict for cell in judge_cells(seen, RunControls(), margin=0.05)} == {
        "no evidence"
    }


@pytest.mark.parametrize(("of", "bars"), [(6, False), (7, True)])
def test_more_than_half_of_the_answers_must_be_no_text(of, bars):
    assert (
        bool(explain_invalidity(RequestPairing(run("garbage", "garbage", of)), "base", "spec"))
        is bars
    )


@pytest.mark.parametrize(
    ("spec", "base"), [("garbage", "ok"), ("ok", "garbage"), (None, None), ("garbage", None)]
)
def test_one_arm_with_text_or_unchecked_bars_nothing(spec, base):
    assert explain_invalidity(RequestPairing(run(spec, base)), "base", "spec") == ""


@pytest.mark.parametrize("word", ["loop", "refusal"])
def test_loops_and_refusals_bar_nothing(word):
    verdict_line = headline(run(word, word, 7))
    assert verdict_line.finding == "faster"
    counts = f"28 of 48 answers of spec (28 {word}) and 28 of 48 answers of base (28 {word})"
    assert f". The content check refused {counts}." in verdict_line.sentence
