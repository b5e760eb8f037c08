"""The decision of a sweep and its evidence, as the runner stores them and as screen and page show them."""

from __future__ import annotations

from typing import Literal

import msgspec


class PairEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one candidate against plain decoding, as a sweep's search needs them.

    Args:
        score: the verdict's pooled figure, the mean over the loads.
        speed_ups: by cell, a class at a load: plain E2E over the candidate's.
        tokens: by cell: tokens of a target step.
        log_sd: standard deviation of the logarithm of the score, starts included.
        goodput_per_usd: good tokens per USD of plain decoding and of the candidate; None without a price.
        output: the comparison of the outputs, in one sentence.
        quality: the comparison of each task's answers, in one sentence; empty if no task was asked.
        is_worse: whether the candidate answers a task worse.
    """

    score: float
    speed_ups: dict[str, float]
    tokens: dict[str, float]
    log_sd: float
    goodput_per_usd: tuple[float, float] | None = None
    output: str = ""
    quality: str = ""
    is_worse: bool = False


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of a sweep and its evidence.

    Args:
        variant, draft, num_speculative_tokens: which.
        state: `eliminated` by its prediction, clearly below the best measured one; `failed`: its pair gave no evidence,
            or its output is worse; `open`: nobody measured it.
        reason: why it was eliminated or failed.
        decided_at: when it was eliminated, ISO 8601.
        speed_up: value, low and high of the 95 % interval, over plain decoding.
        results: run id of its pair's results, next to those of other runs.
        evidence: of its pair.
        node_minutes, compile_minutes, usd: of its pair; the compile is part of the node minutes.
    """

    variant: str
    draft: str
    num_speculative_tokens: int
    state: Literal["measured", "eliminated", "failed", "open"] = "open"
    reason: str = ""
    decided_at: str = ""
    speed_up: tuple[float, float, float] | None = None
    results: str = ""
    evidence: PairEvidence | None = None
    node_minutes: float = 0
    compile_minutes: float = 0
    usd: float = 0

    @property
    def goodput_per_usd(self) -> tuple[float, float] | None:
        """Good tokens per USD of plain decoding and of the candidate; None without a price or a measurement."""
        return self.evidence.goodput_per_usd if self.evidence else None


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a sweep.

    Args:
        winner: name of the variant to serve; empty for plain decoding.
        word: `unfinished` if candidates are neither measured nor eliminated nor failed.
        sentence: the decision in one sentence.
        budget_usd: as requested; 0 for none.
        node_minutes, compile_minutes, usd: of all nodes of the run; the compiles are part of the node minutes.
        is_simulated: whether a server was simulated.
        candidates: in the order of the experiment.
    """

    schema: Literal[1] = 1
    run: str
    experiment: str
    winner: str
    word: Literal["decided", "unfinished"]
    sentence: str
    budget_usd: float = 0
    node_minutes: float = 0
    compile_minutes: float = 0
    usd: float = 0
    is_simulated: bool = False
    candidates: tuple[CandidateRecord, ...] = ()
