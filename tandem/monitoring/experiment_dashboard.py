"""The dashboard of one experiment: both arms side by side, by class and concurrency, and the post's Figures 3 to 5.

Invariant: the baseline is the first variant that decodes plainly; every other arm is held against it, by metric math of
the same statistic over the same time. A figure that the bench publishes stands in exactly one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tandem.metrics import ALL_VALUES, BENCH, Metric, MetricDisplay, find_metric, list_dashboard_rows, list_post_figures
from tandem.monitoring import widget
from tandem.monitoring.dashboard_arms import MAX_VARIANTS, DashboardArms
from tandem.monitoring.scope import ExperimentScope
from tandem.monitoring.widget import COLUMNS, PERIOD_S, GraphWidget, MathExpression, TextWidget
from tandem.spec import names
from tandem.spec.environment import Environment

SUITE = "post"
PROMPTS = ("repeat", "open")  # the two that the post's figures compare: tandem/bench/suites/data/post.jsonl
PROMPT_COLORS = {False: ("#7a8ba6", "#44546c"), True: ("#e69f00", "#a35a00")}  # by speculation, then by prompt
_COUNTS = ("requests", "failed_requests")
_BACKLOG = "unpublished_rounds"


def build_experiment_dashboard(environment: Environment, experiment_scope: ExperimentScope) -> widget.Dashboard:
    """Return the dashboard of one experiment of an environment."""
    arms = DashboardArms(environment, experiment_scope)
    return widget.Dashboard(
        name=names.dashboard_name(environment, arms.experiment.name),
        title=f"{arms.experiment.name}: arms side by side",
        variables=arms.variables,
        widgets=(
            _build_header(arms),
            *_list_post_figures(arms),
            *_list_rows(arms),
            *_list_error_graphs(arms),
            *_list_publishing_widgets(arms),
            *_list_overflow_widgets(arms),
        ),
    )


def _build_graph(
    title: str, unit: str, sentence: str, lines: Iterable[widget.MetricLine | MathExpression], **fields: Any
) -> GraphWidget:
    """Return a graph of what the bench publishes."""
    title = f"{title} [{unit}]"
    return GraphWidget(title=title, sentence=sentence, unit=unit, publisher=BENCH, lines=tuple(lines), **fields)


def _build_header(arms: DashboardArms) -> TextWidget:
    experiment = arms.experiment
    table = "\n".join(
        f"| {variant.name}{' (baseline)' if variant is arms.baseline else ''} | {variant.mode} | "
        f"{variant.draft or '-'} | {variant.num_speculative_tokens or '-'} |"
        for variant in arms.visible_variants
    )
    speed_up_note = (
        "Speed-up: baseline / arm where lower is better, arm / baseline where higher is; above 1 the arm is better. It "
        "is one number over the whole time range that is looked at: choose the range of one run."
        if arms.baseline
        else "No variant has mode `none`, so there is no baseline and no speed-up is drawn."
    )
    return widget.build_text(
        f"## {experiment.name}, in {arms.environment.name}\n"
        f"Target {experiment.target} on {experiment.runtime}. Each figure's p50 and p90 stand side by side, over "
        f"{PERIOD_S // 60} minutes a point; the choices above (class, concurrency) change every graph but the post's "
        f"figures and what says that it pools all. `{ALL_VALUES}` pools the classes of a run: compare it only between "
        "runs that asked the same. A run at another load than can be chosen, such as an open loop's `rate-2.5`, has "
        f"series of its own in the namespace `{arms.namespace}`.\n\n"
        f"{speed_up_note} Values are rounded to three digits before they are sent, so a quantile is off by 0.5 % at "
        "most. No run, no line. Meaning of each figure, and what to do when one looks wrong: docs/watch.md, "
        "docs/runbook.md.\n\n"
        f"| arm | mode | draft | num_speculative_tokens |\n|---|---|---|---|\n{table}"
    )


def _list_post_figures(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield the post's figures of an experiment, or why it has none.

    What exists is drawn, whatever the dashboard's choices say: each series is found by a SEARCH that names prompt and
    arm, and no concurrency.
    """
    speculative_arm = next((variant for variant in arms.variants if variant.mode != "none"), None)
    if arms.baseline is None or speculative_arm is None:
        why = "compare a baseline and an arm that speculates; one is missing."
        yield widget.build_text(f"**The post's Figures 3 to 5** {why}")
        return
    if SUITE not in arms.suites:
        why = "need the suite `post`, which this experiment does not ask."
        yield widget.build_text(f"**The post's Figures 3 to 5** {why}")
        return
    pair = (arms.baseline, speculative_arm)
    arm_names = f"{pair[0].name} and {pair[1].name}{', the first that speculates' if len(arms.variants) > 1 else ''}"
    yield widget.build_text(
        f"### The post's Figures 3, 4 and 5\nMedians over time of its two prompts, `{PROMPTS[0]}` (structured) and "
        f"`{PROMPTS[1]}` (open-ended), without and with speculation: {arm_names}. Every concurrency that was "
        "measured is found and drawn. The post's inter-token latency is llmperf's; it stands beside the time per "
        "output token, which is the one that speculation lowers."
    )
    for metric, figure in list_post_figures():
        lines = [
            MathExpression(
                text=arms.build_search(metric.name, "p50", Variant=variant.name, PromptClass=prompt),
                label=f"{prompt}, {variant.name}, concurrency {widget.dimension_label('Concurrency')}",
                id=f"f{2 * row + column}",
                color=PROMPT_COLORS[variant.mode != "none"][row],
            )
            for row, prompt in enumerate(PROMPTS)
            for column, variant in enumerate(pair)
        ]
        yield _build_graph(f"{figure.title}, p50", metric.unit, figure.sentence, lines, varies=False)


def _list_rows(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield each figure's row: p50, p90 and, where it means something, the speed-up."""
    for metric, display in list_dashboard_rows():
        if metric.name in {*_COUNTS, _BACKLOG}:
            continue
        row_arms = [arm for arm in arms.visible_variants if not display.needs_speculation or arm.mode != "none"]
        if not row_arms:
            yield widget.build_text(f"**{display.title}**: no arm of this experiment speculates, so it has none.")
            continue
        speed_ups = list(_list_speed_ups(arms, metric, display))
        for statistic in ("p50", "p90"):
            lines = [arms.line(metric.name, variant, statistic) for variant in row_arms]
            title, width = f"{display.title}, {statistic}", COLUMNS // (3 if speed_ups else 2)
            yield _build_graph(title, metric.unit, display.sentence, lines, width=width)
        yield from speed_ups


def _list_speed_ups(arms: DashboardArms, metric: Metric, display: MetricDisplay) -> Iterator[GraphWidget]:
    """Yield the speed-up of the p50 of every drawn arm; nothing without a baseline to hold it against."""
    if not display.has_speed_up or arms.baseline is None or not arms.variants:
        return
    ratio, description = (
        ("a0 / a{0}", "Baseline / arm") if metric.better == "lower" else ("a{0} / a0", "Arm / baseline")
    )
    sentence = (
        f"{description} over the whole range, absent while one of the two has no values. It has no interval: "
        "`tandem bench report` says whether a difference is one."
    )
    medians = [
        arms.line(metric.name, variant, "p50", f"a{number}")
        for number, variant in enumerate((arms.baseline, *arms.variants))
    ]
    ratios = [
        arms.build_expression(f"IF(a0 * a{number} > 0, {ratio.format(number)})", variant, f"s{number}")
        for number, variant in enumerate(arms.variants, start=1)
    ]
    title = f"{display.title}, speed-up of p50"
    yield _build_graph(title, "1", sentence, (*medians, *ratios), view="numbers", width=COLUMNS // 3)


def _list_error_graphs(arms: DashboardArms) -> Iterator[GraphWidget]:
    """Yield failures as a share, and what the share is of."""
    share_lines = [
        line
        for number, variant in enumerate(arms.visible_variants)
        for line in (
            arms.line("requests", variant, "Sum", f"r{number}"),
            arms.line("failed_requests", variant, "Sum", f"f{number}"),
            arms.build_expression(f"100 * f{number} / r{number}", variant, f"e{number}"),
        )
    ]
    share_sentence = (
        "Failed / asked, over the same minutes. Latencies above are of those that succeeded only: an arm that fails "
        "looks fast."
    )
    yield _build_graph("Failed share", "percent", share_sentence, share_lines, width=COLUMNS // 3)
    for metric, display in list_dashboard_rows():
        if metric.name in _COUNTS:
            lines = [arms.line(metric.name, variant, "Sum") for variant in arms.visible_variants]
            yield _build_graph(display.title, metric.unit, display.sentence, lines, width=COLUMNS // 3)


def _list_publishing_widgets(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Yield whether the publisher keeps up: what is above is only as whole as it."""
    metric, display = next(row for row in list_dashboard_rows() if row[0].name == _BACKLOG)
    lines = [
        arms.line(metric.name, variant, "Maximum", cell=(ALL_VALUES, ALL_VALUES)) for variant in arms.visible_variants
    ]
    yield _build_graph(display.title, metric.unit, display.sentence, lines, varies=False)
    yield widget.build_text(
        "**If it is above 0, or lines end while a run goes on**: nothing is lost. Every request is in the run's "
        f"folder; `tandem bench publish DIR --env {arms.environment.name}` sends what is missing, once, also long "
        "after the run. What it prints says why it failed: docs/runbook.md.",
        COLUMNS // 2,
    )


def _list_overflow_widgets(arms: DashboardArms) -> Iterator[GraphWidget | TextWidget]:
    """Say which arms are not drawn one by one, and draw them all in one graph."""
    if not arms.overflow_variants:
        return
    yield widget.build_text(
        f"### {len(arms.overflow_variants)} arms that are not drawn above\n"
        f"A graph tells {MAX_VARIANTS} arms and the baseline apart; above are the first ones of the experiment's "
        "file, written before swept. The graph below finds every arm that was measured, 500 at most. "
        f"All figures of every arm: `tandem bench report DIR`, and the namespace `{arms.namespace}` in CloudWatch's "
        f"metrics.\n\n{', '.join(variant.name for variant in arms.overflow_variants)}"
    )
    class_, concurrency = arms.default_choice
    search = arms.build_search("tpot_ms", "p50", PromptClass=class_, Concurrency=concurrency)
    line = MathExpression(text=search, label=widget.dimension_label("Variant"), id="every")
    sentence = (
        "All arms that were measured at the chosen class and concurrency, drawn above or not; to see which is out of "
        "line, not to read one. Colors are CloudWatch's own here."
    )
    unit = find_metric("tpot_ms").unit
    yield _build_graph("TPOT of every arm, p50", unit, sentence, [line], width=COLUMNS, height=9)
