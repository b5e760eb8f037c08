"""The section on output: is it the same, how often, where it first differs, and examples side by side.

Invariant: what differs is marked by brackets that are read out and by a line under it, not by color alone; the texts
are shown as they came, signs that cannot be seen by signs that can.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from tandem.judge import text_format
from tandem.judge.schema import (
    FILE,
    ClassEquality,
    DivergenceExample,
    HistogramBin,
    OutputEquality,
    ShareEstimate,
    Verdict,
)
from tandem.report.charts import HALF_PX, ReportChart, VegaSpec
from tandem.report.markup import HtmlFragment, build_table, build_tag, escape_text, join_html
from tandem.report.row_layout import build_name_layers, compute_row_layout
from tandem.report.section import ReportSection

MAX_EXAMPLES = 6
MAX_CLASSES = 24
MAX_TEXT_CHARACTERS = 1200
"""Characters of one side of an example."""

_MAX_LEVEL_LABELS = 4  # labels that fit beside each other on a phone
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_TIE = {
    True: "a near tie by log-probability",
    False: "no near tie by log-probability",
    None: "log-probabilities not known",
}


def build_output_section(verdict: Verdict) -> ReportSection:
    """Return the section."""
    parts = [
        part
        for variant_index, equality in enumerate(verdict.equality)
        for part in _build_variant_parts(equality, variant_index, verdict)
    ]
    if not parts:
        parts = [
            build_tag(
                "p", "Outputs were not compared: there are no pairs of answers to the same prompt.", class_="says"
            )
        ]
    return ReportSection(name="output", short="Output", title="Is the output the same?", parts=tuple(parts))


def _build_variant_parts(
    equality: OutputEquality, variant_index: int, verdict: Verdict
) -> Iterator[HtmlFragment | ReportChart]:
    tone = {"the same": "good", "differs": "bad", "no evidence": "open"}[equality.result]
    yield build_tag(
        "div",
        build_tag(
            "h3",
            build_tag("span", equality.result, class_=f"word {tone}"),
            f" {equality.variant} against {verdict.baseline}",
        ),
        build_tag("p", equality.sentence, class_="lead less"),
        _build_share_list(equality),
        class_="card",
    )
    if equality.classes:
        yield _build_identical_chart(equality, variant_index)
    if any(divergence_bin.n for divergence_bin in equality.first_divergence):
        yield _build_divergence_chart(equality, variant_index)
    if equality.examples:
        yield _build_examples(equality, verdict)


def _build_share_list(equality: OutputEquality) -> HtmlFragment:
    ratio = equality.lengths
    rows = [
        ("Compared by", equality.by),
        ("Identical", _format_share(equality.identical)),
        ("Yardstick: the baseline against itself", _format_share(equality.yardstick)),
        ("Differing pairs that are near ties", _format_share(equality.near_ties)),
        (
            "Output tokens, as a ratio of the baseline's",
            f"{text_format.format_number(ratio.value)} ({text_format.format_interval(ratio)})"
            if ratio is not None
            else text_format.ABSENT,
        ),
        ("Refused by the content check", _format_share(equality.garbage)),
        ("Refused of the baseline", _format_share(equality.garbage_of_baseline)),
    ]
    return build_tag(
        "dl", *(build_tag("div", build_tag("dt", name), build_tag("dd", value)) for name, value in rows), class_="facts"
    )


def _format_share(share: ShareEstimate | None) -> str:
    if share is None or not share.of:
        return "not known"
    interval_text = (
        f", {text_format.format_percent(share.low)} to {text_format.format_percent(share.high)}"
        if share.low is not None
        else ""
    )
    return f"{share.n:,} of {share.of:,} ({text_format.format_percent(share.n / share.of)}{interval_text})"


def _build_identical_chart(equality: OutputEquality, variant_index: int) -> ReportChart:
    sorted_classes = sorted(equality.classes, key=lambda class_equality: _compute_share(class_equality.identical))
    all_classes, chart_classes = (
        equality.classes,
        (equality.classes if len(sorted_classes) <= MAX_CLASSES else tuple(sorted_classes[:MAX_CLASSES])),
    )
    omission_note = (
        f" The {len(chart_classes)} of {len(all_classes):,} classes that differ most; all are in {FILE}."
        if len(chart_classes) < len(all_classes)
        else ""
    )
    rows = (
        (class_equality.class_, _format_share(class_equality.identical), _format_share(class_equality.yardstick))
        for class_equality in chart_classes
    )
    return ReportChart(
        name=f"identical-{variant_index}",
        title=f"Identical outputs per class, {text_format.shorten_text(equality.variant)}",
        caption="The mark is the share of pairs that are identical, its line the interval; the upright line is the "
        f"yardstick, the baseline's own share against itself.{omission_note}",
        spec=lambda width: _build_share_spec(chart_classes, width),
        table=build_table("Identical outputs per class", ("Class", "Identical", "Baseline against itself"), rows),
        width_px=HALF_PX,
    )


def _compute_share(share: ShareEstimate | None) -> float:
    return share.n / share.of if share is not None and share.of else 1.0


def _build_share_spec(chart_classes: Sequence[ClassEquality], width: int) -> VegaSpec:
    names = [class_equality.class_ for class_equality in chart_classes]
    row_layout = compute_row_layout(width, names, figure_px=90, step=26)
    values = [
        {
            "row": row + row_layout.shift,
            "share": _compute_share(class_equality.identical),
            "low": class_equality.identical.low
            if class_equality.identical.low is not None
            else _compute_share(class_equality.identical),
            "high": class_equality.identical.high
            if class_equality.identical.high is not None
            else _compute_share(class_equality.identical),
            "own": _compute_share(class_equality.yardstick)
            if class_equality.yardstick is not None and class_equality.yardstick.of
            else None,
            "told": f"{class_equality.identical.n:,} of {class_equality.identical.of:,}",
        }
        for row, class_equality in enumerate(chart_classes)
        if class_equality.identical.of
    ]
    x = {
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [row_layout.first, row_layout.last], "nice": False},
    }
    axis = {"grid": True, "format": ".0%", "tickCount": 5, "tickSize": 4, "title": "identical"}
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": row_layout.y_scale(len(names))}
    text_mark = {
        "type": "text",
        "x": row_layout.width - 4,
        "align": "right",
        "baseline": "middle",
        "dy": (row_layout.name_offset - row_layout.shift) * row_layout.step if row_layout.narrow else 0,
    }
    return {
        "width": width,
        "height": row_layout.step * len(names),
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "rule", "color": "var(--same)", "strokeWidth": 2.5},
                "encoding": {"x": x | {"field": "low", "axis": axis}, "x2": {"field": "high"}, "y": y},
            },
            {
                "transform": [{"filter": "isValid(datum.own)"}],
                "mark": {"type": "tick", "orient": "vertical", "size": 18, "thickness": 3, "color": "var(--floor)"},
                "encoding": {"x": x | {"field": "own"}, "y": y},
            },
            {
                "mark": {
                    "type": "point",
                    "filled": True,
                    "shape": "square",
                    "size": 80,
                    "opacity": 1,
                    "color": "var(--same)",
                    "stroke": "var(--card)",
                    "strokeWidth": 1,
                },
                "encoding": {"x": x | {"field": "share"}, "y": y},
            },
            {"mark": text_mark, "encoding": {"y": y, "text": {"field": "told"}}},
            *build_name_layers(row_layout, names),
        ],
    }


def _build_divergence_chart(equality: OutputEquality, variant_index: int) -> ReportChart:
    unit = "characters" if equality.by == "characters" else "tokens"
    rows = ((_format_bin(divergence_bin), f"{divergence_bin.n:,}") for divergence_bin in equality.first_divergence)
    return ReportChart(
        name=f"first-divergence-{variant_index}",
        title=f"Where the outputs of {text_format.shorten_text(equality.variant)} first differ",
        caption=f"Pairs that differ, by the number of {unit} before the first difference.",
        spec=lambda width: _build_histogram_spec(equality.first_divergence, unit, width),
        table=build_table("First difference", (unit.capitalize(), "Pairs"), rows, numbers=(1,)),
        width_px=HALF_PX,
        has_slide=False,
    )


def _format_bin(divergence_bin: HistogramBin) -> str:
    if divergence_bin.last is None:
        return f"{divergence_bin.first:,} and more"
    return (
        f"{divergence_bin.first:,}"
        if divergence_bin.last == divergence_bin.first + 1
        else f"{divergence_bin.first:,} to {divergence_bin.last - 1:,}"
    )


def _build_histogram_spec(bins: Sequence[HistogramBin], unit: str, width: int) -> VegaSpec:
    values = [
        {
            "bin": _format_bin(divergence_bin),
            "n": divergence_bin.n,
            "told": f"{divergence_bin.n:,}" if divergence_bin.n else "",
        }
        for divergence_bin in bins
    ]
    axis = {"title": f"{unit} before the first difference", "labelAngle": -40 if len(values) > _MAX_LEVEL_LABELS else 0}
    x = {"field": "bin", "type": "nominal", "sort": None, "scale": {"paddingInner": 0.25}, "axis": axis}
    y = {"field": "n", "type": "quantitative", "axis": None}  # each column has its figure
    return {
        "width": width,
        "height": 190,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": values},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": {"type": "bar", "color": "var(--same)"}},
            {"mark": {"type": "text", "dy": -8}, "encoding": {"text": {"field": "told"}}},
        ],
    }


def _build_examples(equality: OutputEquality, verdict: Verdict) -> HtmlFragment:
    examples = equality.examples[:MAX_EXAMPLES]
    unit = "character" if equality.by == "characters" else "token"
    return build_tag(
        "div",
        build_tag("h3", f"Examples that differ, {equality.variant}"),
        build_tag("p", "What one side alone has stands between brackets and is underlined.", class_="says"),
        *(_build_example(example, unit, equality.variant, verdict.baseline) for example in examples),
        class_="card",
    )


def _build_example(example: DivergenceExample, unit: str, variant: str, baseline: str) -> HtmlFragment:
    before, after = _mark_differences(example.baseline[:MAX_TEXT_CHARACTERS], example.measured[:MAX_TEXT_CHARACTERS])
    location = (
        f"{example.class_}, {example.prompt_id}: first difference at {unit} {example.at:,}; {_TIE[example.near_tie]}"
    )
    return build_tag(
        "section",
        build_tag("h4", location),
        build_tag(
            "div",
            build_tag("div", build_tag("h5", baseline), build_tag("pre", before)),
            build_tag("div", build_tag("h5", variant), build_tag("pre", after)),
            class_="pair",
        ),
        class_="example",
    )


def _mark_differences(before: str, after: str) -> tuple[HtmlFragment, HtmlFragment]:
    """Return both texts with the words marked that the other does not have there."""
    sides = _WORD.findall(before), _WORD.findall(after)
    opcodes = difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes()
    return (
        join_html(
            _render_part(sides[0][first:last], is_different=operation != "equal")
            for operation, first, last, _, _ in opcodes
        ),
        join_html(
            _render_part(sides[1][first:last], is_different=operation != "equal")
            for operation, _, _, first, last in opcodes
        ),
    )


def _render_part(tokens: Sequence[str], *, is_different: bool) -> HtmlFragment | None:
    if not tokens:
        return None
    content = join_html(
        (escape_text(line) for line in "".join(tokens).split("\n")), "\u21b5\n" if is_different else "\n"
    )
    return build_tag("mark", content) if is_different else content
