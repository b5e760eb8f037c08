"""Synthetic prompts have the tokens that the server counts, whatever it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from independent_server import MODEL, Schedule
from running import QUICK, Ran, measure

from tandem.bench.load.synthesis import FitError, fit_words
from tandem.bench.suites.suite import load_suite
from tandem.bench.suites.synthetic import SyntheticShape
from tandem.errors import InputError

SHAPE = SyntheticShape(input_tokens=40, output_tokens=8, count=5)
WORDS = SyntheticShape(input_tokens=2000, output_tokens=8).draw_words(1)
COUNTERS: dict[str, Callable[[Sequence[str]], int]] = {
    "words": len,
    "template": lambda words: 27 + len(words),
    "letters": lambda words: sum(map(len, words)) // 4 + 9,
    "two a word": lambda words: 2 * len(words) + 11,
}


def fit(wanted: int, count: Callable[[Sequence[str]], int]) -> tuple[list[str], int]:
    """Return the fitted words, and how often they were counted."""
    trials = []

    async def count_tokens(words: Sequence[str]) -> int:
        trials.append(count(words))
        return trials[-1]

    fitted = asyncio.run(fit_words(WORDS, wanted, wanted, count_tokens))
    return fitted, len(trials)


@pytest.mark.parametrize("wanted", [41, 512, 1999])
@pytest.mark.parametrize("counter", COUNTERS)
def test_words_are_fitted_to_any_count(counter, wanted):
    count = COUNTERS[counter]

    fitted, trials = fit(wanted, count)

    assert abs(count(fitted) - wanted) <= 0.02 * wanted
    assert trials <= 9


@pytest.mark.parametrize(
    ("wanted", "count", "words"),
    [
        (20, lambda words: 27 + len(words), "counts 28 in a prompt of 1 word$"),
        (40, lambda _: 10, "counts 10 in a prompt of"),
        (1990, lambda _: 10, "counts 10 in a prompt of 4016 words$"),
        (41, lambda words: 2 * len(words), "counts 4. in a prompt of"),
    ],
    ids=["template alone is longer", "no count", "no count of all words", "even numbers alone"],
)
def test_a_size_that_no_prompt_has_is_said(wanted, count, words):
    with pytest.raises(FitError, match=words):
        fit(wanted, count)


def measure_synthetic(folder: Path, **options: Any) -> Ran:
    return measure(folder, suites=(SHAPE.draft_suite(),), synthetic=SHAPE, **options)


def test_every_arm_is_sent_the_same_prompts_of_that_size(tmp_path):
    ran = measure_synthetic(tmp_path)

    assert {record.prompt_tokens for record in ran.records} == {40}
    (suite,) = ran.manifest["suites"]
    kept = load_suite(ran.folder / "synthetic.jsonl")
    assert (suite["name"], suite["sha256"], len(kept.prompts)) == ("synthetic", kept.sha256, 5)


def test_a_resumed_run_takes_the_prompts_that_it_fitted(tmp_path):
    ran = measure_synthetic(tmp_path)
    ports = [server.port for server in ran.servers]

    resumed = measure_synthetic(tmp_path, resume=True, at=ports)

    assert "fitting 5 prompts of 40 tokens, as a counts them" in ran.said
    assert "fitting" not in resumed.said
    assert resumed.manifest["suites"] == ran.manifest["suites"]


def test_a_server_that_counts_otherwise_is_noted(tmp_path):
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    output = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 99, "completion_tokens": 1}}
    body = "".join(f"data: {json.dumps(chunk | fields)}\n\n" for fields in (output, usage))
    other = Schedule(raw=(f"{body}data: [DONE]\n\n".encode().hex(),))

    ran = measure_synthetic(tmp_path, schedules=(QUICK, other))

    (note,) = [text for text in ran.manifest["notes"] if "counts" in text]
    assert note == (
        "b counts 99 to 99 tokens in the prompts for which a counts 40: tokenizers or chat templates"
        " differ"
    )


def test_servers_that_count_no_prompt_are_refused(tmp_path):
    silent = Schedule(ttft_ms=1, step_ms=1, tokens=2, fault="no_usage")

    with pytest.raises(InputError, match="no server counts the tokens of its prompts"):
        measure_synthetic(tmp_path, schedules=(silent, silent))

    assert not (tmp_path / "out").exists()


def test_the_second_server_may_be_the_one_that_counts(tmp_path):
    silent = Schedule(ttft_ms=1, step_ms=1, tokens=2, fault="no_usage")

    ran = measure_synthetic(tmp_path, schedules=(silent, QUICK))

    counts = {record.arm: record.prompt_tokens for record in ran.records}
    assert counts == {"a": None, "b": 40}
