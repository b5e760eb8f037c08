"""How a verdict's figures and names are written, the same in a terminal and in the report.

Invariant: a figure that is absent is a dash, never a zero; nothing that a record can hold moves a terminal's cursor or
turns the direction of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from tandem.bench import shown
from tandem.bench.judge.form import Acceptance, Cell, Headline, Load, Ratio, Verdict, Word
from tandem.metrics import CATALOGUE, acceptance_position, metric

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

_SPECULATES = 1.05  # tokens a step; a server that joins chunks is a little above 1 without speculation
_HUNDREDTH, _TENTHS, _WHOLE = 0.01, 10, 1000
_THIN = " "
clean = shown.clean
short = shown.short


def load(asked: Load) -> str:
    """Return how hard a class was asked."""
    if asked.concurrency is not None:
        return f"concurrency {asked.concurrency}"
    return "load not known" if asked.rate_per_s is None else f"{asked.rate_per_s:g} requests/s"


def short_load(asked: Load) -> str:
    """Return the same for a narrow column."""
    if asked.concurrency is not None:
        return f"c{asked.concurrency}"
    return ABSENT if asked.rate_per_s is None else f"{asked.rate_per_s:g}/s"


def short_metric(name: str) -> str:
    """Return the field's name of a metric, or the catalogue's where it has none."""
    return SHORT.get(name, clean(name))


def unit(name: str) -> str:
    """Return a metric's unit; empty for a plain number and for what is not in the catalogue."""
    known = name in CATALOGUE or name.startswith(acceptance_position(0)[:-1])
    found = metric(name).unit if known else "1"
    return "" if found == "1" else found


def number(value: float | None) -> str:
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


def times(value: float | None) -> str:
    """Return a ratio; a dash for none."""
    return ABSENT if value is None else f"{number(value)}{TIMES}"


def interval(ratio: Ratio | None) -> str:
    """Return the ends of an interval; a dash where it has none."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return ABSENT
    return f"{number(ratio.low)} to {number(ratio.high)}"


def percent(share: float | None) -> str:
    """Return a share in percent; never rounded to 0 % or 100 % where it is not that."""
    if share is None or not math.isfinite(share):
        return ABSENT
    rounded = f"{100 * share:.0f}"
    exact = rounded not in {"0", "100"} or share in {0, 1}
    return f"{rounded}{_THIN}%" if exact else f"{100 * share:.2f}{_THIN}%"


def level(verdict: Verdict) -> str:
    """Return the level of every interval."""
    return f"{100 * verdict.level:g} %"


def speculating(rows: Sequence[Acceptance]) -> tuple[Acceptance, ...]:
    """Return the acceptance that is told: of arms of which any class has more than one token a step."""
    arms = {row.arm for row in rows if row.acceptance_length is not None and row.acceptance_length > _SPECULATES}
    return tuple(row for row in rows if row.arm in arms and row.acceptance_length is not None)


def cells_of(verdict: Verdict, headline: Headline) -> tuple[Cell, ...]:
    """Return the cells of a variant by its deciding metric."""
    return tuple(cell for cell in verdict.cells if cell.variant == headline.variant and cell.metric == headline.metric)


def most_telling(cells: Iterable[Cell], most: int) -> tuple[Cell, ...]:
    """Return the cells that say most where there are too many, in their order.

    Those farthest from 1, as many mixed and slower ones as faster ones; then `same`, then the undecided.
    """
    every = list(cells)
    if len(every) <= most:
        return tuple(every)
    by_word: dict[Word, list[int]] = {"slower": [], "faster": [], "mixed": [], "same": [], "no evidence": []}
    for place, cell in enumerate(every):
        by_word[cell.verdict].append(place)
    slower, faster, mixed, same, undecided = (
        sorted(there, key=lambda at: -_far(every[at])) for there in by_word.values()
    )
    called = [place for pair in zip_longest(mixed, slower, faster) for place in pair if place is not None]
    return tuple(every[place] for place in sorted([*called, *same, *undecided][:most]))


def _far(cell: Cell) -> float:
    """Return how far from 1 a speed-up is."""
    value = cell.speed_up.value if cell.speed_up is not None else 1.0
    return abs(math.log(value)) if value > 0 and math.isfinite(value) else 0.0
