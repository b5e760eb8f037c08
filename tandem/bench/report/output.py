"""The section on output: is it the same, how often, where it first differs, and examples side by side.

Invariant: what differs is marked by brackets that are read out and by a line under it, not by color alone; the texts
are shown as they came, signs that cannot be seen by signs that can.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Bin, Equality, Example, Share, Verdict
from tandem.bench.report.drawing import HALF, Chart, Spec
from tandem.bench.report.markup import Html, folded, joined, table, tag, text
from tandem.bench.report.section import Section

MOST_EXAMPLES = 6
MOST_ROWS = 60
MOST_TEXT = 1200
"""Characters of one side of an example."""

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
        tag("p", equality.sentence, class_="lead small"),
        _shares(equality),
        _classes(equality),
        class_="card",
    )
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


def _classes(equality: Equality) -> Html | None:
    if not equality.classes:
        return None
    ranked = sorted(
        equality.classes, key=lambda each: each.identical.n / each.identical.of if each.identical.of else 1.0
    )
    shown = equality.classes if len(equality.classes) <= MOST_ROWS else ranked[:MOST_ROWS]
    rows = ((each.class_, _share(each.identical), _share(each.yardstick)) for each in shown)
    left = (
        f"The {len(shown)} classes of {len(ranked):,} that differ most; all are in {FILE}."
        if len(shown) < len(ranked)
        else None
    )
    return folded(
        "Per class",
        tag("p", left, class_="says") if left else None,
        table("Identical outputs per class", ("Class", "Identical", "Baseline against itself"), rows),
    )


def _histogram(equality: Equality, place: int) -> Chart:
    unit = "characters" if equality.by == "characters" else "tokens"
    rows = ((_bin(each), f"{each.n:,}") for each in equality.first_divergence)
    return Chart(
        name=f"first-divergence-{place}",
        title=f"Where the outputs of {words.clean(equality.variant)} first differ",
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
    x = {"field": "bin", "type": "nominal", "sort": None, "scale": {"paddingInner": 0.25},
         "axis": {"title": f"{unit} before the first difference", "labelAngle": -40 if len(values) > 4 else 0}}  # fmt: skip
    y = {"field": "n", "type": "quantitative", "axis": {"tickMinStep": 1, "tickCount": 4, "title": "pairs"}}
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
