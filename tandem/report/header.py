"""The head of the page: the verdict in a sentence, what limits it, and the few figures that carry it.

Invariant: that servers are simulated, and whatever voids or limits the verdict, stands before any figure; a run of
which nothing can be said says so first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tandem.bench.simulation import SIMULATED_BAND
from tandem.judge import text_format
from tandem.judge.schema import Headline, OutputFinding, VariantFinding, Verdict
from tandem.report.markup import HtmlContent, HtmlFragment, build_details, build_list, build_tag, join_html

_MAX_NAMES = 8  # names of classes in one line; the plot has more
_MAX_REASONS = 5
_MAX_NOTES = 3  # that stand open


class VerdictTone(NamedTuple):
    """How a word looks: a sign, and the class of its colors."""

    sign: str
    class_: str


TONES: dict[VariantFinding, VerdictTone] = {
    "faster": VerdictTone("\u25b2", "good"),
    "slower": VerdictTone("\u25bc", "bad"),
    "same": VerdictTone("=", "even"),
    "mixed": VerdictTone("\u25c6", "caution"),
    "no evidence": VerdictTone("?", "open"),
    "not comparable": VerdictTone("!", "caution"),
    "void": VerdictTone("\u2715", "bad"),
}
_TONES_OF_FASTER: dict[OutputFinding, VerdictTone] = {
    "the same": TONES["faster"],
    "not shown": VerdictTone("\u25b2", "caution"),
    "not the same": VerdictTone("\u2260", "bad"),
}


def find_tone(headline: Headline, word: VariantFinding | None = None) -> VerdictTone:
    """Return how a word of a variant looks: green is for faster with output shown to be the baseline's, alone.

    Args:
        headline: of the variant.
        word: of one of its cells; None for its verdict.
    """
    word = word or headline.finding
    return _TONES_OF_FASTER[headline.output] if word == "faster" else TONES[word]


def format_title(verdict: Verdict) -> str:
    """Return the page's title."""
    if verdict.controls.void:
        return f"Void: {verdict.run}"
    if len(verdict.headlines) == 1:
        only = verdict.headlines[0]
        return f"{_capitalize_first(only.verdict)}: {only.variant} against {verdict.baseline}"
    return f"Verdict on {len(verdict.headlines)} variants of {verdict.baseline}" if verdict.headlines else "No verdict"


def build_header(verdict: Verdict) -> HtmlFragment:
    """Return the head."""
    several = len(verdict.headlines) > 1
    return build_tag(
        "header",
        build_tag("p", SIMULATED_BAND, class_="simulated", role="note") if verdict.simulated else None,
        build_tag("p", f"Tandem verdict on {verdict.folder}", class_="eyebrow"),
        build_tag("h1", format_title(verdict)) if several or not verdict.headlines else None,
        _build_void_banner(verdict),
        None if verdict.headlines else _build_empty_note(verdict),
        *(_build_headline(headline, verdict, several=several) for headline in verdict.headlines),
        _build_facts(verdict),
        _build_notes(verdict),
        class_="opening",
    )


def _build_void_banner(verdict: Verdict) -> HtmlFragment | None:
    is_redundant = verdict.headlines and all(
        headline.finding == "void" for headline in verdict.headlines
    )  # each says it itself, and why
    if not verdict.controls.void or is_redundant:
        return None
    return build_tag(
        "div",
        build_tag("p", build_tag("strong", "This run supports no verdict.")),
        build_list(verdict.controls.void),
        class_="banner bad",
        role="note",
    )


def _build_empty_note(verdict: Verdict) -> HtmlFragment:
    if verdict.variants:
        sentence = f"Nothing could be compared: no prompt was answered by both {verdict.baseline} and a variant."
    else:
        sentence = f"Nothing could be compared: {verdict.baseline} was measured alone, without a variant."
    return build_tag("p", sentence, class_="lead")


def _build_headline(headline: Headline, verdict: Verdict, *, several: bool) -> HtmlFragment:
    tone = find_tone(headline)
    badge = build_tag(
        "span",
        build_tag("span", tone.sign, aria_hidden="true"),
        f" {_capitalize_first(headline.verdict)}",
        class_=f"badge {tone.class_}",
    )
    extra_reasons = headline.reasons[_MAX_REASONS:]
    names = build_tag("span", f"{headline.variant} against {verdict.baseline}", class_="names")
    return build_tag(
        "article",
        build_tag("h2" if several else "h1", badge, " ", names),
        build_tag("p", headline.sentence, class_="lead"),
        _build_tiles(headline, verdict),
        _build_class_groups(headline),
        build_tag("h3" if several else "h2", "What limits it", class_="small") if headline.reasons else None,
        build_list(headline.reasons[:_MAX_REASONS], "reasons"),
        build_details(f"{len(extra_reasons):,} more", build_list(extra_reasons, "reasons")) if extra_reasons else None,
        class_=f"headline {tone.class_}",
    )


def _capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _build_tiles(headline: Headline, verdict: Verdict) -> HtmlFragment | None:
    tiles = [
        _build_tile(*tile)
        for tile in (
            *_list_speed_tiles(headline, verdict),
            *_list_output_tiles(headline, verdict),
            *_list_cost_tiles(headline, verdict),
        )
    ]
    return build_tag("dl", *tiles, class_="tiles") if tiles else None


def _build_tile(name: str, figure: str, detail: str) -> HtmlFragment:
    return build_tag("div", build_tag("dt", name), build_tag("dd", build_tag("b", figure), build_tag("small", detail)))


def _list_speed_tiles(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Yield the ends of what is decided; an undecided speed-up is no figure for the head of a page."""
    cells = [
        cell for cell in text_format.select_cells(verdict, headline) if cell.speed_up and cell.verdict != "no evidence"
    ]
    sorted_cells = sorted(cells, key=lambda cell: cell.speed_up.value if cell.speed_up else 1.0)
    names = ("Best class", "Weakest class") if len(sorted_cells) > 1 else ("Speed-up",)
    loads = len({cell.load for cell in text_format.select_cells(verdict, headline)})
    for name, cell in zip(names, (*sorted_cells[-1:], *sorted_cells[:1]), strict=False):
        ratio = cell.speed_up
        interval_text = (
            f" ({text_format.format_interval(ratio)})" if ratio is not None and ratio.low is not None else ""
        )
        figure = text_format.format_times(ratio.value if ratio else None)
        place = f"{cell.class_} at {text_format.format_load(cell.load)}" if loads > 1 else cell.class_
        yield f"{name}, {text_format.format_metric(headline.metric)}", figure, f"{place}{interval_text}: {cell.verdict}"


def _list_output_tiles(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    for equality in verdict.equality:
        share = equality.identical
        if equality.variant == headline.variant and share is not None and share.of:
            detail = f"{share.n:,} of {share.of:,} by {equality.by}: {equality.result}"
            yield "Identical outputs", text_format.format_percent(share.n / share.of), detail


def _list_cost_tiles(headline: Headline, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    baseline_costs = {row.load: row.usd_per_million_good_tokens for row in verdict.cost if row.arm == verdict.baseline}
    for row in verdict.cost:
        baseline_usd, variant_usd = baseline_costs.get(row.load), row.usd_per_million_good_tokens
        if row.arm == headline.variant and baseline_usd and variant_usd is not None:
            change = 100 * (variant_usd / baseline_usd - 1)
            detail = f"{abs(change):.0f} % {'less' if change < 0 else 'more'} than the baseline's ${baseline_usd:,.2f}"
            yield (
                "A million good output tokens",
                f"${variant_usd:,.2f}",
                f"{detail}, at {text_format.format_load(row.load)}",
            )
            return


def _build_class_groups(headline: Headline) -> HtmlFragment | None:
    groups = (
        ("Faster", headline.faster),
        ("Slower", headline.slower),
        ("Same", headline.same),
        ("Mixed", headline.mixed),
        ("Undecided", headline.undecided),
    )
    rows = [
        build_tag("div", build_tag("dt", f"{name} ({len(class_names):,})"), build_tag("dd", _join_names(class_names)))
        for name, class_names in groups
        if class_names
    ]
    return build_tag("dl", *rows, class_="groups") if rows else None


def _join_names(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return "; ".join(names[:_MAX_NAMES]) + suffix


def _build_facts(verdict: Verdict) -> HtmlFragment:
    failure_text = f", {verdict.failed:,} failed" if verdict.failed else ", none failed"
    facts: tuple[tuple[str, HtmlContent], ...] = (
        ("Baseline", verdict.baseline),
        ("Measured", verdict.created_utc),
        ("Requests", f"{verdict.requests:,}{failure_text}"),
        ("Margin of the same", f"{100 * verdict.margin:g} %"),
        ("Intervals", text_format.format_level(verdict)),
        ("Run", verdict.run),
    )
    return build_tag(
        "dl",
        *(build_tag("div", build_tag("dt", name), build_tag("dd", value)) for name, value in facts),
        class_="facts",
    )


def _build_notes(verdict: Verdict) -> HtmlFragment | None:
    if not verdict.notes:
        return None
    notes_html = join_html([build_list(verdict.notes, "notes")])
    if len(verdict.notes) <= _MAX_NOTES:
        return build_tag("div", build_tag("h2", "Know this too", class_="small"), notes_html)
    return build_details(f"{len(verdict.notes)} notes on this run", notes_html)
