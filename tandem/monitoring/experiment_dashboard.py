"""The dashboard of an experiment: both arms side by side, and the post's Figures 3 to 5.

Invariant: the baseline is the first variant that decodes plainly. Every other arm is compared with
it, by metric math of the same statistic over the same time. Each figure of the bench is in exactly
one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tandem.cloudwatch_metrics import ALL_VALUES
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.metrics import POST_FIGURES, Metric, find_metric, list_published_metrics
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import MAX_VARIANTS, DashboardArms, build_bench_graph
from tandem.monitoring.scope import ExperimentScope
from tandem.monitoring.widget import (
    COLUMNS,
    PERIOD_S,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)

SUITE = "post"
# the two that the post's figures compare: tandem/bench/suites/data/post.jsonl
PROMPTS = ("repeat", "open")
# by speculation, then by prompt
PROMPT_COLORS = {False: ("#7a8ba6", "#44546c"), True: ("#e69f00", "#a35a00")}
_COUNTS = ("requests", "failed_requests")
_BACKLOG = "unpublished_rounds"


def build_experiment_dashboard(
    environment: Environment, experiment_scope: ExperimentScope
) -> widget.Dashboard:
    """Return the dashboard of one experiment of an environment."""
    arms = DashboardArms(environment, experiment_scope)
    return widget.Dashboard(
        name=names.dashboard_name(environment, arms.experiment.name),
        variables=arms.variables,
        widgets=(
            widget.render_text(
                "experiment_header", arms=arms, period_minutes=PERIOD_S // 60, all_values=ALL_VALUES
            ),
            *_list_post_figures(arms),
            *_list_rows(arms),
            *_list_error_graphs(arms),
            *_list_publishing_widgets(arms),
            *_list_overflow_widgets(arms),
        ),
    )


def _list_post_figures(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield the post's figures of an experiment, or why it has none.

    Existing series are drawn with any choice of the dashboard: each is found by a SEARCH that names
    prompt and arm, and no concurrency.
    """
    speculative_arm = next((variant for variant in arms.variants if variant.mode != "none"), None)
    if arms.baseline is None or speculative_arm is None:
        yield widget.render_text(
            "no_post_figures", why="compare a baseline and an arm that speculates; one is missing."
        )
        return
    if SUITE not in arms.suites:
        yield widget.render_text(
            "no_post_figures", why="need the suite `post`, which this experiment does not ask."
        )
        return
    pair = (arms.baseline, speculative_arm)
    yield widget.render_text(
        "post_figures", prompts=PROMPTS, pair=pair, is_first=len(arms.variants) > 1
    )
    concurrency = widget.dimension_label("Concurrency")
    for figure in POST_FIGURES:
        lines: list[MathExpression] = []
        for (row, prompt), variant in product(enumerate(PROMPTS), pair):
            search = arms.build_search(
                figure.metric, "p50", Variant=variant.name, PromptClass=prompt
            )
            line = MathExpression(
                text=search,
                label=f"{prompt}, {variant.name}, concurrency {concurrency}",
                id=f"f{len(lines)}",
                color=PROMPT_COLORS[variant.mode != "none"][row],
            )
            lines.append(line)
        unit = find_metric(figure.metric).unit
        yield build_bench_graph(f"{figure.title}, p50", unit, figure.sentence, lines, varies=False)


def _list_rows(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield each figure's row: p50, p90 and, if meaningful, the speed-up."""
    for metric in list_published_metrics():
        if metric.name in {*_COUNTS, _BACKLOG}:
            continue
        row_arms = [
            arm
            for arm in arms.visible_variants
            if not metric.needs_speculation or arm.mode != "none"
        ]
        if not row_arms:
            yield widget.render_text("no_speculation", title=metric.title, rest=", so it has none")
            continue
        speed_ups = list(_list_speed_ups(arms, metric))
        for statistic in ("p50", "p90"):
            lines = [arms.line(metric.name, variant, statistic) for variant in row_arms]
            title = f"{metric.title}, {statistic}"
            width = COLUMNS // (3 if speed_ups else 2)
            yield build_bench_graph(title, metric.unit, metric.sentence, lines, width=width)
        yield from speed_ups


def _list_speed_ups(arms: DashboardArms, metric: Metric) -> Iterator[GraphWidget]:
    """Yield the speed-up of the p50 of every drawn arm; nothing without a baseline."""
    if not metric.has_speed_up or arms.baseline is None or not arms.variants:
        return
    ratio, description = (
        ("a0 / a{0}", "Baseline / arm")
        if metric.better == "lower"
        else ("a{0} / a0", "Arm / baseline")
    )
    sentence = widget.render_markdown("speed_up", description=description)
    medians = [
        arms.line(metric.name, variant, "p50", f"a{number}")
        for number, variant in enumerate((arms.baseline, *arms.variants))
    ]
    ratios = [
        arms.build_expression(
            f"IF(a0 * a{number} > 0, {ratio.format(number)})", variant, f"s{number}"
        )
        for number, variant in enumerate(arms.variants, start=1)
    ]
    title = f"{metric.title}, speed-up of p50"
    yield build_bench_graph(
        title, "1", sentence, (*medians, *ratios), view="numbers", width=COLUMNS // 3
    )


def _list_error_graphs(arms: DashboardArms) -> Iterator[GraphWidget]:
    """Yield failures as a share, and the total behind the share."""
    share_lines: list[MetricLine | MathExpression] = []
    for number, variant in enumerate(arms.visible_variants):
        share_lines += [
            arms.line("requests", variant, "Sum", f"r{number}"),
            arms.line("failed_requests", variant, "Sum", f"f{number}"),
            arms.build_expression(f"100 * f{number} / r{number}", variant, f"e{number}"),
        ]

    share_sentence = widget.render_markdown("failed_share")
    yield build_bench_graph(
        "Failed share", "percent", share_sentence, share_lines, width=COLUMNS // 3
    )
    for metric in list_published_metrics():
        if metric.name in _COUNTS:
            lines = [arms.line(metric.name, variant, "Sum") for variant in arms.visible_variants]
            yield build_bench_graph(
                metric.title, metric.unit, metric.sentence, lines, width=COLUMNS // 3
            )


def _list_publishing_widgets(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield whether the publisher keeps up: the graphs above are complete only if it does."""
    metric = find_metric(_BACKLOG)
    lines = [
        arms.line(metric.name, variant, "Maximum", cell=(ALL_VALUES, ALL_VALUES))
        for variant in arms.visible_variants
    ]
    yield build_bench_graph(metric.title, metric.unit, metric.sentence, lines, varies=False)
    yield widget.render_text("publishing", COLUMNS // 2, environment=arms.environment.name)


def _list_overflow_widgets(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield a text that names the arms that are not drawn one by one, and one graph of them all."""
    if not arms.overflow_variants:
        return
    yield widget.render_text("overflow_arms", arms=arms, max_variants=MAX_VARIANTS)
    class_, concurrency = arms.default_choice
    search = arms.build_search("tpot_ms", "p50", PromptClass=class_, Concurrency=concurrency)
    line = MathExpression(text=search, label=widget.dimension_label("Variant"), id="every")
    sentence = widget.render_markdown("every_arm")
    unit = find_metric("tpot_ms").unit
    yield build_bench_graph(
        "TPOT of every arm, p50", unit, sentence, [line], width=COLUMNS, height=9
    )
