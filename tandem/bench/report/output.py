"""The section on output: is it the same, how often, where it first differs, and examples side by side.

Invariant: what differs is marked by brackets that are read out and by a line under it, not by color alone; the texts
are shown as they came, signs that cannot be seen by signs that can.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Bin, Equality, EqualityOfClass, Example, Share, Verdict
from tandem.bench.report.drawing import HALF, Chart, Spec
from tandem.bench.report.markup import Html, joined, table, tag, text
from tandem.bench.report.rows import layout, named
from tandem.bench.report.section import Section

MOST_EXAMPLES = 6
MOST_CLASSES = 24
MOST_TEXT = 1200
"""Characters of one side of an example."""

_LEVEL = 4  # labels that fit beside each other on a phone
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_TIE = {
    True: "a near tie by log-probability",
    False: "no near tie by log-probability",
    None: "log-probabilities not known",
}


def section(verdict: Verdict) -> Section:
    """Return the section."""
    parts = [part for place, each in enumerate(verdict.equality) for part in _variant(each, place, verdict)]
    if not parts:
        parts = [
            tag("p", "Outputs were not compared: there are no pairs of answers to the same prompt.", class_="says")
        ]
    return Section(name="output", short="Output", title="Is the output the same?", parts=tuple(parts))


def _variant(equality: Equality, place: int, verdict: Verdict) -> Iterator[Html | Chart]:
    tone = {"the same": "good", "differs": "bad", "no evidence": "open"}[equality.result]
    yield tag(
        "div",
        tag(
            "h3", tag("span", equality.result, class_=f"word {tone}"), f" {equality.variant} against {verdict.baseline}"
        ),
        tag("p", equality.sentence, class_="lead less"),
        _shares(equality),
        class_="card",
    )
    if equality.classes:
        yield _identical(equality, place)
    if any(each.n for each in equality.first_divergence):
        yield _histogram(equality, place)
    if equality.examples:
        yield _examples(equality, verdict)


def _shares(equality: Equality) -> Html:
    ratio = equality.lengths
    rows = [
        ("Compared by", equality.by),
        ("Identical", _share(equality.identical)),
        ("Yardstick: the baseline against itself", _share(equality.yardstick)),
        ("Differing pairs that are near ties", _share(equality.near_ties)),
        ("Output tokens, as a ratio of the baseline's",
         f"{words.number(ratio.value)} ({words.interval(ratio)})" if ratio is not None else words.ABSENT),
        ("Refused by the content check", _share(equality.garbage)),
        ("Refused of the baseline", _share(equality.garbage_of_baseline)),
    ]  # fmt: skip
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", told)) for name, told in rows), class_="facts")


def _share(share: Share | None) -> str:
    if share is None or not share.of:
        return "not known"
    between = f", {words.percent(share.low)} to {words.percent(share.high)}" if share.low is not None else ""
    return f"{share.n:,} of {share.of:,} ({words.percent(share.n / share.of)}{between})"


def _identical(equality: Equality, place: int) -> Chart:
    ranked = sorted(equality.classes, key=lambda each: _part_of(each.identical))
    every, shown = equality.classes, (equality.classes if len(ranked) <= MOST_CLASSES else tuple(ranked[:MOST_CLASSES]))
    left = (
        f" The {len(shown)} of {len(every):,} classes that differ most; all are in {FILE}."
        if len(shown) < len(every)
        else ""
    )
    rows = ((each.class_, _share(each.identical), _share(each.yardstick)) for each in shown)
    return Chart(
        name=f"identical-{place}", title=f"Identical outputs per class, {words.short(equality.variant)}",
        says="The mark is the share of pairs that are identical, its line the interval; the upright line is the "
        f"yardstick, the baseline's own share against itself.{left}",
        spec=lambda width: _shares_spec(shown, width),
        table=table("Identical outputs per class", ("Class", "Identical", "Baseline against itself"), rows),
        wide=HALF,
    )  # fmt: skip


def _part_of(share: Share | None) -> float:
    return share.n / share.of if share is not None and share.of else 1.0


def _shares_spec(shown: Sequence[EqualityOfClass], width: int) -> Spec:
    names = [each.class_ for each in shown]
    places = layout(width, names, beside=90, step=26)
    values = [
        {"row": row + places.shift, "share": _part_of(each.identical),
         "low": each.identical.low if each.identical.low is not None else _part_of(each.identical),
         "high": each.identical.high if each.identical.high is not None else _part_of(each.identical),
         "own": _part_of(each.yardstick) if each.yardstick is not None and each.yardstick.of else None,
         "told": f"{each.identical.n:,} of {each.identical.of:,}"}
        for row, each in enumerate(shown) if each.identical.of
    ]  # fmt: skip
    x = {"type": "quantitative", "scale": {"domain": [0, 1], "range": [places.first, places.last], "nice": False}}
    axis = {"grid": True, "format": ".0%", "tickCount": 5, "tickSize": 4, "title": "identical"}
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": places.y(len(names))}
    told = {"type": "text", "x": places.width - 4, "align": "right", "baseline": "middle",
            "dy": (places.above - places.shift) * places.step if places.narrow else 0}  # fmt: skip
    return {
        "width": width,
        "height": places.step * len(names),
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "rule", "color": "var(--same)", "strokeWidth": 2.5},
             "encoding": {"x": x | {"field": "low", "axis": axis}, "x2": {"field": "high"}, "y": y}},
            {"transform": [{"filter": "isValid(datum.own)"}],
             "mark": {"type": "tick", "orient": "vertical", "size": 18, "thickness": 3, "color": "var(--floor)"},
             "encoding": {"x": x | {"field": "own"}, "y": y}},
            {"mark": {"type": "point", "filled": True, "shape": "square", "size": 80, "opacity": 1,
                      "color": "var(--same)",
                      "stroke": "var(--card)", "strokeWidth": 1},
             "encoding": {"x": x | {"field": "share"}, "y": y}},
            {"mark": told, "encoding": {"y": y, "text": {"field": "told"}}},
            *named(places, names),
        ],
    }  # fmt: skip


def _histogram(equality: Equality, place: int) -> Chart:
    unit = "characters" if equality.by == "characters" else "tokens"
    rows = ((_bin(each), f"{each.n:,}") for each in equality.first_divergence)
    return Chart(
        name=f"first-divergence-{place}",
        title=f"Where the outputs of {words.short(equality.variant)} first differ",
        says=f"Pairs that differ, by the number of {unit} before the first difference.",
        spec=lambda width: _columns(equality.first_divergence, unit, width),
        table=table("First difference", (unit.capitalize(), "Pairs"), rows, numbers=(1,)),
        wide=HALF,
        slide=False,
    )


def _bin(told: Bin) -> str:
    if told.last is None:
        return f"{told.first:,} and more"
    return f"{told.first:,}" if told.last == told.first + 1 else f"{told.first:,} to {told.last - 1:,}"


def _columns(bins: Sequence[Bin], unit: str, width: int) -> Spec:
    values = [{"bin": _bin(each), "n": each.n, "told": f"{each.n:,}" if each.n else ""} for each in bins]
    axis = {"title": f"{unit} before the first difference", "labelAngle": -40 if len(values) > _LEVEL else 0}
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


def _examples(equality: Equality, verdict: Verdict) -> Html:
    shown = equality.examples[:MOST_EXAMPLES]
    unit = "character" if equality.by == "characters" else "token"
    return tag(
        "div",
        tag("h3", f"Examples that differ, {equality.variant}"),
        tag("p", "What one side alone has stands between brackets and is underlined.", class_="says"),
        *(_example(each, unit, equality.variant, verdict.baseline) for each in shown),
        class_="card",
    )


def _example(example: Example, unit: str, variant: str, baseline: str) -> Html:
    before, after = _marked(example.baseline[:MOST_TEXT], example.measured[:MOST_TEXT])
    where = (
        f"{example.class_}, {example.prompt_id}: first difference at {unit} {example.at:,}; {_TIE[example.near_tie]}"
    )
    return tag(
        "section",
        tag("h4", where),
        tag(
            "div",
            tag("div", tag("h5", baseline), tag("pre", before)),
            tag("div", tag("h5", variant), tag("pre", after)),
            class_="pair",
        ),
        class_="example",
    )


def _marked(before: str, after: str) -> tuple[Html, Html]:
    """Return both texts with the words marked that the other does not have there."""
    sides = _WORD.findall(before), _WORD.findall(after)
    found = difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes()
    return (
        joined(_part(sides[0][first:last], own=word != "equal") for word, first, last, _, _ in found),
        joined(_part(sides[1][first:last], own=word != "equal") for word, _, _, first, last in found),
    )


def _part(told: Sequence[str], *, own: bool) -> Html | None:
    if not told:
        return None
    shown = joined((text(line) for line in "".join(told).split("\n")), "\u21b5\n" if own else "\n")
    return tag("mark", shown) if own else shown
