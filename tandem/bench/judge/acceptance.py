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

from tandem.bench.columns import Mask
from tandem.bench.judge.counted import Counted, counted
from tandem.bench.judge.form import Acceptance
from tandem.bench.judge.observations import Observations
from tandem.bench.summary import ALL
from tandem.bench.tally import Load
from tandem.metrics import acceptance_position

_ABSENT = "acceptance_length is absent: "  # as turns.acceptance says it
_OF_DRAFTS = "steps without a draft are not in it, so it is above tokens per step where drafts are rare"
_OF_STEPS = "the server counts no drafts, so it is derived from its steps; steps without a draft are in it"
_OF_CHUNKS = (
    "derived from tokens per chunk without each answer's first: too high where two steps came as one chunk because the "
    "reader was late, or where a stop token is counted and not sent; 1 where a server sends each token by itself"
)


def acceptance(seen: Observations) -> tuple[Acceptance, ...]:
    """Return the acceptance of every arm but the control, for all classes together and for each.

    Raises:
        BenchError: a line of counters.jsonl that is no scrape.
    """
    found = counted(seen)
    made: list[Acceptance] = []
    for arm in (seen.baseline, *seen.variants) if seen.arms else ():
        source = _Source(seen, arm, found, found.said(arm), _streamed(seen, arm))
        made += map(source.of, source.streamed)
    return tuple(made)


class _Streamed(NamedTuple):
    """What the streams of one arm held: answers that tell both, their tokens and their token-bearing chunks."""

    answers: float
    tokens: float
    chunks: float

    @property
    def length(self) -> float | None:
        """Tokens a chunk without each answer's first; None where no answer has a second chunk."""
        later = self.chunks - self.answers
        return (self.tokens - self.answers) / later if later > 0 else None


def _streamed(seen: Observations, arm: str) -> dict[int | None, _Streamed]:
    """Return what there is of all classes together, under None, and of each class that the arm was asked."""
    per_chunk = seen.figures.get("tokens_per_chunk", np.full(len(seen), np.nan))
    asked = seen.of_arm(arm)
    told: Mask = asked & (per_chunk > 0) & (seen.tokens > 0)  # a failed request has neither
    tokens = seen.tokens[told]
    columns = (np.ones(len(tokens)), tokens, np.rint(tokens / per_chunk[told]))
    sums = [np.bincount(seen.class_[told], column, minlength=len(seen.classes)) for column in columns]
    of_class = {code: _Streamed(*(float(one[code]) for one in sums)) for code in np.unique(seen.class_[asked]).tolist()}
    return {None: _Streamed(*(float(one.sum()) for one in sums)), **of_class}


@dataclass(frozen=True)
class _Source:
    """What there is to know of one arm."""

    seen: Observations
    arm: str
    counted: Counted
    said: tuple[str, ...]
    streamed: dict[int | None, _Streamed]

    def of(self, code: int | None) -> Acceptance:
        """Return the acceptance of one class; of all where the code is None."""
        return self._of_counters(code) or self._of_chunks(code)

    def _of_counters(self, code: int | None) -> Acceptance | None:
        class_ = None if code is None else self.seen.classes[code]
        load, spreads = Load(self.arm, class_, None, None), self.counted.measured.spreads

        def mean(name: str) -> float | None:
            across = spreads.get((load, name))
            return None if across is None else across.mean

        length, steps = mean("acceptance_length"), mean("target_steps_per_token")
        if length is None and steps is None:
            return None
        rates = takewhile(lambda rate: rate is not None, (mean(acceptance_position(at)) for at in count(1)))
        per_position = tuple(rate for rate in rates if rate is not None)
        live = bool(per_position) or mean("draft_acceptance_rate") is not None
        limits = () if length is None else (_OF_DRAFTS if live else _OF_STEPS,)
        return Acceptance(
            arm=self.arm,
            class_=class_ or ALL,
            method="counters" if live else "steps of the counters",
            acceptance_length=length,
            per_position=per_position,
            target_steps_per_token=steps,
            sentence=_sentence(limits, self._limits(load, length)),
        )

    def _limits(self, load: Load, length: float | None) -> tuple[str, ...]:
        """Return what the counters said, of all classes or where it is why one has no figure."""
        others = [sentence for sentence in self.said if "acceptance_length" not in sentence]
        why = [sentence.removeprefix(_ABSENT) for sentence in self.said if sentence.startswith(_ABSENT)]
        return (*(why if length is None else ()), *(others if load.class_ is None else ()))

    def _of_chunks(self, code: int | None) -> Acceptance:
        streamed, class_ = self.streamed[code], ALL if code is None else self.seen.classes[code]
        why = (*self.said, "no counters of its turns") if code is None else ("no counters of its turns alone",)
        if not streamed.answers:
            nothing = "no answer whose tokens the server counted"
            return Acceptance(arm=self.arm, class_=class_, method="absent", sentence=_sentence((nothing,), why))
        length = None if self._plain else streamed.length
        none = "it does not speculate" if self._plain else "no answer has a chunk after its first"
        return Acceptance(
            arm=self.arm,
            class_=class_,
            method="tokens per chunk",
            acceptance_length=length,
            target_steps_per_token=streamed.chunks / streamed.tokens,
            sentence=_sentence((_OF_CHUNKS if length is not None else none,), why),
        )

    @property
    def _plain(self) -> bool:
        """Whether the manifest says that it does not speculate."""
        stated = next((arm.speculation for arm in self.seen.run.arms if arm.name == self.arm), None)
        return stated is not None and stated.method is None


def _sentence(first: Sequence[str], then: Sequence[str]) -> str:
    """Join clauses; each once."""
    joined = "; ".join(dict.fromkeys([*first, *then]))
    return joined[:1].upper() + joined[1:] + "." if joined else ""
