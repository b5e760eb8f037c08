"""Text of a verdict's figures and names, the same in a terminal and in the report.

Invariant: an absent figure is a dash, never a zero. No content of a record moves a terminal's
cursor or turns the direction of a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

import msgspec

from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records import terminal_text
from tandem.judge.schema import (
    ArmFigures,
    CellVerdict,
    CellWord,
    ClassAcceptance,
    Headline,
    LoadVerdict,
    OutputEquality,
    RatioEstimate,
    TaskQuality,
    VariantFinding,
    Verdict,
)
from tandem.metrics import CATALOGUE, acceptance_position, find_metric

ABSENT = "-"
ALL_PROMPTS = "all prompts"
UNTESTED = "over all prompts; it is not tested, so it has no word"
"""Why a figure over all prompts has no word."""

TIMES = "\u00d7"
SHORT = {
    "e2e_ms": "E2E",
    "tpot_ms": "TPOT",
    "ttft_ms": "TTFT",
    "output_tokens_per_s": "tokens/s",
    "llmperf_inter_token_latency_ms": "llmperf ITL",
}
"""The field's names of the metrics that are judged and drawn."""

_NEXT_STEPS: Mapping[VariantFinding, str] = {
    "faster": "Serve the classes that are faster with {variant}.",
    "slower": "Keep {baseline}.",
    "same": "Use either: speed does not decide between {baseline} and {variant}.",
    "mixed": "Serve each class with the arm that is faster for it.",
    "no evidence": "Fix the issues above and rerun.",
    "not comparable": "Find out why requests fail or answers differ in length, then rerun.",
    "void": "Fix what voided the run, then rerun.",
}
_SPECULATION_STEPS: Mapping[VariantFinding, str] = {
    "slower": "Keep {baseline}; try another draft, or a smaller num_speculative_tokens.",
    "same": (
        "Keep {baseline}, which is simpler; try another draft, or another num_speculative_tokens."
    ),
}
"""Next steps that only fit arms of which the manifest says that they speculate."""

_CLASSLESS_STEPS: Mapping[VariantFinding, str] = {
    "faster": "Serve with {variant}.",
    "mixed": "Find out which requests of {variant} are slow, then rerun.",
}
"""Next steps where no class by itself is faster or slower."""

# tokens a step; a server that joins chunks is a little above 1 without speculation
_LEAST_SPECULATION = 1.05
_COUNTED = ("counters", "steps of the counters")
_RULE_OF_THREE = 3
_HUNDREDTH = 0.01
_TENTHS = 10
_WHOLE = 1000
_LEAST_WHOLE = 9.95  # rounds to 10
# from 1, within which a ratio has another digit
_NEAR_ONE = 0.1
_FINE = 0.2
_THIN_SPACE = " "
clean_text = terminal_text.clean_text
shorten_text = terminal_text.shorten_text


def format_load(load: LoadLevel) -> str:
    """Return the load of a class: its concurrency or its rate."""
    if load.concurrency is not None:
        return f"concurrency {load.concurrency}"
    if load.rate_per_s is None:
        return "load not known"
    return f"{load.rate_per_s:g} requests/s"


def format_short_load(load: LoadLevel) -> str:
    """Return the load of a class for a narrow column."""
    if load.concurrency is not None:
        return f"c{load.concurrency}"
    if load.rate_per_s is None:
        return ABSENT
    return f"{load.rate_per_s:g}/s"


def name_places(
    places: Sequence[tuple[str, LoadLevel]], format_place: Callable[[LoadLevel], str]
) -> list[str]:
    """Return a name of each class at a load, with the load where there are several."""
    has_loads = len({load for _, load in places}) > 1
    return [
        shorten_text(f"{class_}, {format_place(load)}" if has_loads else class_)
        for class_, load in places
    ]


def format_metric(name: str) -> str:
    """Return the field's name of a metric, or the catalogue's where it has none."""
    return SHORT.get(name, clean_text(name))


def metric_unit(name: str) -> str:
    """Return a metric's unit; empty for a plain number and an unknown metric."""
    is_known = name in CATALOGUE or name.startswith(acceptance_position(0)[:-1])
    unit = find_metric(name).unit if is_known else "1"
    return "" if unit == "1" else unit


def format_metric_unit(name: str) -> str:
    """Return the field's name of a metric with its unit."""
    metric = format_metric(name)
    unit = metric_unit(name)
    if unit in {"", metric}:
        return metric
    return f"{metric} {unit}"


def format_number(value: float | None) -> str:
    """Return a figure to three digits; a dash for none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    size = abs(value)
    if size >= _WHOLE:
        return f"{value:,.0f}"
    if size and size < _HUNDREDTH:
        return f"{value:.2g}"
    if size >= _TENTHS:
        return f"{value:.1f}"
    if 0 < size < 1 / _TENTHS:
        return f"{value:.3f}"
    return f"{value:.2f}"


def format_ratio(value: float | None) -> str:
    """Return a speed-up, with more digits near 1, where two would not show the margin's end."""
    is_near_one = value is not None and abs(value - 1) < _NEAR_ONE
    if is_near_one:
        return f"{value:.3f}"
    return format_number(value)


def format_short_ratio(value: float) -> str:
    """Return a ratio with few digits, for a sentence that a manager reads."""
    return f"{value:,.{_count_short_decimals(value)}f}"


def format_short_range(values: Sequence[float]) -> str:
    """Return the range of some ratios with equal digits, `1.18 to 1.30`, or their common value."""
    ends = (min(values), max(values))
    decimals = max(map(_count_short_decimals, ends))
    texts = [f"{end:,.{decimals}f}" for end in ends]
    return " to ".join(dict.fromkeys(texts))


def _count_short_decimals(value: float) -> int:
    if value >= _LEAST_WHOLE:
        return 0
    return 2 if value < 1 or abs(value - 1) < _FINE else 1


def describe_ratio(ratio: RatioEstimate, standard: str = "") -> str:
    """Return a speed-up in words, with its interval: `1.19 times as fast as base (1.15 to 1.23)`.

    Only a ratio of which the whole interval is below 1 is `times slower`.

    Args:
        ratio: of which it is.
        standard: what follows the comparison, as ` as base`.
    """
    value = ratio.value
    ends = []
    if ratio.low is not None and ratio.high is not None:
        ends = [ratio.low, ratio.high]
    words = "as fast"
    if (ratio.high or value) < 1:
        value = 1 / value
        ends = [1 / end for end in ends]
        words = "slower"
    text = f"{format_number(value)} times {words}{standard}"
    if not ends:
        return text
    low, high = map(format_number, sorted(ends))
    return f"{text} ({low} to {high})"


def format_times(value: float | None) -> str:
    """Return a ratio; a dash for none."""
    if value is None:
        return ABSENT
    return f"{format_number(value)}{TIMES}"


def format_speed_up(ratio: RatioEstimate | None) -> str:
    """Return a speed-up without its interval; a dash for none."""
    return format_times(ratio.value if ratio else None)


def format_interval(ratio: RatioEstimate | None) -> str:
    """Return the ends of an interval; a dash where it has none."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return ABSENT
    return f"{format_number(ratio.low)} to {format_number(ratio.high)}"


def format_sentence(text: str) -> str:
    """Return a text as a sentence: its first letter is a capital, and a full stop ends it."""
    return f"{text[:1].upper()}{text[1:]}."


def count_things(count: int, noun: str) -> str:
    """Return a count with its noun: `1 round`, `2 rounds`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"


def format_percent(share: float | None) -> str:
    """Return a share in percent; only an exact 0 or 1 becomes 0 % or 100 %."""
    if share is None or not math.isfinite(share):
        return ABSENT
    text = f"{100 * share:.0f}"
    is_exact = text not in {"0", "100"} or share in {0, 1}
    if is_exact:
        return f"{text}{_THIN_SPACE}%"
    return f"{100 * share:.2f}{_THIN_SPACE}%"


def describe_limits(verdict: Verdict) -> str:
    """Return the limits of --goodput with their units."""
    return ", ".join(
        f"{format_metric(name)} {limit:g} {metric_unit(name)}"
        for name, limit in verdict.goodput.items()
    )


def format_attainment(figures: ArmFigures) -> str:
    """Return how many requests of an arm kept every limit; a dash where that is not known."""
    if figures.within_limits is None:
        return ABSENT
    return f"{figures.within_limits:,} of {figures.requests:,}"


def format_level(verdict: Verdict) -> str:
    """Return the level of every interval."""
    return f"{100 * verdict.level:g} %"


def describe_quality(task: TaskQuality, baseline: str) -> str:
    """Return the shares of right answers and the word's reason in a sentence, and its limits.

    Args:
        task: of a variant.
        baseline: the arm that it is compared with.
    """
    if not task.items:
        return f"{task.why}."
    counts = [
        f"{task.variant_right} of {task.items} right",
        f"{shorten_text(baseline)} {task.baseline_right}",
    ]
    if task.groups < task.items:
        counts.append(f"in {task.groups} groups")
    interval = f"{100 * task.low:+.1f} to {100 * task.high:+.1f}"
    points = f"{100 * task.difference:+.1f} points ({interval})"
    sentences = [f"{', '.join(counts)}: {points}; {task.why}."]
    sentences += map(format_sentence, task.limits)
    return " ".join(sentences)


def describe_next_step(headline: Headline, verdict: Verdict) -> str:
    """Return what to do after a verdict on a variant, in one sentence.

    Args:
        headline: of the variant.
        verdict: that has it.
    """
    variant = shorten_text(headline.variant)
    if headline.finding == "faster" and headline.output == "not the same":
        return f"Find out why the outputs differ before you serve with {variant}."
    if headline.finding == "faster" and headline.output == "not shown":
        return (
            "Show whether the outputs are the same:"
            " rerun with --record token-ids, or report with --tokenizer."
        )
    if headline.finding == "faster" and headline.evidence == "one-start":
        if verdict.controls.has_replicas:
            return (
                "Rerun with the address of one server:"
                " behind one of these addresses there are several."
            )
        return (
            f"Measure 6 starts of each arm before you rely on {variant}: tandem run --starts 6, or"
            " bench run --starts 6 --restart COMMAND."
        )
    step = _NEXT_STEPS[headline.finding]
    if not (headline.faster or headline.slower):
        step = _CLASSLESS_STEPS.get(headline.finding, step)
    if headline.speculates:
        step = _SPECULATION_STEPS.get(headline.finding, step)
    return step.format(variant=variant, baseline=shorten_text(verdict.baseline))


def describe_output(verdict: Verdict, headline: Headline) -> str:
    """Return how many outputs of a variant are the baseline's, in one line.

    Args:
        verdict: of the run.
        headline: of the variant.
    """
    equality = next(
        (entry for entry in verdict.equality if entry.variant == headline.variant), None
    )
    if equality is None:
        return "Output: not compared."
    text = "Output: not compared: no pair of answers has any"
    if equality.identical is not None:
        text = _describe_identical(equality)
    omissions = ((equality.failed_pairs, "one side failed"), (equality.silent_pairs, "no output"))
    parts = [
        f"{count_things(count, 'pair')} not compared ({reason})"
        for count, reason in omissions
        if count
    ]
    return f"{'; '.join([text, *parts])}."


def _describe_identical(equality: OutputEquality) -> str:
    identical = equality.identical
    assert identical is not None
    pairs_text = count_things(identical.of, "pair")
    if identical.n == identical.of:
        return f"Output: identical in {identical.n:,} of {pairs_text}"
    text = f"Output: differs in {identical.of - identical.n:,} of {pairs_text}"
    yardstick = equality.yardstick
    if yardstick is None:
        return f"{text}; the baseline was not compared with itself"
    own_counts = f"{yardstick.of - yardstick.n:,} of {yardstick.of:,}"
    return f"{text}; the baseline differs from itself in {own_counts}"


def describe_rare_requests(headline: Headline) -> str:
    """Return how rare a slow or failing request must be to stay unseen; empty without a request.

    Of an event that n requests never met, the rate may still be 3 / n at 95 % (the rule of three:
    Hanley and Lippman-Hand 1983, JAMA 249, 1743).

    Args:
        headline: of the variant.
    """
    if not headline.requests:
        return ""
    requests_text = (
        f"{count_things(headline.requests, 'request')} of {shorten_text(headline.variant)}"
    )
    rarity = headline.requests // _RULE_OF_THREE
    if rarity < 2:  # noqa: PLR2004 - one in one is every request
        return f"{requests_text}: too few to see slow or failing requests that are not the rule."
    return (
        f"{requests_text}: a slow or failing request rarer than 1 in {rarity:,} may not show here."
    )


def mentions_speculation(verdict: Verdict) -> bool:
    """Return whether the manifest, or a server by its counters, says that an arm speculates."""
    has_counters = any(
        row.acceptance_length is not None and row.method in _COUNTED for row in verdict.acceptance
    )
    return has_counters or bool(verdict.speculating)


def describe_suites(verdict: Verdict) -> str:
    """Return the suites by name; a file with the digest that its experiment declares."""
    names = []
    for suite in verdict.suites:
        digest = f" (SHA-256 {suite.file_sha256})" if suite.file_sha256 else ""
        names.append(f"{shorten_text(suite.name)}{digest}")
    return ", ".join(names)


def list_notes(verdict: Verdict) -> tuple[str, ...]:
    """Return the notes, without those on acceptance where nobody says that an arm speculates."""
    if mentions_speculation(verdict):
        return (*verdict.notes, *_explain_absent_acceptance(verdict))
    return tuple(note for note in verdict.notes if note not in verdict.acceptance_notes)


def _explain_absent_acceptance(verdict: Verdict) -> Iterator[str]:
    """Yield why no acceptance is shown of arms that are said to speculate."""
    shown_arms = {row.arm for row in filter_speculation(verdict)}
    sentences = {row.arm: row.sentence for row in reversed(verdict.acceptance)}
    for arm in verdict.speculating:
        if arm not in shown_arms and sentences.get(arm):
            yield f"no acceptance of {arm} is shown. {sentences[arm]}"


def format_verdict(headline: Headline) -> str:
    """Return a verdict for a terminal, its finding in capitals."""
    finding = headline.finding
    return f"{finding.upper()}{headline.verdict.removeprefix(finding)}"


def filter_speculation(verdict: Verdict) -> tuple[ClassAcceptance, ...]:
    """Return the acceptance to show: figures of arms that speculate, by manifest or by figure.

    Nothing is shown where neither the manifest nor a server's counters say that an arm speculates.
    One token a chunk is no figure: a server that speculates may send each token by itself.
    """
    if not mentions_speculation(verdict):
        return ()
    rows = [row for row in verdict.acceptance if row.acceptance_length is not None]
    arms = {row.arm for row in rows if (row.acceptance_length or 0) > _LEAST_SPECULATION}
    return tuple(
        row
        for row in rows
        if row.arm in arms or (row.arm in verdict.speculating and row.method in _COUNTED)
    )


def select_cells(verdict: Verdict, headline: Headline) -> tuple[CellVerdict, ...]:
    """Return the cells of a variant by its deciding metric."""
    return tuple(
        cell
        for cell in verdict.cells
        if cell.variant == headline.variant and cell.metric == headline.metric
    )


def select_loads(verdict: Verdict, headline: Headline) -> tuple[LoadVerdict, ...]:
    """Return a variant over all prompts, by load."""
    return tuple(load for load in verdict.overall if load.deciding.variant == headline.variant)


def list_overall_cells(
    verdict: Verdict, headline: Headline, metric: str
) -> tuple[CellVerdict, ...]:
    """Return a metric of a variant over all prompts, a cell a load; none if not comparable.

    Args:
        verdict: of the run.
        headline: of the variant; where answers have other lengths, their end-to-end times are not
            compared.
        metric: its name.
    """
    cells = []
    for load in select_loads(verdict, headline):
        deciding = load.deciding
        if metric == deciding.metric:
            if metric == headline.metric:
                cells.append(msgspec.structs.replace(deciding, class_=ALL_PROMPTS))
            continue
        for figure in load.beside:
            if figure.metric == metric:
                cell = CellVerdict(
                    variant=deciding.variant,
                    class_=ALL_PROMPTS,
                    load=deciding.load,
                    metric=metric,
                    prompts=deciding.prompts,
                    rounds=deciding.rounds,
                    baseline=figure.baseline,
                    measured=figure.measured,
                    speed_up=figure.speed_up,
                    verdict="no evidence",
                    why=UNTESTED,
                )
                cells.append(cell)
    return tuple(cells)


def name_word(cell: CellVerdict) -> str:
    """Return the word of a cell; `not tested` for a figure over all prompts that has none."""
    return "not tested" if cell.why == UNTESTED else cell.verdict


def choose_table_cells(
    verdict: Verdict, headline: Headline, limit: int
) -> tuple[tuple[CellVerdict, ...], int]:
    """Return a variant's cells for a table of `limit` rows, deciding metric first, and how many.

    If there are more, return only cells of the deciding metric: those that say most.
    """
    cells = [cell for cell in verdict.cells if cell.variant == headline.variant]
    count = len(cells)
    if count > limit:
        return choose_telling_cells(select_cells(verdict, headline), limit), count
    cells.sort(key=lambda cell: cell.metric != headline.metric)
    return tuple(cells), count


def choose_telling_cells(cells: Iterable[CellVerdict], limit: int) -> tuple[CellVerdict, ...]:
    """Return at most `limit` cells, those that say most, in their order.

    First the cells farthest from 1, as many mixed and slower ones as faster ones; then the same,
    then the undecided.
    """
    all_cells = list(cells)
    if len(all_cells) <= limit:
        return tuple(all_cells)
    distances = [abs(math.log(cell.speed_up.value)) if cell.speed_up else 0.0 for cell in all_cells]
    by_word: dict[CellWord, list[int]] = {
        "mixed": [],
        "slower": [],
        "faster": [],
        "same": [],
        "no evidence": [],
    }
    for place in sorted(range(len(all_cells)), key=lambda place: -distances[place]):
        by_word[all_cells[place].verdict].append(place)
    *differences, same, undecided = by_word.values()
    places = [place for place in chain(*zip_longest(*differences)) if place is not None]
    places += same + undecided
    return tuple(all_cells[place] for place in sorted(places[:limit]))
