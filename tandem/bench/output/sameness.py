"""What the pairs of outputs of one variant and the baseline allow to be said: the same, differs, or no evidence.

Invariant: `the same` is said only where a difference would have been found, or is too small to matter; an output that
is broken, cut or rambling is a difference whatever the yardstick says; every result stands with the figures it is from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tandem.bench.judge.form import MARGIN, Ratio, Share
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.words import number, percent
from tandem.bench.output.divergence import MOST_READ, Parting
from tandem.bench.output.exchange import Excess
from tandem.bench.output.matching import Matched
from tandem.bench.output.refused import Refused

FEWEST_PROMPTS = 4
"""Fewer prompts, were all their pairs identical, would leave the interval of the share reaching below one half."""

NEARLY_ALL = 1 - MARGIN
"""Of outputs whose identical share lies above this, interval and all, nobody would call one another output."""

LENGTHS_APART = 1 + MARGIN
"""Outputs whose lengths' ratio lies beyond this, interval and all, are cut or ramble."""

By = Literal["token ids", "the target's tokenizer", "characters"]
Result = Literal["the same", "differs", "no evidence"]


@dataclass(frozen=True)
class Found:
    """What is known of one variant before it is judged.

    `alpha` is the level of its tests: 5 %, shared by all variants of the run.
    """

    seen: Observations
    pairs: Matched
    own: Matched | None
    by: By
    identical: Share | None
    yardstick: Share | None
    excess: Excess | None
    refused: Refused | None
    lengths: Ratio | None
    read: Sequence[Parting]
    alpha: float

    @property
    def prompts(self) -> int:
        """How many prompts have a pair."""
        return len(np.unique(self.seen.prompt[self.pairs.first]))

    @property
    def differing(self) -> int:
        """How many pairs differ."""
        return int((~self.pairs.same).sum())

    @property
    def alike_in_text(self) -> int:
        """How many pairs differ and have the same text: by token ids that text does not show."""
        text = self.seen.output
        return int((~self.pairs.same & (text[self.pairs.first] == text[self.pairs.second])).sum())


def result(found: Found) -> tuple[Result, str]:
    """Return the result and why; the first that holds."""
    said = _counted(found)
    if found.identical is None:
        return "no evidence", "No output of the variant can be paired with one of the baseline."
    broken = _broken(found)
    if broken is not None:
        return "differs", f"{said}: {broken}."
    if found.seen.run.temperature != 0:
        sampled = f"at temperature {found.seen.run.temperature:g} a server need not repeat itself: run with 0"
        return "no evidence", f"{said}; {sampled}."
    if found.excess is not None and found.excess.p <= found.alpha:
        return "differs", f"{said}, more than the baseline's own, {_own(found)}, can explain (p {found.excess.p:.2g})."
    few = f": too few prompts to conclude from; ask {FEWEST_PROMPTS} or more" if found.prompts < FEWEST_PROMPTS else ""
    if found.pairs.lost + found.pairs.silent > len(found.pairs):
        few = "; more pairs are left out than are compared"
    if few:
        return "no evidence", f"{said}{few}."
    return _compared(found, said)


def _compared(found: Found, said: str) -> tuple[Result, str]:
    """Judge greedy outputs of enough prompts that are not shown to differ."""
    if not found.differing:
        unneeded = "no yardstick was needed, and there is none" if found.yardstick is None else _own(found)
        return "the same", f"{said}; {unneeded}."
    if found.excess is None or found.yardstick is None:
        why = "the baseline was never asked twice, so nobody knows whether it equals itself: run with --control-rounds"
        return "no evidence", f"{said}; {why}."
    if not found.yardstick.n:
        return "no evidence", f"{said}; so do the baseline's own ({_own(found)}): what never repeats shows no change."
    assert found.identical is not None
    if found.excess.least_p <= found.alpha:
        return "the same", f"{said}, no more than the baseline's own: {_own(found)}."
    if (found.identical.low or 0.0) >= NEARLY_ALL:
        return "the same", f"{said}, so few that it does not matter; {_own(found)}."
    return "no evidence", f"{said}, too few to tell from the baseline's own: {_own(found)}; ask more rounds."


def _broken(found: Found) -> str | None:
    """Return what shows that outputs are broken, cut or rambling."""
    if not found.differing:
        return None
    checked, lengths = found.refused, found.lengths
    if checked is not None and checked.p <= found.alpha:
        return (
            f"the content check refused {checked.variant.n} of {checked.variant.of} outputs of the variant and "
            f"{checked.baseline.n} of the baseline's"
        )
    if lengths is None or lengths.low is None or lengths.high is None:
        return None
    if lengths.high < 1 / LENGTHS_APART or lengths.low > LENGTHS_APART:
        cut = "it is cut short" if lengths.value < 1 else "it rambles"
        ends = f"{number(lengths.low)} to {number(lengths.high)}"
        return f"the variant's output has {number(lengths.value)} times the baseline's tokens ({ends}): {cut}"
    return None


def _counted(found: Found) -> str:
    of, prompts = len(found.pairs), _many(found.prompts, "prompt")
    if of == 1:
        return f"The only paired output {'differs' if found.differing else 'is identical'} by {found.by}"
    if not found.differing:
        return f"All {_many(of, 'paired output')} of {prompts} are identical by {found.by}"
    differ = f"{found.differing} of {_many(of, 'paired output')}"
    return f"{differ} of {prompts} differ by {found.by} ({percent(found.differing / of)})"


def _own(found: Found) -> str:
    assert found.yardstick is not None  # where it is absent, so is the excess
    apart = found.yardstick.of - found.yardstick.n
    return f"against itself {apart} of {_many(found.yardstick.of, 'pair')} differ"


def beside(found: Found, ties: Share | None) -> Iterator[str]:
    """Yield what else must be known, in sentences.

    Args:
        found: what is known of the variant.
        ties: near ties of the pairs that differ.
    """
    if ties is not None:
        yield f"Of {ties.of} whose log-probabilities are known, {ties.n} part at a near tie."
    if found.alike_in_text:
        yield f"In {found.alike_in_text} of those that differ the text is the same and only token ids are not."
    if found.differing > len(found.read):
        yield f"Where they part was read of {MOST_READ} of them, evenly taken."
    if found.pairs.lost:
        yield f"Left out, because one side failed: {_many(found.pairs.lost, 'pair')}."
    if found.pairs.silent:
        yield f"Left out, because neither side has any output: {_many(found.pairs.silent, 'pair')}."


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
