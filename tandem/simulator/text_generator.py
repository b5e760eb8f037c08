"""Texts of the simulator and its tokenizer: a token is a word with its space, a part, or a sign.

Invariant: the same key gives the same words in every process; the joined pieces of a text are the
text, and the id of a piece never changes. The tokenizer is no real model's, so its counts cannot be
compared with a model's.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

END_ID = 0  # the token with which an answer ends by itself
# <think> and </think>
THINK_ID = 1
END_THINK_ID = 2
_PIECE = re.compile(r"\s?\w{1,12}|\s?[^\w\s]|\s+")
# ids below are special; about as many as the vocabularies of Qwen3
_FIRST_ID = 16
_ID_COUNT = 150_000
_SENTENCES_OF_A_PARAGRAPH = (3, 6)
_WORDS_FILE = Path(__file__).with_name("data") / "words.yaml"


def split_pieces(text: str) -> list[str]:
    """Cut a text into its tokens."""
    return _PIECE.findall(text)


def token_id(piece: str) -> int:
    """Return the id of a piece; by chance one in 150,000 pairs of pieces shares an id."""
    return _FIRST_ID + zlib.crc32(piece.encode()) % _ID_COUNT


@cache
def _read_grammar() -> dict[str, list[list[str]]]:
    """Return the grammar: symbol -> its alternatives, each a row of symbols and words."""
    grammar = yaml.safe_load(_WORDS_FILE.read_text())
    alternatives = {}
    for symbol, text in grammar.items():
        rows = text.split("|") if "|" in text else text.split()
        alternatives[symbol] = [row.split() for row in rows]
    return alternatives


def generate_text(key: str, *, paragraphs: bool = True) -> Iterator[str]:
    """Yield the pieces of an endless text: varied English prose without a subject."""
    rng = random.Random(key)  # noqa: S311 - varied, not secret
    is_first = True
    while True:
        for number in range(rng.randint(*_SENTENCES_OF_A_PARAGRAPH)):
            words = list(_expand_symbol("SENTENCE", rng))
            separator = "" if is_first else " "
            if number == 0 and paragraphs and not is_first:
                yield "\n\n"
                separator = ""
            is_first = False
            yield separator + words[0][0].upper() + words[0][1:]
            for word in words[1:]:
                yield word if word == "," else f" {word}"
            yield "."


def _expand_symbol(symbol: str, rng: random.Random) -> Iterator[str]:
    """Yield the words of a symbol; a name without alternatives is a word."""
    alternatives = _read_grammar().get(symbol)
    if alternatives is None:
        yield symbol
        return
    for part in rng.choice(alternatives):
        yield from _expand_symbol(part, rng)
