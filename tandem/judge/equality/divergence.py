"""Where two different outputs part, and whether both choices were nearly as likely.

Invariant: the first place of difference has one unit for all pairs: token ids of the server, ids of
the target's tokenizer over the text, or characters. Only the baseline's log-probabilities decide a
near tie, because a broken variant's own would excuse it. A figure that is not recorded is None,
never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tandem.bench.figures.request_table import RequestTable, read_outputs
from tandem.bench.records.record import RequestRecord
from tandem.errors import InputError
from tandem.judge.equality.output_pairs import OutputPairs
from tandem.judge.equality.permutation_test import spread_places
from tandem.judge.schema import HistogramBin
from tandem.judge.text_format import clean_text

NEAR_TIE = 0.25
"""Two choices whose log-probabilities differ by less are nearly as likely. This is two steps of
bfloat16 between 16 and 32, where the largest logits lie; another order of the same sums can change
them by so much."""

MAX_READ = 1_000
"""Most different pairs that are read from the file; of more pairs, so many are taken evenly."""

# characters of an example around the first difference
_BEFORE = 60
_AFTER = 100
# the same in token ids
_IDS_BEFORE = 4
_IDS_AFTER = 8
_END = object()

Encode = Callable[[str], Sequence[int]]


class OutputDivergence(NamedTuple):
    """One pair that differs.

    Args:
        row: of the baseline's request.
        position: first place of difference, in the unit of the comparison.
        lengths: of the baseline's and the variant's output, in that unit.
        near_tie: None where the log-probabilities do not say.
        baseline, variant: both outputs cut around the difference, on one line.
    """

    row: int
    position: int
    lengths: tuple[int, int]
    near_tie: bool | None
    baseline: str
    variant: str


def load_encoder(tokenizer: Path) -> Encode:
    """Return a function that gives the token ids of a text, without special tokens.

    Raises:
        InputError: the file is no tokenizer of the library `tokenizers`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - most verdicts need it not

    try:
        library_tokenizer = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises nothing more specific
        raise InputError(
            f"it is no tokenizer: {error}",
            where=str(tokenizer),
            change=(
                "name the tokenizer.json of the target model, or leave it out: characters are"
                " compared then"
            ),
        ) from error
    return lambda text: library_tokenizer.encode(text, add_special_tokens=False).ids


def read_divergences(
    table: RequestTable, pairs: OutputPairs, *, by_ids: bool, encode: Encode | None
) -> Iterator[OutputDivergence]:
    """Read pairs that differ, at most MAX_READ of them, in the order of their classes and prompts.

    Args:
        table: the run.
        pairs: all of them.
        by_ids: whether the servers' token ids are the unit.
        encode: the target's tokenizer; without it and ids, characters are the unit.
    """
    different_pairs = pairs.select(~pairs.is_same)
    rows = different_pairs.first
    order = np.lexsort((rows, table.prompt[rows], table.class_[rows]))
    if not len(order):
        return
    chosen = order[spread_places(len(order), MAX_READ)]
    row_pairs = np.column_stack([rows, different_pairs.second])[chosen].ravel().tolist()
    outputs = read_outputs(table, row_pairs)
    for row in row_pairs[::2]:
        baseline = next(outputs)
        yield _find_divergence(row, baseline, next(outputs), by_ids=by_ids, encode=encode)


def _find_divergence(
    row: int,
    baseline: RequestRecord,
    variant: RequestRecord,
    *,
    by_ids: bool,
    encode: Encode | None,
) -> OutputDivergence:
    texts = (baseline.output, variant.output)
    ids = (baseline.token_ids or (), variant.token_ids or ())
    units: tuple[Sequence[Any], Sequence[Any]] = texts
    if by_ids:
        units = ids
    elif encode:
        units = (encode(texts[0]), encode(texts[1]))
    position = find_first_difference(*units)
    if texts[0] == texts[1]:
        excerpts = [_cut_token_ids(side, position) for side in ids]
    else:
        place = find_first_difference(*texts)
        excerpts = [_cut_text(text, place) for text in texts]
    near_tie = _is_near_tie(baseline, variant, position if by_ids else None)
    return OutputDivergence(row, position, (len(units[0]), len(units[1])), near_tie, *excerpts)


def count_bins(places: Sequence[int]) -> tuple[HistogramBin, ...]:
    """Count first differences in bins that double: 0, 1, 2 to 3, 4 to 7, to the last used."""
    counts = np.bincount(np.array([place.bit_length() for place in places], np.intp)).tolist()
    return tuple(
        HistogramBin(first=(1 << power) >> 1, last=1 << power, n=n)
        for power, n in enumerate(counts)
    )


def find_first_difference(first_units: Sequence[Any], second_units: Sequence[Any]) -> int:
    """Return where two sequences first differ: the shorter one's end if the longer extends it."""
    pairs = zip_longest(first_units, second_units, fillvalue=_END)
    for place, (first, second) in enumerate(pairs):
        if first != second:
            return place
    return len(first_units)


def _cut_text(text: str, place: int) -> str:
    first = max(place - _BEFORE, 0)
    last = place + _AFTER
    excerpt = clean_text(text[first:last])
    if first:
        excerpt = f"…{excerpt}"
    if last < len(text):
        excerpt = f"{excerpt}…"
    return excerpt


def _cut_token_ids(ids: Sequence[int], place: int) -> str:
    first = max(place - _IDS_BEFORE, 0)
    last = place + _IDS_AFTER
    ids_text = " ".join(map(str, ids[first:last]))
    if first:
        ids_text = f"… {ids_text}"
    if last < len(ids):
        ids_text = f"{ids_text} …"
    return f"token ids {ids_text}"


class _TokenStep(NamedTuple):
    """One token of an output: the choice, its log-probability, and those of the alternatives."""

    token: str
    logprob: float
    alternatives: dict[str, float]


def _is_near_tie(
    baseline: RequestRecord, variant: RequestRecord, position: int | None
) -> bool | None:
    steps = [_parse_steps(msgspec.json.decode(output.logprobs)) for output in (baseline, variant)]
    sizes = [len(output.token_ids or ()) for output in (baseline, variant)]
    if position is None or list(map(len, steps)) != sizes:
        position = find_first_difference(*map(_list_tokens, steps))
    if position >= min(map(len, steps)):
        return None
    step = steps[0][position]
    choice = steps[1][position].token
    if choice == step.token:
        return None  # two tokens that are spelled alike
    if choice in step.alternatives:
        return abs(step.logprob - step.alternatives[choice]) < NEAR_TIE
    # a choice that is not among the likeliest is less likely than all of them
    least_logprob = min(step.alternatives.values(), default=math.inf)
    return False if step.logprob - least_logprob >= NEAR_TIE else None


def _list_tokens(steps: Sequence[_TokenStep]) -> list[str]:
    return [step.token for step in steps]


def _parse_steps(logprobs: Any) -> list[_TokenStep]:
    """Return an output's tokens; none unless spelled as vLLM's APIs spell them."""
    try:
        if isinstance(logprobs, dict):
            columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
            return [
                _build_step(token, log, (top or {}).items())
                for token, log, top in zip(*columns, strict=True)
            ]
        steps = []
        for entry in logprobs or ():
            tops = [(top["token"], top["logprob"]) for top in entry["top_logprobs"]]
            steps.append(_build_step(entry["token"], entry["logprob"], tops))
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
    return steps


def _build_step(token: Any, logprob: Any, alternatives: Iterable[tuple[Any, Any]]) -> _TokenStep:
    return _TokenStep(
        str(token), float(logprob), {str(name): float(log) for name, log in alternatives}
    )
