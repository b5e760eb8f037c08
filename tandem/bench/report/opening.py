"""The head of the page: the verdict in a sentence, what limits it, and the few figures that carry it.

Invariant: that servers are simulated, and whatever voids or limits the verdict, stands before any figure; a run of
which nothing can be said says so first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tandem.bench.judge import words
from tandem.bench.judge.form import Finding, Headline, OutputFinding, Verdict
from tandem.bench.report.markup import Content, Html, folded, joined, listed, tag
from tandem.bench.simulation import BAND

_SHOWN = 8  # names of classes in one line; the plot has more
_REASONS = 5
_NOTES = 3  # that stand open


class Tone(NamedTuple):
    """How a word looks: a sign, and the class of its colors."""

    sign: str
    class_: str


TONES: dict[Finding, Tone] = {
    "faster": Tone("\u25b2", "good"),
    "slower": Tone("\u25bc", "bad"),
    "same": Tone("=", "even"),
    "mixed": Tone("\u25c6", "caution"),
    "no evidence": Tone("?", "open"),
    "not comparable": Tone("!", "caution"),
    "void": Tone("\u2715", "bad"),
}
_TONES_OF_FASTER: dict[OutputFinding, Tone] = {
    "the same": TONES["faster"],
    "not shown": Tone("\u25b2", "caution"),
    "not the same": Tone("\u2260", "bad"),
}


def find_tone(headline: Headline) -> Tone:
    """Return how a verdict looks: green is for a faster variant whose output is shown to be the baseline's, alone."""
    return _TONES_OF_FASTER[headline.output] if headline.finding == "faster" else TONES[headline.finding]


def title(verdict: Verdict) -> str:
    """Return the page's title."""
    if verdict.controls.void:
        return f"Void: {verdict.run}"
    if len(verdict.headlines) == 1:
        only = verdict.headlines[0]
        return f"{_first_upper(only.verdict)}: {only.variant} against {verdict.baseline}"
    return f"Verdict on {len(verdict.headlines)} variants of {verdict.baseline}" if verdict.headlines else "No verdict"


def opening(verdict: Verdict) -> Html:
    """Return the head."""
    several = len(verdict.headlines) > 1
    return tag(
        "header",
        tag("p", BAND, class_="simulated", role="note") if verdict.simulated else None,
        tag("p", f"Tandem verdict on {verdict.folder}", class_="eyebrow"),
        tag("h1", title(verdict)) if several or not verdict.headlines else None,
        _void(verdict),
        None if verdict.headlines else _nothing(verdict),
        *(_headline(each, verdict, several=several) for each in verdict.headlines),
        _facts(verdict),
        _notes(verdict),
        class_="opening",
    )


def _void(verdict: Verdict) -> Html | None:
    told = verdict.headlines and all(
        each.finding == "void" for each in verdict.headlines
    )  # each says it itself, and why
    if not verdict.controls.void or told:
        return None
    return tag(
        "div",
        tag("p", tag("strong", "This run supports no verdict.")),
        listed(verdict.controls.void),
        class_="banner bad",
        role="note",
    )


def _nothing(verdict: Verdict) -> Html:
    if verdict.variants:
        said = f"Nothing could be compared: no prompt was answered by both {verdict.baseline} and a variant."
    else:
        said = f"Nothing could be compared: {verdict.baseline} was measured alone, without a variant."
    return tag("p", said, class_="lead")


def _headline(headline: Headline, verdict: Verdict, *, several: bool) -> Html:
    tone = find_tone(headline)
    badge = tag(
        "span",
        tag("span", tone.sign, aria_hidden="true"),
        f" {_first_upper(headline.verdict)}",
        class_=f"badge {tone.class_}",
    )
    more = headline.reasons[_REASONS:]
    names = tag("span", f"{headline.variant} against {verdict.baseline}", class_="names")
    return tag(
        "article",
        tag("h2" if several else "h1", badge, " ", names),
        tag("p", headline.sentence, class_="lead"),
        _tiles(headline, verdict),
        _groups(headline),
        tag("h3" if several else "h2", "What limits it", class_="small") if headline.reasons else None,
        listed(headline.reasons[:_REASONS], "reasons"),
        folded(f"{len(more):,} more", listed(more, "reasons")) if more else None,
        class_=f"headline {tone.class_}",
    )


def _first_upper(told: str) -> str:
    return told[:1].upper() + told[1:]


def _tiles(headline: Headline, verdict: Verdict) -> Html | None:
    tiles = [
        _tile(*each) for each in (*_speeds(headline, verdict), *_output(headline, verdict), *_money(headline, verdict))
    ]
    return tag("dl", *tiles, class_="tiles") if tiles else None


def _tile(name: str, figure: str, under: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", tag("b", figure), tag("small", under)))


def _speeds(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Yield the ends of what is decided; an undecided speed-up is no figure for the head of a page."""
    cells = [cell for cell in words.cells_of(verdict, headline) if cell.speed_up and cell.verdict != "no evidence"]
    ranked = sorted(cells, key=lambda cell: cell.speed_up.value if cell.speed_up else 1.0)
    names = ("Best class", "Weakest class") if len(ranked) > 1 else ("Speed-up",)
    loads = len({cell.load for cell in words.cells_of(verdict, headline)})
    for name, cell in zip(names, (*ranked[-1:], *ranked[:1]), strict=False):
        ratio = cell.speed_up
        within = f" ({words.interval(ratio)})" if ratio is not None and ratio.low is not None else ""
        figure = words.times(ratio.value if ratio else None)
        place = f"{cell.class_} at {words.load(cell.load)}" if loads > 1 else cell.class_
        yield f"{name}, {words.short_metric(headline.metric)}", figure, f"{place}{within}: {cell.verdict}"


def _output(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    for equality in verdict.equality:
        share = equality.identical
        if equality.variant == headline.variant and share is not None and share.of:
            told = f"{share.n:,} of {share.of:,} by {equality.by}: {equality.result}"
            yield "Identical outputs", words.percent(share.n / share.of), told


def _money(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    base = {row.load: row.usd_per_million_good_tokens for row in verdict.cost if row.arm == verdict.baseline}
    for row in verdict.cost:
        before, now = base.get(row.load), row.usd_per_million_good_tokens
        if row.arm == headline.variant and before and now is not None:
            change = 100 * (now / before - 1)
            told = f"{abs(change):.0f} % {'less' if change < 0 else 'more'} than the baseline's ${before:,.2f}"
            yield "A million good output tokens", f"${now:,.2f}", f"{told}, at {words.load(row.load)}"
            return


def _groups(headline: Headline) -> Html | None:
    groups = (
        ("Faster", headline.faster),
        ("Slower", headline.slower),
        ("Same", headline.same),
        ("Mixed", headline.mixed),
        ("Undecided", headline.undecided),
    )
    rows = [tag("div", tag("dt", f"{name} ({len(told):,})"), tag("dd", _some(told))) for name, told in groups if told]
    return tag("dl", *rows, class_="groups") if rows else None


def _some(told: Sequence[str]) -> str:
    more = f" and {len(told) - _SHOWN:,} more" if len(told) > _SHOWN else ""
    return "; ".join(told[:_SHOWN]) + more


def _facts(verdict: Verdict) -> Html:
    failed = f", {verdict.failed:,} failed" if verdict.failed else ", none failed"
    facts: tuple[tuple[str, Content], ...] = (
        ("Baseline", verdict.baseline),
        ("Measured", verdict.created_utc),
        ("Requests", f"{verdict.requests:,}{failed}"),
        ("Margin of the same", f"{100 * verdict.margin:g} %"),
        ("Intervals", words.level(verdict)),
        ("Run", verdict.run),
    )
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", told)) for name, told in facts), class_="facts")


def _notes(verdict: Verdict) -> Html | None:
    if not verdict.notes:
        return None
    told = joined([listed(verdict.notes, "notes")])
    if len(verdict.notes) <= _NOTES:
        return tag("div", tag("h2", "Know this too", class_="small"), told)
    return folded(f"{len(verdict.notes)} notes on this run", told)
