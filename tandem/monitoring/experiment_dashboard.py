"""The dashboard of one experiment: both arms side by side, by class and concurrency, and the post's Figures 3 to 5.

Invariant: the baseline is the first variant that decodes plainly; every other arm is held against it, by metric math of
the same statistic over the same time. A figure that the bench publishes stands in exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import ALL_VALUES, BENCH, find_metric
from tandem.monitoring.dashboard_arms import MAX_VARIANTS, PERIOD_S, DashboardArms
from tandem.monitoring.layout import COLUMNS, build_text
from tandem.monitoring.post_figures import build_post_figures
from tandem.monitoring.scope import ExperimentScope
from tandem.monitoring.widget import Dashboard, GraphWidget, MathExpression, TextWidget, dimension_label
from tandem.spec import names
from tandem.spec.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class _FigureRow:
    """One figure: its p50 and p90 side by side, and the speed-up of its p50.

    Args:
        metric: of the catalogue.
        name: for people.
        sentence: what it shows and what it does not.
        has_speed_up: whether a speed-up of it means anything.
        needs_speculation: whether only arms that speculate have it.
    """

    metric: str
    name: str
    sentence: str
    has_speed_up: bool = True
    needs_speculation: bool = False


_FIGURE_ROWS = (
    _FigureRow(
        metric="e2e_ms",
        name="E2E latency",
        sentence="From sending a request to its last chunk. Grows with the answer's length: compare it only "
        "between arms "
        "whose answers are as long (completion tokens, below).",
    ),
    _FigureRow(
        metric="tpot_ms",
        name="TPOT",
        sentence="Time per output token after the first: what speculation is to lower. Not the time between "
        "chunks, and "
        "biased low where the first chunk holds several tokens.",
    ),
    _FigureRow(
        metric="llmperf_inter_token_latency_ms",
        name="Inter-token latency by llmperf's definition",
        sentence="Arrival of the last chunk / number of chunks: it counts chunks as tokens. Without speculation "
        "it is near "
        "TPOT; with it, near the time of a step, so it says no gain where TPOT, above, says one.",
        has_speed_up=False,
    ),
    _FigureRow(
        metric="ttft_ms",
        name="TTFT",
        sentence="From sending a request to its first token: prefill and queue. Speculation is not to change "
        "it; the time "
        "that a late open-loop start was overdue is not in it.",
    ),
    _FigureRow(
        metric="output_tokens_per_s",
        name="Output tokens per stream",
        sentence="What one user sees: tokens of a request over its E2E, the wait for the first token included. "
        "Higher is "
        "better, so p90 is the fast end.",
    ),
    _FigureRow(
        metric="system_output_tokens_per_s",
        name="Output tokens of the system",
        sentence="What one arm puts out in a turn, all streams together; one value a turn, so few values. Short "
        "turns read "
        "low, since fewer streams run at their ends.",
    ),
    _FigureRow(
        metric="goodput_per_s",
        name="Goodput",
        sentence="Requests per second that succeeded within every stated limit, one value a turn. Empty where "
        "the run was "
        "given no limits; how far beyond them the others were is not in it.",
    ),
    _FigureRow(
        metric="acceptance_length",
        name="Acceptance length",
        sentence="Tokens that one speculative step commits, the target's own included; one value a turn, where the "
        "runtime counts it. A longer step is no faster one by itself: TPOT says whether it pays.",
        has_speed_up=False,
        needs_speculation=True,
    ),
    _FigureRow(
        metric="chunk_gap_ms",
        name="Chunk gap",
        sentence="Time between streamed chunks. Under speculation that is an engine step, which holds several "
        "tokens: a "
        "larger gap is no slower arm, so no speed-up is drawn.",
        has_speed_up=False,
    ),
    _FigureRow(
        metric="prompt_tokens",
        name="Prompt tokens",
        sentence="As the server counts, template included. Both arms must lie on one line: they were asked the same. "
        "It says nothing of what a client sent beside the prompt.",
        has_speed_up=False,
    ),
    _FigureRow(
        metric="completion_tokens",
        name="Completion tokens",
        sentence="As the server counts, stop token included. Greedy arms whose answers differ in length do not answer "
        "alike, and their E2E compares different work.",
        has_speed_up=False,
    ),
)

_COUNT_FIGURES = (
    (
        "requests",
        "Requests",
        (
            "Requests of the rounds of these minutes, failed ones included. A gap means that no round was published, "
            "not that nothing was asked."
        ),
    ),
    (
        "failed_requests",
        "Failed requests",
        (
            "Requests whose record has an error: refused, timed out, cut, or not the protocol. What failed is in "
            "records.jsonl; it is in no latency above."
        ),
    ),
)


def build_experiment_dashboard(environment: Environment, experiment_scope: ExperimentScope) -> Dashboard:
    """Return the dashboard of one experiment of an environment."""
    arms = DashboardArms(environment, experiment_scope)
    return Dashboard(
        name=names.dashboard_name(environment, experiment_scope.experiment.name),
        title=f"{experiment_scope.experiment.name}: arms side by side",
        variables=arms.variables,
        widgets=(
            _build_header(arms),
            *build_post_figures(arms),
            *(graph for row in _FIGURE_ROWS for graph in _build_row_graphs(arms, row)),
            *_build_error_graphs(arms),
            *_build_publishing_widgets(arms),
            *_build_overflow_widgets(arms),
        ),
    )


def _build_header(arms: DashboardArms) -> TextWidget:
    experiment = arms.experiment_scope.experiment
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
    return build_text(
        f"## {experiment.name}, in {arms.environment.name}\n"
        f"Target {experiment.target} on {experiment.runtime}. Each figure's p50 and p90 stand side by side, over "
        f"{PERIOD_S // 60} minutes a point; the choices above (class, concurrency) change every graph but the post's "
        f"figures and what says that it pools all. `{ALL_VALUES}` pools the classes of a run: compare it only "
        "between runs "
        "that asked the same. A run at another load than can be chosen, such as an open loop's `rate-2.5`, has series "
        f"of its own in the namespace `{arms.namespace}`.\n\n"
        f"{speed_up_note} Values are rounded to three digits before they are sent, so a quantile is off by 0.5 "
        "% at most. No "
        "run, no line. Meaning of each figure, and what to do when one looks wrong: docs/watch.md, docs/runbook.md.\n\n"
        f"| arm | mode | draft | num_speculative_tokens |\n|---|---|---|---|\n{table}"
    )


def _build_row_graphs(arms: DashboardArms, row: _FigureRow) -> tuple[GraphWidget | TextWidget, ...]:
    """Return a figure's row: p50, p90 and, where it means something, the speed-up."""
    row_arms = tuple(arm for arm in arms.visible_variants if not row.needs_speculation or arm.mode != "none")
    unit = find_metric(row.metric).unit
    if not row_arms:
        return (build_text(f"**{row.name}**: no arm of this experiment speculates, so it has none."),)
    speed_up = _build_speed_up_graph(arms, row) if row.has_speed_up else None
    width = COLUMNS // (3 if speed_up else 2)
    quantiles = tuple(
        GraphWidget(
            title=f"{row.name}, {statistic} [{unit}]",
            sentence=row.sentence,
            unit=unit,
            publishers=(BENCH,),
            lines=tuple(arms.line(row.metric, variant, statistic) for variant in row_arms),
            period_s=PERIOD_S,
            width=width,
        )
        for statistic in ("p50", "p90")
    )
    return (*quantiles, speed_up) if speed_up else quantiles


def _build_speed_up_graph(arms: DashboardArms, row: _FigureRow) -> GraphWidget | None:
    """Return the speed-up of the p50 of every drawn arm; None without a baseline to hold it against."""
    if arms.baseline is None or not arms.variants:
        return None
    is_lower_better = find_metric(row.metric).better == "lower"
    ids = {variant.name: f"a{number}" for number, variant in enumerate(arms.variants, start=1)}
    arm_lines = (arms.line(row.metric, variant, "p50", ids[variant.name]) for variant in arms.variants)
    return GraphWidget(
        title=f"{row.name}, speed-up of p50 [1]",
        sentence=f"{'Baseline / arm' if is_lower_better else 'Arm / baseline'} over the whole range, absent "
        "while one of the two "
        "has no values. It has no interval: `tandem bench report` says whether a difference is one.",
        unit="1",
        publishers=(BENCH,),
        lines=(
            arms.line(row.metric, arms.baseline, "p50", "a0"),
            *arm_lines,
            *(
                MathExpression(
                    text=f"IF(a0 * {id_} > 0, {f'a0 / {id_}' if is_lower_better else f'{id_} / a0'})",
                    label=variant.name,
                    id=f"s{id_[1:]}",
                    color=arms.color(variant),
                )
                for variant in arms.variants
                for id_ in (ids[variant.name],)
            ),
        ),
        view="numbers",
        period_s=PERIOD_S,
        width=COLUMNS // 3,
    )


def _build_error_graphs(arms: DashboardArms) -> tuple[GraphWidget, ...]:
    """Return failures as a share, and what the share is of."""
    share = tuple(
        line
        for number, variant in enumerate(arms.visible_variants)
        for line in (
            arms.line("requests", variant, "Sum", f"r{number}"),
            arms.line("failed_requests", variant, "Sum", f"f{number}"),
            MathExpression(
                text=f"100 * f{number} / r{number}", label=variant.name, id=f"e{number}", color=arms.color(variant)
            ),
        )
    )
    return (
        GraphWidget(
            title="Failed share [percent]",
            sentence="Failed / asked, over the same minutes. Latencies above are of those that succeeded only: an arm "
            "that fails looks fast.",
            unit="percent",
            publishers=(BENCH,),
            lines=share,
            period_s=PERIOD_S,
            width=8,
        ),
        *(
            GraphWidget(
                title=f"{title} [{find_metric(name).unit}]",
                sentence=sentence,
                unit=find_metric(name).unit,
                publishers=(BENCH,),
                lines=tuple(arms.line(name, variant, "Sum") for variant in arms.visible_variants),
                period_s=PERIOD_S,
                width=8,
            )
            for name, title, sentence in _COUNT_FIGURES
        ),
    )


def _build_publishing_widgets(arms: DashboardArms) -> tuple[GraphWidget | TextWidget, ...]:
    """Return whether the publisher keeps up: what is above is only as whole as it."""
    return (
        GraphWidget(
            title="Rounds recorded, not yet published [rounds]",
            sentence="Earlier rounds of the run that CloudWatch had not taken when a round was sent; all classes and "
            "loads pooled. 0 is sound. It cannot rise once nothing at all is sent: then it ends.",
            unit=find_metric("unpublished_rounds").unit,
            publishers=(BENCH,),
            lines=tuple(
                arms.cell_line("unpublished_rounds", variant, "Maximum", (ALL_VALUES, ALL_VALUES))
                for variant in arms.visible_variants
            ),
            period_s=PERIOD_S,
            varies=False,
        ),
        build_text(
            "**If it is above 0, or lines end while a run goes on**: nothing is lost. Every request is in the run's "
            f"folder; `tandem bench publish DIR --env {arms.environment.name}` sends what is missing, once, also long "
            "after the run. What it prints says why it failed: docs/runbook.md.",
            COLUMNS // 2,
        ),
    )


def _build_overflow_widgets(arms: DashboardArms) -> tuple[GraphWidget | TextWidget, ...]:
    """Say which arms are not drawn one by one, and draw them all in one graph."""
    if not arms.overflow_variants:
        return ()
    class_, concurrency = arms.default_choice
    search_text = arms.build_search("tpot_ms", "p50", PromptClass=class_, Concurrency=concurrency)
    return (
        build_text(
            f"### {len(arms.overflow_variants)} arms that are not drawn above\n"
            f"A graph tells {MAX_VARIANTS} arms and the baseline apart; above are the first ones of the experiment's "
            "file, written before swept. The graph below finds every arm that was measured, 500 at most. "
            "All figures of every arm: `tandem bench report DIR`, and the namespace "
            f"`{arms.namespace}` in CloudWatch's metrics.\n\n"
            + ", ".join(variant.name for variant in arms.overflow_variants)
        ),
        GraphWidget(
            title=f"TPOT of every arm, p50 [{find_metric('tpot_ms').unit}]",
            sentence="All arms that were measured at the chosen class and concurrency, drawn above or not; to see "
            "which is out of line, not to read one. Colors are CloudWatch's own here.",
            unit=find_metric("tpot_ms").unit,
            publishers=(BENCH,),
            lines=(MathExpression(text=search_text, label=dimension_label("Variant"), id="every"),),
            period_s=PERIOD_S,
            width=COLUMNS,
            height=9,
        ),
    )
