"""The verdict on a variant: one word and one sentence for whoever has to decide, and what limits it.

Invariant: the first that holds: a failed control makes it void; failures that the other arm did not have make it not
comparable; only then do the cells decide, by the time that a user waits (DECIDING_METRIC). An arm whose output is not
the baseline's is never called faster without that in the same breath, and equal times of answers of other lengths are
not called the same. What was measured within one start of the servers is called so. What each word rests on:
docs/bench.md#the-verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

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
    VariantFinding,
)
from tandem.judge.text_format import format_number

TOKEN_METRIC = "tpot_ms"  # noqa: S105 - a figure
"""What is said beside where answers are of other lengths: it does not grow with them."""

_BARE_FINDINGS = ("no evidence", "not comparable", "void")
_OUTPUT_SUFFIXES: Mapping[OutputFinding, str] = {
    "the same": "", "not shown": ", output not shown to be the same", "not the same": " but not the same output",
}  # fmt: skip
_OUTPUT_SENTENCES: Mapping[OutputFinding, str] = {
    "the same": "; outputs are the same", "not shown": "; that outputs are the same is not shown",
    "not the same": ", but its outputs are not the same",
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

    @cached_property
    def cells_with_interval(self) -> tuple[CellVerdict, ...]:
        return tuple(cell for cell in self.deciding_cells if cell.p is not None)

    @cached_property
    def cells_by_word(self) -> Mapping[CellWord, tuple[CellVerdict, ...]]:
        """Classes at loads by their word; equal times of answers of other lengths are no evidence."""
        cells: dict[CellWord, list[CellVerdict]] = {
            "faster": [], "slower": [], "same": [], "mixed": [], "no evidence": []
        }  # fmt: skip
        for cell in self.deciding_cells:
            is_other_work = cell.verdict == "same" and (cell.class_, cell.load) in self.different_lengths
            cells["no evidence" if is_other_work else cell.verdict].append(cell)
        return {word: tuple(word_cells) for word, word_cells in cells.items()}

    @cached_property
    def evidence(self) -> EvidenceScope:
        """What the verdict holds for: across starts where that is so in every class that is judged."""
        scopes = {cell.evidence for cell in self.cells_with_interval}
        return "across-starts" if scopes == {"across-starts"} else "one-start"

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
        ratios = {}
        for cell in self.cells_with_interval:
            pairs = self.pairing.pairs(
                baseline=self.baseline,
                variant=self.variant,
                class_=self.table.classes.index(cell.class_),
                load=self.table.loads.index(cell.load),
                metric=LENGTH_METRIC,
            )
            level = 1 - (1 - LEVEL) / len(self.cells_with_interval)
            estimate = estimate_log_ratio(-pairs.logs, level=level)  # of a length, more is more
            if estimate is not None:
                ratios[cell.class_, cell.load] = estimate.convert()
        return ratios

    @cached_property
    def different_lengths(self) -> Mapping[_ClassAtLoad, RatioEstimate]:
        """The same where answers are of other lengths beyond doubt."""
        ratios = self.length_ratios.items()
        return {place: ratio for place, ratio in ratios if compare_lengths(ratio, self.margin) != "alike"}

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
        if self.different_lengths or equality is None:
            return bool(self.different_lengths)
        if equality.lengths is not None and compare_lengths(equality.lengths, self.margin) != "alike":
            return True
        garbage, baseline_garbage = equality.garbage, equality.garbage_of_baseline
        has_more_garbage = garbage is not None and is_more_frequent(
            garbage.n,
            garbage.of,
            baseline_garbage.n if baseline_garbage else 0,
            baseline_garbage.of if baseline_garbage else garbage.of,
        )
        return equality.result == "differs" or has_more_garbage


def _build_headline(facts: _HeadlineFacts) -> Headline:
    finding = _decide_finding(facts)
    class_names = {
        word: tuple(map(headline_text.format_cell, cells)) if finding != "void" else ()
        for word, cells in facts.cells_by_word.items()
    }
    return Headline(
        variant=facts.variant,
        verdict=combine_verdict(finding, facts.evidence, facts.output),
        finding=finding,
        evidence=facts.evidence,
        output=facts.output,
        sentence=_write_sentence(facts, finding),
        reasons=tuple(dict.fromkeys(f"{reason.rstrip('.')}." for reason in _list_reasons(facts, finding))),
        faster=class_names["faster"],
        slower=class_names["slower"],
        same=class_names["same"],
        mixed=class_names["mixed"],
        undecided=class_names["no evidence"],
        metric=DECIDING_METRIC,
    )


def combine_verdict(finding: VariantFinding, evidence: EvidenceScope, output: OutputFinding) -> OverallVerdict:
    """Return a finding with its reservations."""
    if finding in _BARE_FINDINGS:
        return cast("OverallVerdict", finding)
    start_suffix = "" if evidence == "across-starts" else " within one start"
    output_suffix = _OUTPUT_SUFFIXES[output] if finding == "faster" else ""
    return cast("OverallVerdict", f"{finding}{start_suffix}{output_suffix}")


def _decide_finding(facts: _HeadlineFacts) -> VariantFinding:
    cells = facts.cells_by_word
    if facts.controls.void:
        return "void"
    if facts.failures.is_biased:
        return "not comparable"
    if cells["mixed"] or (cells["faster"] and cells["slower"]):
        return "mixed"
    if cells["faster"] or cells["slower"]:
        return "faster" if cells["faster"] else "slower"
    return "same" if cells["same"] and not cells["no evidence"] else "no evidence"


def _write_sentence(facts: _HeadlineFacts, finding: VariantFinding) -> str:
    if finding == "void":
        return f"The run is void, so nothing is concluded of {facts.variant}: {facts.controls.void[0].rstrip('.')}."
    if finding == "not comparable":
        failures_text = facts.failures.describe(facts.baseline, facts.variant)
        return (
            f"{facts.variant} cannot be compared with {facts.baseline}, only what both answered could: {failures_text}."
        )
    comparison = headline_text.describe_comparison(facts.variant, facts.baseline, facts.cells_by_word, facts.margin)
    if finding == "no evidence" and not facts.cells_by_word["same"]:
        return f"{comparison}{_explain_nothing(facts)}{_describe_refusals(facts)}."
    prefix = ""
    if facts.evidence == "one-start" and finding != "no evidence":
        rows = facts.table.arm_mask(facts.baseline) | facts.table.arm_mask(facts.variant)
        starts = set(zip(facts.table.arm[rows].tolist(), facts.table.start[rows].tolist(), strict=True))
        has_several = len(starts) > 2  # noqa: PLR2004 - one of each arm
        prefix = "Within the starts that were measured, " if has_several else "Within one start of each server, "
    return f"{prefix}{comparison}{_OUTPUT_SENTENCES[facts.output]}{_describe_refusals(facts)}."


def _describe_refusals(facts: _HeadlineFacts) -> str:
    """Return how many answers the content check refused, of either arm, as the end of a sentence; empty of none."""
    if facts.invalid_reason or not any(counts.refusal_count for counts in facts.content_counts):
        return ""
    texts = []
    for counts in facts.content_counts:
        words = ", ".join(f"{number} {word}" for word, number in counts.word_counts)
        texts.append(f"{counts.refusal_count} of {counts.answer_count} answers of {counts.arm}")
        texts[-1] += f" ({words})" if words else ""
    return f"; the content check refused {' and '.join(texts)}"


def _explain_nothing(facts: _HeadlineFacts) -> str:
    """Return why no class could be judged at all; empty where some had an estimate."""
    if facts.invalid_reason:
        return f": {facts.invalid_reason}"
    few_reason = verdict_reason.explain_few_rounds(max((cell.rounds for cell in facts.deciding_cells), default=0))
    if few_reason:
        return f": {few_reason}"
    if not facts.deciding_cells:
        return ": the run has no record"
    reasons = {cell.why for cell in facts.deciding_cells}
    if len(reasons) > 1 or facts.cells_with_interval:
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
    if finding in {"void", "not comparable"} or facts.invalid_reason:
        return
    open_cells = [cell for cell in facts.cells_by_word["no evidence"] if cell.verdict == "no evidence"]
    for cell in open_cells[: headline_text.MAX_CLASSES]:
        yield f"{headline_text.format_cell(cell)}: {cell.why}"
    if len(open_cells) > headline_text.MAX_CLASSES:
        yield f"{len(open_cells) - headline_text.MAX_CLASSES:,} more classes are undecided; each cell says why"


def _list_output_reasons(facts: _HeadlineFacts) -> Iterator[str]:
    if facts.equality is None:
        yield "outputs were not held against each other"
    elif facts.is_altered or facts.equality.result != "the same":
        yield facts.equality.sentence
    has_lengths = facts.length_ratios or (facts.equality is not None and facts.equality.lengths is not None)
    if not has_lengths and facts.cells_with_interval:
        yield "no server counted tokens of 3 prompts: whether answers are of one length is not known"
    token_cells = {(cell.class_, cell.load): cell for cell in facts.cells if cell.metric == TOKEN_METRIC}
    for (class_, load), ratio in list(facts.different_lengths.items())[: headline_text.MAX_CLASSES]:
        cell, token_text = token_cells.get((class_, load)), ""
        if cell is not None and cell.speed_up is not None:
            speed_up = format_number(cell.speed_up.value)
            token_text = f"; by the time of a token it is {speed_up} times as fast ({cell.verdict})"
        yield f"answers to {class_} prompts are {format_number(ratio.value)} times as long{token_text}"


def _list_absent_checks(facts: _HeadlineFacts) -> Iterator[str]:
    """Yield what could not be checked, and so is in no interval; where a check cautions, its caution says it."""
    checks = facts.controls.checks
    if not facts.controls.floors and not any("noise floor" in caution for caution in facts.controls.cautions):
        yield "no noise floor: the baseline was not asked against itself"
    placements = facts.table.placement[facts.table.arm_mask(facts.variant)]
    placement_count = len(np.unique(placements[placements != UNKNOWN]))
    is_checked = any(check.name == "placement" and check.result != "absent" for check in checks)
    if placement_count < 2 and not is_checked:  # noqa: PLR2004 - here, then there
        placement_text = "1 placement" if placement_count else "no placement is recorded"
        yield f"{placement_text} of {facts.variant}: the interval leaves out how the halves of a host differ"
    separate_names = {"baseline against itself", "placement"}
    yield from (check.sentence for check in checks if check.result == "absent" and check.name not in separate_names)
    if facts.controls.marked:
        count = len(facts.controls.marked)
        yield f"{count} round{'' if count == 1 else 's'} left out: the measuring machine was the bottleneck"
