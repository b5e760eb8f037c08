"""Alarms on what the bench publishes: failed requests, acceptance, regressions, and publishing itself.

Invariant: none fires for want of data. The bench sends a round when it ends, under the minutes of its requests, so its
series are bursts of the past: every alarm looks back over the longest round we know of, and counts quarter-hours that
have values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tandem import metrics
from tandem.monitoring.alarm import MetricAlarm, build_alarm
from tandem.monitoring.scope import MetricSource, MonitoringScope, is_published
from tandem.monitoring.widget import MathExpression, MetricLine
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


def build_bench_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield the alarms on the bench's figures: of every variant, then what is held against the reference run."""
    reference = scope.environment.observability.reference
    values = reference.values if reference else ()
    accepting_arms = {(value.experiment, value.variant) for value in values if value.acceptance_length is not None}
    for experiment_scope in scope.experiments:
        experiment = experiment_scope.experiment
        for variant in experiment.all_variants():
            has_reference = (experiment.name, variant.name) in accepting_arms
            watches_acceptance = _has_acceptance(experiment, variant) and not has_reference
            yield from _list_variant_alarms(
                scope.environment, experiment.name, variant.name, watches_acceptance=watches_acceptance
            )
    yield from _list_reference_alarms(scope)


def list_coverage_gaps(scope: MonitoringScope) -> Iterator[str]:
    """Yield what no alarm on the bench's figures sees, and why."""
    yield (
        "A bench that sends nothing at all is not seen: unpublished_rounds comes with the next round that is sent. "
        f"Nor is a round that is older than {LOOK_BACK_S // 3600} h when it is sent."
    )
    if scope.environment.observability.reference is None:
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


def _list_variant_alarms(
    environment: Environment, experiment: str, variant: str, *, watches_acceptance: bool
) -> Iterator[MetricAlarm]:
    """Yield what is watched of a variant, reference or not."""
    arm, percent = f"{variant} of {experiment}", environment.observability.failed_percent
    source = _bench_source(environment, experiment, variant)
    if is_published(metrics.BENCH, "requests") and is_published(metrics.BENCH, "failed_requests"):
        share = f"IF(failed > {SINGLE_FAILURE}, 100 * failed / requests, 0)"
        yield _build_burst_alarm(
            environment,
            [ERRORS, experiment, variant],
            f"Requests to {arm} in {environment.name} fail.",
            f"more than {percent:g} percent of the requests of a quarter-hour (observability.failed_percent): a "
            f"healthy server fails none, and fewer than {SINGLE_FAILURE + 1} of a few are no rate",
            source.line("failed_requests", "Sum", id_="failed"),
            source.line("requests", "Sum", id_="requests"),
            MathExpression(text=share, label="percent failed", id="share"),
            threshold=percent,
            datapoints=1,
        )
    if is_published(metrics.BENCH, "unpublished_rounds"):
        yield _build_burst_alarm(
            environment,
            [PUBLISHING_BACKLOG, experiment, variant],
            f"Rounds of {arm} are measured and do not reach CloudWatch ({environment.name}).",
            f"more than 0 earlier rounds unpublished throughout {BACKLOG_PERIODS} quarter-hours that have rounds: one "
            "that was late is made up for by the next",
            source.line("unpublished_rounds", "Minimum", id_="unpublished", is_visible=True),
            datapoints=BACKLOG_PERIODS,
        )
    if watches_acceptance:
        yield _build_burst_alarm(
            environment,
            [ACCEPTANCE, experiment, variant],
            f"{arm} in {environment.name} drafts, and almost nothing is accepted.",
            f"median acceptance length below {FLOOR_ACCEPTANCE:g} tokens in {STEADY_PERIODS} quarter-hours: at 1 no "
            "drafted token is accepted and every draft is lost time; without a reference no better level is known",
            source.line("acceptance_length", "p50", id_="acceptance", is_visible=True),
            comparison="below",
            threshold=FLOOR_ACCEPTANCE,
        )


def _list_reference_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield what is held against the reference run; what nobody hosts sends nothing."""
    environment = scope.environment
    reference, regression_percent = environment.observability.reference, environment.observability.regression_percent
    hosted_arms = {
        (experiment_scope.experiment.name, variant.name): (experiment_scope.experiment, variant)
        for experiment_scope in scope.experiments
        for variant in experiment_scope.experiment.all_variants()
    }
    for value in reference.values if reference else ():
        arm = hosted_arms.get((value.experiment, value.variant))
        if reference is None or arm is None:
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
                    [metric.removesuffix("_ms"), *cell],
                    f"{name} is slower than in run {reference.run}: {metric}.",
                    f"median more than {regression_percent:g} percent (observability.regression_percent) above "
                    f"{reference_ms:g} ms in {STEADY_PERIODS} quarter-hours: fewer may be one round's outlier",
                    source.line(metric, "p50", id_="median", is_visible=True),
                    threshold=round(reference_ms * (1 + regression_percent / 100), 6),
                )
        if value.acceptance_length is not None and _has_acceptance(*arm):
            yield _build_burst_alarm(
                environment,
                [ACCEPTANCE, *cell],
                f"{name} accepts fewer drafted tokens than in run {reference.run}.",
                f"median acceptance length below {100 * MIN_ACCEPTANCE_SHARE:g} percent of "
                f"{value.acceptance_length:g} tokens in {STEADY_PERIODS} quarter-hours: a fifth of the gain's source "
                "is lost, and rounding (0.5 percent) is far smaller",
                source.line("acceptance_length", "p50", id_="acceptance", is_visible=True),
                comparison="below",
                threshold=round(MIN_ACCEPTANCE_SHARE * value.acceptance_length, 6),
            )


def _has_step_counters(experiment: Experiment) -> bool:
    """Whether the runtime's counters give tokens a step: live ones count drafts, flat ones steps and tokens."""
    runtime = load_catalogue().runtimes[experiment.runtime]
    return runtime.rendered and runtime.counters.speculation.value in {"live", "flat"}


def _has_acceptance(experiment: Experiment, variant: Variant) -> bool:
    is_sent = variant.mode != "none" and _has_step_counters(experiment)
    return is_sent and is_published(metrics.BENCH, "acceptance_length")


def _bench_source(environment: Environment, *cell: str) -> MetricSource:
    """Return the figures of one cell: experiment, variant, class and concurrency; all of both where it names none."""
    values = (*cell, metrics.ALL_VALUES, metrics.ALL_VALUES)
    return MetricSource(environment, metrics.BENCH, dict(zip(metrics.BENCH_DIMENSIONS, values, strict=False)))


def _build_burst_alarm(
    environment: Environment, name_parts: Sequence[str], sentence: str, reason: str,
    *lines: MetricLine | MathExpression, **fields: Any,
) -> MetricAlarm:  # fmt: skip
    """Return an alarm on quarter-hours of bursts."""
    fields = {"period_s": PERIOD_S, "periods": PERIODS, "datapoints": STEADY_PERIODS, **fields}
    return build_alarm(environment, name_parts, sentence, reason, *lines, **fields)
