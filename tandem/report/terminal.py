"""A verdict for a terminal of 100 columns.

Invariant: what decides comes first, and before it that servers are simulated; no line is wider than 100 columns,
whatever names the records hold; what is left out is counted, and verdict.json has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.terminal_text import fit_width, wrap_text
from tandem.judge import text_format
from tandem.judge.schema import (
    FILE,
    CellVerdict,
    CellWord,
    Headline,
    OutputEquality,
    ShareEstimate,
    Verdict,
)
from tandem.judge.text_format import filter_speculation
from tandem.judge.verdict_reason import describe_sample_sizes

WIDTH = 100
MOST_ROWS = 48
"""Of a table: a screen and a half."""

MOST_LINES = 6
"""Of what is said line by line, such as cells that more prompts would decide."""

_COLUMNS = (("load", 7), ("metric", 11), ("baseline", 8), ("variant", 8), ("speed-up", 8), ("interval", 14))
_UNITS = {"ms": "ms", "tokens": "tokens"}  # tokens/s says it by its name
_VERDICT = 11  # no evidence
_NAME = WIDTH - _VERDICT - 1 - sum(width + 1 for _, width in _COLUMNS)
_ARM = 18
_RESULT = 8  # caution
_CLAIM = 4
_ANSWER = 15  # not comparable


def render_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict: the headline of each variant, its cells, then what stands behind them."""
    if verdict.simulated:
        yield SIMULATED_BAND
    yield from _render_void(verdict)
    for headline in verdict.headlines:
        yield from _render_headline(headline, verdict)
        yield ""
    if not verdict.headlines and not verdict.controls.void:
        yield from _wrap_text(f"no verdict: no variant was measured against {verdict.baseline}")
        yield ""
    for headline in verdict.headlines:
        yield from _render_cells(headline, verdict)
    yield from _render_controls(verdict)
    for equality in verdict.equality:
        yield from _render_equality(equality)
    yield from _render_acceptance(verdict)
    yield from _render_cost(verdict)
    yield from _render_claims(verdict)
    for note in verdict.notes:
        yield from _wrap_text(f"note: {note}", "      ")


def _render_void(verdict: Verdict) -> Iterator[str]:
    if verdict.controls.void:
        yield "VOID: this run does not support a verdict"
        for reason in verdict.controls.void:
            yield from _wrap_text(f"- {reason}", "  ")
        yield ""


def _render_headline(headline: Headline, verdict: Verdict) -> Iterator[str]:
    names = f"{fit_width(headline.variant, 30).rstrip()} against {fit_width(verdict.baseline, 30).rstrip()}"
    yield from _wrap_text(f"{names}: {headline.verdict.upper()}", "  ")
    yield from _wrap_text(headline.sentence)
    for reason in headline.reasons:
        yield from _wrap_text(f"- {reason}", "  ")


def _render_cells(headline: Headline, verdict: Verdict) -> Iterator[str]:
    all_cells = [cell for cell in verdict.cells if cell.variant == headline.variant]
    if not all_cells:
        return
    candidates = all_cells if len(all_cells) <= MOST_ROWS else text_format.select_cells(verdict, headline) or all_cells
    rows = text_format.choose_telling_cells(candidates, MOST_ROWS)
    if len(verdict.headlines) > 1:
        yield f"{fit_width(headline.variant, WIDTH - 1).rstrip()}:"
    headings = [fit_width("class", _NAME), *(_format_heading(name, width, verdict) for name, width in _COLUMNS)]
    yield " ".join([*headings, "verdict"])
    yield from (_format_row(cell) for cell in rows)
    yield from _describe_remainder(all_cells, rows, headline)
    yield from _render_open_cells(text_format.select_cells(verdict, headline))
    yield ""


def _format_heading(name: str, width: int, verdict: Verdict) -> str:
    label = f"{text_format.format_level(verdict)} {name}" if name == "interval" else name
    return fit_width(label, width, align_right=name not in {"load", "metric"})


def _format_row(cell: CellVerdict) -> str:
    value = cell.speed_up.value if cell.speed_up is not None else None
    figures = (
        text_format.format_number(cell.baseline),
        text_format.format_number(cell.measured),
        text_format.format_times(value),
        text_format.format_interval(cell.speed_up),
    )
    widths = [width for _, width in _COLUMNS]
    return " ".join(
        [
            fit_width(cell.class_, _NAME),
            fit_width(text_format.format_short_load(cell.load), widths[0]),
            fit_width(
                f"{text_format.format_metric(cell.metric)} {_UNITS.get(text_format.metric_unit(cell.metric), '')}",
                widths[1],
            ),
            *(fit_width(figure, width, align_right=True) for figure, width in zip(figures, widths[2:], strict=True)),
            cell.verdict,
        ]
    )


def _describe_remainder(
    all_cells: Sequence[CellVerdict], table_cells: Sequence[CellVerdict], headline: Headline
) -> Iterator[str]:
    if len(table_cells) == len(all_cells):
        return
    table_ids = {id(cell) for cell in table_cells}
    word_counts = Counter(cell.verdict for cell in all_cells if id(cell) not in table_ids)
    yield from _wrap_text(
        f"… {len(all_cells) - len(table_cells):,} more cells ({_format_counts(word_counts)}); shown are those by "
        f"{text_format.format_metric(headline.metric)} that say most; all are in {FILE}",
        "  ",
    )


def _format_counts(word_counts: Mapping[CellWord, int]) -> str:
    return ", ".join(f"{number:,} {word}" for word, number in sorted(word_counts.items(), key=lambda item: -item[1]))


def _render_open_cells(cells: Sequence[CellVerdict]) -> Iterator[str]:
    open_cells = [cell for cell in cells if cell.more_prompts is not None or cell.more_rounds is not None]
    for cell in open_cells[:MOST_LINES]:
        plans = [f"{size} in all" for size in describe_sample_sizes(cell)]
        yield from _wrap_text(f"{_format_cell(cell)}: {' or '.join(plans)} would decide it", "  ")
    if len(open_cells) > MOST_LINES:
        yield f"… {len(open_cells) - MOST_LINES:,} more undecided: {FILE}"


def _format_cell(cell: CellVerdict) -> str:
    return f"{fit_width(cell.class_, _NAME).rstrip()} at {text_format.format_load(cell.load)}"


def _render_controls(verdict: Verdict) -> Iterator[str]:
    if not verdict.controls.checks and not verdict.controls.cautions and not verdict.controls.marked:
        return
    yield "controls"
    for check in verdict.controls.checks:
        yield from _wrap_text(f"{check.result:<{_RESULT}} {check.name}: {check.sentence}", " " * (_RESULT + 1))
    for caution in verdict.controls.cautions:
        yield from _wrap_text(f"caution: {caution}", "  ")
    for bottleneck in verdict.controls.marked[:MOST_LINES]:
        yield from _wrap_text(f"round {bottleneck.round} is left out: {bottleneck.sentence}", "  ")
    if len(verdict.controls.marked) > MOST_LINES:
        yield f"… {len(verdict.controls.marked) - MOST_LINES:,} more rounds are left out: {FILE}"
    yield ""


def _render_equality(equality: OutputEquality) -> Iterator[str]:
    yield f"output of {fit_width(equality.variant, 60).rstrip()}: {equality.result}"
    yield from _wrap_text(equality.sentence, "  ", "  ")
    figures = [f"{label} {format_share(share_estimate)}" for label, share_estimate in (
        ("identical", equality.identical), ("the baseline against itself", equality.yardstick),
    ) if share_estimate is not None]  # fmt: skip
    if figures:
        yield from _wrap_text(f"by {equality.by}: {'; '.join(figures)}", "  ", "  ")
    yield ""


def format_share(share: ShareEstimate) -> str:
    """Return so many of so many, and in percent."""
    return f"{share.n:,} of {share.of:,} ({text_format.format_percent(share.n / share.of if share.of else None)})"


def _render_acceptance(verdict: Verdict) -> Iterator[str]:
    rows = filter_speculation(verdict.acceptance)
    if not rows:
        sentences = [row.sentence for row in verdict.acceptance if row.sentence]
        yield from (line for sentence in sentences[:1] for line in _wrap_text(f"acceptance: {sentence}", "  "))
        return
    name_width = WIDTH - _ARM - 10 - 13 - 4 - len("steps of the counters")
    headings = (
        fit_width("acceptance: class", name_width),
        fit_width("arm", _ARM),
        f"{'tokens/step':>11}",
        f"{'steps/token':>12}",
    )
    yield " ".join([*headings, "from"])
    for row in rows[:MOST_ROWS]:
        yield " ".join(
            [
                fit_width(row.class_, name_width),
                fit_width(row.arm, _ARM),
                f"{text_format.format_number(row.acceptance_length):>11}",
                f"{text_format.format_number(row.target_steps_per_token):>12}",
                row.method,
            ]
        )
    if len(rows) > MOST_ROWS:
        yield f"… {len(rows) - MOST_ROWS:,} more: {FILE}"
    yield ""


def _render_cost(verdict: Verdict) -> Iterator[str]:
    cost_rows = [row for row in verdict.cost if row.usd_per_million_good_tokens is not None]
    for row in cost_rows[:MOST_ROWS]:
        arm, usd = fit_width(row.arm, 40).rstrip(), row.usd_per_million_good_tokens
        yield from _wrap_text(
            f"cost of {arm} at {text_format.format_load(row.load)}: {usd:,.2f} USD per million good output tokens"
        )
    if len(cost_rows) > MOST_ROWS:
        yield f"… {len(cost_rows) - MOST_ROWS:,} more: {FILE}"
    if verdict.cost and not cost_rows:
        yield from _wrap_text(f"cost: {verdict.cost[0].sentence}", "  ")
    if verdict.cost:
        yield ""


def _render_claims(verdict: Verdict) -> Iterator[str]:
    if verdict.claims_unasked:
        yield from _wrap_text(verdict.claims_unasked, "  ")
        yield ""
    if not verdict.claims:
        return
    yield f"the post's claims (why: {FILE} and the report)"
    for claim in verdict.claims:
        against_text = f" (against {', '.join(claim.against)})" if claim.against else ""
        text = fit_width(claim.text, WIDTH - _CLAIM - _ANSWER - 2 - len(against_text)).rstrip()
        yield f"{fit_width(claim.claim, _CLAIM)} {claim.answer:<{_ANSWER}} {text}{text_format.clean_text(against_text)}"
    yield ""


def _wrap_text(text: str, indent: str = "", first: str = "") -> Iterable[str]:
    return wrap_text(text, WIDTH, indent=indent, first=first)
