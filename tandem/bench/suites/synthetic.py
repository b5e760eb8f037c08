"""Synthetic prompts: texts of a wanted size, for a load whose lengths are known.

Invariant: the same shape and the same numbers of words give the same texts. How many tokens a text
has only its server knows, so a run fits the number of words to the server's own count
(`tandem.bench.load.synthesis`).

The words are short ones that several prompts of the suite `real` share: nearly every tokenizer has
one token for each. They stand in a random order, so no two prompts begin alike, and a prefix cache
keeps nothing of one for another.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tandem.bench.suites.prompt import Hint, Prompt
from tandem.bench.suites.suite import Suite, SuiteDefaults, content_hash, load_suite

SYNTHETIC_NAME = "synthetic"
SYNTHETIC_PROMPTS = 24  # unless the user says how many
REQUEST = "\n\nWrite a long text with these words."
NOTE = (
    "synthetic prompts are words without sense: they show how fast servers are at this length, not"
    " what a draft gains on real text"
)
MIN_SHARED = 3  # prompts of `real` that have a word
_SHORT_WORD = re.compile(r"(?<![\w'-])[a-z]{3,7}(?![\w'-])")
_HINTS = frozenset[Hint](["to-limit"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticShape:
    """The prompts to make.

    Args:
        input_tokens: of each prompt, as the server counts them.
        output_tokens: most tokens of an answer.
        count: number of prompts.
        seed: of the words.
    """

    input_tokens: int
    output_tokens: int
    count: int = SYNTHETIC_PROMPTS
    seed: int = 0

    def draw_words(self, number: int) -> list[str]:
        """Return the words of one prompt, more than it needs at one token each."""
        generator = random.Random(f"{self.seed}/synthetic/{number}")  # noqa: S311 - repeatable
        return generator.choices(_list_words(), k=2 * self.input_tokens + 16)

    def write_prompt(self, number: int, words: Sequence[str]) -> Prompt:
        """Return the prompt with this number, from 1, of these words."""
        return Prompt(
            id=f"{SYNTHETIC_NAME}-{number}",
            class_=SYNTHETIC_NAME,
            prompt=" ".join(words) + REQUEST,
            max_tokens=self.output_tokens,
            check=_HINTS,
        )

    def draft_suite(self) -> Suite:
        """Return the suite before any server has counted: as many words as tokens are wanted."""
        numbers = range(1, self.count + 1)
        return self.join_suite(
            [
                self.write_prompt(number, self.draw_words(number)[: self.input_tokens])
                for number in numbers
            ]
        )

    def join_suite(self, prompts: Sequence[Prompt]) -> Suite:
        """Return the suite of finished prompts."""
        return Suite(
            name=SYNTHETIC_NAME,
            prompts=tuple(prompts),
            sha256=content_hash(prompts),
            defaults=SuiteDefaults(max_tokens=self.output_tokens),
            notes=(NOTE,),
        )


@cache
def _list_words() -> tuple[str, ...]:
    """Return the short words that several prompts of `real` have, in the order of the alphabet."""
    counts: Counter[str] = Counter()
    for prompt in load_suite("real").prompts:
        counts.update(set(_SHORT_WORD.findall(prompt.as_text())))
    return tuple(sorted(word for word, count in counts.items() if count >= MIN_SHARED))
