"""The verdict on a variant: one word and one sentence for the person who decides, and the limits of both.

Invariant: the first of these decides. A failed control makes the verdict void. Failures that the other arm did not have
make it not comparable. Else the cells decide, by the time that a user waits (DECIDING_METRIC). If a faster arm's output
is not the baseline's, the same sentence says so. Equal times of answers of other lengths are not called the same. The
word names a measurement within one start of the servers as such. A sentence says no more than its cells: a range goes
from the lowest to the highest end of their intervals, and open classes are named. docs/bench.md#the-verdict says what
each word rests on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast, get_args

from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import LoadLevel
from tandem.judge import comparability, schema, verdict_reason
from tandem.judge.cells import SpeedUpVerdicts
from tandem.judge.decision import compare_lengths
from tandem.judge.interval import LEVEL, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, LENGTH_METRIC, RequestPairing
from tandem.judge.schema import CellVerdict, CellWord, Headline, LoadVerdict, OutputFinding, RatioEstimate
from tandem.judge.text_format import format_load, format_number, format_short_ratio, shorten_text

MAX_CLASSES = 4
"""Classes that a sentence names; the rest are counted."""

_OUTPUT_TEXTS: Mapping[OutputFinding, tuple[str, str]] = {
    "the same": ("", "; outputs are the same"),
    "same quality": (
        " at the same quality",
        "; outputs differ or are not compared, and the tasks are answered as well",
    ),
    "not shown": (", output not shown to be the same", "; that outputs are the same is not shown"),
    "not the same": (" but not the same output", ", but its outputs are not the same"),
}
"""Text to add to the word faster, and to a sentence."""


def build_headlines(  # noqa: PLR0913 - the parts of a verdict
    table: RequestTable,
    speed_ups: SpeedUpVerdicts,
    controls: schema.RunControls,
    equality: Sequence[schema.OutputEquality],
    *,
    margin: float,
    quality: Sequence[schema.TaskQuality] = (),
) -> tuple[Headline, ...]:
    """Return the verdict on every variant.

    Args:
        table: the run.
        speed_ups: all of them, judged.
        controls: what voids the run, and what limits it.
        equality: of the outputs; a variant without one is not shown to give the baseline's output.
        margin: a speed-up within it is `same`; a ratio of lengths within it is no difference.
        quality: of the tasks that the arms were asked.
    """
    pairing = RequestPairing(table, controls.marked_rounds)
    headlines = []
    for variant in table.variants:
        cells_of_variant = tuple(cell for cell in speed_ups.cells if cell.variant == variant)
        loads = tuple(load for load in speed_ups.overall if load.deciding.variant == variant)
        outputs = next((entry for entry in equality if entry.variant == variant), None)
        tasks = tuple(task for task in quality if task.variant == variant)
        facts = _HeadlineFacts(pairing, variant, cells_of_variant, loads, controls, outputs, margin, tasks)
        finding, output = _decide_finding(facts), facts.output
        names = [tuple(map(format_cell, part)) for part in facts.words.values()] if finding != "void" else [()] * 5
        classes = dict(zip(("faster", "slower", "same", "mixed", "undecided"), names, strict=True))
        headlines.append(
            Headline(
                variant=variant,
                verdict=combine_verdict(finding, facts.evidence, output),
                finding=finding,
                evidence=facts.evidence,
                output=output,
                sentence=_write_sentence(facts, finding),
                reasons=tuple(dict.fromkeys(f"{reason.rstrip('.')}." for reason in _list_reasons(facts, finding))),
                metric=DECIDING_METRIC,
                **classes,
            )
        )
    return tuple(headlines)


def combine_verdict(
    finding: schema.VariantFinding, evidence: schema.EvidenceScope, output: OutputFinding
) -> schema.OverallVerdict:
    """Return a finding with its reservations."""
    text: str = finding
    if finding not in {"no evidence", "not comparable", "void"} and evidence == "one-start":
        text += " within one start"
    return cast("schema.OverallVerdict", text + (_OUTPUT_TEXTS[output][0] if finding == "faster" else ""))


@dataclass(frozen=True)
class _HeadlineFacts:
    """Facts about one variant; `cells` are the cells of this variant."""

    pairing: RequestPairing
    variant: str
    cells: tuple[CellVerdict, ...]
    loads: tuple[LoadVerdict, ...]
    controls: schema.RunControls
    equality: schema.OutputEquality | None
    margin: float
    quality: tuple[schema.TaskQuality, ...]

    @property
    def arms(self) -> tuple[str, str]:
        """The baseline and the variant."""
        return self.pairing.table.baseline, self.variant

    @cached_property
    def failures(self) -> comparability.FailureCounts:
        return comparability.count_failures(self.pairing, *self.arms).count()

    @cached_property
    def invalid_reason(self) -> str:
        """Why no speed is worth anything (neither arm gives text); empty otherwise."""
        return comparability.explain_invalidity(self.pairing, *self.arms)

    @cached_property
    def content_counts(self) -> list[comparability.ContentCounts]:
        """Answers that the content check refused, of the variant and of the baseline."""
        return [comparability.count_content(self.pairing, arm) for arm in self.arms[::-1]]

    @cached_property
    def cells_with_interval(self) -> list[CellVerdict]:
        return [cell for cell in self.cells if cell.metric == DECIDING_METRIC and cell.p is not None]

    @cached_property
    def words(self) -> dict[CellWord, list[CellVerdict]]:
        """Classes at loads by their word; equal times of answers of other lengths are no evidence."""
        words: dict[CellWord, list[CellVerdict]] = {word: [] for word in get_args(CellWord)}
        for cell in self.cells:
            is_other_work = cell.verdict == "same" and (cell.class_, cell.load) in self.different_lengths
            if cell.metric == DECIDING_METRIC:
                words["no evidence" if is_other_work else cell.verdict].append(cell)
        return words

    @property
    def has_other_work(self) -> bool:
        """Whether answers have another length, so equal times are not those of the same work."""
        return bool(self.different_lengths)

    @property
    def evidence(self) -> schema.EvidenceScope:
        """Scope of the verdict: across starts if every judged class is, else one start."""
        scopes = {cell.evidence for cell in self.cells_with_interval}
        return "across-starts" if scopes == {"across-starts"} else "one-start"

    @cached_property
    def length_ratios(self) -> dict[tuple[str, LoadLevel], RatioEstimate]:
        """Tokens of the variant's answers as a ratio of the baseline's, where servers counted them."""
        ratios = {}
        level = 1 - (1 - LEVEL) / max(len(self.cells_with_interval), 1)
        for cell in self.cells_with_interval:
            pairs = self.pairing.pairs(self.arms, self.pairing.cell_code(cell.class_, cell.load), LENGTH_METRIC)
            estimate = estimate_log_ratio(-pairs.logs, level=level)  # above 1 where the variant's answers are longer
            if estimate is not None:
                ratios[cell.class_, cell.load] = estimate.convert()
        return ratios

    @cached_property
    def different_lengths(self) -> dict[tuple[str, LoadLevel], RatioEstimate]:
        """Those of `length_ratios` that lie wholly beyond the margin."""
        ratios = self.length_ratios.items()
        return {place: ratio for place, ratio in ratios if compare_lengths(ratio, self.margin) != "alike"}

    @cached_property
    def output(self) -> OutputFinding:
        """Whether the variant's outputs are shown to be the baseline's: no other text, length or broken answers.

        A task with a worse quality is an other output; the same quality of every task makes up for other texts alone.
        """
        equality, words = self.equality, {task.word for task in self.quality}
        if self.different_lengths or "worse" in words:
            return "not the same"
        has_quality = bool(words) and words <= {"same", "better"}
        if equality is None:
            return "same quality" if has_quality else "not shown"
        is_altered = equality.result == "differs" and not has_quality
        if equality.lengths is not None:
            is_altered |= compare_lengths(equality.lengths, self.margin) != "alike"
        if equality.garbage is not None:
            garbage, other = equality.garbage, equality.garbage_of_baseline
            others = (other.n, other.of) if other else (0, garbage.of)
            is_altered |= comparability.is_more_frequent(garbage.n, garbage.of, *others)
        if is_altered:
            return "not the same"
        has_mostly_refusals = any(2 * counts.broken.total() > counts.answer_count for counts in self.content_counts)
        if has_mostly_refusals:
            return "not shown"
        return "the same" if equality.result == "the same" else "same quality" if has_quality else "not shown"


def _decide_finding(facts: _HeadlineFacts) -> schema.VariantFinding:
    if facts.controls.void:
        return "void"
    if facts.failures.is_biased:
        return "not comparable"

    cells = facts.words
    overall_words = {load.deciding.verdict for load in facts.loads}
    called_words = overall_words | {word for word, named_cells in cells.items() if named_cells}
    if "mixed" in called_words or called_words >= {"faster", "slower"}:
        return "mixed"
    if "faster" in called_words or "slower" in called_words:
        return "faster" if "faster" in called_words else "slower"
    # no class is called, so the same over all classes is the same in each as far as anybody knows
    is_same_overall = overall_words == {"same"} and not facts.has_other_work
    is_same_everywhere = bool(cells["same"]) and not cells["no evidence"]
    return "same" if is_same_overall or is_same_everywhere else "no evidence"


def _write_sentence(facts: _HeadlineFacts, finding: schema.VariantFinding) -> str:
    baseline, variant = facts.arms
    if finding == "void":
        return f"The run is void, so nothing is concluded of {variant}: {facts.controls.void[0].rstrip('.')}."
    if finding == "not comparable":
        failures_text = facts.failures.describe(baseline, variant)
        return f"{variant} cannot be compared with {baseline}, only what both answered could: {failures_text}."
    comparison, refusals_text = _describe_comparison(facts), ""
    if not facts.invalid_reason and any(counts.broken for counts in facts.content_counts):
        texts = []
        for counts in facts.content_counts:
            words = [f"{number} {word}" for word, number in counts.broken.most_common()]
            text = f"{counts.broken.total()} of {counts.answer_count} answers of {counts.arm}"
            texts.append(f"{text} ({', '.join(words)})" if words else text)
        refusals_text = f"; the content check refused {' and '.join(texts)}"
    if finding == "no evidence" and not facts.words["same"]:
        return f"{comparison}{_explain_nothing(facts)}{refusals_text}."
    is_reserved = facts.evidence == "one-start" and finding != "no evidence"
    prefix = "Within the starts that were measured, " if is_reserved else ""
    return f"{prefix}{comparison}{_OUTPUT_TEXTS[facts.output][1]}{refusals_text}."


def _explain_nothing(facts: _HeadlineFacts) -> str:
    """Return why no class could be judged; empty where some had an estimate."""
    cells = [cell for part in facts.words.values() for cell in part]
    reason = facts.invalid_reason or verdict_reason.explain_few_rounds(max((cell.rounds for cell in cells), default=0))
    reasons = {cell.why for cell in cells} or {"the run has no record"}
    if not reason and len(reasons) == 1:
        reason = reasons.pop()
    return f": {reason}" if reason else ""


def _describe_comparison(facts: _HeadlineFacts) -> str:
    """Return how the classes of a variant compare, as the beginning of a sentence."""
    cells, baseline, variant = facts.words, *map(shorten_text, facts.arms)
    has_one_load = len({cell.load for part in cells.values() for cell in part}) == 1

    def name_prompts(part: Sequence[CellVerdict]) -> str:
        names = [cell.class_ if has_one_load else f"{cell.class_} ({format_load(cell.load)})" for cell in part]
        names = [shorten_text(name) for name in names]
        if len(names) > MAX_CLASSES:
            names = [*names[: MAX_CLASSES - 1], f"{len(names) - MAX_CLASSES + 1:,} more"]
        return f"{_join_parts(names)} prompts"

    def describe_range(part: Sequence[CellVerdict]) -> str:
        ratios = [cell.speed_up for cell in part if cell.speed_up]
        ends = min(ratio.low or ratio.value for ratio in ratios), max(ratio.high or ratio.value for ratio in ratios)
        return f"{name_prompts(part)} {' to '.join(dict.fromkeys(map(format_short_ratio, ends)))} times as fast"

    phrases = [describe_range(part) for part in (cells["faster"], cells["slower"]) if part]
    if cells["same"]:
        phrases.append(f"{name_prompts(cells['same'])} as fast (to within {100 * facts.margin:g} %)")
    mixed_cells = cells["mixed"][:MAX_CLASSES]
    phrases += [f"{describe_range([cell])} by the median, but {cell.opposition}" for cell in mixed_cells]
    if len(cells["mixed"]) > MAX_CLASSES:
        phrases.append(f"{len(cells['mixed']) - MAX_CLASSES:,} more classes are mixed")
    if not phrases:
        return f"There is no evidence whether {variant} is faster or slower than {baseline}"
    if cells["no evidence"]:
        phrases.append(f"for {name_prompts(cells['no evidence'])} there is no evidence")
    return f"{variant} against {baseline}: {'; '.join(phrases)}"


def _join_parts(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def format_cell(cell: CellVerdict) -> str:
    """Return the class and load of a cell."""
    return f"{cell.class_} at {format_load(cell.load)}"


def _list_reasons(facts: _HeadlineFacts, finding: schema.VariantFinding) -> Iterator[str]:
    """Yield the limits of a verdict, most important first."""
    yield from facts.controls.void
    if facts.failures.variant_failures or facts.failures.baseline_failures:
        yield facts.failures.describe(*facts.arms)
    yield from _list_output_reasons(facts)
    for result in ("caution", "absent"):  # what was seen comes before what could not be
        yield from (check.sentence for check in facts.controls.checks if check.result == result)
    if finding in {"void", "not comparable"} or facts.invalid_reason:
        return
    open_cells = [cell for cell in facts.words["no evidence"] if cell.verdict == "no evidence"]
    yield from (f"{format_cell(cell)}: {cell.why}" for cell in open_cells[:MAX_CLASSES])
    if len(open_cells) > MAX_CLASSES:
        yield f"{len(open_cells) - MAX_CLASSES:,} more classes are undecided; each cell says why"


def _list_output_reasons(facts: _HeadlineFacts) -> Iterator[str]:
    for task in facts.quality:
        if task.word != "same":
            yield f"quality of {task.task}: {task.word}: {task.why}"
    if facts.equality is None:
        yield "outputs were not held against each other"
    elif facts.output == "not the same" or facts.equality.result != "the same":
        yield facts.equality.sentence
    has_lengths = facts.length_ratios or (facts.equality is not None and facts.equality.lengths is not None)
    if not has_lengths and facts.cells_with_interval:
        yield "no server counted tokens of 3 prompts: whether answers are of one length is not known"
    for place, ratio in list(facts.different_lengths.items())[:MAX_CLASSES]:
        yield f"answers to {place[0]} prompts are {format_number(ratio.value)} times as long: see their TPOT"
