"""How many tokens a step of the target gave, of each arm in each class: from counters where they live, else derived.

Invariant: each figure names the method it is from and which way that errs; counters are read by the functions of the
summary, so that both say the same; what no method can say is None with the reason. The control arm is the baseline's
server once more and has none of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np

from tandem.bench.columns import BoolArray
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import ArmLoad
from tandem.bench.summary import ALL_CLASSES
from tandem.judge.schema import ClassAcceptance
from tandem.judge.server_counters import ServerCounters, read_server_counters
from tandem.metrics import acceptance_position

_ABSENT_PREFIX = "acceptance_length is absent: "  # as turns.acceptance says it
_DRAFTS_LIMIT = "steps without a draft are not in it, so it is above tokens per step where drafts are rare"
_STEPS_LIMIT = "the server counts no drafts, so it is derived from its steps; steps without a draft are in it"
_CHUNKS_LIMIT = (
    "derived from tokens per chunk without each answer's first: too high where two steps came as one chunk because the "
    "reader was late, or where a stop token is counted and not sent; 1 where a server sends each token by itself"
)


def compute_acceptance(table: RequestTable) -> tuple[ClassAcceptance, ...]:
    """Return the acceptance of every arm but the control, for all classes together and for each.

    Raises:
        BenchError: a line of counters.jsonl that is no scrape.
    """
    counters = read_server_counters(table)
    rows: list[ClassAcceptance] = []
    for arm in (table.baseline, *table.variants) if table.arms else ():
        source = _AcceptanceSource(table, arm, counters, counters.list_limits(arm), _sum_streams(table, arm))
        rows += map(source.estimate_class, source.stream_totals)
    return tuple(rows)


class _StreamTotals(NamedTuple):
    """What the streams of one arm held: answers that tell both, their tokens and their token-bearing chunks."""

    answers: float
    tokens: float
    chunks: float

    @property
    def tokens_per_chunk(self) -> float | None:
        """Tokens a chunk without each answer's first; None where no answer has a second chunk."""
        later_chunks = self.chunks - self.answers
        return (self.tokens - self.answers) / later_chunks if later_chunks > 0 else None


def _sum_streams(table: RequestTable, arm: str) -> dict[int | None, _StreamTotals]:
    """Return what there is of all classes together, under None, and of each class that the arm was asked."""
    per_chunk = table.figures.get("tokens_per_chunk", np.full(len(table), np.nan))
    arm_mask = table.arm_mask(arm)
    usable_mask: BoolArray = arm_mask & (per_chunk > 0) & (table.tokens > 0)  # a failed request has neither
    tokens = table.tokens[usable_mask]
    columns = (np.ones(len(tokens)), tokens, np.rint(tokens / per_chunk[usable_mask]))
    sums = [np.bincount(table.class_[usable_mask], column, minlength=len(table.classes)) for column in columns]
    totals_by_class = {
        code: _StreamTotals(*(float(column_sums[code]) for column_sums in sums))
        for code in np.unique(table.class_[arm_mask]).tolist()
    }
    return {None: _StreamTotals(*(float(column_sums.sum()) for column_sums in sums)), **totals_by_class}


@dataclass(frozen=True)
class _AcceptanceSource:
    """What there is to know of one arm."""

    table: RequestTable
    arm: str
    counters: ServerCounters
    remarks: tuple[str, ...]
    stream_totals: dict[int | None, _StreamTotals]

    def estimate_class(self, code: int | None) -> ClassAcceptance:
        """Return the acceptance of one class; of all where the code is None."""
        return self._estimate_by_counters(code) or self._estimate_by_chunks(code)

    def _estimate_by_counters(self, code: int | None) -> ClassAcceptance | None:
        class_ = None if code is None else self.table.classes[code]
        load, spreads = ArmLoad(self.arm, class_, None, None), self.counters.figures.spreads

        def read_mean(name: str) -> float | None:
            spread = spreads.get((load, name))
            return None if spread is None else spread.mean

        length, steps = read_mean("acceptance_length"), read_mean("target_steps_per_token")
        if length is None and steps is None:
            return None
        rates = takewhile(
            lambda rate: rate is not None, (read_mean(acceptance_position(position)) for position in count(1))
        )
        per_position = tuple(rate for rate in rates if rate is not None)
        has_draft_counters = bool(per_position) or read_mean("draft_acceptance_rate") is not None
        limits = () if length is None else (_DRAFTS_LIMIT if has_draft_counters else _STEPS_LIMIT,)
        return ClassAcceptance(
            arm=self.arm,
            class_=class_ or ALL_CLASSES,
            method="counters" if has_draft_counters else "steps of the counters",
            acceptance_length=length,
            per_position=per_position,
            target_steps_per_token=steps,
            sentence=_join_clauses(limits, self._list_limits(load, length)),
        )

    def _list_limits(self, load: ArmLoad, length: float | None) -> tuple[str, ...]:
        """Return what the counters said, of all classes or where it is why one has no figure."""
        other_remarks = [sentence for sentence in self.remarks if "acceptance_length" not in sentence]
        reasons = [
            sentence.removeprefix(_ABSENT_PREFIX) for sentence in self.remarks if sentence.startswith(_ABSENT_PREFIX)
        ]
        return (*(reasons if length is None else ()), *(other_remarks if load.class_ is None else ()))

    def _estimate_by_chunks(self, code: int | None) -> ClassAcceptance:
        totals, class_ = self.stream_totals[code], ALL_CLASSES if code is None else self.table.classes[code]
        reasons = (*self.remarks, "no counters of its turns") if code is None else ("no counters of its turns alone",)
        if not totals.answers:
            reason = "no answer whose tokens the server counted"
            return ClassAcceptance(
                arm=self.arm, class_=class_, method="absent", sentence=_join_clauses((reason,), reasons)
            )
        length = None if self._has_no_speculation else totals.tokens_per_chunk
        no_length_reason = (
            "it does not speculate" if self._has_no_speculation else "no answer has a chunk after its first"
        )
        return ClassAcceptance(
            arm=self.arm,
            class_=class_,
            method="tokens per chunk",
            acceptance_length=length,
            target_steps_per_token=totals.chunks / totals.tokens,
            sentence=_join_clauses((_CHUNKS_LIMIT if length is not None else no_length_reason,), reasons),
        )

    @property
    def _has_no_speculation(self) -> bool:
        """Whether the manifest says that it does not speculate."""
        manifest_arm = next((arm.speculation for arm in self.table.run.arms if arm.name == self.arm), None)
        return manifest_arm is not None and manifest_arm.method is None


def _join_clauses(clauses: Sequence[str], more_clauses: Sequence[str]) -> str:
    """Join clauses; each once."""
    text = "; ".join(dict.fromkeys([*clauses, *more_clauses]))
    return text[:1].upper() + text[1:] + "." if text else ""
