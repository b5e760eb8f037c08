"""A verdict for a terminal: answer, servers, a table and its limits; verbose adds details.

Invariant: the deciding metric comes first, and before it the note on simulated servers; the row of
all prompts comes before those of the classes; no line is wider than `width`, for any name in the
records; omitted rows are counted, and verdict.json has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.compare.schema import ComparisonRow
from tandem.judge.schema import (
    FILE,
    ArmFigures,
    CellVerdict,
    Headline,
    RoutingSaving,
    Verdict,
)

MOST_ROWS = 48
"""Most rows of a table: a screen and a half."""

MOST_LIMITS = 5
"""Most limits next to a verdict, unless verbose."""

MARKS = {"faster": "+", "slower": "-", "same": "=", "mixed": "~", "no evidence": ""}
MARKS_LEGEND = "beside TPOT and TTFT: + faster, - slower, = same, ~ mixed, nothing: no evidence"
_TPOT_MARKS_LEGEND = MARKS_LEGEND.replace("beside TPOT and TTFT", "TTFT and tokens/s")
_PARTS: Mapping[str, tuple[str, str]] = {
    "e2e_ms": ("tpot_ms", "ttft_ms"),
    "tpot_ms": ("ttft_ms", "output_tokens_per_s"),
}
"""Metrics beside a deciding one. End-to-end times are not shown where answers have other
lengths."""

_OVERALL_METRICS = ("e2e_ms", "tpot_ms", "ttft_ms", "output_tokens_per_s")


def render_lines(verdict: Verdict, *, width: int = WIDTH, verbose: bool = False) -> Iterator[str]:
    """Yield the verdict: headlines, a table, the limits; if verbose, the details too.

    Args:
        verdict: of a run.
        width: of a line, in columns.
        verbose: whether to add every metric, controls, outputs, acceptance, cost, routing and
            notes.
    """
    for line in _render_verdict(verdict, width, verbose=verbose):
        yield from wrap_text(line, width, indent="  ") or [""]


def _render_verdict(verdict: Verdict, width: int, *, verbose: bool) -> Iterator[str]:
    if verdict.simulated:
        yield SIMULATED_BAND
    if verdict.controls.void:
        yield "VOID: this run does not support a verdict"
        yield from _list_items(verdict.controls.void)
    baseline = fmt.shorten_text(verdict.baseline, 30)
    for headline in verdict.headlines:
        variant = fmt.shorten_text(headline.variant, 30)
        yield f"{variant} against {baseline}: {fmt.format_verdict(headline)}"
        yield headline.sentence
        yield fmt.describe_output(verdict, headline)
        if headline.requests:
            yield fmt.describe_rare_requests(headline)
        yield ""
    yield from _render_arms(verdict, width)
    for headline in verdict.headlines:
        if len(verdict.headlines) > 1:
            yield f"{headline.variant}:"
        render_cells = _render_all_cells if verbose else _render_cells
        yield from render_cells(headline, verdict, width)
    yield from _render_limits(verdict, verbose=verbose)
    for headline in verdict.headlines:
        yield f"next: {fmt.describe_next_step(headline, verdict)}"
    if verbose:
        yield ""
        yield from _render_controls(verdict, width)
        yield from _render_outputs(verdict)
        yield from _render_acceptance(verdict, width)
        yield from _render_cost(verdict)
        yield from _render_routing(verdict, width)
        for note in fmt.list_notes(verdict):
            yield f"note: {note}"


def _render_limits(verdict: Verdict, *, verbose: bool) -> Iterator[str]:
    """Yield what limits the verdicts, each once; MOST_LIMITS of them unless verbose."""
    limits: dict[str, None] = {}
    for headline in verdict.headlines:
        limits |= dict.fromkeys(headline.reasons)
    if not limits:
        return
    shown_limits = list(limits)
    if len(limits) > MOST_LIMITS and not verbose:
        shown_limits = shown_limits[:MOST_LIMITS]
        shown_limits.append(f"and {len(limits) - MOST_LIMITS} more")
    yield "limits"
    yield from _list_items(shown_limits)


def _list_items(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield f"- {sentence}"
    yield ""


def _render_arms(verdict: Verdict, width: int) -> Iterator[str]:
    """Yield the address of each arm and what was asked, then absolute figures at each load."""
    if not verdict.arms:
        return
    addresses = {figures.arm: figures.url for figures in verdict.arms}
    rows = list(addresses.items())
    if verdict.suites:
        rows.append(("suites", fmt.describe_suites(verdict)))
    yield from format_table((), rows, flexible=(1,), folds=True, width=width)
    heads = ["load", "arm", "requests/s", "TTFT p50", "p99 ms", "TPOT p50", "p99 ms"]
    if verdict.goodput:
        heads.append("in limits")
    figure_rows = [
        _format_arm(figures, has_limits=bool(verdict.goodput)) for figures in verdict.arms
    ]
    yield from format_table(
        heads, figure_rows[:MOST_ROWS], numbers=range(2, len(heads)), flexible=(1,), width=width
    )
    yield from _count_omitted(len(figure_rows), MOST_ROWS, "rows")
    if verdict.goodput:
        yield f"in limits: requests within every --goodput limit ({fmt.describe_limits(verdict)})"
    yield ""


def _format_arm(figures: ArmFigures, *, has_limits: bool) -> list[str]:
    values = (
        figures.requests_per_s,
        figures.ttft_p50_ms,
        figures.ttft_p99_ms,
        figures.tpot_p50_ms,
        figures.tpot_p99_ms,
    )
    row = [
        fmt.format_short_load(figures.load),
        fmt.shorten_text(figures.arm, 30),
        *map(fmt.format_number, values),
    ]
    if has_limits:
        row.append(fmt.format_attainment(figures))
    return row


def _render_cells(headline: Headline, verdict: Verdict, width: int) -> Iterator[str]:
    """Yield all prompts of each load by every metric, then the classes by three metrics.

    The other metrics of all prompts are not tested, so they have intervals and no word.
    """
    all_cells = fmt.select_cells(verdict, headline)
    if not all_cells:
        return
    own_cells = fmt.choose_telling_cells(all_cells, MOST_ROWS)
    parts = _PARTS[headline.metric]
    has_loads = len({cell.load for cell in all_cells}) > 1
    rows = list(_format_overall_rows(verdict, headline, parts, has_loads=has_loads))
    by_place = {(cell.variant, cell.class_, cell.load, cell.metric): cell for cell in verdict.cells}
    for cell in own_cells:
        place = (cell.variant, cell.class_, cell.load)
        marks = [format_mark(by_place.get((*place, metric))) for metric in parts]
        name = _name_row(cell.class_, cell.load, has_loads=has_loads)
        rows.append([name, *_format_speed_up(cell), cell.verdict, *marks])
    heads = ["class", "base", "variant", "speed-up", fmt.format_level(verdict)]
    heads.append(f"by {fmt.format_metric_unit(headline.metric)}")
    heads += [fmt.format_metric(metric) for metric in parts]
    yield from format_table(heads, rows, numbers=(1, 2, 3, 4, 6, 7), width=width)
    yield MARKS_LEGEND if parts == _PARTS["e2e_ms"] else _TPOT_MARKS_LEGEND
    yield from _count_omitted(len(all_cells), len(own_cells), "cells")
    yield ""


def _name_row(class_: str, load: LoadLevel, *, has_loads: bool) -> str:
    """Return the name of a row: its load comes first, so that a narrow column does not cut it."""
    return fmt.shorten_text(f"{fmt.format_short_load(load)} {class_}" if has_loads else class_)


def _format_overall_rows(
    verdict: Verdict, headline: Headline, parts: Sequence[str], *, has_loads: bool
) -> Iterator[list[str]]:
    """Yield the row of all prompts of each load, each followed by a row for each further metric."""
    cells = {}
    for metric in (headline.metric, *_OVERALL_METRICS):
        overall_cells = fmt.list_overall_cells(verdict, headline, metric)
        cells[metric] = {cell.load: cell for cell in overall_cells}
    for load, cell in cells.pop(headline.metric).items():
        marks = []
        for metric in parts:
            part_cell = cells[metric].get(load)
            speed_up = part_cell.speed_up if part_cell else None
            marks.append(f"{fmt.format_times(speed_up.value)} " if speed_up else fmt.ABSENT)
        name = _name_row(fmt.ALL_PROMPTS, load, has_loads=has_loads)
        yield [name, *_format_speed_up(cell), fmt.name_word(cell), *marks]
        for metric, others in cells.items():
            if load in others:
                name = f"  {fmt.format_metric_unit(metric)}"
                yield [name, *_format_speed_up(others[load]), "", "", ""]


def _format_speed_up(cell: CellVerdict) -> list[str]:
    """Return both medians, the speed-up and its interval."""
    return [
        fmt.format_number(cell.baseline),
        fmt.format_number(cell.measured),
        fmt.format_speed_up(cell.speed_up),
        fmt.format_interval(cell.speed_up).replace(" to ", "\u2013"),
    ]


def _render_all_cells(headline: Headline, verdict: Verdict, width: int) -> Iterator[str]:
    cells, cell_count = fmt.choose_table_cells(verdict, headline, MOST_ROWS)
    if not cells:
        return
    all_cells: list[CellVerdict] = []
    for metric in _OVERALL_METRICS:
        all_cells += fmt.list_overall_cells(verdict, headline, metric)
    rows = []
    for cell in (*all_cells, *cells):
        unit = fmt.metric_unit(cell.metric).removesuffix("tokens/s")
        place = [cell.class_, fmt.format_short_load(cell.load)]
        metric_name = f"{fmt.format_metric(cell.metric)} {unit}"
        rows.append([*place, metric_name, *_format_speed_up(cell), fmt.name_word(cell)])
    figures = ["base", "variant", "speed-up", fmt.format_level(verdict)]
    heads = ["class", "load", "metric", *figures, "verdict"]
    yield from format_table(heads, rows, numbers=range(3, 7), width=width)
    yield from _count_omitted(cell_count, len(cells), "cells")
    yield ""


def _render_outputs(verdict: Verdict) -> Iterator[str]:
    for equality in verdict.equality:
        yield f"output of {fmt.shorten_text(equality.variant, 60)}: {equality.result}"
        yield equality.sentence
        yield ""
    for task in verdict.quality:
        variant = fmt.shorten_text(task.variant, 60)
        yield f"quality of {variant} on {fmt.shorten_text(task.task, 60)}: {task.word}"
        yield fmt.describe_quality(task, verdict.baseline)
        yield ""


def _render_controls(verdict: Verdict, width: int) -> Iterator[str]:
    controls = verdict.controls
    rows: list[tuple[str, str]] = [
        (check.result, f"{check.name}: {check.sentence}") for check in controls.checks
    ]
    rows += [
        ("left out", f"round {marked.round}: {marked.sentence}")
        for marked in controls.marked[:MOST_ROWS]
    ]
    if rows:
        yield "controls"
        yield from format_table((), rows, flexible=(1,), folds=True, width=width)
        yield from _count_omitted(len(controls.marked), MOST_ROWS, "rounds are left out")
        yield ""


def _render_acceptance(verdict: Verdict, width: int) -> Iterator[str]:
    rows = fmt.filter_speculation(verdict)
    if not rows:
        return
    heads = ["acceptance: class", "arm", "tokens/step", "steps/token", "from"]
    cells = []
    for row in rows[:MOST_ROWS]:
        length = fmt.format_number(row.acceptance_length)
        steps = fmt.format_number(row.target_steps_per_token)
        cells.append([row.class_, fmt.shorten_text(row.arm, 20), length, steps, row.method])
    yield from format_table(heads, cells, numbers=(2, 3), width=width)
    yield from _count_omitted(len(rows), MOST_ROWS, "rows")
    yield ""


def _render_cost(verdict: Verdict) -> Iterator[str]:
    rows = [row for row in verdict.cost if row.usd_per_million_good_tokens is not None]
    for row in rows:
        usd = f"{row.usd_per_million_good_tokens:,.2f} USD per million good output tokens"
        yield f"cost of {fmt.shorten_text(row.arm, 40)} at {fmt.format_load(row.load)}: {usd}"
    if verdict.cost and not rows:
        yield f"cost: {verdict.cost[0].sentence}"
    if verdict.cost:
        yield ""


def _render_routing(verdict: Verdict, width: int) -> Iterator[str]:
    for row in verdict.routing:
        baseline = fmt.shorten_text(verdict.baseline, 40)
        variant = fmt.shorten_text(row.variant, 40)
        yield f"routing between {baseline} and {variant} at {fmt.format_load(row.load)}"
        classes_by_arm: dict[str, list[str]] = {}
        for route in row.routes:
            classes_by_arm.setdefault(route.arm, []).append(route.class_)
        for arm, classes in classes_by_arm.items():
            yield f"  {fmt.shorten_text(arm, 40)}: {', '.join(classes)}"
        level = fmt.format_level(verdict)
        heads = ["against", "mean", level, "p90", level, "USD/1,000", "routing"]
        rows = map(_format_saving, row.savings)
        yield from format_table(heads, rows, numbers=range(1, 6), width=width)
        if row.why:
            yield f"no saving is judged: {row.why}"
        elif any(saving.evidence == "one-start" for saving in row.savings):
            yield "Differences between server starts are not covered"
        yield ""


def _format_saving(saving: RoutingSaving) -> list[str]:
    usd = saving.usd_per_1000_requests
    return [
        f"all on {fmt.shorten_text(saving.against, 30)}",
        fmt.format_speed_up(saving.mean),
        fmt.format_interval(saving.mean),
        fmt.format_speed_up(saving.p90),
        fmt.format_interval(saving.p90),
        fmt.ABSENT if usd is None else f"{usd:.4f}",
        saving.word,
    ]


def _count_omitted(count: int, limit: int, noun: str) -> Iterator[str]:
    if count > limit:
        yield f"… {count - limit:,} more {noun}: {FILE}"


def format_mark(cell: CellVerdict | ComparisonRow | None) -> str:
    """Return a speed-up with the sign of its verdict; a dash for none."""
    if cell is None or cell.speed_up is None:
        return fmt.ABSENT
    return f"{fmt.format_speed_up(cell.speed_up)}{MARKS[cell.verdict]:<1}"
