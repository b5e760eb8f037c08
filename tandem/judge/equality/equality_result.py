"""What the pairs of outputs of one variant and the baseline allow to be said: the same, differs, or no evidence.

Invariant: `the same` is said only where a difference would have been found, or is too small to matter; an output that
is broken, cut or rambling is a difference whatever the yardstick says; every result stands with the figures it is from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tandem.bench.request_table import RequestTable
from tandem.judge.decision import compare_lengths
from tandem.judge.equality.content_rejections import ContentRejections
from tandem.judge.equality.divergence import MAX_READ, OutputDivergence
from tandem.judge.equality.output_pairs import OutputPairs
from tandem.judge.equality.permutation_test import PermutationResult
from tandem.judge.schema import MARGIN, RatioEstimate, ShareEstimate
from tandem.judge.text_format import format_number, format_percent

FEWEST_PROMPTS = 4
"""Fewer prompts, were all their pairs identical, would leave the interval of the share reaching below one half."""

NEARLY_ALL = 1 - MARGIN
"""Of outputs whose identical share lies above this, interval and all, nobody would call one another output."""

OutputUnit = Literal["token ids", "the target's tokenizer", "characters"]
EqualityResult = Literal["the same", "differs", "no evidence"]


@dataclass(frozen=True)
class EqualityFacts:
    """What is known of one variant before it is judged.

    `alpha` is the level of its tests: 5 %, shared by all variants of the run.
    """

    table: RequestTable
    pairs: OutputPairs
    baseline_pairs: OutputPairs | None
    unit: OutputUnit
    identical: ShareEstimate | None
    yardstick: ShareEstimate | None
    permutation_result: PermutationResult | None
    rejections: ContentRejections | None
    length_ratio: RatioEstimate | None
    divergences: Sequence[OutputDivergence]
    alpha: float

    @property
    def prompt_count(self) -> int:
        """How many prompts have a pair."""
        return len(np.unique(self.table.prompt[self.pairs.first]))

    @property
    def difference_count(self) -> int:
        """How many pairs differ."""
        return int((~self.pairs.is_same).sum())

    @property
    def same_text_count(self) -> int:
        """How many pairs differ and have the same text: by token ids that text does not show."""
        text = self.table.output
        return int((~self.pairs.is_same & (text[self.pairs.first] == text[self.pairs.second])).sum())


def decide_result(facts: EqualityFacts) -> tuple[EqualityResult, str]:
    """Return the result and why; the first that holds."""
    summary = _summarize_pairs(facts)
    if facts.identical is None:
        return "no evidence", "No output of the variant can be paired with one of the baseline."
    broken_reason = _explain_broken(facts)
    if broken_reason is not None:
        return "differs", f"{summary}: {broken_reason}."
    if facts.table.run.temperature != 0:
        temperature_text = f"at temperature {facts.table.run.temperature:g} a server need not repeat itself: run with 0"
        return "no evidence", f"{summary}; {temperature_text}."
    if facts.permutation_result is not None and facts.permutation_result.p <= facts.alpha:
        return (
            "differs",
            (
                f"{summary}, more than the baseline's own, {_describe_yardstick(facts)}, can explain "
                f"(p {facts.permutation_result.p:.2g})."
            ),
        )
    shortage = (
        f": too few prompts to conclude from; ask {FEWEST_PROMPTS} or more"
        if facts.prompt_count < FEWEST_PROMPTS
        else ""
    )
    if facts.pairs.failure_count + facts.pairs.silent_count > len(facts.pairs):
        shortage = "; more pairs are left out than are compared"
    if shortage:
        return "no evidence", f"{summary}{shortage}."
    return _decide_greedy(facts, summary)


def _decide_greedy(facts: EqualityFacts, summary: str) -> tuple[EqualityResult, str]:
    """Judge greedy outputs of enough prompts that are not shown to differ."""
    if not facts.difference_count:
        yardstick_text = (
            "no yardstick was needed, and there is none" if facts.yardstick is None else _describe_yardstick(facts)
        )
        return "the same", f"{summary}; {yardstick_text}."
    if facts.permutation_result is None or facts.yardstick is None:
        reason = (
            "the baseline was never asked twice, so nobody knows whether it equals itself: run with --control-rounds"
        )
        return "no evidence", f"{summary}; {reason}."
    if not facts.yardstick.n:
        return (
            "no evidence",
            f"{summary}; so do the baseline's own ({_describe_yardstick(facts)}): what never repeats shows no change.",
        )
    assert facts.identical is not None
    if facts.permutation_result.least_p <= facts.alpha:
        return "the same", f"{summary}, no more than the baseline's own: {_describe_yardstick(facts)}."
    if (facts.identical.low or 0.0) >= NEARLY_ALL:
        return "the same", f"{summary}, so few that it does not matter; {_describe_yardstick(facts)}."
    return (
        "no evidence",
        f"{summary}, too few to tell from the baseline's own: {_describe_yardstick(facts)}; ask more rounds.",
    )


def _explain_broken(facts: EqualityFacts) -> str | None:
    """Return what shows that outputs are broken, cut or rambling."""
    if not facts.difference_count:
        return None
    rejections, length_ratio = facts.rejections, facts.length_ratio
    if rejections is not None and rejections.p <= facts.alpha:
        return (
            f"the content check refused {rejections.variant.n} of {rejections.variant.of} outputs of the variant and "
            f"{rejections.baseline.n} of the baseline's"
        )
    if length_ratio is None or length_ratio.low is None or length_ratio.high is None:
        return None
    length = compare_lengths(length_ratio, MARGIN)
    if length != "alike":
        cause = "it is cut short" if length == "shorter" else "it rambles"
        ends = f"{format_number(length_ratio.low)} to {format_number(length_ratio.high)}"
        return (
            f"the variant's output has {format_number(length_ratio.value)} times the baseline's tokens "
            f"({ends}): {cause}"
        )
    return None


def _summarize_pairs(facts: EqualityFacts) -> str:
    pair_count, prompts_text = len(facts.pairs), _format_count(facts.prompt_count, "prompt")
    if pair_count == 1:
        return f"The only paired output {'differs' if facts.difference_count else 'is identical'} by {facts.unit}"
    if not facts.difference_count:
        return f"All {_format_count(pair_count, 'paired output')} of {prompts_text} are identical by {facts.unit}"
    differences_text = f"{facts.difference_count} of {_format_count(pair_count, 'paired output')}"
    return (
        f"{differences_text} of {prompts_text} differ by {facts.unit} "
        f"({format_percent(facts.difference_count / pair_count)})"
    )


def _describe_yardstick(facts: EqualityFacts) -> str:
    assert facts.yardstick is not None  # where it is absent, so is the excess
    difference_count = facts.yardstick.of - facts.yardstick.n
    return f"against itself {difference_count} of {_format_count(facts.yardstick.of, 'pair')} differ"


def list_remarks(facts: EqualityFacts, ties: ShareEstimate | None) -> Iterator[str]:
    """Yield what else must be known, in sentences.

    Args:
        facts: what is known of the variant.
        ties: near ties of the pairs that differ.
    """
    if ties is not None:
        yield f"Of {ties.of} whose log-probabilities are known, {ties.n} part at a near tie."
    if facts.same_text_count:
        yield f"In {facts.same_text_count} of those that differ the text is the same and only token ids are not."
    if facts.difference_count > len(facts.divergences):
        yield f"Where they part was read of {MAX_READ} of them, evenly taken."
    if facts.pairs.failure_count:
        yield f"Left out, because one side failed: {_format_count(facts.pairs.failure_count, 'pair')}."
    if facts.pairs.silent_count:
        yield f"Left out, because neither side has any output: {_format_count(facts.pairs.silent_count, 'pair')}."


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
