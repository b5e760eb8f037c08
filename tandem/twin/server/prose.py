"""What the twin says: English prose without end, varied, about nothing in particular.

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
_DATA = Path(__file__).with_name("data") / "words.yaml"


@cache
def _words() -> dict[str, list[str]]:
    """Return the words by their place in a sentence."""
    told: dict[str, str] = yaml.safe_load(_DATA.read_text())
    return {place: words.split() for place, words in told.items()}


def prose(key: str, *, paragraphs: bool = True) -> Iterator[str]:
    """Yield the pieces of a text without end."""
    rng = random.Random(key)  # noqa: S311 - varied, not secret
    first = True
    while True:
        for number in range(rng.randint(*_SENTENCES_OF_A_PARAGRAPH)):
            words = _sentence(rng)
            lead = "" if first else "\n\n" if number == 0 and paragraphs else " "
            first = False
            if lead == "\n\n":
                yield lead
                lead = ""
            yield lead + words[0][0].upper() + words[0][1:]
            yield from (word if word == "," else f" {word}" for word in words[1:])
            yield "."


def _sentence(rng: random.Random) -> list[str]:
    shape = rng.randrange(6)
    said = _clause(rng)
    if shape == 0:
        return [rng.choice(_words()["openings"]), ",", *said]
    if shape == 1:
        return [*said, rng.choice(_words()["links"]), *_clause(rng)]
    if shape == 2:  # noqa: PLR2004 - a shape's number
        return [*said, ",", "and", *_clause(rng), rng.choice(_words()["manners"])]
    if shape == 3:  # noqa: PLR2004
        return [*said, rng.choice(_words()["places"]), *_thing(rng), rng.choice(_words()["places"]), *_thing(rng)]
    if shape == 4:  # noqa: PLR2004
        return [rng.choice(_words()["links"][:6]), *_clause(rng), ",", *said]
    return [*said, rng.choice(_words()["manners"])]


def _clause(rng: random.Random) -> list[str]:
    tail = [rng.choice(_words()["places"]), *_thing(rng)] if rng.random() < 1 / 3 else []
    return [*_thing(rng), rng.choice(_words()["verbs"]), *_thing(rng), *tail]


def _thing(rng: random.Random) -> list[str]:
    qualities = [rng.choice(_words()["qualities"])] if rng.random() < 2 / 3 else []
    words = [*qualities, rng.choice(_words()["nouns"])]
    article = rng.choice(_ARTICLES)
    return ["an" if article == "a" and words[0][0] in "aeiou" else article, *words]
