"""A sweep's decision and evidence, as the runner stores and screen and page show them.

Invariant: the word of a pair's verdict decides whether its candidate can win; no speed stands in
for it. What cannot win has a reason.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.schema import OutputFinding, QualityWord, VariantFinding

GOOD_OUTPUTS: tuple[OutputFinding, ...] = ("the same", "same quality")
"""Outputs with which a candidate can win: shown to be those of plain decoding, or as good at every
task of 200 items or more (tandem.judge.quality.FEWEST_ITEMS)."""

_CENSORED: tuple[VariantFinding, ...] = ("void", "not comparable")
_OUTPUT_WORDS: dict[OutputFinding, str] = {
    "not the same": "another output",
    "not shown": "output not shown to be the same",
}


class PairObstacle(NamedTuple):
    """Why a candidate cannot win, in a few words for a count, and in sentences."""

    word: str
    reason: str


class TaskWord(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict says of a candidate at one task.

    Args:
        task: its name.
        items: that both servers answered.
        word: `no evidence` of fewer than 200 items.
        text: the figures, in one sentence.
    """

    task: str
    items: int
    word: QualityWord
    text: str


class PairVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one candidate against plain decoding, as far as a sweep decides by it.

    Args:
        finding, output, sentence: of its headline.
        rounds: that both servers answered, without those left out.
        equality: the comparison of the outputs, in sentences.
        tasks: of the experiment; empty if none was asked.
    """

    finding: VariantFinding
    output: OutputFinding
    sentence: str
    rounds: int
    equality: str = ""
    tasks: tuple[TaskWord, ...] = ()

    @property
    def quality(self) -> str:
        """The comparison of each task's answers, in sentences; empty if no task was asked."""
        return " ".join(f"{task.task}: {task.word}; {task.text}" for task in self.tasks)

    @property
    def has_figures(self) -> bool:
        """Whether the pair's figures are of plain decoding's work, so a search can use them."""
        return self.finding not in _CENSORED and self.output in GOOD_OUTPUTS

    @property
    def is_ruled_out(self) -> bool:
        """Whether the candidate cannot win, whatever it answers to tasks."""
        return self.finding != "faster" or self.rounds < FEWEST_ROUNDS

    @property
    def obstacle(self) -> PairObstacle | None:
        """Why the candidate cannot win; None if it can."""
        if self.finding in _CENSORED:
            return PairObstacle(self.finding, self.sentence)
        if self.rounds < FEWEST_ROUNDS:
            return PairObstacle(f"fewer than {FEWEST_ROUNDS} rounds", self.sentence)
        if any(task.word == "worse" for task in self.tasks):
            return PairObstacle("worse at a task", self.quality)
        if self.finding != "faster":
            word = "not shown to be faster" if self.finding == "no evidence" else self.finding
            return PairObstacle(word, self.sentence)
        if self.output not in GOOD_OUTPUTS:
            quality = self.quality or "No task was asked."
            return PairObstacle(_OUTPUT_WORDS[self.output], f"{self.equality} {quality}".strip())
        return None


class PairEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one candidate against plain decoding, as a sweep's search needs them.

    Args:
        score: the verdict's pooled figure, the mean over the loads.
        speed_ups: by cell, a class at a load: plain E2E over the candidate's.
        tokens: by cell: tokens of a target step.
        log_sd: standard deviation of the logarithm of the score, starts included.
        position_rates: by cell: share of drafts accepted at each position, the first position
            first; without a cell where the server counts none.
        goodput_per_usd: good tokens per USD of plain decoding and of the candidate; None without a
            price.
    """

    score: float
    speed_ups: dict[str, float]
    tokens: dict[str, float]
    log_sd: float
    position_rates: dict[str, tuple[float, ...]] = {}
    goodput_per_usd: tuple[float, float] | None = None


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of a sweep and its evidence.

    Args:
        variant, draft, num_speculative_tokens: which.
        state: `measured`: it can win. `rejected`: its pair's verdict forbids that it wins.
            `eliminated`: at best no faster than the best measured one. `failed`: its pair gave no
            evidence. `open`: nobody measured it.
        reason: why it was rejected, eliminated or failed.
        decided_at: when it was eliminated, ISO 8601.
        speed_up: value, low and high of the 95 % interval, over plain decoding; None where the
            verdict is void or not comparable, or the output another.
        results: run id of its pair's results, next to those of other runs.
        verdict, evidence: of its pair.
        node_minutes, compile_minutes, usd: of its pair; the compile is part of the node minutes.
    """

    variant: str
    draft: str
    num_speculative_tokens: int
    state: Literal["measured", "rejected", "eliminated", "failed", "open"] = "open"
    reason: str = ""
    decided_at: str = ""
    speed_up: tuple[float, float, float] | None = None
    results: str = ""
    verdict: PairVerdict | None = None
    evidence: PairEvidence | None = None
    node_minutes: float = 0
    compile_minutes: float = 0
    usd: float = 0

    @property
    def goodput_per_usd(self) -> tuple[float, float] | None:
        """Good tokens per USD of plain decoding and the candidate; None without a price."""
        return self.evidence.goodput_per_usd if self.evidence and self.speed_up else None


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a sweep.

    Args:
        winner: name of the variant to serve; empty for plain decoding.
        output_note: that the winner's output is another one, and what the tasks say of it; empty if
            it is the same, and of plain decoding.
        word: `unfinished` if candidates are neither measured nor eliminated nor failed.
        sentence: the decision in one sentence.
        budget_usd: as requested; 0 for none.
        node_minutes, compile_minutes, usd: of all nodes of the run; the compiles are part of the
            node minutes.
        is_simulated: whether a server was simulated.
        candidates: in the order of the experiment.
    """

    schema: Literal[1] = 1
    run: str
    experiment: str
    winner: str
    output_note: str = ""
    word: Literal["decided", "unfinished"]
    sentence: str
    budget_usd: float = 0
    node_minutes: float = 0
    compile_minutes: float = 0
    usd: float = 0
    is_simulated: bool = False
    candidates: tuple[CandidateRecord, ...] = ()
