"""The pairs of a sweep, as the journal has them: who reads them needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from tandem.judge.sweep_record import PairEvidence, PairObstacle, PairVerdict
from tandem.run.run_keys import pair_step
from tandem.run.run_values import LeaseSpan, StepRecord, count_paid_s, select_pair

NO_EVIDENCE = "its pair gave no evidence"
NO_FIGURES = (
    "its pair lacks a figure by which candidates are compared, a speed-up with its interval or the"
    " tokens of a step"
)


@dataclass(frozen=True, kw_only=True)
class PairState:
    """A pair as the journal has it.

    Args:
        number: from 1.
        variant: name of the candidate.
        steps: of the pair, without the pair in their names.
        failure: why the pair gave no evidence; empty if it did, or while at work.
        verdict: None as long as there is none.
        evidence: its figures; None as long as there are none, and where the verdict forbids them.
    """

    number: int
    variant: str
    steps: dict[str, StepRecord]
    failure: str
    verdict: PairVerdict | None
    evidence: PairEvidence | None

    @property
    def is_over(self) -> bool:
        """Whether nothing of the pair is left to do."""
        return bool(self.failure) or self.verdict is not None

    @property
    def is_simulated(self) -> bool:
        """Whether its servers are simulated."""
        return any(step.result.get("is_simulated") for step in self.steps.values())

    @property
    def has_figures(self) -> bool:
        """Whether a search can use the pair's figures.

        A pair that was not asked the tasks, because another candidate is faster and can win, has
        them whatever its text: nobody knows that it is worse.
        """
        if self.failure or self.verdict is None:
            return False
        return self.verdict.has_figures or self.unasked_reason == "behind"

    @property
    def unasked_reason(self) -> str:
        """Why it was asked no tasks: `behind` another or `ruled out`; empty if asked or without."""
        quality = self.steps.get("quality")
        if not quality:
            return ""
        return str(quality.result.get("unasked", ""))

    @property
    def obstacle(self) -> PairObstacle | None:
        """Why its verdict forbids the candidate to win; None if not, or without a verdict."""
        return self.verdict.obstacle if self.verdict else None

    def sum_minutes(self, leases: Sequence[LeaseSpan], step: str = "") -> float:
        """Return the paid minutes of one step, or of all steps of the pair."""
        return (
            count_paid_s([row for name, row in self.steps.items() if name.startswith(step)], leases)
            / 60
        )


def read_pair_judgment(step: StepRecord) -> tuple[PairVerdict | None, PairEvidence | None]:
    """Return verdict and evidence of a pair, from the step that judged it."""
    return (
        msgspec.convert(step.result.get("pair_verdict"), PairVerdict | None),
        msgspec.convert(step.result.get("evidence"), PairEvidence | None),
    )


def list_pairs(steps: Mapping[str, StepRecord]) -> Iterator[PairState]:
    """Yield the chosen pairs of a sweep in their order.

    Args:
        steps: of the sweep by their names, as the journal has them.
    """
    for number in count(1):
        choice = steps.get(pair_step(number, "choose"))
        if choice is None or choice.state != "done" or not choice.result["variant"]:
            return
        own = select_pair(steps, number)
        failure = next(
            (f"{name}: {step.note}" for name, step in own.items() if step.state == "failed"), ""
        )
        judge = own.get("judge")
        verdict = None
        evidence = None
        if judge is not None and judge.state == "done":
            verdict, evidence = read_pair_judgment(judge)
            if verdict is None:
                failure = f"{NO_EVIDENCE}: {judge.note}"
            elif verdict.has_figures and evidence is None:
                failure = f"{NO_FIGURES}: {judge.note}"
        yield PairState(
            number=number,
            variant=choice.result["variant"],
            steps=own,
            failure=failure,
            verdict=verdict,
            evidence=evidence,
        )
