"""A comparison of two runs for a terminal of 100 columns.

Invariant: a figure that is absent is a dash, never a zero; no line is wider than 100 columns; notes are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tandem.bench.compare.form import Comparison, Difference, Row, Side
from tandem.bench.judge.words import ABSENT, interval, load, number, percent, short, times
from tandem.bench.shown import fit, wrapped
from tandem.bench.simulation import BAND

WIDTH = 100
MOST = 40
"""Classes of one table; called ones go first where there are more, and --json has all."""

_CLASS = 20
_HEADING = (
    f"  {'class':<{_CLASS}} {'prompts':>7} {'before':>7} {'after':>7} {'E2E':>6} {'95 %':>15} {'':<11} "
    f"{'TPOT':>7} {'TTFT':>7}"
)
_MARKS = {"faster": "+", "slower": "-", "same": "=", "mixed": "~", "no evidence": " "}


def lines(compared: Comparison) -> Iterator[str]:
    """Yield what differs, the tables, the outputs and the notes."""
    if compared.before.simulated or compared.after.simulated:
        yield BAND
    yield from _side("before", compared.before)
    yield from _side("after", compared.after)
    yield ""
    yield from _differences(compared.differences)
    yield from _wrapped("alike: ", "; ".join(compared.alike))
    for kind, title in (("figure", "its own E2E, ms"), ("gain", "its speed-up over its baseline, by E2E")):
        rows = [row for row in compared.rows if row.kind == kind]
        for arm, asked in dict.fromkeys((row.arm, row.load) for row in rows):
            yield ""
            yield from _wrapped("", f"{short(arm)} at {load(asked)}: {title}; after against before")
            yield from _table([row for row in rows if (row.arm, row.load) == (arm, asked)])
    if compared.rows:
        yield ""
        yield "  beside TPOT and TTFT: + faster, - slower, = same"
    yield ""
    for one in compared.outputs:
        share = percent(one.identical.n / one.identical.of)
        yield from _wrapped("", f"{one.arm}: {one.identical.n} of {one.identical.of} outputs are identical ({share})")
    for why in dict.fromkeys(row.why for row in compared.rows if row.verdict == "no evidence"):
        number_of = sum(row.why == why for row in compared.rows)
        yield from _wrapped("no evidence: ", f"{why} ({number_of} of {len(compared.rows)} rows)")
    for note in compared.notes:
        yield from _wrapped("note: ", note)
    for side in (compared.before, compared.after):
        for why in side.void:
            yield from _wrapped("void: ", f"{side.folder}: {why}")


def _side(name: str, side: Side) -> Iterator[str]:
    asked = f"{side.requests} requests, {side.failed} failed"
    yield from _wrapped(f"{name:<7}", f"{side.folder} ({side.run}), begun {side.created_utc}: {asked}")


def _differences(found: Iterable[Difference]) -> Iterator[str]:
    some = False
    for one in found:
        some = True
        blocks = " (so nothing is called)" if one.blocks else ""
        yield from _wrapped("differs: ", f"{one.what}{blocks}: {one.before} -> {one.after}")
    if not some:
        yield "differs: nothing that the manifests know"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    by_class: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_class.setdefault(row.class_, {})[row.metric] = row
    shown = sorted(by_class, key=lambda name: _silent(by_class[name])) if len(by_class) > MOST else list(by_class)
    yield _HEADING
    for name in shown[:MOST]:
        yield fit(_line(name, by_class[name]), WIDTH).rstrip()
    if len(shown) > MOST:
        yield f"  and {len(shown) - MOST} more classes: --json"


def _silent(metrics: Mapping[str, Row]) -> bool:
    return all(row.verdict == "no evidence" for row in metrics.values())


def _line(class_: str, metrics: Mapping[str, Row]) -> str:
    whole = metrics.get("e2e_ms")
    beside = " ".join(_beside(metrics.get(name)) for name in ("tpot_ms", "ttft_ms"))
    if whole is None:
        return f"  {fit(class_, _CLASS)} {ABSENT:>7} {ABSENT:>7} {ABSENT:>7} {ABSENT:>6} {ABSENT:>15} {'':<11} {beside}"
    shown = times if whole.kind == "gain" else number
    return (
        f"  {fit(class_, _CLASS)} {whole.prompts:>7} {shown(whole.before):>7} {shown(whole.after):>7} "
        f"{_ratio(whole):>6} {interval(whole.speed_up):>15} {whole.verdict:<11} {beside}"
    ).rstrip()


def _beside(row: Row | None) -> str:
    return f"{ABSENT:>7}" if row is None else f"{_ratio(row):>6}{_MARKS[row.verdict]}"


def _ratio(row: Row) -> str:
    return times(row.speed_up.value if row.speed_up else None)


def _wrapped(begin: str, text: str) -> Iterator[str]:
    if text:
        yield from wrapped(f"{begin}{text}", WIDTH, indent="  ")
