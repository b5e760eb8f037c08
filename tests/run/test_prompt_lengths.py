"""Lengths of prompts: estimated by characters, or counted by a tokenizer."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import Suite, read_suite
from tandem.errors import InputError
from tandem.run.prompt_lengths import (
    build_counter,
    describe_long_prompts,
    estimate_tokens,
    measure_prompts,
)


def suite_of(*texts: str, sample: int | None = None) -> Suite:
    """A suite of a file with these prompts, the first of them on line 1."""
    lines = "".join(json.dumps({"prompt": text}) + "\n" for text in texts)
    options = FileOptions(sample=sample)
    return read_suite(lines.encode(), name="own.jsonl", where="own.jsonl", options=options)


def split_words() -> bytes:
    """A tokenizer of the library, whose tokens are words."""
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))  # noqa: S106 - no secret
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer.to_str().encode()


def test_an_estimate_counts_other_scripts_apart():
    assert (estimate_tokens("a" * 100), estimate_tokens("\u8bcd" * 100)) == (30, 60)


def test_a_tokenizer_counts_each_message():
    content = json.dumps({"system": "Be brief.", "prompt": "one two three"}).encode()
    suite = read_suite(content, name="own.jsonl", where="own.jsonl")
    (length,) = measure_prompts(suite, build_counter(split_words(), "tokenizer.json"))
    assert (length.place, length.tokens) == ("line 1", 6)  # the full stop is a token


def test_long_prompts_are_named_by_line_with_both_counts():
    suite = suite_of("short", "one two three four", "short", "one two three")
    count_tokens = build_counter(split_words(), "tokenizer.json")
    assert describe_long_prompts(measure_prompts(suite, count_tokens), 2) == (
        "line 2 has 4, line 4 has 3; max_prompt_tokens is 2"
    )


def test_many_long_prompts_are_counted():
    suite = suite_of(*(f"word {n}" * 9 for n in range(15)))
    text = describe_long_prompts(measure_prompts(suite, len), 2)
    assert "5 more prompts are too long" in text


def test_a_prompt_that_the_sample_leaves_out_is_not_too_long():
    suite = suite_of("one two three", *["short"] * 200, sample=1)
    lengths = measure_prompts(suite, build_counter(split_words(), "tokenizer.json"))
    assert describe_long_prompts(lengths, 2) == ""


def test_what_is_no_tokenizer_is_named():
    with pytest.raises(InputError, match="it is no tokenizer"):
        build_counter(b"{}", "s3://bucket/tokenizer.json")
