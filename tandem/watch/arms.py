"""The dashboard of one experiment: both arms side by side, by class and concurrency, and the post's Figures 3 to 5.

Invariant: the baseline is the first variant that decodes plainly; every other arm is held against it, by metric math of
the same statistic over the same time. A figure that the bench publishes stands in exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.metrics import BENCH, EVERY, metric
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch.compared import DRAWN_VARIANTS, PERIOD_S, Arms
from tandem.watch.layout import COLUMNS, text
from tandem.watch.post_figures import figures
from tandem.watch.scope import Watching
from tandem.watch.widget import Dashboard, Expression, Graph, Text, found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One figure: its p50 and p90 side by side, and the speed-up of its p50.

    Args:
        metric: of the catalogue.
        name: for people.
        says: what it shows and what it does not.
        ratio: whether a speed-up of it means anything.
        speculating: whether only arms that speculate have it.
    """

    metric: str
    name: str
    says: str
    ratio: bool = True
    speculating: bool = False


_ROWS = (
    _Row(
        metric="e2e_ms",
        name="E2E latency",
        says="From sending a request to its last chunk. Grows with the answer's length: compare it only between arms "
        "whose answers are as long (completion tokens, below).",
    ),
    _Row(
        metric="tpot_ms",
        name="TPOT",
        says="Time per output token after the first: what speculation is to lower. Not the time between chunks, and "
        "biased low where the first chunk holds several tokens.",
    ),
    _Row(
        metric="llmperf_inter_token_latency_ms",
        name="Inter-token latency by llmperf's definition",
        says="Arrival of the last chunk / number of chunks: it counts chunks as tokens. Without speculation it is near "
        "TPOT; with it, near the time of a step, so it says no gain where TPOT, above, says one.",
        ratio=False,
    ),
    _Row(
        metric="ttft_ms",
        name="TTFT",
        says="From sending a request to its first token: prefill and queue. Speculation is not to change it; the time "
        "that a late open-loop start was overdue is not in it.",
    ),
    _Row(
        metric="output_tokens_per_s",
        name="Output tokens per stream",
        says="What one user sees: tokens of a request over its E2E, the wait for the first token included. Higher is "
        "better, so p90 is the fast end.",
    ),
    _Row(
        metric="system_output_tokens_per_s",
        name="Output tokens of the system",
        says="What one arm puts out in a turn, all streams together; one value a turn, so few values. Short turns read "
        "low, since fewer streams run at their ends.",
    ),
    _Row(
        metric="goodput_per_s",
        name="Goodput",
        says="Requests per second that succeeded within every stated limit, one value a turn. Empty where the run was "
        "given no limits; how far beyond them the others were is not in it.",
    ),
    _Row(
        metric="acceptance_length",
        name="Acceptance length",
        says="Tokens that one speculative step commits, the target's own included; one value a turn, where the "
        "runtime counts it. A longer step is no faster one by itself: TPOT says whether it pays.",
        ratio=False,
        speculating=True,
    ),
    _Row(
        metric="chunk_gap_ms",
        name="Chunk gap",
        says="Time between streamed chunks. Under speculation that is an engine step, which holds several tokens: a "
        "larger gap is no slower arm, so no speed-up is drawn.",
        ratio=False,
    ),
    _Row(
        metric="prompt_tokens",
        name="Prompt tokens",
        says="As the server counts, template included. Both arms must lie on one line: they were asked the same. "
        "It says nothing of what a client sent beside the prompt.",
        ratio=False,
    ),
    _Row(
        metric="completion_tokens",
        name="Completion tokens",
        says="As the server counts, stop token included. Greedy arms whose answers differ in length do not answer "
        "alike, and their E2E compares different work.",
        ratio=False,
    ),
)

_COUNTED = (
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


def dashboard(environment: Environment, watching: Watching) -> Dashboard:
    """Return the dashboard of one experiment of an environment."""
    arms = Arms(environment, watching)
    return Dashboard(
        name=names.dashboard(environment, watching.experiment.name),
        title=f"{watching.experiment.name}: arms side by side",
        variables=arms.variables,
        widgets=(
            _head(arms),
            *figures(arms),
            *(graph for row in _ROWS for graph in _graphs(arms, row)),
            *_errors(arms),
            *_publishing(arms),
            *_undrawn(arms),
        ),
    )


def _head(arms: Arms) -> Text:
    experiment = arms.watching.experiment
    table = "\n".join(
        f"| {variant.name}{' (baseline)' if variant is arms.baseline else ''} | {variant.mode} | "
        f"{variant.draft or '-'} | {variant.num_speculative_tokens or '-'} |"
        for variant in arms.drawn
    )
    against = (
        "Speed-up: baseline / arm where lower is better, arm / baseline where higher is; above 1 the arm is better. It "
        "is one number over the whole time range that is looked at: choose the range of one run."
        if arms.baseline
        else "No variant has mode `none`, so there is no baseline and no speed-up is drawn."
    )
    return text(
        f"## {experiment.name}, in {arms.environment.name}\n"
        f"Target {experiment.target} on {experiment.runtime}. Each figure's p50 and p90 stand side by side, over "
        f"{PERIOD_S // 60} minutes a point; the choices above (class, concurrency) change every graph but the post's "
        f"figures and what says that it pools all. `{EVERY}` pools the classes of a run: compare it only between runs "
        "that asked the same. A run at another load than can be chosen, such as an open loop's `rate-2.5`, has series "
        f"of its own in the namespace `{arms.namespace}`.\n\n"
        f"{against} Values are rounded to three digits before they are sent, so a quantile is off by 0.5 % at most. No "
        "run, no line. Meaning of each figure, and what to do when one looks wrong: docs/watch.md, docs/runbook.md.\n\n"
        f"| arm | mode | draft | num_speculative_tokens |\n|---|---|---|---|\n{table}"
    )


def _graphs(arms: Arms, row: _Row) -> tuple[Graph | Text, ...]:
    """Return a figure's row: p50, p90 and, where it means something, the speed-up."""
    drawn = tuple(one for one in arms.drawn if not row.speculating or one.mode != "none")
    unit = metric(row.metric).unit
    if not drawn:
        return (text(f"**{row.name}**: no arm of this experiment speculates, so it has none."),)
    speed_up = _speed_up(arms, row) if row.ratio else None
    width = COLUMNS // (3 if speed_up else 2)
    quantiles = tuple(
        Graph(
            title=f"{row.name}, {statistic} [{unit}]",
            sentence=row.says,
            unit=unit,
            publishers=(BENCH,),
            lines=tuple(arms.line(row.metric, variant, statistic) for variant in drawn),
            period_s=PERIOD_S,
            width=width,
        )
        for statistic in ("p50", "p90")
    )
    return (*quantiles, speed_up) if speed_up else quantiles


def _speed_up(arms: Arms, row: _Row) -> Graph | None:
    """Return the speed-up of the p50 of every drawn arm; None without a baseline to hold it against."""
    if arms.baseline is None or not arms.variants:
        return None
    lower = metric(row.metric).better == "lower"
    ids = {variant.name: f"a{number}" for number, variant in enumerate(arms.variants, start=1)}
    hidden = (arms.line(row.metric, variant, "p50", ids[variant.name]) for variant in arms.variants)
    return Graph(
        title=f"{row.name}, speed-up of p50 [1]",
        sentence=f"{'Baseline / arm' if lower else 'Arm / baseline'} over the whole range, absent while one of the two "
        "has no values. It has no interval: `tandem bench report` says whether a difference is one.",
        unit="1",
        publishers=(BENCH,),
        lines=(
            arms.line(row.metric, arms.baseline, "p50", "a0"),
            *hidden,
            *(
                Expression(
                    text=f"IF(a0 * {id_} > 0, {f'a0 / {id_}' if lower else f'{id_} / a0'})",
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


def _errors(arms: Arms) -> tuple[Graph, ...]:
    """Return failures as a share, and what the share is of."""
    share = tuple(
        line
        for number, variant in enumerate(arms.drawn)
        for line in (
            arms.line("requests", variant, "Sum", f"r{number}"),
            arms.line("failed_requests", variant, "Sum", f"f{number}"),
            Expression(
                text=f"100 * f{number} / r{number}", label=variant.name, id=f"e{number}", color=arms.color(variant)
            ),
        )
    )
    return (
        Graph(
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
            Graph(
                title=f"{title} [{metric(name).unit}]",
                sentence=says,
                unit=metric(name).unit,
                publishers=(BENCH,),
                lines=tuple(arms.line(name, variant, "Sum") for variant in arms.drawn),
                period_s=PERIOD_S,
                width=8,
            )
            for name, title, says in _COUNTED
        ),
    )


def _publishing(arms: Arms) -> tuple[Graph | Text, ...]:
    """Return whether the publisher keeps up: what is above is only as whole as it."""
    return (
        Graph(
            title="Rounds recorded, not yet published [rounds]",
            sentence="Earlier rounds of the run that CloudWatch had not taken when a round was sent; all classes and "
            "loads pooled. 0 is sound. It cannot rise once nothing at all is sent: then it ends.",
            unit=metric("unpublished_rounds").unit,
            publishers=(BENCH,),
            lines=tuple(arms.cell("unpublished_rounds", variant, "Maximum", (EVERY, EVERY)) for variant in arms.drawn),
            period_s=PERIOD_S,
            varies=False,
        ),
        text(
            "**If it is above 0, or lines end while a run goes on**: nothing is lost. Every request is in the run's "
            f"folder; `tandem bench publish DIR --env {arms.environment.name}` sends what is missing, once, also long "
            "after the run. What it prints says why it failed: docs/runbook.md.",
            COLUMNS // 2,
        ),
    )


def _undrawn(arms: Arms) -> tuple[Graph | Text, ...]:
    """Say which arms are not drawn one by one, and draw them all in one graph."""
    if not arms.undrawn:
        return ()
    class_, concurrency = arms.chosen
    whole = arms.search("tpot_ms", "p50", PromptClass=class_, Concurrency=concurrency)
    return (
        text(
            f"### {len(arms.undrawn)} arms that are not drawn above\n"
            f"A graph tells {DRAWN_VARIANTS} arms and the baseline apart; above are the first ones of the experiment's "
            "file, written before swept. The graph below finds every arm that was measured, 500 at most. "
            "All figures of every arm: `tandem bench report DIR`, and the namespace "
            f"`{arms.namespace}` in CloudWatch's metrics.\n\n" + ", ".join(variant.name for variant in arms.undrawn)
        ),
        Graph(
            title=f"TPOT of every arm, p50 [{metric('tpot_ms').unit}]",
            sentence="All arms that were measured at the chosen class and concurrency, drawn above or not; to see "
            "which is out of line, not to read one. Colors are CloudWatch's own here.",
            unit=metric("tpot_ms").unit,
            publishers=(BENCH,),
            lines=(Expression(text=whole, label=found("Variant"), id="every"),),
            period_s=PERIOD_S,
            width=COLUMNS,
            height=9,
        ),
    )
