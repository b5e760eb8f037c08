"""A comparison of two runs, or of a series, for a terminal.

Invariant: an absent figure is a dash, never a zero; no line is wider than `width`; notes are never
cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.compare.schema import AcceptanceDrift, ComparisonRow, RunComparison, RunSeries
from tandem.judge.pairs import DECIDING_METRIC
from tandem.report.terminal import MARKS_LEGEND, format_mark

MAX_CLASSES = 40
"""Most classes in one table; if there are more, classes with a verdict go first, and --json has
all."""

_HEADS = ("class", "prompts", "before", "after", "E2E", "95 %", "", "TPOT", "TTFT")


def render_lines(comparison: RunComparison, *, width: int = WIDTH) -> Iterator[str]:
    """Yield the differences, the tables, the outputs and the notes.

    Args:
        comparison: of two runs.
        width: of a line, in columns.
    """
    for line in _render_comparison(comparison, width):
        yield from wrap_text(line, width, indent="  ") or [""]


def render_series(series: RunSeries, *, width: int = WIDTH) -> Iterator[str]:
    """Yield whether acceptance drifted, and later runs' differences in acceptance and E2E.

    Args:
        series: of runs.
        width: of a line, in columns.
    """
    first = series.comparisons[0].before
    if first.simulated or any(comparison.after.simulated for comparison in series.comparisons):
        yield SIMULATED_BAND
    yield from wrap_text(series.answer, width, indent="  ")
    yield from wrap_text(
        f"against {first.folder} ({first.run}), begun {first.created_utc}", width, indent="  "
    )
    yield ""
    rows = []
    for comparison in series.comparisons:
        rows += [_format_drift(comparison, drift) for drift in comparison.acceptance]
    heads = ("run", "begun", "arm", "first", "later", "ratio", "95 %", "acceptance")
    yield from format_table(heads, rows, numbers=(3, 4, 5, 6), width=width)
    yield ""
    for comparison in series.comparisons:
        for sentence in _describe_later_run(comparison):
            yield from wrap_text(sentence, width, indent="  ")
    yield ""
    yield from wrap_text(
        "every figure of two of them: tandem bench compare FIRST LATER", width, indent="  "
    )


def _format_drift(comparison: RunComparison, drift: AcceptanceDrift) -> list[str]:
    run = comparison.after
    return [
        run.folder,
        run.created_utc[:10],
        drift.arm,
        fmt.format_number(drift.before),
        fmt.format_number(drift.after),
        fmt.format_speed_up(drift.ratio),
        fmt.format_interval(drift.ratio),
        drift.word,
    ]


def _describe_later_run(comparison: RunComparison) -> Iterator[str]:
    """Yield the words of a later run's gains by E2E, and what voids it."""
    name = comparison.after.folder
    for row in _select_gains(comparison.overall):
        place = f"over all prompts at {fmt.format_load(row.load)}"
        yield f"{name}: speed-up of {row.arm} by E2E {place}: {row.verdict}"
    words = Counter(row.verdict for row in _select_gains(comparison.rows))
    counts = ", ".join(f"{count} {word}" for word, count in words.items())
    yield f"{name}: speed-up by E2E in each class: {counts or 'no gain to compare'}"
    for reason in (*comparison.before.void, *comparison.after.void):
        yield f"void: {name}: {reason}"


def _select_gains(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows on the speed-up by E2E."""
    return [row for row in rows if row.kind == "gain" and row.metric == DECIDING_METRIC]


def _render_comparison(comparison: RunComparison, width: int) -> Iterator[str]:
    if comparison.before.simulated or comparison.after.simulated:
        yield SIMULATED_BAND
    yield from _render_manifests(comparison)
    # a suite may have a class of the same name as all of them
    rows = [msgspec.structs.replace(row, class_=fmt.ALL_PROMPTS) for row in comparison.overall]
    rows += comparison.rows
    titles = {"figure": "its own E2E, ms", "gain": "its speed-up over its baseline, by E2E"}
    for kind, title in titles.items():
        groups: dict[tuple[str, LoadLevel], list[ComparisonRow]] = {}
        for row in rows:
            if row.kind == kind:
                groups.setdefault((row.arm, row.load), []).append(row)
        for (arm, load), group in groups.items():
            place = f"{fmt.shorten_text(arm)} at {fmt.format_load(load)}"
            yield ""
            yield f"{place}: {title}; after against before"
            yield from _render_table(group, width)
    if comparison.rows:
        yield ""
        yield MARKS_LEGEND
    yield ""
    yield from _render_remarks(comparison)


def _render_manifests(comparison: RunComparison) -> Iterator[str]:
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        counts = f"{side.requests} requests, {side.failed} failed"
        yield f"{name:<7}{side.folder} ({side.run}), begun {side.created_utc}: {counts}"
    yield ""
    for difference in comparison.differences:
        blocks = " (so nothing is called)" if difference.blocks else ""
        yield f"differs: {difference.what}{blocks}: {difference.before} -> {difference.after}"
    if not comparison.differences:
        yield "differs: nothing that the manifests know"


def _render_remarks(comparison: RunComparison) -> Iterator[str]:
    for drift in comparison.acceptance:
        before = fmt.format_number(drift.before)
        after = fmt.format_number(drift.after)
        ratio = ""
        if drift.ratio:
            interval = fmt.format_interval(drift.ratio)
            ratio = f", {fmt.format_times(drift.ratio.value)} ({interval})"
        yield f"{drift.arm}: acceptance {drift.word}: {before} to {after} tokens a step{ratio}"
    for agreement in comparison.outputs:
        share = agreement.identical
        counts = f"{share.n} of {share.of} outputs are identical"
        yield f"{agreement.arm}: {counts} ({fmt.format_percent(share.share)})"
    reasons = Counter(row.why for row in comparison.rows if row.verdict == "no evidence")
    for reason, count in reasons.items():
        yield f"no evidence: {reason} ({count} of {len(comparison.rows)} rows)"
    for note in comparison.notes:
        yield f"note: {note}"
    for side in (comparison.before, comparison.after):
        for reason in side.void:
            yield f"void: {side.folder}: {reason}"


def _render_table(rows: Sequence[ComparisonRow], width: int) -> Iterator[str]:
    by_class: dict[str, dict[str, ComparisonRow]] = {}
    for row in rows:
        by_class.setdefault(row.class_, {})[row.metric] = row
    names = list(by_class)
    omitted_count = len(names) - MAX_CLASSES
    if omitted_count > 0:
        names.sort(key=lambda name: _is_undecided(name, by_class[name]))
    table = [_format_class(name, by_class[name]) for name in names[:MAX_CLASSES]]
    yield from format_table(_HEADS, table, numbers=(1, 2, 3, 4, 5, 7, 8), width=width)
    if omitted_count > 0:
        yield f"and {omitted_count} more classes: --json"


def _is_undecided(class_: str, metrics: Mapping[str, ComparisonRow]) -> bool:
    """Return whether no metric of a class has a word; all prompts are shown anyway."""
    words = {row.verdict for row in metrics.values()}
    return class_ != fmt.ALL_PROMPTS and words == {"no evidence"}


def _format_class(class_: str, metrics: Mapping[str, ComparisonRow]) -> list[str]:
    row = metrics.get(DECIDING_METRIC)
    others = [format_mark(metrics.get(name)) for name in ("tpot_ms", "ttft_ms")]
    if row is None:
        return [class_, *[fmt.ABSENT] * 5, "", *others]
    format_value = fmt.format_times if row.kind == "gain" else fmt.format_number
    figures = [
        format_value(row.before),
        format_value(row.after),
        fmt.format_speed_up(row.speed_up),
        fmt.format_interval(row.speed_up),
    ]
    return [class_, str(row.prompts), *figures, row.verdict, *others]
