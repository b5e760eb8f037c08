"""The verdict on a variant: one word, a few sentences for who decides, and its limits.

Invariant: the first of these decides. A failed control makes the verdict void. Failures that the
other arm did not have, or answers of another length whose tokens nobody counted, make it not
comparable. Else the figure over all prompts and the classes decide, by the time that a user waits;
where answers have other lengths, by the time per output token. The word says if another start of
the servers could change it, and if a faster arm's output is not the baseline's.
docs/read-verdict.md says what each word rests on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tandem.judge import schema
from tandem.judge.cells import SpeedUpVerdicts
from tandem.judge.headline_facts import TPOT_METRIC, HeadlineFacts
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import (
    AttainmentWord,
    CellVerdict,
    CellWord,
    Headline,
    OutputFinding,
)
from tandem.judge.text_format import format_load, format_number
from tandem.judge.verdict_sentence import MAX_CLASSES, write_sentences

_OUTPUT_SUFFIXES: dict[OutputFinding, str] = {
    "the same": "",
    "same quality": " at the same quality",
    "not shown": ", output not shown to be the same",
    "not the same": " but not the same output",
}
"""Text to add to the word faster."""

_START_TEXTS = ("restarts not tested", "one server start; restarts not tested")
"""Reservations of a word for which no start is recorded, as of several servers at one address, or
one is."""

_DIFFERENCES: set[CellWord] = {"faster", "slower"}
_LIMIT_WORDS: dict[AttainmentWord, CellWord] = {"more": "faster", "fewer": "slower"}

_WORDLESS_FINDINGS: tuple[schema.VariantFinding, ...] = ("no evidence", "not comparable", "void")


def build_headlines(  # noqa: PLR0913 - the parts of a verdict
    pairing: RequestPairing,
    speed_ups: SpeedUpVerdicts,
    controls: schema.RunControls,
    equality: Sequence[schema.OutputEquality],
    *,
    margin: float,
    quality: Sequence[schema.TaskQuality],
) -> tuple[Headline, ...]:
    """Return the verdict on every variant.

    Args:
        pairing: the rounds of the run that count.
        speed_ups: all of them, judged.
        controls: what voids the run, and what limits it.
        equality: of the outputs; a variant without one is not shown to give the baseline's output.
        margin: a speed-up within it is `same`; a ratio of lengths within it is no difference.
        quality: of the tasks that the arms were asked.
    """
    headlines = []
    for variant in pairing.table.variants:
        facts = HeadlineFacts(
            pairing=pairing,
            variant=variant,
            cells=tuple(cell for cell in speed_ups.cells if cell.variant == variant),
            loads=tuple(load for load in speed_ups.overall if load.deciding.variant == variant),
            attainment=tuple(row for row in speed_ups.attainment if row.variant == variant),
            controls=controls,
            equality=next((entry for entry in equality if entry.variant == variant), None),
            margin=margin,
            quality=tuple(task for task in quality if task.variant == variant),
        )
        headlines.append(_build_headline(facts))
    return tuple(headlines)


def _build_headline(facts: HeadlineFacts) -> Headline:
    finding = _decide_finding(facts)

    def name_places(word: CellWord) -> tuple[str, ...]:
        is_withheld = finding == "void" or (finding == "not comparable" and word != "no evidence")
        if is_withheld:
            return ()
        return tuple(map(format_cell, facts.words[word]))

    reasons = [f"{reason.rstrip('.')}." for reason in _list_reasons(facts, finding)]
    return Headline(
        variant=facts.variant,
        verdict=combine_verdict(
            finding,
            facts.output,
            metric=facts.metric,
            start_count=facts.start_count,
            may_miss_limits=facts.may_miss_limits,
        ),
        finding=finding,
        evidence=facts.evidence,
        output=facts.output,
        sentence=write_sentences(facts, finding),
        reasons=tuple(dict.fromkeys(reasons)),
        metric=facts.metric,
        faster=name_places("faster"),
        slower=name_places("slower"),
        same=name_places("same"),
        mixed=name_places("mixed"),
        undecided=name_places("no evidence"),
        requests=facts.request_count,
        speculates=facts.speculates,
    )


def combine_verdict(
    finding: schema.VariantFinding,
    output: OutputFinding,
    *,
    metric: str,
    start_count: int | None,
    may_miss_limits: bool = False,
) -> str:
    """Return a finding with its reservations.

    Args:
        finding, output: of the headline.
        metric: that decided.
        start_count: of the arm with the fewest starts, where they are too few to cover what starts
            differ by; None where the verdict covers that.
        may_miss_limits: whether the variant may keep the goodput limits for fewer requests.
    """
    if finding in _WORDLESS_FINDINGS:
        return finding
    text: str = finding
    if metric == TPOT_METRIC:
        text += " per output token"
    if finding == "faster":
        text += _OUTPUT_SUFFIXES[output]
        text += ", but may miss more limits" if may_miss_limits else ""
    if start_count is None:
        return text
    if start_count < len(_START_TEXTS):
        return f"{text} ({_START_TEXTS[start_count]})"
    return f"{text} ({start_count} server starts; restarts not covered)"


def _decide_finding(facts: HeadlineFacts) -> schema.VariantFinding:
    if facts.controls.void:
        return "void"
    if facts.failures.is_biased or facts.length_reason:
        return "not comparable"

    cells = facts.words
    overall_words = facts.overall_words
    called_words = overall_words | {word for word, named_cells in cells.items() if named_cells}
    differences = called_words & _DIFFERENCES
    # what limits say of a variant is no speed, but it may go against one
    limit_words = {_LIMIT_WORDS.get(row.verdict, "same") for row in facts.attainment}
    if "mixed" in called_words or (differences and differences | limit_words >= _DIFFERENCES):
        return "mixed"
    if "faster" in called_words and facts.survivors_reason:
        return "not comparable"
    if "faster" in called_words or "slower" in called_words:
        return "faster" if "faster" in called_words else "slower"
    # no class is called, so the same over all classes is the same in each as far as anybody knows
    is_same_overall = overall_words == {"same"}
    is_same_everywhere = bool(cells["same"]) and not cells["no evidence"]
    return "same" if is_same_overall or is_same_everywhere else "no evidence"


def format_cell(cell: CellVerdict) -> str:
    """Return the class and load of a cell."""
    return f"{cell.class_} at {format_load(cell.load)}"


def _list_reasons(facts: HeadlineFacts, finding: schema.VariantFinding) -> Iterator[str]:
    """Yield the limits of a verdict, most important first."""
    yield from facts.controls.void
    if facts.failures.variant_failures or facts.failures.baseline_failures:
        yield facts.failures.describe(*facts.arms)
    yield from _list_output_reasons(facts)
    for result in ("caution", "absent"):  # what was seen comes before what could not be
        for check in facts.controls.checks:
            if check.result == result:
                yield check.sentence
    if finding in {"void", "not comparable"} or facts.invalid_reason:
        return
    open_cells = facts.words["no evidence"]
    for cell in open_cells[:MAX_CLASSES]:
        yield f"{format_cell(cell)}: {cell.why}"
    if len(open_cells) > MAX_CLASSES:
        yield f"{len(open_cells) - MAX_CLASSES:,} more classes are undecided; each cell says why"


def _list_output_reasons(facts: HeadlineFacts) -> Iterator[str]:
    yield from facts.forced_reasons
    for task in facts.quality:
        if task.word != "same":
            yield f"quality of {task.task}: {task.word}: {task.why}"
    if facts.equality is None:
        yield "outputs were not compared"
    elif facts.output == "not the same" or facts.equality.result != "the same":
        yield facts.equality.sentence
    has_read_lengths = facts.equality is not None and facts.equality.lengths is not None
    has_lengths = facts.length_ratios or has_read_lengths
    if not has_lengths and facts.cells_with_interval:
        yield "output tokens were not counted, so whether answers have the same length is not known"
    ratios = {class_: ratio for (class_, _), ratio in facts.different_lengths.items()}
    if None not in ratios:  # else the sentence has one figure for all
        for class_, ratio in list(ratios.items())[:MAX_CLASSES]:
            yield f"answers of class {class_} are {format_number(ratio.value)} times as long"


def withhold_words(speed_ups: SpeedUpVerdicts, headlines: Sequence[Headline]) -> SpeedUpVerdicts:
    """Return the speed-ups without words on times whose answers have other lengths.

    Args:
        speed_ups: of the run.
        headlines: of the same run; a variant that is not comparable has no word, one that is judged
            by its time per output token none of its end-to-end time.
    """
    metrics = {headline.variant: headline.metric for headline in headlines}
    findings = {headline.variant: headline.finding for headline in headlines}

    def withhold(cell: CellVerdict) -> CellVerdict:
        is_other_work = cell.metric == DECIDING_METRIC and metrics[cell.variant] != DECIDING_METRIC
        is_incomparable = findings[cell.variant] == "not comparable"
        if cell.verdict == "no evidence" or not (is_other_work or is_incomparable):
            return cell
        return replace(
            cell, verdict="no evidence", why="answers cannot be compared: see the headline"
        )

    return SpeedUpVerdicts(
        cells=tuple(map(withhold, speed_ups.cells)),
        overall=tuple(
            replace(load, deciding=withhold(load.deciding)) for load in speed_ups.overall
        ),
        attainment=speed_ups.attainment,
    )
