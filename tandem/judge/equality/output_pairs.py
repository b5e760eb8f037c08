"""Which outputs are held against each other, and which of them are identical.

Invariant: a pair is the same prompt, load, round and repeat, so also the same seed; only requests that succeeded are in
one, each at most once; nothing but digests is compared. Outputs are compared by token ids where every one has them,
else by text: one kind for all arms of a run's comparison, never mixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.request_table import NO_DIGEST, Digests, RequestTable


@dataclass(frozen=True)
class OutputPairs:
    """Pairs of requests.

    Args:
        first, second: rows of the pairs in the observations.
        is_same: which pairs have identical outputs.
        failure_count: how often both arms were asked and a request failed on either side.
        silent_count: pairs in which neither side has any output; they are in no other figure.
    """

    first: IntArray
    second: IntArray
    is_same: BoolArray
    failure_count: int = 0
    silent_count: int = 0

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.first)

    def select(self, indices: BoolArray | IntArray) -> OutputPairs:
        """Return some of the pairs."""
        return OutputPairs(
            self.first[indices], self.second[indices], self.is_same[indices], self.failure_count, self.silent_count
        )


@dataclass(frozen=True)
class OutputMatcher:
    """What tells identical outputs: `digests` of token ids where `uses_token_ids`, else of texts."""

    table: RequestTable
    digests: Digests
    uses_token_ids: bool

    def pair_arms(self, first: str, second: str) -> OutputPairs:
        """Pair the outputs of two arms."""
        places = _encode_places(self.table)
        first_rows, second_rows = self.find_answer_rows(first), self.find_answer_rows(second)
        _, first_places, second_places = np.intersect1d(
            places[first_rows], places[second_rows], assume_unique=True, return_indices=True
        )
        shared_places = np.intersect1d(places[self.table.arm_mask(first)], places[self.table.arm_mask(second)])
        return self._build_pairs(
            first_rows[first_places], second_rows[second_places], len(shared_places) - len(first_places)
        )

    def pair_repeats(self, *arms: str) -> OutputPairs:
        """Pair each output of the arms, taken as one, with the next one for the same prompt at the same load."""
        rows = np.concatenate([self.find_answer_rows(arm) for arm in arms])
        table = self.table
        order = np.lexsort((table.start_s[rows], table.repeat[rows], table.round[rows], encode_strata(table)[rows]))
        rows = rows[order]
        is_next = encode_strata(table)[rows[1:]] == encode_strata(table)[rows[:-1]]
        return self._build_pairs(rows[:-1][is_next], rows[1:][is_next], 0)

    def find_answer_rows(self, arm: str) -> IntArray:
        """Return the rows of an arm that succeeded; of a request that was recorded twice the later one."""
        rows = np.flatnonzero(self.table.arm_mask(arm) & ~self.table.failed)[::-1]
        _, latest = np.unique(_encode_places(self.table)[rows], return_index=True)
        latest_rows: IntArray = rows[latest]
        return latest_rows

    def _build_pairs(self, first: IntArray, second: IntArray, failure_count: int) -> OutputPairs:
        has_output = ~(_mask_without_output(self.table)[first] & _mask_without_output(self.table)[second])
        all_pairs = OutputPairs(
            first, second, self.digests[first] == self.digests[second], failure_count, int((~has_output).sum())
        )
        return all_pairs.select(has_output)


def build_matcher(table: RequestTable, *arms: str) -> OutputMatcher:
    """Return what the outputs of `arms` can all be compared by."""
    rows = np.isin(table.arm, [table.arms.index(arm) for arm in arms]) & ~table.failed
    has_ids = table.ids[rows] != NO_DIGEST
    uses_token_ids = bool(has_ids.any() and (has_ids | (table.output[rows] == NO_DIGEST)).all())
    return OutputMatcher(table, table.ids if uses_token_ids else table.output, uses_token_ids)


def encode_strata(table: RequestTable) -> IntArray:
    """Return a code for each request's prompt and load: outputs with the same one are asked to be alike."""
    codes: IntArray = table.prompt * max(len(table.loads), 1) + table.load
    return codes


def _encode_places(table: RequestTable) -> IntArray:
    """Return a code for each request's prompt, load, round and repeat."""
    _, rounds = np.unique(table.round, return_inverse=True)
    _, repeats = np.unique(table.repeat, return_inverse=True)
    codes: IntArray = (encode_strata(table) * (rounds.max(initial=0) + 1) + rounds) * (
        repeats.max(initial=0) + 1
    ) + repeats
    return codes


def _mask_without_output(table: RequestTable) -> BoolArray:
    mask: BoolArray = (table.output == NO_DIGEST) & (table.ids == NO_DIGEST)
    return mask
