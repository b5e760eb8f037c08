"""Alarms on what the bench publishes: failed requests, acceptance, regressions, and publishing itself.

Invariant: none fires for want of data. The bench sends a round when it ends, under the minutes of its requests, so its
series are bursts of the past: every alarm looks back over the longest round we know of, and counts quarter-hours that
have values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem import metrics
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.metric_source import MetricSource, is_published
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import MathExpression, MetricLine
from tandem.spec import names
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant

ERRORS, ACCEPTANCE, TTFT, TPOT, PUBLISHING_BACKLOG = "errors", "acceptance", "ttft", "tpot", "unpublished"

PERIOD_S = 900
# A round of suite real by two arms is below three hours at the post's 45 ms a token (tandem.bench.estimate). Its first
# values are that old when they are sent, and those of the round before shall be in sight then.
LOOK_BACK_S = 6 * 3600
PERIODS = LOOK_BACK_S // PERIOD_S
# One cell of such a round lies in two quarter-hours at most: a lonely outlier is less than three.
STEADY_PERIODS = 3
BACKLOG_PERIODS = 2
SINGLE_FAILURE = 1  # one failed request of a few is no rate
MIN_ACCEPTANCE_SHARE = 0.8
# 1 says by definition that no drafted token is accepted. 1.05 is above what rounding (0.5 %) makes of 1, and still says
# that of twenty steps one took a drafted token.
FLOOR_ACCEPTANCE = 1.05


def build_bench_alarms(scope: MonitoringScope) -> tuple[MetricAlarm, ...]:
    """Return the alarms on the bench's figures."""
    return (*_build_variant_alarms(scope), *_build_reference_alarms(scope))


def list_coverage_gaps(scope: MonitoringScope) -> Iterator[str]:
    """Yield what no alarm on the bench's figures sees, and why."""
    observability = scope.environment.observability
    yield (
        "A bench that sends nothing at all is not seen: unpublished_rounds comes with the next round that is sent. "
        f"Nor is a round that is older than {LOOK_BACK_S // 3600} h when it is sent."
    )
    if observability.reference is None:
        yield (
            "No regression of TTFT or TPOT is seen: observability.reference is null, and without a run to hold later "
            "ones against there is no level."
        )
    for experiment_scope in scope.experiments:
        experiment = experiment_scope.experiment
        if any(variant.mode != "none" for variant in experiment.all_variants()) and not _has_step_counters(experiment):
            yield (
                f"No acceptance of {experiment.name} is watched: nothing that runtime {experiment.runtime} counts "
                "gives tokens a step."
            )


def _build_variant_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield what is watched of every variant, reference or not."""
    reference = scope.environment.observability.reference
    for experiment_scope in scope.experiments:
        experiment = experiment_scope.experiment
        for variant in experiment.all_variants():
            has_reference = any(
                (value.experiment, value.variant) == (experiment.name, variant.name)
                and value.acceptance_length is not None
                for value in (reference.values if reference else ())
            )
            watches_acceptance = _has_acceptance(experiment, variant) and not has_reference
            source = _bench_source(scope.environment, experiment.name, variant.name)
            yield from _list_variant_alarms(
                source, experiment.name, variant.name, watches_acceptance=watches_acceptance
            )


def _list_variant_alarms(
    source: MetricSource, experiment: str, variant: str, *, watches_acceptance: bool
) -> Iterator[MetricAlarm]:
    environment, arm = source.environment.name, f"{variant} of {experiment}"
    percent = source.environment.observability.failed_percent
    if is_published(metrics.BENCH, "requests") and is_published(metrics.BENCH, "failed_requests"):
        yield _build_burst_alarm(
            source.environment,
            (ERRORS, experiment, variant),
            f"Requests to {arm} in {environment} fail.",
            f"more than {percent:g} percent of the requests of a quarter-hour (observability.failed_percent): a "
            f"healthy server fails none, and fewer than {SINGLE_FAILURE + 1} of a few are no rate",
            (
                source.line("failed_requests", "Sum", id_="failed"),
                source.line("requests", "Sum", id_="requests"),
                MathExpression(
                    text=f"IF(failed > {SINGLE_FAILURE}, 100 * failed / requests, 0)",
                    label="percent failed",
                    id="share",
                ),
            ),
            threshold=percent,
            datapoints=1,
        )
    if is_published(metrics.BENCH, "unpublished_rounds"):
        yield _build_burst_alarm(
            source.environment,
            (PUBLISHING_BACKLOG, experiment, variant),
            f"Rounds of {arm} are measured and do not reach CloudWatch ({environment}).",
            f"more than 0 earlier rounds unpublished throughout {BACKLOG_PERIODS} quarter-hours that have rounds: one "
            "that was late is made up for by the next",
            (source.line("unpublished_rounds", "Minimum", id_="unpublished", is_visible=True),),
            datapoints=BACKLOG_PERIODS,
        )
    if watches_acceptance:
        yield _build_burst_alarm(
            source.environment,
            (ACCEPTANCE, experiment, variant),
            f"{arm} in {environment} drafts, and almost nothing is accepted.",
            f"median acceptance length below {FLOOR_ACCEPTANCE:g} tokens in {STEADY_PERIODS} quarter-hours: at 1 no "
            "drafted token is accepted and every draft is lost time; without a reference no better level is known",
            (source.line("acceptance_length", "p50", id_="acceptance", is_visible=True),),
            comparison="below",
            threshold=FLOOR_ACCEPTANCE,
        )


def _build_reference_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield what is held against the reference run."""
    environment = scope.environment
    reference, regression_percent = environment.observability.reference, environment.observability.regression_percent
    hosted_arms = {
        (experiment_scope.experiment.name, variant.name): (experiment_scope.experiment, variant)
        for experiment_scope in scope.experiments
        for variant in experiment_scope.experiment.all_variants()
    }
    for value in reference.values if reference else ():
        arm = hosted_arms.get((value.experiment, value.variant))
        if reference is None or arm is None:  # a rule refuses it; what nobody hosts sends nothing
            continue
        cell = (value.experiment, value.variant, value.prompt_class, f"c{value.concurrency}")
        classes = "all classes" if value.prompt_class == metrics.ALL_VALUES else value.prompt_class
        name = (
            f"{value.variant} of {value.experiment} ({classes}, concurrency {value.concurrency}) in {environment.name}"
        )
        source = _bench_source(environment, *cell[:3], str(value.concurrency))
        for metric, reference_ms in (("ttft_ms", value.ttft_ms), ("tpot_ms", value.tpot_ms)):
            if reference_ms is not None:
                yield _build_burst_alarm(
                    environment,
                    (metric.removesuffix("_ms"), *cell),
                    f"{name} is slower than in run {reference.run}: {metric}.",
                    f"median more than {regression_percent:g} percent (observability.regression_percent) above "
                    f"{reference_ms:g} ms in {STEADY_PERIODS} quarter-hours: fewer may be one round's outlier",
                    (source.line(metric, "p50", id_="median", is_visible=True),),
                    threshold=round(reference_ms * (1 + regression_percent / 100), 6),
                )
        if value.acceptance_length is not None and _has_acceptance(*arm):
            yield _build_burst_alarm(
                environment,
                (ACCEPTANCE, *cell),
                f"{name} accepts fewer drafted tokens than in run {reference.run}.",
                f"median acceptance length below {100 * MIN_ACCEPTANCE_SHARE:g} percent of "
                f"{value.acceptance_length:g} tokens in {STEADY_PERIODS} quarter-hours: a fifth of the gain's source "
                "is lost, and rounding (0.5 percent) is far smaller",
                (source.line("acceptance_length", "p50", id_="acceptance", is_visible=True),),
                comparison="below",
                threshold=round(MIN_ACCEPTANCE_SHARE * value.acceptance_length, 6),
            )


def _has_step_counters(experiment: Experiment) -> bool:
    """Whether the runtime's counters give tokens a step: live ones count drafts, flat ones steps and tokens."""
    runtime = load_catalogue().runtimes[experiment.runtime]
    return runtime.rendered and runtime.counters.speculation.value in {"live", "flat"}


def _has_acceptance(experiment: Experiment, variant: Variant) -> bool:
    return (
        variant.mode != "none" and _has_step_counters(experiment) and is_published(metrics.BENCH, "acceptance_length")
    )


def _bench_source(environment: Environment, *cell: str) -> MetricSource:
    """Return the figures of one cell: experiment, variant, class and concurrency; all of both where it names none."""
    values = (*cell, metrics.ALL_VALUES, metrics.ALL_VALUES)[: len(metrics.BENCH_DIMENSIONS)]
    return MetricSource(environment, metrics.BENCH, dict(zip(metrics.BENCH_DIMENSIONS, values, strict=True)))


def _build_burst_alarm(
    environment: Environment,
    name_parts: tuple[str, ...],
    sentence: str,
    reason: str,
    lines: tuple[MetricLine | MathExpression, ...],
    **fields: Any,
) -> MetricAlarm:
    """Return an alarm on quarter-hours of bursts; the first of `name_parts` is its kind.

    A median of few values is evaluated all the same: `ignore` would keep an alarm in alarm from the end of a run on,
    when no values come any more, and what it notifies with it.
    """
    is_percentile = any(isinstance(line, MetricLine) and line.statistic.startswith("p") for line in lines)
    return MetricAlarm(
        name=names.alarm_name(environment, *name_parts),
        sentence=sentence,
        reason=reason,
        anchor=name_parts[0],
        publishers=(metrics.BENCH,),
        lines=lines,
        period_s=PERIOD_S,
        periods=PERIODS,
        low_samples="evaluate" if is_percentile else None,
        **{"datapoints": STEADY_PERIODS, **fields},
    )
