"""A comparison of two runs for a terminal of 100 columns.

Invariant: a figure that is absent is a dash, never a zero; no line is wider than 100 columns; notes are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.terminal_text import fit_width, wrap_text
from tandem.judge.compare.schema import ComparisonRow, ManifestDifference, RunComparison, RunSummary
from tandem.judge.pairs import DECIDING_METRIC
from tandem.judge.text_format import (
    ABSENT,
    format_interval,
    format_load,
    format_number,
    format_percent,
    format_times,
    shorten_text,
)

WIDTH = 100
MAX_CLASSES = 40
"""Classes of one table; called ones go first where there are more, and --json has all."""

_CLASS = 20
_HEADING = (
    f"  {'class':<{_CLASS}} {'prompts':>7} {'before':>7} {'after':>7} {'E2E':>6} {'95 %':>15} {'':<11} "
    f"{'TPOT':>7} {'TTFT':>7}"
)
_MARKS = {"faster": "+", "slower": "-", "same": "=", "mixed": "~", "no evidence": " "}


def render_lines(comparison: RunComparison) -> Iterator[str]:
    """Yield what differs, the tables, the outputs and the notes."""
    if comparison.before.simulated or comparison.after.simulated:
        yield SIMULATED_BAND
    yield from _render_side("before", comparison.before)
    yield from _render_side("after", comparison.after)
    yield ""
    yield from _render_differences(comparison.differences)
    yield from _wrap_text("alike: ", "; ".join(comparison.alike))
    for kind, title in (("figure", "its own E2E, ms"), ("gain", "its speed-up over its baseline, by E2E")):
        rows = [row for row in comparison.rows if row.kind == kind]
        for arm, load_level in dict.fromkeys((row.arm, row.load) for row in rows):
            yield ""
            yield from _wrap_text(
                "", f"{shorten_text(arm)} at {format_load(load_level)}: {title}; after against before"
            )
            yield from _render_table([row for row in rows if (row.arm, row.load) == (arm, load_level)])
    if comparison.rows:
        yield ""
        yield "  beside TPOT and TTFT: + faster, - slower, = same"
    yield ""
    for agreement in comparison.outputs:
        share = format_percent(agreement.identical.n / agreement.identical.of)
        yield from _wrap_text(
            "", f"{agreement.arm}: {agreement.identical.n} of {agreement.identical.of} outputs are identical ({share})"
        )
    for reason in dict.fromkeys(row.why for row in comparison.rows if row.verdict == "no evidence"):
        row_count = sum(row.why == reason for row in comparison.rows)
        yield from _wrap_text("no evidence: ", f"{reason} ({row_count} of {len(comparison.rows)} rows)")
    for note in comparison.notes:
        yield from _wrap_text("note: ", note)
    for side in (comparison.before, comparison.after):
        for reason in side.void:
            yield from _wrap_text("void: ", f"{side.folder}: {reason}")


def _render_side(name: str, side: RunSummary) -> Iterator[str]:
    requests_text = f"{side.requests} requests, {side.failed} failed"
    yield from _wrap_text(f"{name:<7}", f"{side.folder} ({side.run}), begun {side.created_utc}: {requests_text}")


def _render_differences(differences: Iterable[ManifestDifference]) -> Iterator[str]:
    has_any = False
    for difference in differences:
        has_any = True
        blocks = " (so nothing is called)" if difference.blocks else ""
        yield from _wrap_text("differs: ", f"{difference.what}{blocks}: {difference.before} -> {difference.after}")
    if not has_any:
        yield "differs: nothing that the manifests know"


def _render_table(rows: Iterable[ComparisonRow]) -> Iterator[str]:
    by_class: dict[str, dict[str, ComparisonRow]] = {}
    for row in rows:
        by_class.setdefault(row.class_, {})[row.metric] = row
    class_names = (
        sorted(by_class, key=lambda name: _has_no_evidence(by_class[name]))
        if len(by_class) > MAX_CLASSES
        else list(by_class)
    )
    yield _HEADING
    for name in class_names[:MAX_CLASSES]:
        yield fit_width(_format_line(name, by_class[name]), WIDTH).rstrip()
    if len(class_names) > MAX_CLASSES:
        yield f"  and {len(class_names) - MAX_CLASSES} more classes: --json"


def _has_no_evidence(metrics: Mapping[str, ComparisonRow]) -> bool:
    return all(row.verdict == "no evidence" for row in metrics.values())


def _format_line(class_: str, metrics: Mapping[str, ComparisonRow]) -> str:
    e2e_row = metrics.get(DECIDING_METRIC)
    other_columns = " ".join(_format_marked_ratio(metrics.get(name)) for name in ("tpot_ms", "ttft_ms"))
    if e2e_row is None:
        return (
            f"  {fit_width(class_, _CLASS)} {ABSENT:>7} {ABSENT:>7} {ABSENT:>7} {ABSENT:>6} {ABSENT:>15} "
            f"{'':<11} {other_columns}"
        )
    format_value = format_times if e2e_row.kind == "gain" else format_number
    return (
        f"  {fit_width(class_, _CLASS)} {e2e_row.prompts:>7} {format_value(e2e_row.before):>7} "
        f"{format_value(e2e_row.after):>7} "
        f"{_format_ratio(e2e_row):>6} {format_interval(e2e_row.speed_up):>15} {e2e_row.verdict:<11} {other_columns}"
    ).rstrip()


def _format_marked_ratio(row: ComparisonRow | None) -> str:
    return f"{ABSENT:>7}" if row is None else f"{_format_ratio(row):>6}{_MARKS[row.verdict]}"


def _format_ratio(row: ComparisonRow) -> str:
    return format_times(row.speed_up.value if row.speed_up else None)


def _wrap_text(prefix: str, text: str) -> Iterator[str]:
    if text:
        yield from wrap_text(f"{prefix}{text}", WIDTH, indent="  ")
