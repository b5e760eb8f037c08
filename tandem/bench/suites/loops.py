"""Loops: answers that end in repeated words.

Invariant: only the end of an answer counts: a refrain, a table or a repeated heading inside an
answer is no loop; a repetition up to the end is.

The end is a loop if it is periodic, i.e. the last words repeat one unit, or if few of its runs of
four words are distinct, i.e. it is a loop with small changes.
"""

from __future__ import annotations

from collections.abc import Sequence

TAIL_WORDS = 600  # at the end of the answer
# fewest words that the repeated units cover, and fewest repeats of a unit
MIN_COVERED_WORDS = 24
MIN_REPEATS = 4
# normal text does not repeat so long a passage three times
LONG_UNIT_WORDS = 20
MIN_LONG_UNIT_REPEATS = 3
# code, JSON and configuration have similar lines
MIN_MACHINE_COVERED_WORDS = 60
MIN_MACHINE_REPEATS = 6

UNSPACED_WORD_CHARACTERS = 15  # above this mean of characters a word, the check uses characters
GLUED_WORD_CHARACTERS = 60  # likewise for the characters of the last word
TAIL_CHARACTERS = 600
# by a unit of several characters, and by one character, because a ruled line is short
MIN_COVERED_CHARACTERS = 60
MIN_CHARACTERS_OF_ONE_KIND = 120
MIN_MACHINE_COVERED_CHARACTERS = 400

# words at the end, and the fewest for a check
NEAR_LOOP_TAIL_WORDS = 160
MIN_NEAR_LOOP_WORDS = 120
MAX_NEAR_LOOP_DISTINCT_WORDS = 80  # with more distinct words, the runs cannot repeat enough
MAX_NEAR_LOOP_DISTINCT_SHARE = 0.35  # distinct share of runs of four words; prose has above 0.9


def is_loop(answer: str, *, is_cut: bool, allows_like_lines: bool) -> bool:
    """Return whether the answer ends in a loop.

    Args:
        answer: without the model's reasoning.
        is_cut: whether max_tokens ended the answer, so its last word may be incomplete.
        allows_like_lines: true for code, JSON and configuration files.
    """
    words = answer.split()
    if words and (
        sum(map(len, words)) > UNSPACED_WORD_CHARACTERS * len(words)
        or len(words[-1]) > GLUED_WORD_CHARACTERS
    ):
        covered_length = (
            MIN_MACHINE_COVERED_CHARACTERS if allows_like_lines else MIN_COVERED_CHARACTERS
        )
        return _has_periodic_end(answer[-TAIL_CHARACTERS:].rstrip(), covered_length)
    tail = words[: -1 if is_cut else None][-TAIL_WORDS:]
    if not allows_like_lines and _is_near_loop(tail):
        return True
    # most answers skip the exact search here
    if not tail or tail.count(tail[-1]) < MIN_LONG_UNIT_REPEATS:
        return False
    for covered_length, unit_length in _find_units(tail):
        if allows_like_lines:
            # a matrix of zeros is content
            is_unit = any(map(str.isalpha, "".join(tail[-unit_length:])))
            least_covered = MIN_MACHINE_COVERED_WORDS
            least_repeats = MIN_MACHINE_REPEATS
        else:
            is_unit = True
            least_covered = MIN_COVERED_WORDS
            least_repeats = MIN_LONG_UNIT_REPEATS if unit_length >= LONG_UNIT_WORDS else MIN_REPEATS
        if is_unit and covered_length >= max(least_covered, least_repeats * unit_length):
            return True
    return False


def _find_units(tail: Sequence[str]) -> list[tuple[int, int]]:
    """Return, for every length of the end, the length of its shortest repeated unit.

    The method is the prefix function of the reversed end: if the longest border of n items has b
    items, the unit has n - b.
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
    # most answers skip the exact search here
    if tail.count(tail[-MIN_COVERED_CHARACTERS // MIN_REPEATS :]) == 1:
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
