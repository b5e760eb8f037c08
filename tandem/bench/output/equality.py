"""Whether a variant gives the baseline's output: identical shares, where outputs part, lengths and broken outputs.

Invariant: the baseline is its own yardstick, because a server need not equal itself. Digests tell what is identical; of
the outputs themselves only pairs that differ are read, and of those a bounded number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tandem.bench.judge.form import Equality, EqualityOfClass, Example, Ratio, Share
from tandem.bench.judge.interval import LEVEL, estimate
from tandem.bench.judge.observations import Observations
from tandem.bench.output.divergence import Encode, Parting, encoder, histogram, partings
from tandem.bench.output.exchange import Excess, Side, excess
from tandem.bench.output.matching import Likeness, Matched, likeness, stratum
from tandem.bench.output.refused import refused
from tandem.bench.output.sameness import Found, beside, result
from tandem.bench.output.shares import share

EXAMPLES = 4


def equality(seen: Observations, *, tokenizer: Path | None) -> tuple[Equality, ...]:
    """Hold every variant's outputs against the baseline's.

    Args:
        seen: the run.
        tokenizer: the target's tokenizer.json, for servers that give no token ids; without it characters are compared.

    Raises:
        BenchError: the tokenizer is none, or the records changed since they were read.
    """
    alpha = (1 - LEVEL) / max(len(seen.variants), 1)
    encode: Encode | None = None
    judged = []
    for variant in seen.variants:
        alike = likeness(seen, variant, *_of_baseline(seen))
        if tokenizer is not None and not alike.by_ids:
            encode = encode or encoder(tokenizer)
        judged.append(_equality(variant, _found(alike, variant, encode, alpha)))
    return tuple(judged)


def _found(alike: Likeness, variant: str, encode: Encode | None, alpha: float) -> Found:
    seen = alike.seen
    pairs, own = alike.between(seen.baseline, variant), _yardstick(alike)
    read = tuple(partings(seen, pairs, by_ids=alike.by_ids, encode=encode))
    greedy = seen.run.temperature == 0
    return Found(
        seen=seen,
        pairs=pairs,
        own=own,
        by="token ids" if alike.by_ids else "the target's tokenizer" if encode else "characters",
        identical=_share(seen, pairs),
        yardstick=None if own is None else _share(seen, own),
        excess=_excess(alike, variant) if greedy and not pairs.same.all() else None,
        refused=refused(seen, pairs),
        lengths=_lengths(seen, pairs, read),
        read=read,
        alpha=alpha,
    )


def _yardstick(alike: Likeness) -> Matched | None:
    """Return the baseline against its control, which has the same seeds, else against its own next answers."""
    seen = alike.seen
    own = alike.between(seen.baseline, seen.control) if seen.control is not None else None
    if not own and seen.run.temperature == 0:
        own = alike.repeated(*_of_baseline(seen))
    return own or None


def _of_baseline(seen: Observations) -> tuple[str, ...]:
    return (seen.baseline,) if seen.control is None else (seen.baseline, seen.control)


def _share(seen: Observations, pairs: Matched) -> Share | None:
    return share(pairs.same, seen.prompt[pairs.first])


def _excess(alike: Likeness, variant: str) -> Excess | None:
    seen = alike.seen
    mine, theirs = np.concatenate([alike.answered(arm) for arm in _of_baseline(seen)]), alike.answered(variant)
    codes = stratum(seen)
    return excess(Side(codes[mine], alike.digests[mine]), Side(codes[theirs], alike.digests[theirs]))


def _lengths(seen: Observations, pairs: Matched, read: Sequence[Parting]) -> Ratio | None:
    """Return the geometric mean over prompts of the ratio of tokens; identical outputs are alike long.

    An output without a token counts as one. Where no server counts tokens, the lengths of the pairs that were read.
    """
    logs = np.log(np.maximum(seen.tokens[pairs.second], 1)) - np.log(np.maximum(seen.tokens[pairs.first], 1))
    logs[pairs.same] = 0.0
    if np.isnan(logs[~pairs.same]).all() and len(read) == (~pairs.same).sum():
        of_rows = {one.row: np.log(max(one.lengths[1], 1) / max(one.lengths[0], 1)) for one in read}
        logs = np.array([of_rows.get(row, 0.0) for row in pairs.first.tolist()], float)
    known = np.isfinite(logs)
    _, codes = np.unique(seen.prompt[pairs.first][known], return_inverse=True)
    if not len(codes):
        return None
    by_prompt = np.bincount(codes, logs[known]) / np.bincount(codes)
    sure = estimate(by_prompt)
    if sure is None:
        return Ratio(value=float(np.exp(by_prompt.mean())))
    return Ratio(value=float(np.exp(sure.log)), low=float(np.exp(sure.low)), high=float(np.exp(sure.high)))


def _equality(variant: str, found: Found) -> Equality:
    concluded, why = result(found)
    known = [one for one in found.read if one.near_tie is not None]
    prompts = found.seen.prompt[[one.row for one in known]] if known else np.empty(0, np.intp)
    ties = share(np.array([one.near_tie for one in known], bool), prompts)
    return Equality(
        variant=variant,
        by=found.by,
        result=concluded,
        sentence=" ".join([why, *beside(found, ties)]),
        identical=found.identical,
        yardstick=found.yardstick,
        classes=_classes(found),
        first_divergence=histogram([one.at for one in found.read]),
        near_ties=ties,
        lengths=found.lengths,
        garbage=None if found.refused is None else found.refused.variant,
        garbage_of_baseline=None if found.refused is None else found.refused.baseline,
        examples=_examples(found),
    )


def _classes(found: Found) -> tuple[EqualityOfClass, ...]:
    identical = _shares(found.seen, found.pairs)
    yardstick = {} if found.own is None else _shares(found.seen, found.own)
    return tuple(
        EqualityOfClass(class_=found.seen.classes[code], identical=identical[code], yardstick=yardstick.get(code))
        for code in sorted(identical)
    )


def _shares(seen: Observations, pairs: Matched) -> dict[int, Share]:
    """Return the identical share of each class that has pairs."""
    classes = seen.class_[pairs.first]
    order = np.argsort(classes, kind="stable")
    codes, first = np.unique(classes[order], return_index=True)
    shares = (_share(seen, pairs.where(rows)) for rows in np.split(order, first[1:]))
    return {int(code): one for code, one in zip(codes, shares, strict=False) if one is not None}


def _examples(found: Found) -> tuple[Example, ...]:
    """Return a pair of each class, of the first few classes; one that is no near tie before one that is."""
    seen, chosen = found.seen, dict[int, Parting]()
    for one in sorted(found.read, key=lambda one: bool(one.near_tie)):
        chosen.setdefault(int(seen.class_[one.row]), one)
    return tuple(
        Example(
            class_=seen.classes[code], prompt_id=seen.prompts[seen.prompt[one.row]].prompt_id, at=one.at,
            baseline=one.baseline, measured=one.variant, near_tie=one.near_tie,
        )
        for code, one in sorted(chosen.items())[:EXAMPLES]
    )  # fmt: skip
