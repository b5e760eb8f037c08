"""What the simulator says: English prose without end, varied, about nothing in particular.

Invariant: the same key gives the same words, in every process; every piece is one token of `tokenizer`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

_SENTENCES_OF_A_PARAGRAPH = (3, 6)
_WORDS_FILE = Path(__file__).with_name("data") / "words.yaml"


@cache
def _read_grammar() -> dict[str, list[list[str]]]:
    """Return the grammar: of each symbol its alternatives, each a row of symbols and words."""
    grammar: dict[str, str] = yaml.safe_load(_WORDS_FILE.read_text())
    return {
        symbol: [alternative.split() for alternative in (text.split("|") if "|" in text else text.split())]
        for symbol, text in grammar.items()
    }


def generate_text(key: str, *, paragraphs: bool = True) -> Iterator[str]:
    """Yield the pieces of a text without end."""
    rng = random.Random(key)  # noqa: S311 - varied, not secret
    is_first = True
    while True:
        for number in range(rng.randint(*_SENTENCES_OF_A_PARAGRAPH)):
            words = list(_expand("SENTENCE", rng))
            separator = "" if is_first else "\n\n" if number == 0 and paragraphs else " "
            is_first = False
            if separator == "\n\n":
                yield separator
                separator = ""
            yield separator + words[0][0].upper() + words[0][1:]
            yield from (word if word == "," else f" {word}" for word in words[1:])
            yield "."


def _expand(symbol: str, rng: random.Random) -> Iterator[str]:
    """Yield the words of a symbol; what is no symbol is a word."""
    alternatives = _read_grammar().get(symbol)
    for part in rng.choice(alternatives) if alternatives else ():
        yield from _expand(part, rng)
    if alternatives is None:
        yield symbol
