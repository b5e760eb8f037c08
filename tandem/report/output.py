"""The section on output: is it the same, how often, where it first differs, and examples side by side.

Invariant: what differs is marked by brackets that are read out and by a line under it, not by color alone; the texts
are shown as they came, signs that cannot be seen by signs that can.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

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
from tandem.report.forest_plot import POINT_STYLE
from tandem.report.markup import build_sentence, build_table, clean_value, render_template
from tandem.report.row_layout import build_layer, build_name_layers, compute_row_layout
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
        parts = [build_sentence("Outputs were not compared: there are no pairs of answers to the same prompt.")]
    return ReportSection(name="output", short="Output", title="Is the output the same?", parts=tuple(parts))


def _build_variant_parts(
    equality: OutputEquality, variant_index: int, verdict: Verdict
) -> Iterator[Markup | ReportChart]:
    ratio = equality.lengths
    lengths_text = (
        f"{text_format.format_number(ratio.value)} ({text_format.format_interval(ratio)})"
        if ratio is not None
        else text_format.ABSENT
    )
    yield render_template(
        "output",
        equality=equality,
        baseline=verdict.baseline,
        tone={"the same": "good", "differs": "bad", "no evidence": "open"}[equality.result],
        facts=(
            ("Compared by", equality.by),
            ("Identical", _format_share(equality.identical)),
            ("Yardstick: the baseline against itself", _format_share(equality.yardstick)),
            ("Differing pairs that are near ties", _format_share(equality.near_ties)),
            ("Output tokens, as a ratio of the baseline's", lengths_text),
            ("Refused by the content check", _format_share(equality.garbage)),
            ("Refused of the baseline", _format_share(equality.garbage_of_baseline)),
        ),
    )
    if equality.classes:
        yield _build_identical_chart(equality, variant_index)
    if any(divergence_bin.n for divergence_bin in equality.first_divergence):
        yield _build_divergence_chart(equality, variant_index)
    if equality.examples:
        unit = "character" if equality.by == "characters" else "token"
        examples = [_describe_example(example, unit) for example in equality.examples[:MAX_EXAMPLES]]
        yield render_template("examples", examples=examples, variant=equality.variant, baseline=verdict.baseline)


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
    all_classes = equality.classes
    chart_classes = all_classes if len(all_classes) <= MAX_CLASSES else tuple(sorted_classes[:MAX_CLASSES])
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
    values = []
    for row, class_equality in enumerate(chart_classes):
        identical, yardstick = class_equality.identical, class_equality.yardstick
        if identical.of:
            share = _compute_share(identical)
            values.append({
                "row": row + row_layout.shift, "share": share,
                "low": share if identical.low is None else identical.low,
                "high": share if identical.high is None else identical.high,
                "own": _compute_share(yardstick) if yardstick is not None and yardstick.of else None,
                "told": f"{identical.n:,} of {identical.of:,}",
            })  # fmt: skip
    x, y = row_layout.encode_values("linear", 0, 1), row_layout.encode_rows(len(names))
    axis = {"grid": True, "format": ".0%", "tickCount": 5, "tickSize": 4, "title": "identical"}
    interval = {"x": x | {"field": "low", "axis": axis}, "x2": {"field": "high"}, "y": y}
    yardstick_style: dict[str, Any] = {"orient": "vertical", "size": 18, "thickness": 3, "color": "var(--floor)"}
    point_style: dict[str, Any] = POINT_STYLE | {"shape": "square", "size": 80, "color": "var(--same)"}
    text_style: dict[str, Any] = {"x": row_layout.width - 4, "align": "right", "baseline": "middle"}
    dy = (row_layout.name_offset - row_layout.shift) * row_layout.step if row_layout.narrow else 0
    return {
        "width": width,
        "height": row_layout.step * len(names),
        "data": {"values": values},
        "layer": [
            build_layer("rule", interval, color="var(--same)", strokeWidth=2.5),
            build_layer("tick", {"x": x | {"field": "own"}, "y": y}, **yardstick_style)
            | {"transform": [{"filter": "isValid(datum.own)"}]},
            build_layer("point", {"x": x | {"field": "share"}, "y": y}, **point_style),
            build_layer("text", {"y": y, "text": {"field": "told"}}, dy=dy, **text_style),
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


def _describe_example(example: DivergenceExample, unit: str) -> dict[str, object]:
    """Return where two texts first differ, and both with the words marked that the other does not have there."""
    sides = [_WORD.findall(text[:MAX_TEXT_CHARACTERS]) for text in (example.baseline, example.measured)]
    opcodes = difflib.SequenceMatcher(None, sides[0], sides[1], autojunk=False).get_opcodes()
    return {
        "location": f"{example.class_}, {example.prompt_id}: first difference at {unit} {example.at:,}; "
        f"{_TIE[example.near_tie]}",
        "before": _mark_tokens([(sides[0][code[1] : code[2]], code[0] != "equal") for code in opcodes]),
        "after": _mark_tokens([(sides[1][code[3] : code[4]], code[0] != "equal") for code in opcodes]),
    }


def _mark_tokens(parts: Sequence[tuple[list[str], bool]]) -> Markup:
    """Return the tokens as HTML, those marked of which the flag says that the other side has none of them."""
    pieces = []
    for tokens, is_different in parts:
        lines = [clean_value(line) for line in "".join(tokens).split("\n")]
        line_end = Markup("\u21b5\n") if is_different else Markup("\n")
        content = line_end.join(lines)
        if tokens:
            pieces.append(Markup("<mark>{}</mark>").format(content) if is_different else content)
    return Markup("").join(pieces)
