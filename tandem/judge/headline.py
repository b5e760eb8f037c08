"""The verdict on a variant: one word and one sentence for whoever has to decide, and what limits it.

Invariant: the first that holds: a failed control makes it void; failures that the other arm did not have make it not
comparable; only then do the cells decide, by the time that a user waits (DECIDING). An arm whose output is not the
baseline's is never called faster without that in the same breath, and equal times of answers of other lengths are not
called the same. What was measured within one start of the servers is called so. What each word rests on:
docs/bench.md#the-verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from tandem.bench.columns import IntArray
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.bench.schedule import LoadLevel
from tandem.judge import failure_bias, headline_text, verdict_reason
from tandem.judge.decision import compare_lengths
from tandem.judge.failure_bias import FailureCounts, is_more_frequent
from tandem.judge.interval import LEVEL, estimate_log_ratio
from tandem.judge.output_validity import ContentCounts, count_content, explain_invalidity
from tandem.judge.pairs import DECIDING_METRIC, LENGTH_METRIC, RequestPairing
from tandem.judge.schema import (
    CellVerdict,
    CellWord,
    EvidenceScope,
    Headline,
    OutputEquality,
    OutputFinding,
    OverallVerdict,
    RatioEstimate,
    RunControls,
    ShareEstimate,
    VariantFinding,
)
from tandem.judge.text_format import format_number

TOKEN_METRIC = "tpot_ms"  # noqa: S105 - a figure
"""What is said beside where answers are of other lengths: it does not grow with them."""

_CELL_WORDS: tuple[CellWord, ...] = ("faster", "slower", "same", "mixed", "no evidence")
_BARE_FINDINGS = ("no evidence", "not comparable", "void")
_OUTPUT_SUFFIXES: Mapping[OutputFinding, str] = {
    "the same": "", "not shown": ", output not shown to be the same", "not the same": " but not the same output",
}  # fmt: skip
_ClassAtLoad = tuple[str, LoadLevel]


def build_headlines(
    table: RequestTable,
    cells: Sequence[CellVerdict],
    controls: RunControls,
    equality: Sequence[OutputEquality],
    *,
    margin: float,
) -> tuple[Headline, ...]:
    """Return the verdict on every variant.

    Args:
        table: the run.
        cells: all of them, judged.
        controls: what voids the run, and what limits it.
        equality: of the outputs; a variant without one is not shown to give the baseline's output.
        margin: within which a speed-up is `same`, and a ratio of lengths none to speak of.
    """
    pairing = RequestPairing(table, controls.marked_rounds)
    equality_by_variant = {variant_equality.variant: variant_equality for variant_equality in equality}
    return tuple(
        _build_headline(
            _HeadlineFacts(
                pairing=pairing,
                variant=variant,
                cells=tuple(cell for cell in cells if cell.variant == variant),
                controls=controls,
                equality=equality_by_variant.get(variant),
                failures=failure_bias.count_failures(pairing, table.baseline, variant).count_all(),
                margin=margin,
            )
        )
        for variant in table.variants
    )


@dataclass(frozen=True, kw_only=True)
class _HeadlineFacts:
    """What is known of one variant."""

    pairing: RequestPairing
    variant: str
    cells: tuple[CellVerdict, ...]
    controls: RunControls
    equality: OutputEquality | None
    failures: FailureCounts
    margin: float

    @property
    def table(self) -> RequestTable:
        return self.pairing.table

    @property
    def baseline(self) -> str:
        return self.table.baseline

    @cached_property
    def deciding_cells(self) -> tuple[CellVerdict, ...]:
        return tuple(cell for cell in self.cells if cell.metric == DECIDING_METRIC)

    def select_cells(self, word: CellWord) -> tuple[CellVerdict, ...]:
        """Return the classes at loads that are so; equal times of other lengths are no evidence."""
        return tuple(cell for cell in self.deciding_cells if self._decide_word(cell) == word)

    def _decide_word(self, cell: CellVerdict) -> CellWord:
        return "no evidence" if cell.verdict == "same" and _cell_key(cell) in self.different_lengths else cell.verdict

    @cached_property
    def evidence(self) -> EvidenceScope:
        """What the verdict holds for: across starts where that is so in every class that is judged."""
        scopes = [cell.evidence for cell in self.deciding_cells if cell.p is not None]
        return "across-starts" if scopes and set(scopes) == {"across-starts"} else "one-start"

    @cached_property
    def output(self) -> OutputFinding:
        """Whether the variant's outputs are shown to be the baseline's."""
        if self.is_altered:
            return "not the same"
        has_mostly_refusals = any(2 * counts.refusal_count > counts.answer_count for counts in self.content_counts)
        is_shown = not has_mostly_refusals and self.equality is not None and self.equality.result == "the same"
        return "the same" if is_shown else "not shown"

    @cached_property
    def length_ratios(self) -> Mapping[_ClassAtLoad, RatioEstimate]:
        """Tokens of the variant's answers as a ratio of the baseline's, where servers counted them."""
        cells_with_p = [cell for cell in self.deciding_cells if cell.p is not None]
        ratios = {
            _cell_key(cell): self._compare_length(cell, 1 - (1 - LEVEL) / len(cells_with_p)) for cell in cells_with_p
        }
        return {place: ratio for place, ratio in ratios.items() if ratio is not None}

    @cached_property
    def different_lengths(self) -> Mapping[_ClassAtLoad, RatioEstimate]:
        """The same where answers are of other lengths beyond doubt."""
        ratios = self.length_ratios.items()
        return {place: ratio for place, ratio in ratios if compare_lengths(ratio, self.margin) != "alike"}

    def _compare_length(self, cell: CellVerdict, level: float) -> RatioEstimate | None:
        class_, load = self.table.classes.index(cell.class_), self.table.loads.index(cell.load)
        pairs = self.pairing.pairs(
            baseline=self.baseline, variant=self.variant, class_=class_, load=load, metric=LENGTH_METRIC
        )
        estimate = estimate_log_ratio(-pairs.logs, level=level)  # of a length, more is more
        return estimate.convert() if estimate else None

    @cached_property
    def invalid_reason(self) -> str:
        """Why no speed is worth anything: neither arm gives text; empty where that is not so."""
        return explain_invalidity(self.pairing, self.baseline, self.variant)

    @cached_property
    def content_counts(self) -> tuple[ContentCounts, ...]:
        """What the content check refused of the variant and of the baseline."""
        return count_content(self.pairing, self.variant, self.baseline)

    @cached_property
    def is_altered(self) -> bool:
        """Whether the variant's output is shown to be another: other text, other lengths, or more broken answers."""
        equality = self.equality
        if self.different_lengths:
            return True
        if equality is None:
            return False
        garbage, baseline_garbage = equality.garbage, equality.garbage_of_baseline
        return (
            equality.result == "differs"
            or (equality.lengths is not None and compare_lengths(equality.lengths, self.margin) != "alike")
            or (
                garbage is not None
                and is_more_frequent(garbage.n, garbage.of, *_split_share(baseline_garbage, garbage.of))
            )
        )


def _split_share(share: ShareEstimate | None, total: int) -> tuple[int, int]:
    return (share.n, share.of) if share is not None else (0, total)


def _cell_key(cell: CellVerdict) -> _ClassAtLoad:
    return cell.class_, cell.load


def _build_headline(facts: _HeadlineFacts) -> Headline:
    finding = _decide_finding(facts)
    has_verdict = finding != "void"
    faster_classes, slower_classes, same_classes, mixed_classes, open_classes = (
        tuple(headline_text.format_cell(cell) for cell in facts.select_cells(word)) if has_verdict else ()
        for word in _CELL_WORDS
    )
    return Headline(
        variant=facts.variant,
        verdict=combine_verdict(finding, facts.evidence, facts.output),
        finding=finding,
        evidence=facts.evidence,
        output=facts.output,
        sentence=_write_sentence(facts, finding),
        reasons=_finish_reasons(_list_reasons(facts, finding)),
        faster=faster_classes,
        slower=slower_classes,
        same=same_classes,
        mixed=mixed_classes,
        undecided=open_classes,
        metric=DECIDING_METRIC,
    )


def combine_verdict(finding: VariantFinding, evidence: EvidenceScope, output: OutputFinding) -> OverallVerdict:
    """Return a finding with its reservations."""
    if finding in _BARE_FINDINGS:
        return cast("OverallVerdict", finding)
    start_suffix = "" if evidence == "across-starts" else " within one start"
    output_suffix = _OUTPUT_SUFFIXES[output] if finding == "faster" else ""
    return cast("OverallVerdict", f"{finding}{start_suffix}{output_suffix}")


def _finish_reasons(reasons: Iterator[str]) -> tuple[str, ...]:
    """Return each reason once, with a full stop."""
    return tuple(dict.fromkeys(f"{reason.rstrip('.')}." for reason in reasons))


def _decide_finding(facts: _HeadlineFacts) -> VariantFinding:
    if facts.controls.void:
        return "void"
    if facts.failures.is_biased:
        return "not comparable"
    if facts.select_cells("mixed") or (facts.select_cells("faster") and facts.select_cells("slower")):
        return "mixed"
    if facts.select_cells("faster"):
        return "faster"
    if facts.select_cells("slower"):
        return "slower"
    return "same" if facts.select_cells("same") and not facts.select_cells("no evidence") else "no evidence"


def _write_sentence(facts: _HeadlineFacts, finding: VariantFinding) -> str:
    if finding == "void":
        return f"The run is void, so nothing is concluded of {facts.variant}: {facts.controls.void[0].rstrip('.')}."
    if finding == "not comparable":
        failures_text = facts.failures.describe(facts.baseline, facts.variant)
        return (
            f"{facts.variant} cannot be compared with {facts.baseline}, only what both answered could: {failures_text}."
        )
    comparison = headline_text.describe_comparison(
        facts.variant, facts.baseline, [facts.select_cells(word) for word in _CELL_WORDS], facts.margin
    )
    if finding == "no evidence" and not facts.select_cells("same"):
        return f"{comparison}{_explain_nothing(facts)}{_describe_refusals(facts)}."
    prefix = "" if facts.evidence == "across-starts" or finding == "no evidence" else _describe_starts(facts)
    return f"{prefix}{comparison}{_OUTPUT_SENTENCES[facts.output]}{_describe_refusals(facts)}."


def _describe_starts(facts: _HeadlineFacts) -> str:
    """Return of which starts a word is true, as the beginning of a sentence."""
    rows = facts.table.arm_mask(facts.baseline) | facts.table.arm_mask(facts.variant)
    arms, starts = facts.table.arm[rows], facts.table.start[rows]
    if len(set(zip(arms.tolist(), starts.tolist(), strict=True))) > 2:  # noqa: PLR2004 - one of each arm
        return "Within the starts that were measured, "
    return "Within one start of each server, "


def _describe_refusals(facts: _HeadlineFacts) -> str:
    """Return how many answers the content check refused, of either arm, as the end of a sentence; empty of none."""
    if facts.invalid_reason or not any(arm_counts.refusal_count for arm_counts in facts.content_counts):
        return ""
    texts = [
        f"{arm_counts.refusal_count} of {arm_counts.answer_count} answers of {arm_counts.arm}"
        + (
            f" ({', '.join(f'{number} {word}' for word, number in arm_counts.word_counts)})"
            if arm_counts.word_counts
            else ""
        )
        for arm_counts in facts.content_counts
    ]
    return f"; the content check refused {' and '.join(texts)}"


_OUTPUT_SENTENCES: Mapping[OutputFinding, str] = {
    "the same": "; outputs are the same", "not shown": "; that outputs are the same is not shown",
    "not the same": ", but its outputs are not the same",
}  # fmt: skip


def _explain_nothing(facts: _HeadlineFacts) -> str:
    """Return why no class could be judged at all; empty where some had an estimate."""
    if facts.invalid_reason:
        return f": {facts.invalid_reason}"
    few_reason = verdict_reason.explain_few_rounds(max((cell.rounds for cell in facts.deciding_cells), default=0))
    if few_reason:
        return f": {few_reason}"
    reasons = {cell.why for cell in facts.deciding_cells}
    if not facts.deciding_cells:
        return ": the run has no record"
    if len(reasons) > 1 or any(cell.p is not None for cell in facts.deciding_cells):
        return ""
    return f": {'in every class, ' if len(facts.deciding_cells) > 1 else ''}{reasons.pop()}"


def _list_reasons(facts: _HeadlineFacts, finding: VariantFinding) -> Iterator[str]:
    """Yield what limits a verdict, most important first."""
    yield from facts.controls.void
    if facts.failures.variant_failures or facts.failures.baseline_failures:
        yield facts.failures.describe(facts.baseline, facts.variant)
    yield from _list_output_reasons(facts)
    yield from facts.controls.cautions
    yield from _list_absent_checks(facts)
    if finding not in {"void", "not comparable"} and not facts.invalid_reason:
        yield from _list_open_cells(facts)


def _list_output_reasons(facts: _HeadlineFacts) -> Iterator[str]:
    if facts.equality is None:
        yield "outputs were not held against each other"
    elif facts.is_altered or facts.equality.result != "the same":
        yield facts.equality.sentence
    if (
        not facts.length_ratios
        and (facts.equality is None or facts.equality.lengths is None)
        and any(cell.p is not None for cell in facts.deciding_cells)
    ):
        yield "no server counted tokens of 3 prompts: whether answers are of one length is not known"
    token_cells = {_cell_key(cell): cell for cell in facts.cells if cell.metric == TOKEN_METRIC}
    for (class_, load), ratio in list(facts.different_lengths.items())[: headline_text.MAX_CLASSES]:
        cell = token_cells.get((class_, load))
        per_token = format_number(cell.speed_up.value) if cell is not None and cell.speed_up else None
        token_text = (
            f"; by the time of a token it is {per_token} times as fast ({cell.verdict})" if cell and per_token else ""
        )
        yield f"answers to {class_} prompts are {format_number(ratio.value)} times as long{token_text}"


def _list_absent_checks(facts: _HeadlineFacts) -> Iterator[str]:
    """Yield what could not be checked, and so is in no interval; where a check cautions, its caution says it."""
    done_names = {check.name for check in facts.controls.checks if check.result != "absent"}
    if not facts.controls.floors and not any("noise floor" in caution for caution in facts.controls.cautions):
        yield "no noise floor: the baseline was not asked against itself"
    placement_count = _count_known(facts, facts.table.placement)
    if placement_count < 2 and "placement" not in done_names:  # noqa: PLR2004 - here, then there
        placement_text = "1 placement" if placement_count else "no placement is recorded"
        yield f"{placement_text} of {facts.variant}: the interval leaves out how the halves of a host differ"
    separate_names = {"baseline against itself", "placement"}
    yield from (
        check.sentence
        for check in facts.controls.checks
        if check.result == "absent" and check.name not in separate_names
    )
    if facts.controls.marked:
        count = len(facts.controls.marked)
        yield f"{count} round{'' if count == 1 else 's'} left out: the measuring machine was the bottleneck"


def _count_known(facts: _HeadlineFacts, codes: IntArray) -> int:
    """Return how many places or starts the variant's requests say they met."""
    request_codes = codes[facts.table.arm_mask(facts.variant)]
    return len(np.unique(request_codes[request_codes != UNKNOWN]))


def _list_open_cells(facts: _HeadlineFacts) -> Iterator[str]:
    open_cells = [cell for cell in facts.select_cells("no evidence") if cell.verdict == "no evidence"]
    for cell in open_cells[: headline_text.MAX_CLASSES]:
        yield f"{headline_text.format_cell(cell)}: {cell.why}"
    if len(open_cells) > headline_text.MAX_CLASSES:
        yield f"{len(open_cells) - headline_text.MAX_CLASSES:,} more classes are undecided; each cell says why"
