"""The post's Figures 3, 4 and 5 as it draws them: two prompts, each with and without speculation, over time.

Invariant: what exists is drawn, whatever the dashboard's choices say: each series is found by a SEARCH that names
prompt and arm, and no concurrency.
"""

from __future__ import annotations

from tandem.metrics import BENCH, list_post_figures
from tandem.monitoring.dashboard_arms import PERIOD_S, DashboardArms
from tandem.monitoring.layout import build_text
from tandem.monitoring.widget import GraphWidget, MathExpression, TextWidget, dimension_label

SUITE = "post"
PROMPTS = ("repeat", "open")  # the two that the post's figures compare: tandem/bench/suites/data/post.jsonl
PROMPT_COLORS = {False: ("#7a8ba6", "#44546c"), True: ("#e69f00", "#a35a00")}  # by speculation, then by prompt


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
            f"`{PROMPTS[1]}` (open-ended), without and with speculation: {arm_names}. Every concurrency that was "
            "measured is found and drawn. The post's inter-token latency is llmperf's; it stands beside the time per "
            "output token, which is the one that speculation lowers."
        ),
        *(
            GraphWidget(
                title=f"{figure.title}, p50 [{metric.unit}]",
                sentence=figure.sentence,
                unit=metric.unit,
                publishers=(BENCH,),
                lines=tuple(
                    MathExpression(
                        text=arms.build_search(metric.name, "p50", Variant=variant.name, PromptClass=prompt),
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
            for metric, figure in list_post_figures()
        ),
    )
