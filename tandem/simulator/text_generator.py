"""What the simulator says: English prose without end, varied, about nothing in particular.

Invariant: the same key gives the same words, in every process; every piece is one token of `tokens`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

_ARTICLES = ("the", "the", "a", "this", "that", "every", "another", "our", "one")
_SENTENCES_OF_A_PARAGRAPH = (3, 6)
_WORDS_FILE = Path(__file__).with_name("data") / "words.yaml"


@cache
def _read_words() -> dict[str, list[str]]:
    """Return the words by their place in a sentence."""
    word_lists: dict[str, str] = yaml.safe_load(_WORDS_FILE.read_text())
    return {role: words.split() for role, words in word_lists.items()}


def generate_text(key: str, *, paragraphs: bool = True) -> Iterator[str]:
    """Yield the pieces of a text without end."""
    rng = random.Random(key)  # noqa: S311 - varied, not secret
    is_first = True
    while True:
        for number in range(rng.randint(*_SENTENCES_OF_A_PARAGRAPH)):
            words = _generate_sentence(rng)
            separator = "" if is_first else "\n\n" if number == 0 and paragraphs else " "
            is_first = False
            if separator == "\n\n":
                yield separator
                separator = ""
            yield separator + words[0][0].upper() + words[0][1:]
            yield from (word if word == "," else f" {word}" for word in words[1:])
            yield "."


def _generate_sentence(rng: random.Random) -> list[str]:
    shape = rng.randrange(6)
    clause = _generate_clause(rng)
    if shape == 0:
        return [rng.choice(_read_words()["openings"]), ",", *clause]
    if shape == 1:
        return [*clause, rng.choice(_read_words()["links"]), *_generate_clause(rng)]
    if shape == 2:  # noqa: PLR2004 - a shape's number
        return [*clause, ",", "and", *_generate_clause(rng), rng.choice(_read_words()["manners"])]
    if shape == 3:  # noqa: PLR2004
        return [
            *clause,
            rng.choice(_read_words()["places"]),
            *_generate_noun_phrase(rng),
            rng.choice(_read_words()["places"]),
            *_generate_noun_phrase(rng),
        ]
    if shape == 4:  # noqa: PLR2004
        return [rng.choice(_read_words()["links"][:6]), *_generate_clause(rng), ",", *clause]
    return [*clause, rng.choice(_read_words()["manners"])]


def _generate_clause(rng: random.Random) -> list[str]:
    tail = [rng.choice(_read_words()["places"]), *_generate_noun_phrase(rng)] if rng.random() < 1 / 3 else []
    return [*_generate_noun_phrase(rng), rng.choice(_read_words()["verbs"]), *_generate_noun_phrase(rng), *tail]


def _generate_noun_phrase(rng: random.Random) -> list[str]:
    qualities = [rng.choice(_read_words()["qualities"])] if rng.random() < 2 / 3 else []
    words = [*qualities, rng.choice(_read_words()["nouns"])]
    article = rng.choice(_ARTICLES)
    return ["an" if article == "a" and words[0][0] in "aeiou" else article, *words]
