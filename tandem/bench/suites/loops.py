"""Answers that end in the same words over and over.

Invariant: only the end is judged: a refrain, a table or a repeated heading inside an answer is no loop, an answer that
never got out of one is.

The end is a loop when it is periodic: the last words are one unit again and again. Failing that, when hardly any run
of four words in it is new: a loop with small changes.
"""

from __future__ import annotations

from collections.abc import Sequence

WORDS_JUDGED = 600  # from the end
COVERED, TIMES = 24, 4  # words that the repeated units cover at least, and how often a unit stands
LONG_UNIT, LONG_TIMES = 20, 3  # a passage of so many words is not said three times
COVERED_OF_MACHINES, TIMES_OF_MACHINES = 60, 6  # code, JSON and configuration have like lines

UNSPACED_WORD = 15  # mean characters a word, from which on the text is judged by characters
GLUED_WORD = 60  # characters of the last word, likewise
CHARACTERS_JUDGED = 600
COVERED_CHARACTERS, COVERED_BY_ONE = 60, 120  # by a unit of several characters, by one character: a ruled line is short
COVERED_CHARACTERS_OF_MACHINES = 400

NEAR_JUDGED, NEAR_LEAST = 160, 120  # words at the end, and how many there must be
NEAR_WORDS = 80  # distinct ones: with more of them the runs cannot repeat so
NEAR_SHARE = 0.35  # of runs of four words that are distinct; prose has above 0.9


def found(answer: str, *, cut: bool, like_lines_are_normal: bool) -> bool:
    """Return whether the answer ends in a loop.

    Args:
        answer: what the model said, thinking left out.
        cut: whether max_tokens ended it, so that its last word may be part of one.
        like_lines_are_normal: for code, JSON and configuration files.
    """
    words = answer.split()
    if _unspaced(words):
        covered = COVERED_CHARACTERS_OF_MACHINES if like_lines_are_normal else COVERED_CHARACTERS
        return _periodic_characters(answer[-CHARACTERS_JUDGED:].rstrip(), covered)
    tail = words[: -1 if cut else None][-WORDS_JUDGED:]
    if not like_lines_are_normal and _nearly(tail):
        return True
    if not tail or tail.count(tail[-1]) < LONG_TIMES:  # spares most answers the exact search
        return False
    if like_lines_are_normal:
        return any(
            covered >= COVERED_OF_MACHINES
            and covered >= TIMES_OF_MACHINES * unit
            and any(map(str.isalpha, "".join(tail[-unit:])))  # a matrix of zeros is content
            for covered, unit in _units(tail)
        )
    return any(_loops(covered, unit) for covered, unit in _units(tail))


def _loops(covered: int, unit: int) -> bool:
    return covered >= COVERED and covered >= (LONG_TIMES if unit >= LONG_UNIT else TIMES) * unit


def _units(tail: Sequence[str]) -> list[tuple[int, int]]:
    """Return, for every length of the end, the length of the shortest unit that repeats through it.

    The prefix function of the reversed end: an end of n items whose longest border has b items has a unit of n - b.
    """
    reverse = tail[::-1]
    border = [0] * len(reverse)
    units = [(1, 1)] if reverse else []
    for place in range(1, len(reverse)):
        length = border[place - 1]
        while length and reverse[place] != reverse[length]:
            length = border[length - 1]
        border[place] = length + (reverse[place] == reverse[length])
        units.append((place + 1, place + 1 - border[place]))
    return units


def _unspaced(words: Sequence[str]) -> bool:
    return bool(words) and (sum(map(len, words)) > UNSPACED_WORD * len(words) or len(words[-1]) > GLUED_WORD)


def _periodic_characters(tail: str, least: int) -> bool:
    if tail.count(tail[-COVERED_CHARACTERS // TIMES :]) == 1:  # spares most answers the exact search
        return False
    return any(
        covered >= (least if unit > 1 else max(least, COVERED_BY_ONE)) and covered >= TIMES * unit
        for covered, unit in _units(tail)
    )


def _nearly(tail: Sequence[str]) -> bool:
    end = tail[-NEAR_JUDGED:]
    if len(end) < NEAR_LEAST or len(set(end)) > NEAR_WORDS:
        return False
    words = [word for word in end if any(map(str.isalnum, word))]
    if len(words) < NEAR_LEAST:
        return False
    runs = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return len(set(runs)) < NEAR_SHARE * len(runs)
