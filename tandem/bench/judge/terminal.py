"""A verdict for a terminal of 100 columns.

Invariant: what decides comes first, and before it that servers are simulated; no line is wider than 100 columns,
whatever names the records hold; what is left out is counted, and verdict.json has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Cell, Equality, Headline, Share, Verdict, Word
from tandem.bench.judge.words import speculating
from tandem.bench.shown import fit, wrapped
from tandem.bench.simulation import BAND

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


def lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict: the headline of each variant, its cells, then what stands behind them."""
    if verdict.simulated:
        yield BAND
    yield from _voided(verdict)
    for headline in verdict.headlines:
        yield from _headline(headline, verdict)
        yield ""
    if not verdict.headlines and not verdict.controls.void:
        yield from _wrapped(f"no verdict: no variant was measured against {verdict.baseline}")
        yield ""
    for headline in verdict.headlines:
        yield from _cells(headline, verdict)
    yield from _controls(verdict)
    for equality in verdict.equality:
        yield from _equality(equality)
    yield from _acceptance(verdict)
    yield from _cost(verdict)
    yield from _claims(verdict)
    for note in verdict.notes:
        yield from _wrapped(f"note: {note}", "      ")


def _voided(verdict: Verdict) -> Iterator[str]:
    if verdict.controls.void:
        yield "VOID: this run does not support a verdict"
        for reason in verdict.controls.void:
            yield from _wrapped(f"- {reason}", "  ")
        yield ""


def _headline(headline: Headline, verdict: Verdict) -> Iterator[str]:
    names = f"{fit(headline.variant, 30).rstrip()} against {fit(verdict.baseline, 30).rstrip()}"
    yield from _wrapped(f"{names}: {headline.verdict.upper()}", "  ")
    yield from _wrapped(headline.sentence)
    for reason in headline.reasons:
        yield from _wrapped(f"- {reason}", "  ")


def _cells(headline: Headline, verdict: Verdict) -> Iterator[str]:
    every = [cell for cell in verdict.cells if cell.variant == headline.variant]
    if not every:
        return
    shown = every if len(every) <= MOST_ROWS else words.cells_of(verdict, headline) or every
    rows = words.most_telling(shown, MOST_ROWS)
    if len(verdict.headlines) > 1:
        yield f"{fit(headline.variant, WIDTH - 1).rstrip()}:"
    heads = [fit("class", _NAME), *(_head(name, width, verdict) for name, width in _COLUMNS)]
    yield " ".join([*heads, "verdict"])
    yield from (_row(cell) for cell in rows)
    yield from _left_out(every, rows, headline)
    yield from _undecided(words.cells_of(verdict, headline))
    yield ""


def _head(name: str, width: int, verdict: Verdict) -> str:
    told = f"{words.level(verdict)} {name}" if name == "interval" else name
    return fit(told, width, right=name not in {"load", "metric"})


def _row(cell: Cell) -> str:
    value = cell.speed_up.value if cell.speed_up is not None else None
    figures = (
        words.number(cell.baseline), words.number(cell.measured), words.times(value), words.interval(cell.speed_up),
    )  # fmt: skip
    widths = [width for _, width in _COLUMNS]
    return " ".join([
        fit(cell.class_, _NAME), fit(words.short_load(cell.load), widths[0]),
        fit(f"{words.short_metric(cell.metric)} {_UNITS.get(words.unit(cell.metric), '')}", widths[1]),
        *(fit(figure, width, right=True) for figure, width in zip(figures, widths[2:], strict=True)), cell.verdict,
    ])  # fmt: skip


def _left_out(every: Sequence[Cell], shown: Sequence[Cell], headline: Headline) -> Iterator[str]:
    if len(shown) == len(every):
        return
    told = {id(cell) for cell in shown}
    counted = Counter(cell.verdict for cell in every if id(cell) not in told)
    yield from _wrapped(
        f"… {len(every) - len(shown):,} more cells ({_counts(counted)}); shown are those by "
        f"{words.short_metric(headline.metric)} that say most; all are in {FILE}",
        "  ",
    )


def _counts(counted: Mapping[Word, int]) -> str:
    return ", ".join(f"{number:,} {word}" for word, number in sorted(counted.items(), key=lambda told: -told[1]))


def _undecided(cells: Sequence[Cell]) -> Iterator[str]:
    helped = [cell for cell in cells if cell.more_prompts is not None or cell.more_rounds is not None]
    for cell in helped[:MOST_LINES]:
        ways = [
            f"{number:,} {unit} in all"
            for number, unit in ((cell.more_prompts, "prompts"), (cell.more_rounds, "rounds"))
            if number is not None
        ]
        yield from _wrapped(f"{_place(cell)}: {' or '.join(ways)} would decide it", "  ")
    if len(helped) > MOST_LINES:
        yield f"… {len(helped) - MOST_LINES:,} more undecided: {FILE}"


def _place(cell: Cell) -> str:
    return f"{fit(cell.class_, _NAME).rstrip()} at {words.load(cell.load)}"


def _controls(verdict: Verdict) -> Iterator[str]:
    if not verdict.controls.checks and not verdict.controls.cautions and not verdict.controls.marked:
        return
    yield "controls"
    for check in verdict.controls.checks:
        yield from _wrapped(f"{check.result:<{_RESULT}} {check.name}: {check.sentence}", " " * (_RESULT + 1))
    for caution in verdict.controls.cautions:
        yield from _wrapped(f"caution: {caution}", "  ")
    for marked in verdict.controls.marked[:MOST_LINES]:
        yield from _wrapped(f"round {marked.round} is left out: {marked.sentence}", "  ")
    if len(verdict.controls.marked) > MOST_LINES:
        yield f"… {len(verdict.controls.marked) - MOST_LINES:,} more rounds are left out: {FILE}"
    yield ""


def _equality(equality: Equality) -> Iterator[str]:
    yield f"output of {fit(equality.variant, 60).rstrip()}: {equality.result}"
    yield from _wrapped(equality.sentence, "  ", "  ")
    figures = [f"{told} {share(of)}" for told, of in (
        ("identical", equality.identical), ("the baseline against itself", equality.yardstick),
    ) if of is not None]  # fmt: skip
    if figures:
        yield from _wrapped(f"by {equality.by}: {'; '.join(figures)}", "  ", "  ")
    yield ""


def share(told: Share) -> str:
    """Return so many of so many, and in percent."""
    return f"{told.n:,} of {told.of:,} ({words.percent(told.n / told.of if told.of else None)})"


def _acceptance(verdict: Verdict) -> Iterator[str]:
    rows = speculating(verdict.acceptance)
    if not rows:
        said = [row.sentence for row in verdict.acceptance if row.sentence]
        yield from (line for one in said[:1] for line in _wrapped(f"acceptance: {one}", "  "))
        return
    name = WIDTH - _ARM - 10 - 13 - 4 - len("steps of the counters")
    heads = (fit("acceptance: class", name), fit("arm", _ARM), f"{'tokens/step':>11}", f"{'steps/token':>12}")
    yield " ".join([*heads, "from"])
    for row in rows[:MOST_ROWS]:
        yield " ".join([
            fit(row.class_, name), fit(row.arm, _ARM), f"{words.number(row.acceptance_length):>11}",
            f"{words.number(row.target_steps_per_token):>12}", row.method,
        ])  # fmt: skip
    if len(rows) > MOST_ROWS:
        yield f"… {len(rows) - MOST_ROWS:,} more: {FILE}"
    yield ""


def _cost(verdict: Verdict) -> Iterator[str]:
    priced = [row for row in verdict.cost if row.usd_per_million_good_tokens is not None]
    for row in priced[:MOST_ROWS]:
        arm, usd = fit(row.arm, 40).rstrip(), row.usd_per_million_good_tokens
        yield from _wrapped(f"cost of {arm} at {words.load(row.load)}: {usd:,.2f} USD per million good output tokens")
    if len(priced) > MOST_ROWS:
        yield f"… {len(priced) - MOST_ROWS:,} more: {FILE}"
    if verdict.cost and not priced:
        yield from _wrapped(f"cost: {verdict.cost[0].sentence}", "  ")
    if verdict.cost:
        yield ""


def _claims(verdict: Verdict) -> Iterator[str]:
    if verdict.claims_unasked:
        yield from _wrapped(verdict.claims_unasked, "  ")
        yield ""
    if not verdict.claims:
        return
    yield f"the post's claims (why: {FILE} and the report)"
    for claim in verdict.claims:
        against = f" (against {', '.join(claim.against)})" if claim.against else ""
        told = fit(claim.text, WIDTH - _CLAIM - _ANSWER - 2 - len(against)).rstrip()
        yield f"{fit(claim.claim, _CLAIM)} {claim.answer:<{_ANSWER}} {told}{words.clean(against)}"
    yield ""


def _wrapped(text: str, indent: str = "", first: str = "") -> Iterable[str]:
    return wrapped(text, WIDTH, indent=indent, first=first)
