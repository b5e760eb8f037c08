"""What is concluded from the outputs of a variant, the baseline and its control."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from paired_outputs import TEXT, answered, text
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tandem.errors import InputError
from tandem.judge.equality import divergence
from tandem.judge.equality.output_equality import compare_outputs
from tandem.judge.schema import OutputEquality


def only(
    folder: Path, answers: Mapping[str, Any], *, tokenizer: Path | None = None, **changes: Any
) -> OutputEquality:
    (equality,) = compare_outputs(answered(folder, answers, **changes), tokenizer=tokenizer)
    return equality


def other(prompt: int, round_: int) -> str:
    """As long an answer, with another word in the middle."""
    return text(prompt, round_).replace("three", "tree")


def some(count: int) -> Any:
    """What a variant says that answers otherwise to `count` prompts."""
    return lambda prompt, round_: (other if prompt < count else text)(prompt, round_)


FAILING = {"error": "closed", "text": "", "completion_tokens": None, "content": None}
CONTROL = {"base": text, "base#2": text}


def never(prompt: int, round_: int) -> str:
    return f"{text(prompt, round_)} {random.random()}"  # noqa: S311 - no secret


@pytest.mark.parametrize(
    ("answers", "changes", "result", "identical", "words"),
    [
        ({"base": text, "spec": text}, {}, "the same", 12, "no yardstick"),
        ({"base": text, "spec": other}, {}, "no evidence", 0, "never asked twice"),
        ({**CONTROL, "spec": some(4)}, {}, "differs", 8, "against itself 0 of 12 pairs differ"),
        ({**CONTROL, "spec": some(1)}, {}, "no evidence", 11, "too few to tell"),
        ({**CONTROL, "spec": some(1)}, {"prompts": 120}, "the same", 119, "does not matter"),
        (
            {"base": never, "spec": never, "base#2": never},
            {},
            "no evidence",
            0,
            "never repeat cannot",
        ),
        ({**CONTROL, "spec": text}, {"prompts": 3}, "no evidence", 3, "too few prompts"),
        (
            {"base": text, "spec": text},
            {"prompts": 1},
            "no evidence",
            1,
            "All 1 paired output of 1 prompt are",
        ),
        (
            {"base": text, "spec": lambda *_: FAILING},
            {},
            "no evidence",
            None,
            "one side failed: 12 pairs",
        ),
        (
            {"base": lambda *_: "", "spec": lambda *_: ""},
            {},
            "no evidence",
            None,
            "neither side has any output: 12",
        ),
        (
            {"base": text, "spec": lambda p, r: text(p, r) if p < 6 else FAILING},
            {},
            "the same",
            6,
            "",
        ),
    ],
)
def test_conclusion_of_outputs(tmp_path, answers, changes, result, identical, words):
    equality = only(tmp_path, answers, **changes)
    assert equality.result == result
    assert (None if equality.identical is None else equality.identical.n) == identical
    assert words in equality.sentence


def test_the_level_is_shared_by_the_variants_of_a_run(tmp_path):
    (alone,) = compare_outputs(
        answered(tmp_path / "one", {"base": text, "spec": some(3), "base#2": text}), tokenizer=None
    )
    arms = {"base": text, "spec": some(3), "more": text, "base#2": text}
    beside, _ = compare_outputs(answered(tmp_path / "two", arms), tokenizer=None)
    assert (alone.result, beside.result) == ("differs", "no evidence")  # p is 1 / 27


def test_a_server_as_unsteady_as_itself_is_the_same(tmp_path):
    rng = random.Random(4)  # noqa: S311 - repeatable, no secret

    def unsteady(prompt: int, round_: int) -> str:
        return (other if rng.random() < 0.3 else text)(prompt, round_)

    equality = only(tmp_path, {"base": unsteady, "spec": unsteady, "base#2": unsteady}, rounds=4)

    assert equality.result == "the same"
    assert equality.identical.n < equality.identical.of
    assert equality.yardstick.n < equality.yardstick.of


BROKEN = {
    "garbage": lambda prompt, _: {"text": f"\ufffd\ufffd {prompt} {TEXT}", "content": "garbage"},
    "truncating": lambda prompt, _: {
        "text": f"{prompt} one two three",
        "content": "truncated",
        "finish_reason": "length",
    },
    "short, unchecked": lambda prompt, _: {"text": f"{prompt} one two three", "content": None},
    "rambling": lambda prompt, _: {"text": f"{text(prompt)} {TEXT}", "content": None},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_variant_differs_at_any_temperature(tmp_path, broken):
    for temperature in (0.0, 0.8):
        equality = only(
            tmp_path / str(temperature), {"base": text, "spec": broken}, temperature=temperature
        )
        assert equality.result == "differs"


def test_outputs_a_little_longer_are_not_called_rambling(tmp_path):
    def longer(tokens: int) -> Any:
        return lambda p, r: {"text": f"{text(p, r)} {tokens}", "completion_tokens": tokens}

    a_little, more = (
        only(tmp_path / str(tokens), {"base": longer(100), "spec": longer(tokens)})
        for tokens in (104, 106)
    )

    assert (a_little.result, more.result) == ("no evidence", "differs")
    assert "it rambles" in more.sentence


def test_identical_outputs_are_alike_long_whatever_a_server_counts(tmp_path):
    def miscounted(prompt: int, round_: int) -> Mapping[str, Any]:
        return (
            {"text": text(prompt, round_), "completion_tokens": 99}
            if prompt
            else {"text": other(0, 0)}
        )

    assert only(tmp_path, {"base": text, "spec": miscounted}).lengths.value == 1.0


def test_lengths_come_from_the_outputs_where_no_server_counts(tmp_path):
    def uncounted(prompt: int, round_: int) -> Mapping[str, Any]:
        return {**BROKEN["rambling"](prompt, round_), "completion_tokens": None}

    equality = only(
        tmp_path,
        {"base": lambda p, r: {"text": text(p, r), "completion_tokens": None}, "spec": uncounted},
    )

    baseline = len(text(1))
    ramble = len(text(1)) + 1 + len(TEXT)
    assert equality.lengths.value == pytest.approx(ramble / baseline, rel=0.02)
    assert equality.result == "differs"


def test_lengths_are_not_told_by_a_part_of_the_outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(divergence, "MAX_READ", 4)

    equality = only(
        tmp_path,
        {
            "base": lambda p, r: {"text": text(p, r), "completion_tokens": None},
            "spec": lambda p, r: {"text": other(p, r), "completion_tokens": None},
        },
    )

    assert (len(equality.examples), equality.lengths) == (2, None)


def test_sampled_rounds_need_a_control_as_yardstick(tmp_path):
    alone = only(tmp_path / "alone", {"base": text, "spec": text}, rounds=2, temperature=0.8)
    equality = only(
        tmp_path / "two", {"base": text, "spec": text, "base#2": text}, rounds=2, temperature=0.8
    )
    assert alone.yardstick is None
    assert equality.yardstick.of == 24


def test_a_tokenizer_gives_the_place_of_difference_in_its_tokens(tmp_path):
    words = {word: place for place, word in enumerate(["?", *TEXT.split()])}
    vocabulary = Tokenizer(WordLevel(words, unk_token="?"))  # noqa: S106 - no secret
    vocabulary.pre_tokenizer = Whitespace()
    vocabulary.post_processor = TemplateProcessing(single="? ? ? $A", special_tokens=[("?", 0)])
    vocabulary.save(str(tmp_path / "tokenizer.json"))

    equality = only(
        tmp_path / "run", {"base": text, "spec": other}, tokenizer=tmp_path / "tokenizer.json"
    )

    assert equality.by == "the target's tokenizer"
    # the prompt's number is the first token
    assert [example.at for example in equality.examples] == [3, 3]
    assert equality.examples[0].measured.startswith("0 one two tree four")


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="no tokenizer") as refusal:
        only(tmp_path / "run", {"base": text, "spec": text}, tokenizer=tmp_path / "tokenizer.json")
    assert "tokenizer.json" in str(refusal.value)
