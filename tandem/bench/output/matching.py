"""Which outputs are held against each other, and which of them are identical.

Invariant: a pair is the same prompt, load, round and repeat, so also the same seed; only requests that succeeded are in
one, each at most once; nothing but digests is compared. Outputs are compared by token ids where every one has them,
else by text: one kind for all arms of a run's comparison, never mixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.observations import NO_DIGEST, Digests, Observations


@dataclass(frozen=True)
class Matched:
    """Pairs of requests.

    Args:
        first, second: rows of the pairs in the observations.
        same: which pairs have identical outputs.
        lost: how often both arms were asked and a request failed on either side.
        silent: pairs in which neither side has any output; they are in no other figure.
    """

    first: Whole
    second: Whole
    same: Mask
    lost: int = 0
    silent: int = 0

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.first)

    def where(self, which: Mask | Whole) -> Matched:
        """Return some of the pairs."""
        return Matched(self.first[which], self.second[which], self.same[which], self.lost, self.silent)


@dataclass(frozen=True)
class Likeness:
    """What tells identical outputs, for a set of arms: `digests` are of token ids where `by_ids`, else of texts."""

    seen: Observations
    digests: Digests
    by_ids: bool

    def between(self, first: str, second: str) -> Matched:
        """Pair the outputs of two arms."""
        places = _places(self.seen)
        mine, theirs = self.answered(first), self.answered(second)
        _, left, right = np.intersect1d(places[mine], places[theirs], assume_unique=True, return_indices=True)
        asked = np.intersect1d(places[self.seen.of_arm(first)], places[self.seen.of_arm(second)])
        return self._matched(mine[left], theirs[right], len(asked) - len(left))

    def repeated(self, *arms: str) -> Matched:
        """Pair each output of the arms, taken as one, with the next one for the same prompt at the same load."""
        rows = np.concatenate([self.answered(arm) for arm in arms])
        seen = self.seen
        order = np.lexsort((seen.start_s[rows], seen.repeat[rows], seen.round[rows], stratum(seen)[rows]))
        rows = rows[order]
        follows = stratum(seen)[rows[1:]] == stratum(seen)[rows[:-1]]
        return self._matched(rows[:-1][follows], rows[1:][follows], 0)

    def answered(self, arm: str) -> Whole:
        """Return the rows of an arm that succeeded; of a request that was recorded twice the later one."""
        rows = np.flatnonzero(self.seen.of_arm(arm) & ~self.seen.failed)[::-1]
        _, latest = np.unique(_places(self.seen)[rows], return_index=True)
        found: Whole = rows[latest]
        return found

    def _matched(self, first: Whole, second: Whole, lost: int) -> Matched:
        told = ~(_silent(self.seen)[first] & _silent(self.seen)[second])
        every = Matched(first, second, self.digests[first] == self.digests[second], lost, int((~told).sum()))
        return every.where(told)


def likeness(seen: Observations, *arms: str) -> Likeness:
    """Return what the outputs of `arms` can all be compared by."""
    rows = np.isin(seen.arm, [seen.arms.index(arm) for arm in arms]) & ~seen.failed
    given = seen.ids[rows] != NO_DIGEST
    by_ids = bool(given.any() and (given | (seen.output[rows] == NO_DIGEST)).all())
    return Likeness(seen, seen.ids if by_ids else seen.output, by_ids)


def stratum(seen: Observations) -> Whole:
    """Return a code for each request's prompt and load: outputs with the same one are asked to be alike."""
    codes: Whole = seen.prompt * max(len(seen.loads), 1) + seen.load
    return codes


def _places(seen: Observations) -> Whole:
    """Return a code for each request's prompt, load, round and repeat."""
    _, rounds = np.unique(seen.round, return_inverse=True)
    _, repeats = np.unique(seen.repeat, return_inverse=True)
    codes: Whole = (stratum(seen) * (rounds.max(initial=0) + 1) + rounds) * (repeats.max(initial=0) + 1) + repeats
    return codes


def _silent(seen: Observations) -> Mask:
    silent: Mask = (seen.output == NO_DIGEST) & (seen.ids == NO_DIGEST)
    return silent
