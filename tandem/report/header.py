"""The head of the page: the verdict in a sentence, its limits, and its main figures.

Invariant: the note on simulated servers, and the reasons that void or limit the verdict, come before any figure; a void
run says so first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tandem.bench.manifest import RunManifest
from tandem.bench.simulation import SIMULATED_BAND
from tandem.judge import text_format as fmt
from tandem.judge.schema import Headline, OutputFinding, VariantFinding, Verdict
from tandem.report.markup import render_template

_MAX_NAMES = 8  # names of classes in one line; the plot has more
_MAX_REASONS = 5
_MAX_NOTES = 3  # more notes are folded


class VerdictTone(NamedTuple):
    """The look of a word: a sign, and the class of its colors."""

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
    "same quality": TONES["faster"],
    "not shown": VerdictTone("\u25b2", "caution"),
    "not the same": VerdictTone("\u2260", "bad"),
}


def find_tone(headline: Headline, word: VariantFinding | None = None) -> VerdictTone:
    """Return the look of a word of a variant: "faster" is green only if its output is shown to be the baseline's.

    Args:
        headline: of the variant.
        word: of one of its cells; None for the variant's verdict.
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
    return f"Verdict on {len(verdict.headlines)} variants of {verdict.baseline}"


def build_header(verdict: Verdict, manifest: RunManifest) -> Markup:
    """Return the head of the page.

    Args:
        verdict: to show.
        manifest: of the verdict's run, for model and machine.
    """
    is_single = len(verdict.headlines) == 1
    failure_text = f", {verdict.failed:,} failed" if verdict.failed else ", none failed"
    models = dict.fromkeys(fmt.shorten_text(arm.model) for arm in manifest.arms)
    facts = {
        "Model": ", ".join(models),
        "Servers run on": manifest.instance_type or "not stated",
        "Baseline": verdict.baseline,
        "Measured": verdict.created_utc,
        "Requests": f"{verdict.requests:,}{failure_text}",
        "Margin of the same": f"{100 * verdict.margin:g} %",
        "Intervals": fmt.format_level(verdict),
        "Run": verdict.run,
    }
    return render_template(
        "header", verdict=verdict, band=SIMULATED_BAND, title=format_title(verdict),
        heading="h1" if is_single else "h2", subheading="h2" if is_single else "h3",
        entries=[_describe_headline(headline, verdict.baseline) for headline in verdict.headlines],
        void_reasons=[f"{reason.rstrip('.')}." for reason in verdict.controls.void], max_reasons=_MAX_REASONS,
        max_notes=_MAX_NOTES, facts=list(facts.items()),
    )  # fmt: skip


def _describe_headline(headline: Headline, baseline: str) -> dict[str, Any]:
    names = ("faster", "slower", "same", "mixed", "undecided")
    groups: list[tuple[str, Sequence[str]]] = [(name.capitalize(), getattr(headline, name)) for name in names]
    return {
        "headline": headline,
        "verdict": _capitalize_first(headline.verdict),
        "tone": find_tone(headline),
        "next_step": fmt.describe_next_step(headline, baseline),
        "groups": [(f"{name} ({len(classes):,})", _join_names(classes)) for name, classes in groups if classes],
    }


def _capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _join_names(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return "; ".join(names[:_MAX_NAMES]) + suffix
