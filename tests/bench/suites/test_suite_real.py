"""What the suite `real` promises of its prompts."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, pairwise, takewhile
from pathlib import Path

import pytest
from shipped import load_shipped

from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import load_suite

ROOT = Path(__file__).parents[3]
REAL = load_suite("real")
CLASSES = (
    "repetition",
    "numeric",
    "json",
    "code-completion",
    "code-edit",
    "extraction",
    "report",
    "config",
    "summary",
    "translation",
    "chat",
    "creative",
    "reasoning",
    "open-ended",
)

# characters; at Qwen's 3 characters a token of mixed text, about the 384 of experiments/post.yaml
LONGEST = 1100
# characters: with a chat template still inside vLLM's first block of 16 tokens
SHARED_BEGINNING = 24
ALIKE = 0.15  # of the word triples of the shorter of two prompts of one class


def triples(prompt: Prompt) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", prompt.as_text().lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def beginning(first: str, second: str) -> int:
    """Return how many characters two texts begin with alike."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def test_it_has_fourteen_classes_of_twelve_prompts():
    assert Counter(prompt.class_ for prompt in REAL.prompts) == dict.fromkeys(CLASSES, 12)


def test_its_classes_stand_in_the_order_of_the_documentation():
    section = (ROOT / "docs" / "built-in-suites.md").read_text().partition("## `real`")[2]
    documented = re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE)
    assert REAL.classes == CLASSES
    assert tuple(documented) == CLASSES


def test_every_prompt_fits_into_the_experiments_inputs():
    assert [prompt.id for prompt in REAL.prompts if prompt.characters > LONGEST] == []


def test_every_answer_may_end_naturally_within_the_experiments_outputs():
    declared = [file.record for file in load_shipped().experiments.values()]
    most = min(record.max_output_tokens for record in declared if "real" in record.suites)
    assert {
        prompt.id for prompt in REAL.prompts if not 100 <= (prompt.max_tokens or 0) <= most
    } == set()
    assert [prompt.id for prompt in REAL.prompts if "to-limit" in prompt.check] == []


@pytest.mark.parametrize("name", CLASSES)
def test_no_two_prompts_of_a_class_nearly_say_the_same(name):
    text = {prompt.id: triples(prompt) for prompt in REAL.class_prompts(name)}

    alike = {
        (first, second): round(
            len(text[first] & text[second]) / min(len(text[first]), len(text[second])), 2
        )
        for first, second in combinations(text, 2)
        if len(text[first] & text[second]) > ALIKE * min(len(text[first]), len(text[second]))
    }

    assert alike == {}


def test_no_prompts_share_a_beginning_for_a_prefix_cache():
    texts = sorted((prompt.as_text(), prompt.id) for prompt in REAL.prompts)

    shared = [
        (one_id, other_id)
        for (first, one_id), (second, other_id) in pairwise(texts)
        if beginning(first, second) > SHARED_BEGINNING
    ]

    assert shared == []
    assert [
        prompt.id for prompt in REAL.prompts if prompt.as_messages()[0]["role"] == "system"
    ] == []
