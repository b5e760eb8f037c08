"""A verdict for a terminal of 100 columns.

Invariant: what decides comes first, and before it that servers are simulated; no line is wider than 100 columns,
whatever names the records hold; what is left out is counted, and verdict.json has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.terminal_text import wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.schema import FILE, Headline, Verdict

WIDTH = 100
MOST_ROWS = 48
"""Of a table: a screen and a half."""


def format_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    flexible: int = 0,
    folds: bool = False,
) -> list[str]:
    """Return the lines of a table of at most WIDTH columns.

    Args:
        heads: of the columns; none prints the rows alone.
        rows: cells of each.
        numbers: columns that are figures and stand on the right.
        flexible: the column that gives way where the table is too wide: it is folded, or cut with an ellipsis.
        folds: whether it is folded.
    """
    cells = [list(map(fmt.clean_text, row)) for row in [*([heads] if heads else []), *rows]]
    columns = [
        Column(no_wrap=place != flexible, justify="right" if place in numbers else "left")
        for place in range(max(map(len, cells), default=0))
    ]
    table = Table(*columns, box=None, show_header=False, pad_edge=False)
    for row in cells:
        table.add_row(*(Text(cell, no_wrap=not folds, overflow="fold" if folds else "ellipsis") for cell in row))
    console = Console(width=WIDTH, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def render_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict: the headline of each variant, its cells, then what stands behind them."""
    if verdict.simulated:
        yield SIMULATED_BAND
    if verdict.controls.void:
        yield "VOID: this run does not support a verdict"
        yield from _list_items(verdict.controls.void)
    for headline in verdict.headlines:
        names = " against ".join(fmt.shorten_text(name, 30) for name in (headline.variant, verdict.baseline))
        yield from _wrap_text(f"{names}: {headline.verdict.upper()}")
        yield from _wrap_text(headline.sentence)
        yield from _list_items(headline.reasons)
    for headline in verdict.headlines:
        yield from _render_cells(headline, verdict)
    yield from _render_controls(verdict)
    for equality in verdict.equality:
        yield from _wrap_text(f"output of {fmt.shorten_text(equality.variant, 60)}: {equality.result}")
        yield from _wrap_text(equality.sentence)
        yield ""
    yield from _render_acceptance(verdict)
    yield from _render_cost(verdict)
    yield from _render_claims(verdict)
    for note in verdict.notes:
        yield from _wrap_text(f"note: {note}", "      ")


def _wrap_text(text: str, indent: str = "") -> list[str]:
    return wrap_text(text, WIDTH, indent=indent)


def _list_items(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from _wrap_text(f"- {sentence}", "  ")
    yield ""


def _render_cells(headline: Headline, verdict: Verdict) -> Iterator[str]:
    cells, cell_count = fmt.choose_table_cells(verdict, headline, MOST_ROWS)
    if not cells:
        return
    rows = []
    for cell in cells:
        metric = f"{fmt.format_metric(cell.metric)} {fmt.metric_unit(cell.metric).removesuffix('tokens/s')}"
        figures = [*map(fmt.format_number, (cell.baseline, cell.measured))]
        figures += [
            fmt.format_times(cell.speed_up.value if cell.speed_up else None),
            fmt.format_interval(cell.speed_up),
        ]
        rows.append([cell.class_, fmt.format_short_load(cell.load), metric, *figures, cell.verdict])
    if len(verdict.headlines) > 1:
        yield from _wrap_text(f"{headline.variant}:")
    interval = f"{fmt.format_level(verdict)} interval"
    heads = ["class", "load", "metric", "baseline", "variant", "speed-up", interval, "verdict"]
    yield from format_table(heads, rows, numbers=range(3, 7))
    yield from _count_omitted(cell_count, len(rows), "cells")
    yield ""


def _count_omitted(count: int, limit: int, noun: str) -> Iterator[str]:
    if count > limit:
        yield f"… {count - limit:,} more {noun}: {FILE}"


def _render_controls(verdict: Verdict) -> Iterator[str]:
    controls = verdict.controls
    rows: list[tuple[str, str]] = [(check.result, f"{check.name}: {check.sentence}") for check in controls.checks]
    rows += [("left out", f"round {marked.round}: {marked.sentence}") for marked in controls.marked[:MOST_ROWS]]
    if rows:
        yield "controls"
        yield from format_table((), rows, flexible=1, folds=True)
        yield from _count_omitted(len(controls.marked), MOST_ROWS, "rounds are left out")
        yield ""


def _render_acceptance(verdict: Verdict) -> Iterator[str]:
    rows = fmt.filter_speculation(verdict.acceptance)
    if not rows:
        for sentence in [row.sentence for row in verdict.acceptance if row.sentence][:1]:
            yield from _wrap_text(f"acceptance: {sentence}")
        return
    heads = ["acceptance: class", "arm", "tokens/step", "steps/token", "from"]
    cells = []
    for row in rows[:MOST_ROWS]:
        figures = map(fmt.format_number, (row.acceptance_length, row.target_steps_per_token))
        cells.append([row.class_, fmt.shorten_text(row.arm, 20), *figures, row.method])
    yield from format_table(heads, cells, numbers=(2, 3))
    yield from _count_omitted(len(rows), MOST_ROWS, "rows")
    yield ""


def _render_cost(verdict: Verdict) -> Iterator[str]:
    rows = [row for row in verdict.cost if row.usd_per_million_good_tokens is not None]
    for row in rows:
        usd = f"{row.usd_per_million_good_tokens:,.2f} USD per million good output tokens"
        yield from _wrap_text(f"cost of {fmt.shorten_text(row.arm, 40)} at {fmt.format_load(row.load)}: {usd}")
    if verdict.cost and not rows:
        yield from _wrap_text(f"cost: {verdict.cost[0].sentence}")
    if verdict.cost:
        yield ""


def _render_claims(verdict: Verdict) -> Iterator[str]:
    if verdict.claims_unasked:
        yield from _wrap_text(verdict.claims_unasked)
        yield ""
    if not verdict.claims:
        return
    yield f"the post's claims (why: {FILE} and the report)"
    rows = [(claim.claim, claim.answer, claim.text, ", ".join(claim.against)) for claim in verdict.claims]
    yield from format_table(("claim", "answer", "", "against"), rows, flexible=2)
    yield ""
