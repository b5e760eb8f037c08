"""The post's Figures 3, 4 and 5 as it draws them: two prompts, each with and without speculation, over time.

Invariant: what exists is drawn, whatever the dashboard's choices say: each series is found by a SEARCH that names
prompt and arm, and no concurrency.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import BENCH, find_metric
from tandem.monitoring.dashboard_arms import PERIOD_S, DashboardArms
from tandem.monitoring.layout import build_text
from tandem.monitoring.widget import GraphWidget, MathExpression, TextWidget, dimension_label
from tandem.spec.experiment import Variant

SUITE = "post"
PROMPTS = ("repeat", "open")  # the two that the post's figures compare: tandem/bench/suites/data/post.jsonl
PROMPT_COLORS = {False: ("#7a8ba6", "#44546c"), True: ("#e69f00", "#a35a00")}  # by speculation, then by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class _PostFigure:
    """One of the post's figures: the metric, its title and what it says and does not."""

    metric: str
    title: str
    sentence: str


_FIGURES = (
    _PostFigure(
        metric="e2e_ms",
        title="Figure 3: E2E latency",
        sentence="The post: the structured prompt is faster with speculation all along, the open-ended one is not. E2E "
        "alone does not say which part of a request got faster.",
    ),
    _PostFigure(
        metric="ttft_ms",
        title="Figure 5: TTFT",
        sentence="The post: unchanged by speculation. A difference here comes from queue or prefill, not from accepted "
        "tokens.",
    ),
    _PostFigure(
        metric="tpot_ms",
        title="Figure 4, as time per output token",
        sentence="(E2E - TTFT) / (tokens - 1): each token counts, however many came in one chunk. The post "
        "prints no such "
        "figure.",
    ),
    _PostFigure(
        metric="llmperf_inter_token_latency_ms",
        title="Figure 4, as llmperf computes it",
        sentence="Arrival of the last chunk / number of chunks: llmperf counts chunks as tokens. Under "
        "speculation a chunk "
        "holds several, so this stays near the time of a step and hides the gain.",
    ),
)


def build_post_figures(arms: DashboardArms) -> tuple[GraphWidget | TextWidget, ...]:
    """Return the post's figures of an experiment, or why it has none."""
    speculative_arm = next((variant for variant in arms.variants if variant.mode != "none"), None)
    if arms.baseline is None or speculative_arm is None:
        return (
            build_text("**The post's Figures 3 to 5** compare a baseline and an arm that speculates; one is missing."),
        )
    if SUITE not in arms.experiment_scope.traffic.suites:
        return (build_text("**The post's Figures 3 to 5** need the suite `post`, which this experiment does not ask."),)
    pair = (arms.baseline, speculative_arm)
    arm_names = f"{pair[0].name} and {pair[1].name}{', the first that speculates' if len(arms.variants) > 1 else ''}"
    return (
        build_text(
            f"### The post's Figures 3, 4 and 5\nMedians over time of its two prompts, `{PROMPTS[0]}` (structured) and "
            f"`{PROMPTS[1]}` (open-ended), without and with speculation: {arm_names}. Every concurrency that "
            "was measured "
            "is found and drawn. The post's inter-token latency is llmperf's; it stands beside the time per output "
            "token, which is the one that speculation lowers."
        ),
        *(_build_figure_graph(arms, pair, figure) for figure in _FIGURES),
    )


def _build_figure_graph(arms: DashboardArms, pair: tuple[Variant, Variant], figure: _PostFigure) -> GraphWidget:
    unit = find_metric(figure.metric).unit
    return GraphWidget(
        title=f"{figure.title}, p50 [{unit}]",
        sentence=figure.sentence,
        unit=unit,
        publishers=(BENCH,),
        lines=tuple(
            MathExpression(
                text=arms.build_search(figure.metric, "p50", Variant=variant.name, PromptClass=prompt),
                label=f"{prompt}, {variant.name}, concurrency {dimension_label('Concurrency')}",
                id=f"f{2 * row + column}",
                color=PROMPT_COLORS[variant.mode != "none"][row],
            )
            for row, prompt in enumerate(PROMPTS)
            for column, variant in enumerate(pair)
        ),
        period_s=PERIOD_S,
        varies=False,
    )
