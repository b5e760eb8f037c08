"""The verdict on a variant in a few sentences, for a person who decides.

Invariant: the figure over all prompts comes first, with its interval, one a load; only `same` never
comes before a class that is called. Every sentence names its metric. A class is called a class, and
a range over classes is of their estimates, never of the ends of intervals. Open classes are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tandem.judge import schema, verdict_reason
from tandem.judge.headline_facts import TPOT_METRIC, HeadlineFacts
from tandem.judge.pairs import DECIDING_METRIC
from tandem.judge.schema import (
    AttainmentVerdict,
    CellVerdict,
    CellWord,
    LoadVerdict,
    OutputFinding,
    RatioEstimate,
)
from tandem.judge.text_format import (
    describe_ratio,
    format_interval,
    format_load,
    format_metric,
    format_short_range,
    shorten_text,
)

MAX_CLASSES = 4
"""Classes that a sentence names for each word; the rest are counted."""

MAX_LOADS = 4
"""Loads of which a verdict gives the figure; the table has all."""

_CALLED_WORDS: tuple[CellWord, ...] = ("faster", "slower", "mixed")
_OPENINGS: Mapping[str, str] = {
    DECIDING_METRIC: "End to end",
    TPOT_METRIC: "Per output token (TPOT)",
}
_OTHER_METRICS: Mapping[str, tuple[str, ...]] = {
    DECIDING_METRIC: ("tpot_ms", "ttft_ms"),
    TPOT_METRIC: ("ttft_ms",),
}
_OUTPUT_SENTENCES: Mapping[OutputFinding, str] = {
    "the same": "Outputs are the same",
    "same quality": "Outputs differ or were not compared, but the tasks are answered as well",
    "not shown": "Outputs are not shown to be the same",
    "not the same": "Outputs are not the same",
}


def write_sentences(facts: HeadlineFacts, finding: schema.VariantFinding) -> str:
    """Return the verdict in sentences.

    Args:
        facts: about the variant.
        finding: what was decided.
    """
    sentences = [sentence.rstrip(".") for sentence in _list_sentences(facts, finding)]
    return f"{'. '.join(sentences)}."


def _list_sentences(facts: HeadlineFacts, finding: schema.VariantFinding) -> Iterator[str]:
    baseline, variant = facts.arms
    if finding == "void":
        yield f"The run is void, so nothing is concluded about {variant}: {facts.controls.void[0]}"
        return
    if finding == "not comparable":
        reason = facts.survivors_reason or facts.length_reason
        yield f"{variant} and {baseline} are not comparable: {reason}"
        return

    yield from facts.forced_reasons[:1]
    if facts.different_lengths:
        lengths_text = facts.describe_lengths()
        yield (
            f"{lengths_text[:1].upper()}{lengths_text[1:]}, so end-to-end times are not comparable"
        )
    yield from _describe_speed_ups(facts)
    if finding in {"no evidence", "same"}:
        yield from _describe_other_metrics(facts)
    yield from _describe_attainment(facts)
    if finding != "no evidence":
        yield _OUTPUT_SENTENCES[facts.output]
    if not facts.invalid_reason:
        yield from _describe_refusals(facts)
    if finding != "no evidence" and facts.evidence == "one-start":
        yield "Differences between server starts are not covered"


def _describe_speed_ups(facts: HeadlineFacts) -> Iterator[str]:
    """Yield how fast the variant is at each load, or once why nothing is known at any load."""
    baseline, variant = facts.names
    opening = _OPENINGS[facts.metric]
    reason = _explain_nothing(facts)
    if reason:
        yield f"{opening}, {variant} is not shown to be faster or slower than {baseline}: {reason}"
        return
    for load in facts.loads[:MAX_LOADS]:
        place = f" at {format_load(load.deciding.load)}" if len(facts.loads) > 1 else ""
        yield f"{opening}{place}, {_describe_load(facts, load)}"
    if len(facts.loads) > MAX_LOADS:
        yield f"The table has {len(facts.loads) - MAX_LOADS} more loads"


def _explain_nothing(facts: HeadlineFacts) -> str:
    """Return why nothing could be judged at any load; empty where a class or all prompts could."""
    cells = facts.deciding_cells
    reason = facts.invalid_reason or verdict_reason.explain_few_rounds(
        max((cell.rounds for cell in cells), default=0)
    )
    if reason:
        return reason
    if not cells:
        return "the run has no record"
    reasons = {cell.why for cell in cells}
    # classes of one prompt each have no interval, and all prompts together may have one
    loads = [load.deciding for load in facts.loads]
    is_barred = all(cell.p is None for cell in [*cells, *loads])
    return reasons.pop() if is_barred and len(reasons) == 1 else ""


def _describe_load(facts: HeadlineFacts, load: LoadVerdict) -> str:
    """Return how all classes of a load compare, and each of them."""
    classes = [cell for cell in facts.deciding_cells if cell.load == load.deciding.load]
    class_words = {cell.verdict for cell in classes}
    if facts.metric == TPOT_METRIC:
        figure = next(
            (entry.speed_up for entry in load.beside if entry.metric == TPOT_METRIC), None
        )
        overall = _describe_untested(facts, figure)
        word: CellWord | None = None
    else:
        cell = _choose_overall_cell(load.deciding, classes)
        word = cell.verdict
        overall = _describe_overall(facts, cell)
    if len(classes) < 2 and (word is not None or not classes):  # noqa: PLR2004 - one class is all prompts
        return overall

    by_class = _describe_classes(classes, facts.margin)
    baseline, variant = facts.names
    if word == "same" and class_words & set(_CALLED_WORDS):
        sameness = f"over all prompts as fast, {_give_margin(facts)}"
        return f"{variant} against {baseline} by class: {by_class}; {sameness}"
    if word == "no evidence" and class_words == {"no evidence"}:
        return overall
    is_opposed = (word == "faster" and "slower" in class_words) or (
        word == "slower" and "faster" in class_words
    )
    return f"{overall}{', but not in every class' if is_opposed else '; by class'}: {by_class}"


def _choose_overall_cell(overall: CellVerdict, classes: Sequence[CellVerdict]) -> CellVerdict:
    """Return the cell of all prompts; of a load with one class, that class's."""
    if len(classes) != 1:
        return overall
    only_class = classes[0]
    is_called_alone = only_class.verdict in _CALLED_WORDS and overall.verdict not in _CALLED_WORDS
    return only_class if is_called_alone or only_class.verdict == "mixed" else overall


def _describe_overall(facts: HeadlineFacts, cell: CellVerdict) -> str:
    """Return how a variant compares over all prompts, by the deciding metric."""
    baseline, variant = facts.names
    if cell.speed_up is None:
        return f"{variant} is not shown to be faster or slower than {baseline}: {cell.why}"
    if cell.verdict == "same":
        interval = format_interval(cell.speed_up)
        return (
            f"{variant} is as fast as {baseline} over all prompts, {_give_margin(facts)}"
            f" ({interval} times)"
        )
    comparison = describe_ratio(
        cell.speed_up, f" {_name_standard(cell.speed_up, baseline)} over all prompts"
    )
    if cell.verdict in {"faster", "slower"}:
        return f"{variant} is {comparison}"
    if cell.verdict == "mixed":
        return f"by the median {variant} is {comparison}, but {cell.opposition}"
    arms = f"{variant} is not shown to be faster or slower than {baseline}"
    return f"{arms} over all prompts: {cell.why}"


def _describe_untested(facts: HeadlineFacts, figure: RatioEstimate | None) -> str:
    """Return how a variant compares over all prompts by a metric tested in classes alone."""
    baseline, variant = facts.names
    if figure is None:
        return f"{variant} has no figure over all prompts"
    comparison = describe_ratio(figure, f" {_name_standard(figure, baseline)} over all prompts")
    return f"{variant} is {comparison}, not tested"


def _name_standard(ratio: RatioEstimate, baseline: str) -> str:
    """Return the end of `2 times as fast as base`, or of `2 times slower than base`."""
    return f"than {baseline}" if (ratio.high or ratio.value) < 1 else f"as {baseline}"


def _give_margin(facts: HeadlineFacts) -> str:
    return f"to within {100 * facts.margin:g} %"


def _describe_classes(classes: Sequence[CellVerdict], margin: float) -> str:
    """Return the classes of a load by their word."""
    by_word: dict[CellWord, list[CellVerdict]] = {}
    for cell in classes:
        by_word.setdefault(cell.verdict, []).append(cell)
    names = {word: _name_classes(cells, len(classes)) for word, cells in by_word.items()}

    differences: tuple[CellWord, ...] = ("faster", "slower")
    phrases = [
        f"{word} in {names[word]} ({_give_range(by_word[word])})"
        for word in differences
        if word in by_word
    ]
    mixed_cells = by_word.get("mixed", [])
    for cell in mixed_cells[:MAX_CLASSES]:
        median = "not known"
        if cell.speed_up:
            median = describe_ratio(RatioEstimate(value=cell.speed_up.value))
        phrases.append(
            f"mixed in {shorten_text(cell.class_)} (the median is {median}, but {cell.opposition})"
        )
    if len(mixed_cells) > MAX_CLASSES:
        phrases.append(f"mixed in {len(mixed_cells) - MAX_CLASSES:,} more classes")
    if "same" in by_word:
        phrases.append(f"as fast in {names['same']} (to within {100 * margin:g} %)")
    if "no evidence" in by_word:
        phrases.append(f"no evidence in {names['no evidence']}")
    return "; ".join(phrases)


def _name_classes(cells: Sequence[CellVerdict], class_count: int) -> str:
    """Return the names of classes, or that they are all of a load.

    Args:
        cells: one a class.
        class_count: of the load.
    """
    if len(cells) == class_count and class_count > 1:
        return "both classes" if class_count == 2 else f"all {class_count:,} classes"  # noqa: PLR2004 - a pair
    return _join_names([shorten_text(cell.class_) for cell in cells])


def _join_names(names: Sequence[str]) -> str:
    """Return `a, b and c`; of many, how many more there are."""
    parts = list(names)
    if len(parts) > MAX_CLASSES:
        parts = [*parts[: MAX_CLASSES - 1], f"{len(parts) - MAX_CLASSES + 1:,} more classes"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _give_range(cells: Sequence[CellVerdict]) -> str:
    """Return `2.1 times`, or `estimates 1.9 to 2.1 times` where classes differ."""
    values = [cell.speed_up.value for cell in cells if cell.speed_up is not None]
    if cells[0].verdict == "slower":
        values = [1 / value for value in values]
    range_text = format_short_range(values)
    return f"{'estimates ' if ' to ' in range_text else ''}{range_text} times"


def _describe_other_metrics(facts: HeadlineFacts) -> Iterator[str]:
    """Yield the classes in which another metric is called, where the deciding metric is not."""
    words: tuple[CellWord, ...] = ("faster", "slower")
    for metric in _OTHER_METRICS[facts.metric]:
        for word in words:
            cells = [cell for cell in facts.cells if cell.metric == metric and cell.verdict == word]
            if cells:
                names = list(dict.fromkeys(shorten_text(cell.class_) for cell in cells))
                yield f"{format_metric(metric)} alone is {word} in {_join_names(names)}"


def _describe_attainment(facts: HeadlineFacts) -> Iterator[str]:
    """Yield how many requests keep the goodput limits, one sentence a load."""
    baseline, variant = facts.names
    for row in facts.attainment[:MAX_LOADS]:
        place = f" at {format_load(row.load)}" if len(facts.attainment) > 1 else ""
        if row.baseline is None or row.measured is None or row.difference is None:
            yield f"Whether the goodput limits are kept{place} is not known: {row.why}"
            continue
        shares = f"{row.measured:.0%} of requests, {baseline} for {row.baseline:.0%}"
        yield f"{variant} keeps the goodput limits{place} for {shares}: {_describe_points(row)}"


def _describe_points(row: AttainmentVerdict) -> str:
    """Return `12 points fewer (5 to 19)`, or why no difference is called."""
    if row.verdict == "same":
        return f"the same, {row.why}"
    if row.verdict == "no evidence" or row.low is None or row.high is None:
        return row.why
    ends = sorted(abs(100 * end) for end in (row.low, row.high))
    points = abs(100 * (row.difference or 0.0))
    return f"{points:.0f} points {row.verdict} ({ends[0]:.0f} to {ends[1]:.0f})"


def _describe_refusals(facts: HeadlineFacts) -> Iterator[str]:
    """Yield how many answers of each arm the content check refused, if it refused any."""
    if not any(counts.broken for counts in facts.content_counts):
        return
    texts = []
    for counts in facts.content_counts:
        words = [f"{number} {word}" for word, number in counts.broken.most_common()]
        text = f"{counts.broken.total()} of {counts.answer_count} answers of {counts.arm}"
        texts.append(f"{text} ({', '.join(words)})" if words else text)
    yield f"The content check refused {' and '.join(texts)}"
