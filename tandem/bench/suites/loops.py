"""Answers that end in the same words over and over.

Invariant: only the end is judged: a refrain, a table or a repeated heading inside an answer is no loop, an answer that
never got out of one is.

The end is a loop when it is periodic: the last words are one unit again and again. Failing that, when hardly any run
of four words in it is new: a loop with small changes.
"""

from __future__ import annotations

from collections.abc import Sequence

TAIL_WORDS = 600  # from the end
MIN_COVERED_WORDS, MIN_REPEATS = 24, 4  # words that the repeated units cover at least, and how often a unit stands
LONG_UNIT_WORDS, MIN_LONG_UNIT_REPEATS = 20, 3  # a passage of so many words is not said three times
MIN_MACHINE_COVERED_WORDS, MIN_MACHINE_REPEATS = 60, 6  # code, JSON and configuration have like lines

UNSPACED_WORD_CHARACTERS = 15  # mean characters a word, from which on the text is judged by characters
GLUED_WORD_CHARACTERS = 60  # characters of the last word, likewise
TAIL_CHARACTERS = 600
# by a unit of several characters, by one character: a ruled line is short
MIN_COVERED_CHARACTERS, MIN_CHARACTERS_OF_ONE_KIND = 60, 120
MIN_MACHINE_COVERED_CHARACTERS = 400

NEAR_LOOP_TAIL_WORDS, MIN_NEAR_LOOP_WORDS = 160, 120  # words at the end, and how many there must be
MAX_NEAR_LOOP_DISTINCT_WORDS = 80  # distinct ones: with more of them the runs cannot repeat so
MAX_NEAR_LOOP_DISTINCT_SHARE = 0.35  # of runs of four words that are distinct; prose has above 0.9


def is_loop(answer: str, *, is_cut: bool, allows_like_lines: bool) -> bool:
    """Return whether the answer ends in a loop.

    Args:
        answer: what the model said, thinking left out.
        is_cut: whether max_tokens ended it, so that its last word may be part of one.
        allows_like_lines: for code, JSON and configuration files.
    """
    words = answer.split()
    if words and (
        sum(map(len, words)) > UNSPACED_WORD_CHARACTERS * len(words) or len(words[-1]) > GLUED_WORD_CHARACTERS
    ):
        covered_length = MIN_MACHINE_COVERED_CHARACTERS if allows_like_lines else MIN_COVERED_CHARACTERS
        return _has_periodic_end(answer[-TAIL_CHARACTERS:].rstrip(), covered_length)
    tail = words[: -1 if is_cut else None][-TAIL_WORDS:]
    if not allows_like_lines and _is_near_loop(tail):
        return True
    if not tail or tail.count(tail[-1]) < MIN_LONG_UNIT_REPEATS:  # spares most answers the exact search
        return False
    for covered_length, unit_length in _find_units(tail):
        if allows_like_lines:
            is_unit = any(map(str.isalpha, "".join(tail[-unit_length:])))  # a matrix of zeros is content
            least_covered, least_repeats = MIN_MACHINE_COVERED_WORDS, MIN_MACHINE_REPEATS
        else:
            is_unit, least_covered = True, MIN_COVERED_WORDS
            least_repeats = MIN_LONG_UNIT_REPEATS if unit_length >= LONG_UNIT_WORDS else MIN_REPEATS
        if is_unit and covered_length >= max(least_covered, least_repeats * unit_length):
            return True
    return False


def _find_units(tail: Sequence[str]) -> list[tuple[int, int]]:
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


def _has_periodic_end(tail: str, minimum: int) -> bool:
    if tail.count(tail[-MIN_COVERED_CHARACTERS // MIN_REPEATS :]) == 1:  # spares most answers the exact search
        return False
    return any(
        covered_length >= (minimum if unit_length > 1 else max(minimum, MIN_CHARACTERS_OF_ONE_KIND))
        and covered_length >= MIN_REPEATS * unit_length
        for covered_length, unit_length in _find_units(tail)
    )


def _is_near_loop(tail: Sequence[str]) -> bool:
    end = tail[-NEAR_LOOP_TAIL_WORDS:]
    if len(end) < MIN_NEAR_LOOP_WORDS or len(set(end)) > MAX_NEAR_LOOP_DISTINCT_WORDS:
        return False
    words = [word for word in end if any(map(str.isalnum, word))]
    if len(words) < MIN_NEAR_LOOP_WORDS:
        return False
    runs = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return len(set(runs)) < MAX_NEAR_LOOP_DISTINCT_SHARE * len(runs)
