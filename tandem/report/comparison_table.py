"""A comparison of two runs for a terminal of 100 columns.

Invariant: a figure that is absent is a dash, never a zero; no line is wider than 100 columns; notes are whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tandem.bench.simulation import SIMULATED_BAND
from tandem.bench.terminal_text import fit_width, wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.compare.schema import ComparisonRow, RunComparison
from tandem.judge.pairs import DECIDING_METRIC

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
    yield from _render_manifests(comparison)
    for kind, title in (("figure", "its own E2E, ms"), ("gain", "its speed-up over its baseline, by E2E")):
        rows = [row for row in comparison.rows if row.kind == kind]
        for arm, load in dict.fromkeys((row.arm, row.load) for row in rows):
            yield ""
            yield from _wrap_text(f"{fmt.shorten_text(arm)} at {fmt.format_load(load)}: {title}; after against before")
            yield from _render_table([row for row in rows if (row.arm, row.load) == (arm, load)])
    if comparison.rows:
        yield ""
        yield "  beside TPOT and TTFT: + faster, - slower, = same"
    yield ""
    yield from _render_remarks(comparison)


def _render_manifests(comparison: RunComparison) -> Iterator[str]:
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        counts = f"{side.requests} requests, {side.failed} failed"
        yield from _wrap_text(f"{name:<7}{side.folder} ({side.run}), begun {side.created_utc}: {counts}")
    yield ""
    for difference in comparison.differences:
        blocks = " (so nothing is called)" if difference.blocks else ""
        yield from _wrap_text(f"differs: {difference.what}{blocks}: {difference.before} -> {difference.after}")
    if not comparison.differences:
        yield "differs: nothing that the manifests know"
    yield from _wrap_text(f"alike: {'; '.join(comparison.alike)}")


def _render_remarks(comparison: RunComparison) -> Iterator[str]:
    for agreement in comparison.outputs:
        share, counts = agreement.identical, f"{agreement.identical.n} of {agreement.identical.of}"
        yield from _wrap_text(
            f"{agreement.arm}: {counts} outputs are identical ({fmt.format_percent(share.n / share.of)})"
        )
    reasons = Counter(row.why for row in comparison.rows if row.verdict == "no evidence")
    for reason, count in reasons.items():
        yield from _wrap_text(f"no evidence: {reason} ({count} of {len(comparison.rows)} rows)")
    for note in comparison.notes:
        yield from _wrap_text(f"note: {note}")
    for side in (comparison.before, comparison.after):
        for reason in side.void:
            yield from _wrap_text(f"void: {side.folder}: {reason}")


def _wrap_text(text: str) -> list[str]:
    return wrap_text(text, WIDTH, indent="  ")


def _render_table(rows: Sequence[ComparisonRow]) -> Iterator[str]:
    by_class: dict[str, dict[str, ComparisonRow]] = {}
    for row in rows:
        by_class.setdefault(row.class_, {})[row.metric] = row
    if len(by_class) > MAX_CLASSES:
        open_classes = {
            name: all(row.verdict == "no evidence" for row in metrics.values()) for name, metrics in by_class.items()
        }
        by_class = {name: by_class[name] for name in sorted(by_class, key=lambda name: open_classes[name])}
    yield _HEADING
    for name, metrics in list(by_class.items())[:MAX_CLASSES]:
        yield fit_width(_format_line(name, metrics), WIDTH).rstrip()
    if len(by_class) > MAX_CLASSES:
        yield f"  and {len(by_class) - MAX_CLASSES} more classes: --json"


def _format_line(class_: str, metrics: Mapping[str, ComparisonRow]) -> str:
    row, others = metrics.get(DECIDING_METRIC), ""
    for name in ("tpot_ms", "ttft_ms"):
        other = metrics.get(name)
        others += f" {_format_ratio(other):>6}{_MARKS[other.verdict]}" if other else f" {fmt.ABSENT:>7}"
    columns = [fmt.ABSENT, fmt.ABSENT, fmt.ABSENT, fmt.ABSENT, fmt.ABSENT, ""]
    if row is not None:
        format_value = fmt.format_times if row.kind == "gain" else fmt.format_number
        values = (format_value(row.before), format_value(row.after))
        columns = [str(row.prompts), *values, _format_ratio(row), fmt.format_interval(row.speed_up), row.verdict]
    prompts, before, after, ratio, interval, word = columns
    figures = f"{prompts:>7} {before:>7} {after:>7} {ratio:>6} {interval:>15} {word:<11}"
    return f"  {fit_width(class_, _CLASS)} {figures}{others}"


def _format_ratio(row: ComparisonRow) -> str:
    return fmt.format_times(row.speed_up.value if row.speed_up else None)
