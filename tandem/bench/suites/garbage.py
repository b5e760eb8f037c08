"""Garbage: text of a broken draft, a wrong tokenizer or a bad artifact.

Invariant: the check assumes no dictionary and no language; text of every script passes, also
several in one answer.
"""

from __future__ import annotations

import re
import string
from functools import cache
from itertools import permutations

# Characters that no valid answer has: replacements of undecodable bytes, controls, private use.
BROKEN_CHARACTERS = re.compile(
    "[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufdd0-\ufdef]"
)
# an answer that was cut inside a character ends with one or two
MIN_BROKEN_CHARACTERS = 3
BROKEN_SHARE = 1 / 200

# Signs of byte-level tokenizers for a space and a line break: visible if tokens are not decoded.
TOKEN_MARKS = re.compile("[\u0120\u010a]")
MIN_TOKEN_MARKS = 5
TOKEN_MARKS_SHARE = 1 / 33

MIN_VISIBLE_CHARACTERS = 40  # fewest visible characters for a check of their kinds
# least share of letters and digits; a Markdown table has half
WORDLIKE_SHARE = 0.30
MACHINE_WORDLIKE_SHARE = 0.10

# Alphabets that no word mixes, each with its letter in a text's outline.
ALPHABETS = {
    "L": "A-Za-z\u00c0-\u024f",
    "E": "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af",  # East Asian
    "C": "\u0400-\u052f",  # Cyrillic
    "A": "\u0530-\u058f",  # Armenian
    "H": "\u0590-\u05ff",  # Hebrew
    "R": "\u0600-\u06ff",  # Arabic
    "I": "\u0900-\u0dff",  # of India
    "T": "\u0e00-\u0eff",  # Thai and Lao
}  # without Greek, because formulas mix it with Latin
# fewest places, and most characters for each
MIN_MIXED_PLACES = 3
MAX_CHARACTERS_PER_MIXED_PLACE = 400
# of the letters: from this share on, East Asian text has Latin words without spaces
EAST_ASIAN_SHARE = 0.15

NOT_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$|https?://\S+", re.DOTALL)
GLUED_PATTERNS = (
    re.compile(r"[{}\[\]<>\\^~$#;=:!?](?<=[A-Za-z].)(?=[A-Za-z])", re.DOTALL),
    re.compile(r"[A-Z](?<=[a-z].)", re.DOTALL),
)
MAX_WORD_LETTERS = 40  # Latin letters; German compounds stay below
MIN_WORDS = 8  # fewest words for a check
# glued places and endless words per word; identifiers are glued too
GLUED_SHARE = 0.75
ENDLESS_SHARE = 0.20
# fewest small letters of a plain word, and fewest plain words
MIN_PLAIN_LETTERS = 4
MIN_PLAIN_WORDS = 10
UNSPEAKABLE_SHARE = 0.25  # share of unspeakable plain words
UNSPEAKABLE = re.compile(r" [b-df-hj-np-tv-xz]+(?= )|[b-df-hj-np-tv-xz]{6}")

_LETTERS = {letter: re.compile(f"[{characters}]") for letter, characters in ALPHABETS.items()}
_ASCII_WORDLIKE = (string.ascii_letters + string.digits).encode()
_WORDLIKE = re.compile(r"[^\W_]+")


def is_garbage(answer: str, *, allows_symbols: bool) -> bool:
    """Return whether the answer is no real text.

    Args:
        answer: without the model's reasoning.
        allows_symbols: true for code, JSON and configuration files, whose words are not prose.
    """
    letters = "".join(set(answer))
    visible = "".join(answer.split())
    broken_count = (
        len(BROKEN_CHARACTERS.findall(answer)) if BROKEN_CHARACTERS.search(letters) else 0
    )
    mark_count = len(TOKEN_MARKS.findall(answer)) if TOKEN_MARKS.search(letters) else 0
    if broken_count >= MIN_BROKEN_CHARACTERS and broken_count > BROKEN_SHARE * len(answer):
        return True
    if mark_count >= MIN_TOKEN_MARKS and mark_count > TOKEN_MARKS_SHARE * len(answer):
        return True
    if visible.isascii():
        wordlike_count = len(visible) - len(visible.encode().translate(None, _ASCII_WORDLIKE))
    else:
        wordlike_count = sum(map(len, _WORDLIKE.findall(visible)))
    least_share = MACHINE_WORDLIKE_SHARE if allows_symbols else WORDLIKE_SHARE
    if len(visible) >= MIN_VISIBLE_CHARACTERS and wordlike_count < least_share * len(visible):
        return True
    if not answer.isascii() and _has_mixed_alphabets(answer):
        return True
    return not allows_symbols and _has_unreadable_words(NOT_PROSE.sub(" ", answer))


def _has_mixed_alphabets(answer: str) -> bool:
    """Return whether letters of different alphabets are adjacent too often.

    The function works on an outline of the text, one letter for each alphabet: `ab\u0432` is `LLC`.
    """
    alphabets = {ord(letter): _find_alphabet(letter) for letter in set(answer)}
    outline = answer.translate(alphabets)
    present = [letter for letter in ALPHABETS if letter in outline]
    if len(present) == 1:
        return False
    has_no_spaces = outline.count("E") >= EAST_ASIAN_SHARE * sum(map(outline.count, present))
    letter_pairs = [
        first + second
        for first, second in permutations(present, 2)
        if not (has_no_spaces and {first, second} == {"L", "E"})
    ]
    mixed_count = sum(map(outline.count, letter_pairs))
    return mixed_count >= MIN_MIXED_PLACES and mixed_count * MAX_CHARACTERS_PER_MIXED_PLACE >= len(
        answer
    )


@cache
def _find_alphabet(letter: str) -> str:
    return next((name for name, members in _LETTERS.items() if members.match(letter)), " ")


def _has_unreadable_words(prose: str) -> bool:
    words = prose.split()
    glued_count = sum(len(pattern.findall(prose)) for pattern in GLUED_PATTERNS)
    latin_words = [word for word in words if word.isascii() and word.isalpha()]
    endless_count = sum(len(word) > MAX_WORD_LETTERS for word in latin_words)
    if len(words) >= MIN_WORDS and (
        glued_count > GLUED_SHARE * len(words) or endless_count > ENDLESS_SHARE * len(words)
    ):
        return True
    plain_words = [
        word for word in latin_words if len(word) >= MIN_PLAIN_LETTERS and word.islower()
    ]
    unspeakable_count = len(UNSPEAKABLE.findall(f" {' '.join(plain_words)} "))
    return len(plain_words) >= MIN_PLAIN_WORDS and unspeakable_count > UNSPEAKABLE_SHARE * len(
        plain_words
    )
