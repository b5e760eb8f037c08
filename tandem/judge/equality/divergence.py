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

from tandem.bench.columns import IntArray
from tandem.bench.fault import BenchError
from tandem.bench.request_table import RequestOutput, RequestTable, read_outputs
from tandem.judge.equality.output_pairs import OutputPairs
from tandem.judge.schema import HistogramBin
from tandem.judge.text_format import clean_text

NEAR_TIE = 0.25
"""Two choices whose log-probabilities differ by less are nearly as likely: two steps of bfloat16 between 16 and 32,
where the largest logits lie, and so within what another order of the same sums can turn over."""

MAX_READ = 1_000
"""Pairs that differ and are read from the file; of more, so many are taken evenly."""

_BEFORE, _AFTER = 60, 100  # characters of an example around the first difference
_IDS_BEFORE, _IDS_AFTER = 4, 8  # the same in token ids
_END = object()

Encode = Callable[[str], Sequence[int]]


class OutputDivergence(NamedTuple):
    """One pair that differs.

    Args:
        row: of the baseline's request.
        position: first place of difference, in the unit asked for.
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
    """Return what gives the token ids of a text, without special tokens.

    Raises:
        BenchError: the file is no tokenizer of the library `tokenizers`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - most verdicts need it not

    try:
        library_tokenizer = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises nothing more special
        raise BenchError(
            f"it is no tokenizer: {error}",
            where=str(tokenizer),
            change="name the tokenizer.json of the target model, or leave it out: characters are compared then",
        ) from error

    def encode(text: str) -> Sequence[int]:
        token_ids: Sequence[int] = library_tokenizer.encode(text, add_special_tokens=False).ids
        return token_ids

    return encode


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
    rows = _choose_pairs(table, pairs)
    if not len(rows):
        return
    row_pairs = np.column_stack([pairs.first[rows], pairs.second[rows]]).ravel().tolist()
    pair_outputs = read_outputs(table, row_pairs)
    for row, (baseline, variant) in zip(row_pairs[::2], zip(pair_outputs, pair_outputs, strict=True), strict=True):
        units = (
            _split_units(baseline, by_ids=by_ids, encode=encode),
            _split_units(variant, by_ids=by_ids, encode=encode),
        )
        position = find_first_difference(*units)
        excerpts = _cut_excerpts(baseline, variant, position)
        yield OutputDivergence(
            row,
            position,
            (len(units[0]), len(units[1])),
            _is_near_tie(baseline, variant, position if by_ids else None),
            *excerpts,
        )


def count_bins(places: Sequence[int]) -> tuple[HistogramBin, ...]:
    """Count first places of difference in bins that double: 0, 1, 2 to 3, 4 to 7 and so on; none behind the last."""
    if not places:
        return ()
    bins = np.array([place.bit_length() for place in places])
    return tuple(
        HistogramBin(first=(1 << power) >> 1, last=1 << power, n=int(number))
        for power, number in enumerate(np.bincount(bins))
    )


def find_first_difference(first_units: Sequence[Any], second_units: Sequence[Any]) -> int:
    """Return the first place where two sequences differ: where one ends, if it is how the other begins."""
    pairs = zip_longest(first_units, second_units, fillvalue=_END)
    return next(
        (place for place, (first_unit, second_unit) in enumerate(pairs) if first_unit != second_unit), len(first_units)
    )


def _choose_pairs(table: RequestTable, pairs: OutputPairs) -> IntArray:
    different_pairs = np.flatnonzero(~pairs.is_same)
    rows = pairs.first[different_pairs]
    different_pairs = different_pairs[np.lexsort((rows, table.prompt[rows], table.class_[rows]))]
    if len(different_pairs) <= MAX_READ:
        return different_pairs
    selection: IntArray = different_pairs[np.linspace(0, len(different_pairs) - 1, MAX_READ).round().astype(np.intp)]
    return selection


def _split_units(output: RequestOutput, *, by_ids: bool, encode: Encode | None) -> Sequence[Any]:
    if by_ids:
        return output.token_ids or ()
    return encode(_join_text(output)) if encode else _join_text(output)


def _join_text(output: RequestOutput) -> str:
    return output.text if output.reasoning is None else f"{output.reasoning}\0{output.text}"


def _cut_excerpts(baseline: RequestOutput, variant: RequestOutput, position: int) -> tuple[str, str]:
    """Return both outputs around their first difference; token ids where the texts have none."""
    texts = (_join_text(baseline), _join_text(variant))
    if texts[0] == texts[1]:
        baseline_excerpt, variant_excerpt = (
            _cut_token_ids(output.token_ids or (), position) for output in (baseline, variant)
        )
    else:
        place = find_first_difference(*texts)
        baseline_excerpt, variant_excerpt = (_cut_text(text, place) for text in texts)
    return baseline_excerpt, variant_excerpt


def _cut_text(text: str, place: int) -> str:
    first, last = max(place - _BEFORE, 0), place + _AFTER
    return f"{'…' if first else ''}{clean_text(text[first:last])}{'…' if last < len(text) else ''}"


def _cut_token_ids(ids: Sequence[int], place: int) -> str:
    first, last = max(place - _IDS_BEFORE, 0), place + _IDS_AFTER
    ids_text = " ".join(map(str, ids[first:last]))
    return f"token ids {'… ' if first else ''}{ids_text}{' …' if last < len(ids) else ''}"


class _TokenStep(NamedTuple):
    """One token of an output with what was as likely: the choice, its log-probability, those of the alternatives."""

    token: str
    logprob: float
    alternatives: Mapping[str, float]


def _is_near_tie(baseline: RequestOutput, variant: RequestOutput, position: int | None) -> bool | None:
    baseline_steps, variant_steps = _parse_steps(baseline.logprobs), _parse_steps(variant.logprobs)
    if (
        position is None
        or len(baseline_steps) != len(baseline.token_ids or ())
        or len(variant_steps) != len(variant.token_ids or ())
    ):
        position = find_first_difference(
            [step.token for step in baseline_steps], [step.token for step in variant_steps]
        )
    if position >= len(baseline_steps) or position >= len(variant_steps):
        return None
    step, choice = baseline_steps[position], variant_steps[position].token
    if choice == step.token:
        return None  # two tokens that are spelled alike
    if choice in step.alternatives:
        return abs(step.logprob - step.alternatives[choice]) < NEAR_TIE
    # a choice that is not among the likeliest is less likely than all of them
    least_logprob = min(step.alternatives.values(), default=math.inf)
    return False if step.logprob - least_logprob >= NEAR_TIE else None


def _parse_steps(logprobs: Any) -> list[_TokenStep]:
    """Return the tokens of a recorded output; none where they are not spelled as vLLM's APIs spell them."""
    try:
        if isinstance(logprobs, dict):
            columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
            return [
                _TokenStep(str(token), float(log), _parse_logprobs(top))
                for token, log, top in zip(*columns, strict=True)
            ]
        return [_parse_chat_step(entry) for entry in logprobs or ()]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _parse_chat_step(entry: Any) -> _TokenStep:
    top = {alternative["token"]: alternative["logprob"] for alternative in entry["top_logprobs"]}
    return _TokenStep(str(entry["token"]), float(entry["logprob"]), _parse_logprobs(top))


def _parse_logprobs(top: Any) -> dict[str, float]:
    return {str(token): float(log) for token, log in (top or {}).items()}
