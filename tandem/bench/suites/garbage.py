"""Text that nobody would write: what comes out of a broken draft, a wrong tokenizer or a bad artifact.

Invariant: no dictionary and no language is assumed; text of every script passes, also several in one answer.
"""

from __future__ import annotations

import re
import string
from functools import cache
from itertools import permutations

# Characters that no answer holds: what undecodable bytes become, controls, private use.
BROKEN = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufdd0-\ufdef]")
BROKEN_LEAST, BROKEN_SHARE = 3, 1 / 200  # one or two stand at the end of an answer that was cut inside a character

# How byte-level tokenizers spell a space and a line break: seen when tokens are shown and not decoded.
TOKEN_MARKS = re.compile("[\u0120\u010a]")
TOKEN_MARKS_LEAST, TOKEN_MARKS_SHARE = 5, 1 / 33

SYMBOLS_LEAST = 40  # visible characters before their kinds are judged
WORDLIKE_SHARE, WORDLIKE_SHARE_OF_MACHINES = 0.30, 0.10  # letters and digits among them; a Markdown table has half

# Alphabets that no word mixes, each with the letter that stands for it in a text's outline.
ALPHABETS = {
    "L": "A-Za-z\u00c0-\u024f",
    "E": "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af",  # East Asian
    "C": "\u0400-\u052f",  # Cyrillic
    "A": "\u0530-\u058f",  # Armenian
    "H": "\u0590-\u05ff",  # Hebrew
    "R": "\u0600-\u06ff",  # Arabic
    "I": "\u0900-\u0dff",  # of India
    "T": "\u0e00-\u0eff",  # Thai and Lao
}  # Greek is left out: it stands beside Latin in every formula
MIXED_LEAST, MIXED_EVERY = 3, 400  # places, and characters for each at most
EAST_ASIAN_SHARE = 0.15  # of the letters: from there on Latin words stand unspaced inside East Asian text

NOT_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$|https?://\S+", re.DOTALL)
GLUED = (
    re.compile(r"[{}\[\]<>\\^~$#;=:!?](?<=[A-Za-z].)(?=[A-Za-z])", re.DOTALL),
    re.compile(r"[A-Z](?<=[a-z].)", re.DOTALL),
)
LONGEST_WORD = 40  # Latin letters; German compounds stay below
WORDS_LEAST = 8  # words, before they are judged
GLUED_SHARE, ENDLESS_SHARE = 0.75, 0.20  # glued places and endless words for each; identifiers are glued too
PLAIN_LETTERS, PLAIN_LEAST = 4, 10  # small letters a word at least, and such words
UNSPEAKABLE_SHARE = 0.25  # of them that nobody could say
UNSPEAKABLE = re.compile(r" [b-df-hj-np-tv-xz]+(?= )|[b-df-hj-np-tv-xz]{6}")

_LETTERS = {letter: re.compile(f"[{characters}]") for letter, characters in ALPHABETS.items()}
_ASCII_WORDLIKE = (string.ascii_letters + string.digits).encode()
_WORDLIKE = re.compile(r"[^\W_]+")


def found(answer: str, *, symbols_are_normal: bool) -> bool:
    """Return whether the answer is no text.

    Args:
        answer: what the model said, thinking left out.
        symbols_are_normal: for code, JSON and configuration files, whose words are not prose.
    """
    if _broken(answer) or _symbols(answer, WORDLIKE_SHARE_OF_MACHINES if symbols_are_normal else WORDLIKE_SHARE):
        return True
    if not answer.isascii() and _mixed(answer):
        return True
    return not symbols_are_normal and _glued_or_unspeakable(NOT_PROSE.sub(" ", answer))


def _broken(answer: str) -> bool:
    different = "".join(set(answer))
    broken = len(BROKEN.findall(answer)) if BROKEN.search(different) else 0
    marks = len(TOKEN_MARKS.findall(answer)) if TOKEN_MARKS.search(different) else 0
    return (broken >= BROKEN_LEAST and broken > BROKEN_SHARE * len(answer)) or (
        marks >= TOKEN_MARKS_LEAST and marks > TOKEN_MARKS_SHARE * len(answer)
    )


def _symbols(answer: str, least_share: float) -> bool:
    visible = "".join(answer.split())
    if visible.isascii():
        wordlike = len(visible) - len(visible.encode().translate(None, _ASCII_WORDLIKE))
    else:
        wordlike = sum(map(len, _WORDLIKE.findall(visible)))
    return len(visible) >= SYMBOLS_LEAST and wordlike < least_share * len(visible)


def _mixed(answer: str) -> bool:
    """Return whether letters of different alphabets stand side by side too often.

    The text is first made its outline, one letter for each alphabet: `ab\u0432` is `LLC`.
    """
    alphabets = {ord(letter): _alphabet(letter) for letter in set(answer)}
    outline = answer.translate(alphabets)
    present = [letter for letter in ALPHABETS if letter in outline]
    if len(present) == 1:
        return False
    unspaced = outline.count("E") >= EAST_ASIAN_SHARE * sum(map(outline.count, present))
    beside = [
        one + other for one, other in permutations(present, 2) if not (unspaced and {one, other} == {"L", "E"})
    ]  # fmt: skip
    places = sum(map(outline.count, beside))
    return places >= MIXED_LEAST and places * MIXED_EVERY >= len(answer)


@cache
def _alphabet(letter: str) -> str:
    return next((name for name, members in _LETTERS.items() if members.match(letter)), " ")


def _glued_or_unspeakable(prose: str) -> bool:
    words = prose.split()
    glued = sum(len(places.findall(prose)) for places in GLUED)
    endless = sum(1 for word in words if len(word) > LONGEST_WORD and word.isascii() and word.isalpha())
    many = len(words)
    if many >= WORDS_LEAST and (glued > GLUED_SHARE * many or endless > ENDLESS_SHARE * many):
        return True
    plain = [
        word for word in words if len(word) >= PLAIN_LETTERS and word.isascii() and word.islower() and word.isalpha()
    ]
    unspeakable = len(UNSPEAKABLE.findall(f" {' '.join(plain)} "))
    return len(plain) >= PLAIN_LEAST and unspeakable > UNSPEAKABLE_SHARE * len(plain)
