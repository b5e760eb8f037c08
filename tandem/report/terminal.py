"""A verdict for a terminal of 100 columns.

Invariant: what decides comes first, and before it that servers are simulated; no line is wider than 100 columns,
whatever names the records hold; what is left out is counted, and verdict.json has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.terminal_text import fit_width, wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.schema import FILE, Headline, OutputEquality, Verdict
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
    void_reasons = verdict.controls.void
    if verdict.simulated:
        yield SIMULATED_BAND
    if void_reasons:
        yield "VOID: this run does not support a verdict"
        for reason in void_reasons:
            yield from _wrap_text(f"- {reason}")
        yield ""
    for headline in verdict.headlines:
        names = [fit_width(name, 30).rstrip() for name in (headline.variant, verdict.baseline)]
        yield from _wrap_text(f"{' against '.join(names)}: {headline.verdict.upper()}")
        yield from _wrap_text(headline.sentence, "")
        for reason in headline.reasons:
            yield from _wrap_text(f"- {reason}")
        yield ""
    if not verdict.headlines and not void_reasons:
        yield from _wrap_text(f"no verdict: no variant was measured against {verdict.baseline}", "")
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


def _wrap_text(text: str, indent: str = "  ", first: str = "") -> list[str]:
    return wrap_text(text, WIDTH, indent=indent, first=first)


def _render_cells(headline: Headline, verdict: Verdict) -> Iterator[str]:
    all_cells = [cell for cell in verdict.cells if cell.variant == headline.variant]
    if not all_cells:
        return
    deciding_cells = fmt.select_cells(verdict, headline)
    candidates = all_cells if len(all_cells) <= MOST_ROWS else deciding_cells or all_cells
    rows = fmt.choose_telling_cells(candidates, MOST_ROWS)
    if len(verdict.headlines) > 1:
        yield f"{fit_width(headline.variant, WIDTH - 1).rstrip()}:"
    headings = [f"{fmt.format_level(verdict)} {name}" if name == "interval" else name for name, _ in _COLUMNS]
    yield _format_row("class", headings, "verdict")
    for cell in rows:
        metric = f"{fmt.format_metric(cell.metric)} {_UNITS.get(fmt.metric_unit(cell.metric), '')}"
        ratio, values = cell.speed_up, map(fmt.format_number, (cell.baseline, cell.measured))
        speed_up = (fmt.format_times(ratio.value if ratio else None), fmt.format_interval(ratio))
        yield _format_row(cell.class_, [fmt.format_short_load(cell.load), metric, *values, *speed_up], cell.verdict)
    if len(rows) < len(all_cells):
        row_ids = {id(cell) for cell in rows}
        counts = Counter(cell.verdict for cell in all_cells if id(cell) not in row_ids).most_common()
        counts_text = ", ".join(f"{number:,} {word}" for word, number in counts)
        text = f"… {len(all_cells) - len(rows):,} more cells ({counts_text}); shown are those by"
        yield from _wrap_text(f"{text} {fmt.format_metric(headline.metric)} that say most; all are in {FILE}")
    open_cells = [cell for cell in deciding_cells if describe_sample_sizes(cell)]
    for cell in open_cells[:MOST_LINES]:
        plans = " or ".join(f"{size} in all" for size in describe_sample_sizes(cell))
        place = f"{fit_width(cell.class_, _NAME).rstrip()} at {fmt.format_load(cell.load)}"
        yield from _wrap_text(f"{place}: {plans} would decide it")
    yield from _count_omitted(len(open_cells), MOST_LINES, "undecided")
    yield ""


def _format_row(class_: str, columns: Sequence[str], word: str) -> str:
    """Return a line of the table of cells; figures stand on the right of their columns."""
    cells = [
        fit_width(text, width, align_right=name not in {"load", "metric"})
        for text, (name, width) in zip(columns, _COLUMNS, strict=True)
    ]
    return " ".join([fit_width(class_, _NAME), *cells, word])


def _count_omitted(count: int, limit: int, words: str = "") -> Iterator[str]:
    if count > limit:
        yield f"… {count - limit:,} more{words and f' {words}'}: {FILE}"


def _render_controls(verdict: Verdict) -> Iterator[str]:
    controls = verdict.controls
    if not controls.checks and not controls.cautions and not controls.marked:
        return
    yield "controls"
    for check in controls.checks:
        yield from _wrap_text(f"{check.result:<{_RESULT}} {check.name}: {check.sentence}", " " * (_RESULT + 1))
    for caution in controls.cautions:
        yield from _wrap_text(f"caution: {caution}")
    for bottleneck in controls.marked[:MOST_LINES]:
        yield from _wrap_text(f"round {bottleneck.round} is left out: {bottleneck.sentence}")
    yield from _count_omitted(len(controls.marked), MOST_LINES, "rounds are left out")
    yield ""


def _render_equality(equality: OutputEquality) -> Iterator[str]:
    yield f"output of {fit_width(equality.variant, 60).rstrip()}: {equality.result}"
    yield from _wrap_text(equality.sentence, "  ", "  ")
    figures = []
    for label, share in (("identical", equality.identical), ("the baseline against itself", equality.yardstick)):
        if share is not None:
            percent = fmt.format_percent(share.n / share.of if share.of else None)
            figures.append(f"{label} {share.n:,} of {share.of:,} ({percent})")
    if figures:
        yield from _wrap_text(f"by {equality.by}: {'; '.join(figures)}", "  ", "  ")
    yield ""


def _render_acceptance(verdict: Verdict) -> Iterator[str]:
    rows = fmt.filter_speculation(verdict.acceptance)
    if not rows:
        for sentence in [row.sentence for row in verdict.acceptance if row.sentence][:1]:
            yield from _wrap_text(f"acceptance: {sentence}")
        return
    name_width = WIDTH - _ARM - 10 - 13 - 4 - len("steps of the counters")
    heads = (fit_width("acceptance: class", name_width), fit_width("arm", _ARM))
    yield f"{' '.join(heads)} {'tokens/step':>11} {'steps/token':>12} from"
    for row in rows[:MOST_ROWS]:
        names = f"{fit_width(row.class_, name_width)} {fit_width(row.arm, _ARM)}"
        length, steps = fmt.format_number(row.acceptance_length), fmt.format_number(row.target_steps_per_token)
        yield f"{names} {length:>11} {steps:>12} {row.method}"
    yield from _count_omitted(len(rows), MOST_ROWS)
    yield ""


def _render_cost(verdict: Verdict) -> Iterator[str]:
    rows = [row for row in verdict.cost if row.usd_per_million_good_tokens is not None]
    for row in rows[:MOST_ROWS]:
        place = f"{fit_width(row.arm, 40).rstrip()} at {fmt.format_load(row.load)}"
        usd = f"{row.usd_per_million_good_tokens:,.2f} USD per million good output tokens"
        yield from _wrap_text(f"cost of {place}: {usd}", "")
    yield from _count_omitted(len(rows), MOST_ROWS)
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
    for claim in verdict.claims:
        against = fmt.clean_text(f" (against {', '.join(claim.against)})" if claim.against else "")
        text = fit_width(claim.text, WIDTH - _CLAIM - _ANSWER - 2 - len(against)).rstrip()
        yield f"{fit_width(claim.claim, _CLAIM)} {claim.answer:<{_ANSWER}} {text}{against}"
    yield ""
