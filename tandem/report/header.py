"""The head of the page: the verdict, the servers' absolute figures, and the limits.

Invariant: the note on simulated servers, and the reasons that void the verdict, come before any
figure; a void run says so first. What limits a verdict stands in the same box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tandem.bench.records.manifest import RunManifest
from tandem.judge import text_format as fmt
from tandem.judge.schema import FILE, ArmFigures, Headline, OutputFinding, VariantFinding, Verdict
from tandem.report.chart_page import PageHeader
from tandem.report.markup import build_sentence, build_table, render_template

_MAX_NAMES = 8  # names of classes in one line; the plot has more
_MAX_REASONS = 5
_MAX_ARM_ROWS = 12
MAX_NOTES = 3  # more notes are folded


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
    """Return the look of a variant's word: green only if its output is the baseline's.

    Args:
        headline: of the variant.
        word: of one of its cells; None for the variant's verdict.
    """
    word = word or headline.finding
    if word == "faster":
        return _TONES_OF_FASTER[headline.output]
    return TONES[word]


def format_title(verdict: Verdict) -> str:
    """Return the page's title."""
    if verdict.controls.void:
        return f"Void: {verdict.run}"
    if len(verdict.headlines) == 1:
        only = verdict.headlines[0]
        return f"{_capitalize_first(only.verdict)}: {only.variant} against {verdict.baseline}"
    return f"Verdict on {len(verdict.headlines)} variants of {verdict.baseline}"


def build_header(verdict: Verdict, manifest: RunManifest) -> PageHeader:
    """Return the head of the page.

    Args:
        verdict: to show.
        manifest: of the verdict's run, for model and machine.
    """
    is_single = len(verdict.headlines) == 1
    facts = {
        "Baseline": verdict.baseline,
        **describe_run(verdict, manifest),
        "Equivalence margin": f"{100 * verdict.margin:g} %",
        "Intervals": fmt.format_level(verdict),
    }
    body = render_template(
        "headlines",
        verdict=verdict,
        heading="h1" if is_single else "h2",
        subheading="h2" if is_single else "h3",
        entries=[_describe_headline(headline, verdict) for headline in verdict.headlines],
        void_reasons=end_sentences(verdict.controls.void),
        max_reasons=_MAX_REASONS,
        max_notes=MAX_NOTES,
        notes=fmt.list_notes(verdict),
        facts=list(facts.items()),
    )
    title = format_title(verdict)
    return PageHeader(
        title="" if is_single else title,
        eyebrow=f"Tandem verdict on {verdict.folder}",
        sentences=(),
        source="the records of the run",
        is_simulated=verdict.simulated is True,
        version=verdict.version,
        tab=title,
        body=body,
    )


def describe_run(verdict: Verdict, manifest: RunManifest) -> dict[str, str]:
    """Return the facts of a run that its page names.

    Args:
        verdict: on the run.
        manifest: of the run, for model and machine.
    """
    failure_text = "none failed"
    if verdict.failed:
        failure_text = f"{verdict.failed:,} failed"
    models = dict.fromkeys(fmt.shorten_text(arm.model) for arm in manifest.arms)
    return {
        "Model": ", ".join(models),
        "Servers run on": manifest.instance_type or "not stated",
        "Suites": fmt.describe_suites(verdict) or fmt.ABSENT,
        "Measured": verdict.created_utc,
        "Requests": f"{verdict.requests:,}, {failure_text}",
        "Run": verdict.run,
    }


def end_sentences(texts: Sequence[str]) -> list[str]:
    """Return texts with a full stop each."""
    return [f"{text.rstrip('.')}." for text in texts]


def _describe_headline(headline: Headline, verdict: Verdict) -> dict[str, Any]:
    names = ("faster", "slower", "same", "mixed", "undecided")
    groups = [(name.capitalize(), getattr(headline, name)) for name in names]
    lines = (fmt.describe_output(verdict, headline), fmt.describe_rare_requests(headline))
    return {
        "headline": headline,
        "verdict": _capitalize_first(headline.verdict),
        "tone": find_tone(headline),
        "lines": [line for line in lines if line],
        "arms": build_arms_table(verdict, (verdict.baseline, headline.variant)),
        "next_step": fmt.describe_next_step(headline, verdict),
        "groups": [
            (f"{name} ({len(classes):,})", _join_names(classes))
            for name, classes in groups
            if classes
        ],
    }


def build_arms_table(verdict: Verdict, names: Sequence[str]) -> Markup | None:
    """Return a table of arms: address, load and absolute figures; None without any.

    Args:
        verdict: that has them.
        names: of the arms.
    """
    arms = [figures for figures in verdict.arms if figures.arm in names]
    if not arms:
        return None
    heads = ["Arm", "Address", "Load", "Requests/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99"]
    sentences = []
    if verdict.goodput:
        heads.append("Within limits")
        sentences.append(
            "Within limits: requests within every --goodput limit"
            f" ({fmt.describe_limits(verdict)})."
        )
    if len(arms) > _MAX_ARM_ROWS:
        sentences.append(f"{len(arms) - _MAX_ARM_ROWS:,} more rows are in {FILE}.")
    rows = [
        _format_arm(figures, has_limits=bool(verdict.goodput)) for figures in arms[:_MAX_ARM_ROWS]
    ]
    table = build_table(
        "Servers, over all prompts", heads, rows, numbers=range(3, len(heads)), class_="arms"
    )
    if not sentences:
        return table
    return table + build_sentence(" ".join(sentences))


def _format_arm(figures: ArmFigures, *, has_limits: bool) -> list[str]:
    times_ms = (figures.ttft_p50_ms, figures.ttft_p99_ms, figures.tpot_p50_ms, figures.tpot_p99_ms)
    times = [
        fmt.ABSENT if value is None else f"{fmt.format_number(value)} ms" for value in times_ms
    ]
    rate = fmt.format_number(figures.requests_per_s)
    row = [fmt.shorten_text(figures.arm), figures.url, fmt.format_load(figures.load), rate, *times]
    if not has_limits:
        return row
    return [*row, fmt.format_attainment(figures)]


def _capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _join_names(names: Sequence[str]) -> str:
    suffix = ""
    if len(names) > _MAX_NAMES:
        suffix = f" and {len(names) - _MAX_NAMES:,} more"
    return "; ".join(names[:_MAX_NAMES]) + suffix
