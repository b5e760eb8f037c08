"""The section on output: whether it is the same, how often, where it parts, examples.

Invariant: brackets, which a screen reader reads out, and underlining mark the differences, not only
color; the texts are shown unchanged, except that visible signs replace invisible characters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from markupsafe import Markup

from tandem.judge import schema
from tandem.judge import text_format as fmt
from tandem.report import charts
from tandem.report.charts import HALF_PX, ReportChart, ReportSection, VegaSpec, build_layer
from tandem.report.markup import build_sentence, build_table, clean_value, render_template
from tandem.report.row_chart import RowChart, RowMark, ValueAxis

MAX_EXAMPLES = 6
MAX_CLASSES = 24
MAX_TEXT_CHARACTERS = 1200
"""Most characters of one side of an example."""

_MAX_LEVEL_LABELS = 4  # labels that fit next to each other on a phone
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_TONES = {"the same": "good", "differs": "bad", "no evidence": "open"}
_TIE = {
    True: "a near tie by log-probability",
    False: "no near tie by log-probability",
    None: "log-probabilities not known",
}


def build_output_section(verdict: schema.Verdict) -> ReportSection:
    """Return the section on output."""
    parts: list[Markup | ReportChart] = []
    for place, equality in enumerate(verdict.equality):
        parts += _build_variant_parts(equality, place, verdict.baseline)
    parts += [
        build_sentence(
            f"Quality of {task.variant} on {task.task}: {task.word}."
            f" {fmt.describe_quality(task, verdict.baseline)}"
        )
        for task in verdict.quality
    ]
    if not parts:
        parts = [
            build_sentence(
                "Outputs were not compared: there are no pairs of answers to the same prompt."
            )
        ]
    return ReportSection(
        name="output", short="Output", title="Is the output the same?", parts=tuple(parts)
    )


def _build_variant_parts(
    equality: schema.OutputEquality, place: int, baseline: str
) -> Iterator[Markup | ReportChart]:
    ratio = equality.lengths
    length_text = fmt.ABSENT
    if ratio is not None:
        length_text = f"{fmt.format_number(ratio.value)} ({fmt.format_interval(ratio)})"
    facts = {
        "Compared by": equality.by,
        "Identical": _format_share(equality.identical),
        "Yardstick: the baseline against itself": _format_share(equality.yardstick),
        "Differing pairs that are near ties": _format_share(equality.near_ties),
        "Output tokens, as a ratio of the baseline's": length_text,
        "Refused by the content check": _format_share(equality.garbage),
        "Refused of the baseline": _format_share(equality.garbage_of_baseline),
    }
    tone = _TONES[equality.result]
    yield render_template(
        "output", equality=equality, baseline=baseline, tone=tone, facts=list(facts.items())
    )
    if equality.classes:
        yield _build_identical_chart(equality, place)
    if any(bar.n for bar in equality.first_divergence):
        yield _build_divergence_chart(equality, place)
    if equality.examples:
        unit = "character" if equality.by == "characters" else "token"
        examples = [
            _describe_example(example, unit) for example in equality.examples[:MAX_EXAMPLES]
        ]
        yield render_template(
            "examples", examples=examples, variant=equality.variant, baseline=baseline
        )


def _format_share(share: schema.ShareEstimate | None) -> str:
    if share is None:
        return "not known"
    interval = ""
    if share.low is not None:
        interval = f", {fmt.format_percent(share.low)} to {fmt.format_percent(share.high)}"
    return f"{share.n:,} of {share.of:,} ({fmt.format_percent(share.share)}{interval})"


def _build_identical_chart(equality: schema.OutputEquality, place: int) -> ReportChart:
    classes: Sequence[schema.ClassEquality] = equality.classes
    note = ""
    if len(classes) > MAX_CLASSES:
        classes = sorted(classes, key=lambda entry: entry.identical.share)[:MAX_CLASSES]
        counts = f"{MAX_CLASSES} of {len(equality.classes):,}"
        note = f" The {counts} classes that differ most; all are in {schema.FILE}."
    rows = (
        (entry.class_, _format_share(entry.identical), _format_share(entry.yardstick))
        for entry in classes
    )
    return ReportChart(
        name=f"identical-{place}",
        title=f"Identical outputs per class, {fmt.shorten_text(equality.variant)}",
        caption=(
            "The mark is the share of pairs that are identical, its line the interval; the upright"
            f" line is the yardstick, the baseline's own share against itself.{note}"
        ),
        spec=partial(_build_share_spec, classes),
        table=build_table(
            "Identical outputs per class", ("Class", "Identical", "Baseline against itself"), rows
        ),
        width_px=HALF_PX,
    )


def _build_share_spec(classes: Sequence[schema.ClassEquality], width: int) -> VegaSpec:
    rows = []
    for entry in classes:
        identical = entry.identical
        share = identical.share
        row = {
            "row": fmt.shorten_text(entry.class_),
            "share": share,
            "low": share if identical.low is None else identical.low,
            "high": share if identical.high is None else identical.high,
            "own": None if entry.yardstick is None else entry.yardstick.share,
            "figure": f"{identical.n:,} of {identical.of:,}",
        }
        rows.append(row)
    color = {"color": "var(--same)"}
    yardstick_style = {"orient": "vertical", "size": 18, "thickness": 3, "color": "var(--floor)"}
    point_style = {"filled": True, "size": 80, "opacity": 1, "shape": "square", **color}
    ticks = {"format": ".0%", "tickCount": 5}
    chart = RowChart(
        rows=rows,
        axis=ValueAxis(title="identical", first=0, last=1, figure_px=85, ticks=ticks),
        marks=[
            RowMark("rule", "low", "high", {**color, "strokeWidth": 2.5}),
            RowMark("tick", "own", "", yardstick_style),
            RowMark("point", "share", "", point_style),
        ],
        figures=[("figure", 0)],
        step_px=26,
    )
    return chart.build_spec(width)


def _build_divergence_chart(equality: schema.OutputEquality, place: int) -> ReportChart:
    unit = "characters" if equality.by == "characters" else "tokens"
    rows = [(_format_bin(bar), f"{bar.n:,}") for bar in equality.first_divergence]
    return ReportChart(
        name=f"first-divergence-{place}",
        title=f"Where the outputs of {fmt.shorten_text(equality.variant)} first differ",
        caption=f"Pairs that differ, by the number of {unit} before the first difference.",
        spec=partial(_build_histogram_spec, equality.first_divergence, unit),
        table=build_table("First difference", (unit.capitalize(), "Pairs"), rows, numbers=(1,)),
        width_px=HALF_PX,
        has_slide=False,
    )


def _format_bin(bar: schema.HistogramBin) -> str:
    if bar.last == bar.first + 1:
        return f"{bar.first:,}"
    return f"{bar.first:,} to {bar.last - 1:,}"


def _build_histogram_spec(bars: Sequence[schema.HistogramBin], unit: str, width: int) -> VegaSpec:
    values = [
        {"bin": _format_bin(bar), "n": bar.n, "told": f"{bar.n:,}" if bar.n else ""} for bar in bars
    ]
    axis = {
        "title": f"{unit} before the first difference",
        "labelAngle": -40 if len(values) > _MAX_LEVEL_LABELS else 0,
    }
    x = {
        "field": "bin",
        "type": "nominal",
        "sort": None,
        "scale": {"paddingInner": 0.25},
        "axis": axis,
    }
    y = {"field": "n", "type": "quantitative", "axis": None}  # each column has its figure
    layers = [
        {"mark": {"type": "bar", "color": "var(--same)"}},
        build_layer("text", {"text": {"field": "told"}}, dy=-8),
    ]
    return charts.build_fit_spec(
        width, 190, data={"values": values}, encoding={"x": x, "y": y}, layer=layers
    )


def _describe_example(example: schema.DivergenceExample, unit: str) -> dict[str, object]:
    """Return where two texts first differ, and both with their differing words marked."""
    before = _WORD.findall(example.baseline[:MAX_TEXT_CHARACTERS])
    after = _WORD.findall(example.measured[:MAX_TEXT_CHARACTERS])
    opcodes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    place = f"{example.class_}, {example.prompt_id}: first difference at {unit} {example.at:,}"
    return {
        "location": f"{place}; {_TIE[example.near_tie]}",
        "is_hidden": example.is_hidden,
        "before": _mark_tokens(
            (before[first:last], tag != "equal") for tag, first, last, _, _ in opcodes
        ),
        "after": _mark_tokens(
            (after[first:last], tag != "equal") for tag, _, _, first, last in opcodes
        ),
    }


def _mark_tokens(parts: Iterable[tuple[list[str], bool]]) -> Markup:
    """Return the tokens as HTML, marking those that the other side lacks."""
    pieces = []
    for tokens, is_different in parts:
        if not tokens:
            continue
        line_end = Markup("\u21b5\n") if is_different else Markup("\n")
        content = line_end.join(clean_value(line) for line in "".join(tokens).split("\n"))
        if is_different:
            content = Markup("<mark>{}</mark>").format(content)
        pieces.append(content)
    return Markup("").join(pieces)
