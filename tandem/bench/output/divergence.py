"""Where two outputs that differ part, and whether the two choices made there were nearly as likely.

Invariant: the first place of difference is counted in one unit for all pairs (token ids of the server, ids of the
target's tokenizer over the text, or characters); a near tie is judged by the baseline's log-probabilities alone,
because a broken variant's own would excuse it; what is not recorded is None, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.fault import BenchError
from tandem.bench.judge.form import Bin
from tandem.bench.judge.observations import Observations, Output, outputs
from tandem.bench.judge.words import clean
from tandem.bench.output.matching import Matched

NEAR_TIE = 0.25
"""Two choices whose log-probabilities differ by less are nearly as likely: two steps of bfloat16 between 16 and 32,
where the largest logits lie, and so within what another order of the same sums can turn over."""

MOST_READ = 1_000
"""Pairs that differ and are read from the file; of more, so many are taken evenly."""

_BEFORE, _AFTER = 60, 100  # characters of an example around the first difference
_IDS_BEFORE, _IDS_AFTER = 4, 8  # the same in token ids
_ENDED = object()

Encode = Callable[[str], Sequence[int]]


class Parting(NamedTuple):
    """One pair that differs.

    Args:
        row: of the baseline's request.
        at: first place of difference, in the unit asked for.
        lengths: of the baseline's and the variant's output, in that unit.
        near_tie: None where the log-probabilities do not say.
        baseline, variant: both outputs cut around the difference, on one line.
    """

    row: int
    at: int
    lengths: tuple[int, int]
    near_tie: bool | None
    baseline: str
    variant: str


def encoder(tokenizer: Path) -> Encode:
    """Return what gives the token ids of a text, without special tokens.

    Raises:
        BenchError: the file is no tokenizer of the library `tokenizers`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - most verdicts need it not

    try:
        loaded = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises nothing more special
        raise BenchError(
            f"it is no tokenizer: {error}",
            where=str(tokenizer),
            change="name the tokenizer.json of the target model, or leave it out: characters are compared then",
        ) from error

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = loaded.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def partings(seen: Observations, pairs: Matched, *, by_ids: bool, encode: Encode | None) -> Iterator[Parting]:
    """Read pairs that differ, at most MOST_READ of them, in the order of their classes and prompts.

    Args:
        seen: the run.
        pairs: all of them.
        by_ids: whether the servers' token ids are the unit.
        encode: the target's tokenizer; without it and ids, characters are the unit.
    """
    rows = _chosen(seen, pairs)
    if not len(rows):
        return
    interleaved = np.column_stack([pairs.first[rows], pairs.second[rows]]).ravel().tolist()
    read = outputs(seen, interleaved)
    for row, (mine, theirs) in zip(interleaved[::2], zip(read, read, strict=True), strict=True):
        units = (_units(mine, by_ids=by_ids, encode=encode), _units(theirs, by_ids=by_ids, encode=encode))
        at = first_difference(*units)
        shown = _around(mine, theirs, at)
        yield Parting(row, at, (len(units[0]), len(units[1])), _near_tie(mine, theirs, at if by_ids else None), *shown)


def histogram(places: Sequence[int]) -> tuple[Bin, ...]:
    """Count first places of difference in bins that double: 0, 1, 2 to 3, 4 to 7 and so on; none behind the last."""
    if not places:
        return ()
    bins = np.array([place.bit_length() for place in places])
    return tuple(
        Bin(first=(1 << power) >> 1, last=1 << power, n=int(number)) for power, number in enumerate(np.bincount(bins))
    )


def first_difference(mine: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Return the first place where two sequences differ: where one ends, if it is how the other begins."""
    pairs = zip_longest(mine, theirs, fillvalue=_ENDED)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), len(mine))


def _chosen(seen: Observations, pairs: Matched) -> Whole:
    apart = np.flatnonzero(~pairs.same)
    rows = pairs.first[apart]
    apart = apart[np.lexsort((rows, seen.prompt[rows], seen.class_[rows]))]
    if len(apart) <= MOST_READ:
        return apart
    chosen: Whole = apart[np.linspace(0, len(apart) - 1, MOST_READ).round().astype(np.intp)]
    return chosen


def _units(output: Output, *, by_ids: bool, encode: Encode | None) -> Sequence[Any]:
    if by_ids:
        return output.token_ids or ()
    return encode(_whole(output)) if encode else _whole(output)


def _whole(output: Output) -> str:
    return output.text if output.reasoning is None else f"{output.reasoning}\0{output.text}"


def _around(mine: Output, theirs: Output, at: int) -> tuple[str, str]:
    """Return both outputs around their first difference; token ids where the texts have none."""
    texts = (_whole(mine), _whole(theirs))
    if texts[0] == texts[1]:
        one, other = (_ids_around(output.token_ids or (), at) for output in (mine, theirs))
    else:
        place = first_difference(*texts)
        one, other = (_cut(text, place) for text in texts)
    return one, other


def _cut(text: str, place: int) -> str:
    first, last = max(place - _BEFORE, 0), place + _AFTER
    return f"{'…' if first else ''}{clean(text[first:last])}{'…' if last < len(text) else ''}"


def _ids_around(ids: Sequence[int], place: int) -> str:
    first, last = max(place - _IDS_BEFORE, 0), place + _IDS_AFTER
    shown = " ".join(map(str, ids[first:last]))
    return f"token ids {'… ' if first else ''}{shown}{' …' if last < len(ids) else ''}"


class _Step(NamedTuple):
    """One token of an output with what was as likely: the choice, its log-probability, those of the alternatives."""

    token: str
    log: float
    others: Mapping[str, float]


def _near_tie(mine: Output, theirs: Output, at: int | None) -> bool | None:
    steps, others = _steps(mine.logprobs), _steps(theirs.logprobs)
    if at is None or len(steps) != len(mine.token_ids or ()) or len(others) != len(theirs.token_ids or ()):
        at = first_difference([step.token for step in steps], [step.token for step in others])
    if at >= len(steps) or at >= len(others):
        return None
    step, choice = steps[at], others[at].token
    if choice == step.token:
        return None  # two tokens that are spelled alike
    if choice in step.others:
        return abs(step.log - step.others[choice]) < NEAR_TIE
    # a choice that is not among the likeliest is less likely than all of them
    least = min(step.others.values(), default=math.inf)
    return False if step.log - least >= NEAR_TIE else None


def _steps(logprobs: Any) -> list[_Step]:
    """Return the tokens of a recorded output; none where they are not spelled as vLLM's APIs spell them."""
    try:
        if isinstance(logprobs, dict):
            columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
            return [_Step(str(token), float(log), _numbers(top)) for token, log, top in zip(*columns, strict=True)]
        return [_of_chat(entry) for entry in logprobs or ()]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _of_chat(entry: Any) -> _Step:
    top = {one["token"]: one["logprob"] for one in entry["top_logprobs"]}
    return _Step(str(entry["token"]), float(entry["logprob"]), _numbers(top))


def _numbers(top: Any) -> dict[str, float]:
    return {str(token): float(log) for token, log in (top or {}).items()}
