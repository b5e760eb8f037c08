"""Where two outputs part, near ties, and what is shown of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from paired_outputs import TEXT, answered
from recordings import recorded

from tandem.bench.load.answer import parse_answer
from tandem.judge.equality import divergence
from tandem.judge.equality.divergence import (
    OutputDivergence,
    count_bins,
    find_first_difference,
    read_divergences,
)
from tandem.judge.equality.output_pairs import build_matcher
from tandem.judge.schema import HistogramBin


def parted(
    folder: Path, baseline: dict[str, Any], variant: dict[str, Any], **how: Any
) -> OutputDivergence:
    """The first pair of a run in which both arms said one thing to every prompt."""
    seen = answered(folder, {"base": lambda *_: baseline, "spec": lambda *_: variant}, prompts=1)
    pairs = build_matcher(seen, "base", "spec").pair_arms("base", "spec")
    (result,) = read_divergences(seen, pairs, **{"by_ids": False, "encode": None, **how})
    return result


@pytest.mark.parametrize(
    ("mine", "theirs", "place"),
    [("abc", "abd", 2), ("abc", "ab", 2), ("", "a", 0), ([1, 2], [1, 2, 3], 2)],
)
def test_outputs_part_at_the_first_difference(mine, theirs, place):
    assert find_first_difference(mine, theirs) == place


def test_bins_double_and_leave_none_out():
    assert count_bins([0, 1, 2, 3, 9]) == (
        HistogramBin(first=0, last=1, n=1),
        HistogramBin(first=1, last=2, n=1),
        HistogramBin(first=2, last=4, n=2),
        HistogramBin(first=4, last=8, n=0),
        HistogramBin(first=8, last=16, n=1),
    )


def test_an_example_is_cut_around_the_difference_and_says_so(tmp_path):
    before = "x" * 500
    behind = "y" * 500

    result = parted(tmp_path, {"text": f"{before}A{behind}"}, {"text": f"{before}B{behind}"})

    assert result.position == 500
    assert result.baseline.startswith("…xxx")
    assert result.baseline.endswith("yyy…")
    assert "xAy" in result.baseline
    assert "xBy" in result.variant
    assert len(result.baseline) < 200


def test_what_steers_a_terminal_or_hides_is_made_visible(tmp_path):
    result = parted(tmp_path, {"text": "a\x1b[31m\nb\u202e\u200b"}, {"text": "c"})
    assert result.baseline == "a␛[31m␊b<U+202E><U+200B>"


def test_reasoning_is_part_of_the_output(tmp_path):
    result = parted(
        tmp_path, {"reasoning": "so", "text": "yes"}, {"reasoning": "no", "text": "yes"}
    )
    assert (result.position, result.baseline, result.variant) == (0, "so␀yes", "no␀yes")


def logprobs(gap: float, *, name: str, shown: str = "b") -> msgspec.Raw:
    """Of two tokens in the chat API's form: `x`, then `name` beside `shown`, which is `gap` less
    likely."""
    entries = [
        {
            "token": token,
            "logprob": -0.1,
            "top_logprobs": [{"token": token, "logprob": -0.1}, {"token": second, "logprob": log}],
        }
        for token, second, log in (("x", "z", -9.0), (name, shown, -0.1 - gap))
    ]
    return msgspec.Raw(json.dumps(entries).encode())


@pytest.mark.parametrize(
    ("gap", "shown", "tie"),
    [(0.2, "b", True), (0.3, "b", False), (0.3, "c", False), (0.2, "c", None)],
    ids=[
        "nearly as likely",
        "not as likely",
        "less likely than one that is not",
        "less likely than one that is",
    ],
)
def test_a_near_tie_is_by_the_baselines_probabilities(tmp_path, gap, shown, tie):
    result = parted(
        tmp_path,
        {"text": "xa", "logprobs": logprobs(gap, name="a", shown=shown)},
        # by its own view every choice is a tie
        {"text": "xb", "logprobs": logprobs(0.0, name="b", shown="a")},
    )
    assert result.near_tie is tie


def test_token_ids_spelled_alike_are_no_tie(tmp_path):
    first = {"text": "xa", "token_ids": (1, 2), "logprobs": logprobs(0.1, name="a")}
    alike = {**first, "token_ids": (1, 3)}
    second = {**first, "token_ids": (1, 3), "logprobs": logprobs(0.9, name="b")}
    earlier = {**second, "token_ids": (9, 3)}
    assert parted(tmp_path / "alike", first, alike, by_ids=True).near_tie is None
    assert parted(tmp_path / "earlier", first, earlier, by_ids=True).near_tie is None
    assert parted(tmp_path / "other", first, second, by_ids=True).near_tie is True


@pytest.mark.parametrize("name", ["ngram_chat_logprobs", "ngram_completions_logprobs"])
def test_the_log_probabilities_of_both_of_vllms_apis_are_understood(tmp_path, name):
    answer = parse_answer(recorded(name).reply, recorded(name).ask)
    text = msgspec.json.decode(answer.logprobs)
    rival = copy.deepcopy(text)
    if isinstance(rival, dict):
        tops = rival["top_logprobs"]
        place = 5
        second = list(tops[place])[1]
        gap = tops[place][rival["tokens"][place]] - tops[place][second]
        rival["tokens"][place] = second
    else:
        place = 0
        first, second = (entry["logprob"] for entry in rival[place]["top_logprobs"])
        gap = first - second
        rival[place]["token"] = rival[place]["top_logprobs"][1]["token"]

    result = parted(
        tmp_path,
        {"text": answer.text, "logprobs": answer.logprobs},
        {"text": f"{answer.text}!", "logprobs": msgspec.Raw(json.dumps(rival).encode())},
    )

    assert result.near_tie is (gap < divergence.NEAR_TIE)
    assert 0 < gap < 3


def test_near_ties_of_a_run_are_counted(tmp_path):
    from tandem.judge.equality.output_equality import compare_outputs  # noqa: PLC0415 - one test of the two together

    def base(prompt: int, _: int) -> dict[str, Any]:
        return {
            "text": f"xa {prompt} {TEXT}",
            "logprobs": logprobs(0.1 if prompt < 3 else 0.9, name="a"),
        }

    def spec(prompt: int, _: int) -> dict[str, Any]:
        return {"text": f"xb {prompt} {TEXT}", "logprobs": logprobs(0.9, name="b", shown="a")}

    (equality,) = compare_outputs(answered(tmp_path, {"base": base, "spec": spec}), tokenizer=None)

    assert (equality.near_ties.n, equality.near_ties.of) == (3, 12)
    assert "3 part at a near tie" in equality.sentence
    assert [example.near_tie for example in equality.examples] == [False, False]
