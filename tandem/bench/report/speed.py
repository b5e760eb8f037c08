"""The section on speed: the forest plots of every variant, and every judged figure as a table.

Invariant: the table has the deciding metric first; so many rows that they can be read, the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Headline, Verdict
from tandem.bench.report import forest
from tandem.bench.report.drawing import Chart
from tandem.bench.report.markup import Html, folded, tag
from tandem.bench.report.section import Section

MOST_ROWS = 160
MOST_VARIANTS = 6


def section(verdict: Verdict) -> Section:
    """Return the section."""
    parts = [
        part for place, each in enumerate(verdict.headlines[:MOST_VARIANTS]) for part in _variant(verdict, each, place)
    ]
    if len(verdict.headlines) > MOST_VARIANTS:
        left = len(verdict.headlines) - MOST_VARIANTS
        parts.append(tag("p", f"{left:,} more variants are in {FILE}.", class_="says"))
    if not verdict.cells:
        parts.append(tag("p", "No figure could be judged: no prompt was answered by both arms.", class_="says"))
    return Section(name="speed", short="Speed-up", title="Speed-up per class", parts=tuple(parts))


def _variant(verdict: Verdict, headline: Headline, place: int) -> Iterator[Html | Chart]:
    yield from forest.plots(verdict, headline, place)
    every = [cell for cell in verdict.cells if cell.variant == headline.variant]
    if not every:
        return
    ordered = sorted(every, key=lambda cell: cell.metric != headline.metric)
    deciding = words.most_telling(words.cells_of(verdict, headline), MOST_ROWS)
    shown = ordered if len(ordered) <= MOST_ROWS else [*deciding, *(
        cell for cell in ordered if cell.metric != headline.metric
    )][:MOST_ROWS]  # fmt: skip
    left = (
        f"{len(shown):,} of {len(every):,} cells, those that say most; all are in {FILE}."
        if len(shown) < len(every)
        else ""
    )
    yield tag(
        "div",
        folded(
            f"Every judged figure of {headline.variant}",
            tag("p", left, class_="says") if left else None,
            forest.all_table(f"Every judged figure of {headline.variant}", shown, verdict),
        ),
        class_="card",
    )
