"""Alarms on the bench's metrics: failed requests, acceptance, regressions, and publishing itself.

Invariant: missing data fire no alarm. The bench sends a round when it ends, with the times of its
requests, so its series are bursts of the past. Every alarm looks back over the longest known round,
and counts quarter-hours with values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tandem import cloudwatch_metrics as metrics
from tandem.declarations.environment import Environment, ReferenceValue
from tandem.monitoring.alarm import MetricAlarm, build_alarm
from tandem.monitoring.scope import MetricSource, MonitoringScope
from tandem.monitoring.widget import MathExpression, MetricLine

ERRORS = "errors"
ACCEPTANCE = "acceptance"
TTFT = "ttft"
TPOT = "tpot"
PUBLISHING_BACKLOG = "unpublished"

PERIOD_S = 900
# A round of suite real by two arms takes less than three hours at the post's 45 ms a token
# (tandem.bench.plan.estimate). Its first values are that old when they are sent, and those of the
# round before must still be in view then.
LOOK_BACK_S = 6 * 3600
PERIODS = LOOK_BACK_S // PERIOD_S
# One cell of such a round covers two quarter-hours at most: a single outlier is less than three.
STEADY_PERIODS = 3
BACKLOG_PERIODS = 2
SINGLE_FAILURE = 1  # one failed request of a few is no rate
MIN_ACCEPTANCE_SHARE = 0.8
# 1 means by definition that no drafted token is accepted. 1.05 is above what rounding (0.5 %) makes
# of 1, and still means that one of twenty steps took a drafted token.
FLOOR_ACCEPTANCE = 1.05


def build_bench_alarms(scope: MonitoringScope) -> Iterator[MetricAlarm]:
    """Yield the alarms on the bench's figures: of each variant, then against the reference run.

    A rule refuses a reference for an experiment not hosted here, and an acceptance length for a
    variant without speculation.
    """
    environment = scope.environment
    reference = scope.environment.observability.reference
    values = reference.values if reference else ()
    referenced_arms = {
        (value.experiment, value.variant) for value in values if value.acceptance_length is not None
    }
    for experiment in (member.experiment for member in scope.experiments):
        for variant in experiment.all_variants():
            watches_acceptance = (
                variant.mode != "none" and (experiment.name, variant.name) not in referenced_arms
            )
            yield from _list_variant_alarms(
                environment, experiment.name, variant.name, watches_acceptance=watches_acceptance
            )
    for value in values:
        yield from _list_reference_alarms(environment, value)


def _list_variant_alarms(
    environment: Environment, experiment: str, variant: str, *, watches_acceptance: bool
) -> Iterator[MetricAlarm]:
    """Yield the alarms of a variant, with or without a reference."""
    arm = f"{variant} of {experiment}"
    percent = environment.observability.failed_percent
    source = _bench_source(environment, experiment, variant)
    share = f"IF(failed > {SINGLE_FAILURE}, 100 * failed / requests, 0)"
    yield _build_burst_alarm(
        environment,
        [ERRORS, experiment, variant],
        f"Requests to {arm} in {environment.name} fail.",
        f"more than {percent:g} percent of the requests of a quarter-hour"
        " (observability.failed_percent): a healthy server fails none, and fewer than"
        f" {SINGLE_FAILURE + 1} of a few are no rate",
        source.line("failed_requests", "Sum", id="failed"),
        source.line("requests", "Sum", id="requests"),
        MathExpression(text=share, label="percent failed", id="share"),
        threshold=percent,
        datapoints=1,
    )
    yield _build_burst_alarm(
        environment,
        [PUBLISHING_BACKLOG, experiment, variant],
        f"Rounds of {arm} are measured and do not reach CloudWatch ({environment.name}).",
        f"more than 0 earlier rounds unpublished throughout {BACKLOG_PERIODS} quarter-hours that"
        " have rounds: one that was late is made up for by the next",
        source.line("unpublished_rounds", "Minimum", id="unpublished", is_visible=True),
        datapoints=BACKLOG_PERIODS,
    )
    if watches_acceptance:
        yield _build_burst_alarm(
            environment,
            [ACCEPTANCE, experiment, variant],
            f"{arm} in {environment.name} drafts, and almost nothing is accepted.",
            f"median acceptance length below {FLOOR_ACCEPTANCE:g} tokens in {STEADY_PERIODS}"
            " quarter-hours: at 1 no drafted token is accepted and every draft is lost time;"
            " without a reference no better level is known",
            source.line("acceptance_length", "p50", id="acceptance", is_visible=True),
            comparison="below",
            threshold=FLOOR_ACCEPTANCE,
        )


def _list_reference_alarms(
    environment: Environment, value: ReferenceValue
) -> Iterator[MetricAlarm]:
    """Yield the alarms on a value of the reference run."""
    reference = environment.observability.reference
    percent = environment.observability.regression_percent
    run = reference.run if reference else ""
    cell = (value.experiment, value.variant, value.prompt_class, f"c{value.concurrency}")
    classes = "all classes" if value.prompt_class == metrics.ALL_VALUES else value.prompt_class
    name = (
        f"{value.variant} of {value.experiment}"
        f" ({classes}, concurrency {value.concurrency}) in {environment.name}"
    )
    source = _bench_source(environment, *cell[:3], str(value.concurrency))
    for metric, reference_ms in (("ttft_ms", value.ttft_ms), ("tpot_ms", value.tpot_ms)):
        if reference_ms is not None:
            yield _build_burst_alarm(
                environment,
                [metric.removesuffix("_ms"), *cell],
                f"{name} is slower than in run {run}: {metric}.",
                f"median more than {percent:g} percent (observability.regression_percent) above"
                f" {reference_ms:g} ms in {STEADY_PERIODS} quarter-hours:"
                " fewer may be one round's outlier",
                source.line(metric, "p50", id="median", is_visible=True),
                threshold=round(reference_ms * (1 + percent / 100), 6),
            )
    if value.acceptance_length is not None:
        yield _build_burst_alarm(
            environment,
            [ACCEPTANCE, *cell],
            f"{name} accepts fewer drafted tokens than in run {run}.",
            f"median acceptance length below {100 * MIN_ACCEPTANCE_SHARE:g} percent of"
            f" {value.acceptance_length:g} tokens in {STEADY_PERIODS} quarter-hours: a fifth of the"
            " gain's source is lost, and rounding (0.5 percent) is far smaller",
            source.line("acceptance_length", "p50", id="acceptance", is_visible=True),
            comparison="below",
            threshold=round(MIN_ACCEPTANCE_SHARE * value.acceptance_length, 6),
        )


def _bench_source(environment: Environment, *cell: str) -> MetricSource:
    """Return a cell's figures: experiment, variant, class and concurrency, or all cells'."""
    values = (*cell, metrics.ALL_VALUES, metrics.ALL_VALUES)
    return MetricSource(
        environment, metrics.BENCH, dict(zip(metrics.BENCH_DIMENSIONS, values, strict=False))
    )


def _build_burst_alarm(
    environment: Environment,
    name_parts: Sequence[str],
    sentence: str,
    reason: str,
    *lines: MetricLine | MathExpression,
    **fields: Any,
) -> MetricAlarm:
    """Return an alarm on quarter-hours of bursts."""
    fields = {"period_s": PERIOD_S, "periods": PERIODS, "datapoints": STEADY_PERIODS, **fields}
    return build_alarm(environment, name_parts, sentence, reason, *lines, **fields)
