"""Text of a verdict's figures and names, the same in a terminal and in the report.

Invariant: an absent figure is a dash, never a zero. No content of a record moves a terminal's cursor or turns the
direction of a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest

from tandem.bench import terminal_text
from tandem.bench.schedule import LoadLevel
from tandem.judge.schema import (
    CellVerdict,
    CellWord,
    ClassAcceptance,
    Headline,
    RatioEstimate,
    TaskQuality,
    VariantFinding,
    Verdict,
)
from tandem.metrics import CATALOGUE, acceptance_position, find_metric

ABSENT = "-"
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
    "slower": "Keep {baseline}; try another draft, or a smaller num_speculative_tokens.",
    "same": "Keep {baseline}, which is simpler; try another draft, or another num_speculative_tokens.",
    "mixed": "Serve each class with the arm that is faster for it.",
    "no evidence": "Measure again with what the limits name.",
    "not comparable": "Find out why requests fail, then measure again.",
    "void": "Do what the reason says, then measure again.",
}
_LEAST_SPECULATION = 1.05  # tokens a step; a server that joins chunks is a little above 1 without speculation
_HUNDREDTH, _TENTHS, _WHOLE = 0.01, 10, 1000
_NEAR_ONE, _FINE = 0.1, 0.2  # from 1, within which a ratio has another digit
_THIN_SPACE = " "
clean_text = terminal_text.clean_text
shorten_text = terminal_text.shorten_name


def format_load(load: LoadLevel) -> str:
    """Return the load of a class: its concurrency or its rate."""
    if load.concurrency is not None:
        return f"concurrency {load.concurrency}"
    return "load not known" if load.rate_per_s is None else f"{load.rate_per_s:g} requests/s"


def format_short_load(load: LoadLevel) -> str:
    """Return the load of a class for a narrow column."""
    if load.concurrency is not None:
        return f"c{load.concurrency}"
    return ABSENT if load.rate_per_s is None else f"{load.rate_per_s:g}/s"


def name_places(places: Sequence[tuple[str, LoadLevel]], format_place: Callable[[LoadLevel], str]) -> list[str]:
    """Return a name of each class at a load: with its load, as `format_place` writes it, where there are several."""
    has_loads = len({load for _, load in places}) > 1
    return [shorten_text(f"{class_}, {format_place(load)}" if has_loads else class_) for class_, load in places]


def format_metric(name: str) -> str:
    """Return the field's name of a metric, or the catalogue's where it has none."""
    return SHORT.get(name, clean_text(name))


def metric_unit(name: str) -> str:
    """Return a metric's unit; empty for a plain number and for a metric that is not in the catalogue."""
    is_known = name in CATALOGUE or name.startswith(acceptance_position(0)[:-1])
    unit = find_metric(name).unit if is_known else "1"
    return "" if unit == "1" else unit


def format_number(value: float | None) -> str:
    """Return a figure to three digits; a dash for none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    size = abs(value)
    if size >= _WHOLE:
        return f"{value:,.0f}"
    if size and size < _HUNDREDTH:
        return f"{value:.2g}"
    decimals = 1 if size >= _TENTHS else 2 if size >= 1 / _TENTHS or not size else 3
    return f"{value:.{decimals}f}"


def format_ratio(value: float | None) -> str:
    """Return a speed-up; with more digits near 1, where two could not separate it from a margin's end."""
    is_near_one = value is not None and abs(value - 1) < _NEAR_ONE
    return f"{value:.3f}" if is_near_one else format_number(value)


def format_short_ratio(value: float) -> str:
    """Return a ratio with few digits, for a sentence that a manager reads."""
    if value >= _TENTHS:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 1 or abs(value - 1) < _FINE else f"{value:.1f}"


def format_times(value: float | None) -> str:
    """Return a ratio; a dash for none."""
    return ABSENT if value is None else f"{format_number(value)}{TIMES}"


def format_interval(ratio: RatioEstimate | None) -> str:
    """Return the ends of an interval; a dash where it has none."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return ABSENT
    return f"{format_number(ratio.low)} to {format_number(ratio.high)}"


def count_things(count: int, noun: str) -> str:
    """Return a count with its noun: `1 round`, `2 rounds`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_percent(share: float | None) -> str:
    """Return a share in percent; only an exact 0 or 1 becomes 0 % or 100 %."""
    if share is None or not math.isfinite(share):
        return ABSENT
    text = f"{100 * share:.0f}"
    is_exact = text not in {"0", "100"} or share in {0, 1}
    return f"{text}{_THIN_SPACE}%" if is_exact else f"{100 * share:.2f}{_THIN_SPACE}%"


def format_level(verdict: Verdict) -> str:
    """Return the level of every interval."""
    return f"{100 * verdict.level:g} %"


def describe_quality(task: TaskQuality, baseline: str) -> str:
    """Return the shares of right answers and the reason of the word, in one sentence.

    Args:
        task: of a variant.
        baseline: the arm that it is compared with.
    """
    if not task.items:
        return f"{task.why}."
    shares = f"{task.variant_right} of {task.items} right, {shorten_text(baseline)} {task.baseline_right}"
    points = f"{100 * task.difference:+.1f} points ({100 * task.low:+.1f} to {100 * task.high:+.1f})"
    return f"{shares}: {points}; {task.why}."


def describe_next_step(headline: Headline, baseline: str) -> str:
    """Return what to do after a verdict on a variant, in one sentence.

    Args:
        headline: of the variant.
        baseline: the arm that it is compared with.
    """
    variant = shorten_text(headline.variant)
    if headline.finding == "faster" and headline.output == "not the same":
        return f"Find out why the outputs differ before you serve with {variant}."
    if headline.finding == "faster" and headline.output == "not shown":
        return (
            "Show whether the outputs are the same: measure again with --record token-ids, or report with --tokenizer."
        )
    if headline.finding == "faster" and headline.evidence == "one-start":
        return (
            f"Measure 6 starts of each arm before you rely on {variant}: tandem run --starts 6; or, five times, "
            "interrupt bench run, restart both servers and give --resume."
        )
    return _NEXT_STEPS[headline.finding].format(variant=variant, baseline=shorten_text(baseline))


def filter_speculation(rows: Sequence[ClassAcceptance]) -> tuple[ClassAcceptance, ...]:
    """Return the acceptance to show: of arms with more than one token a step in any class."""
    arms = {row.arm for row in rows if row.acceptance_length is not None and row.acceptance_length > _LEAST_SPECULATION}
    return tuple(row for row in rows if row.arm in arms and row.acceptance_length is not None)


def select_cells(verdict: Verdict, headline: Headline) -> tuple[CellVerdict, ...]:
    """Return the cells of a variant by its deciding metric."""
    return tuple(cell for cell in verdict.cells if cell.variant == headline.variant and cell.metric == headline.metric)


def choose_table_cells(verdict: Verdict, headline: Headline, limit: int) -> tuple[tuple[CellVerdict, ...], int]:
    """Return the cells of a variant for a table of `limit` rows, the deciding metric first, and how many it has.

    If there are more, return only cells of the deciding metric: those that say most.
    """
    cells = tuple(cell for cell in verdict.cells if cell.variant == headline.variant)
    if len(cells) > limit:
        return choose_telling_cells(select_cells(verdict, headline), limit), len(cells)
    return tuple(sorted(cells, key=lambda cell: cell.metric != headline.metric)), len(cells)


def choose_telling_cells(cells: Iterable[CellVerdict], limit: int) -> tuple[CellVerdict, ...]:
    """Return at most `limit` cells, those that say most, in their order.

    First the cells farthest from 1, as many mixed and slower ones as faster ones; then the same, then the undecided.
    """
    all_cells = list(cells)
    if len(all_cells) <= limit:
        return tuple(all_cells)
    distances = [abs(math.log(cell.speed_up.value)) if cell.speed_up else 0.0 for cell in all_cells]
    by_word: dict[CellWord, list[int]] = {"mixed": [], "slower": [], "faster": [], "same": [], "no evidence": []}
    for place in sorted(range(len(all_cells)), key=lambda place: -distances[place]):
        by_word[all_cells[place].verdict].append(place)
    *differences, same, undecided = by_word.values()
    places = [place for trio in zip_longest(*differences) for place in trio if place is not None]
    return tuple(all_cells[place] for place in sorted([*places, *same, *undecided][:limit]))
