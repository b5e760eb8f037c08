"""Alarms on what the bench publishes: failed requests, acceptance, regressions, and publishing itself.

Invariant: none fires for want of data. The bench sends a round when it ends, under the minutes of its requests, so its
series are bursts of the past: every alarm looks back over the longest round we know of, and counts quarter-hours that
have values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem import metrics
from tandem.spec import names
from tandem.spec.catalogue import catalogue
from tandem.spec.environment import Environment, ReferenceValue
from tandem.spec.experiment import Experiment, Variant
from tandem.watch.alarm import Alarm, Comparison
from tandem.watch.scope import Scope
from tandem.watch.source import Cell, sent
from tandem.watch.widget import Expression, Line

ERRORS, ACCEPTANCE, TTFT, TPOT, UNPUBLISHED = "errors", "acceptance", "ttft", "tpot", "unpublished"

PERIOD_S = 900
# A round of suite real by two arms is below three hours at the post's 45 ms a token (tandem.bench.estimate). Its first
# values are that old when they are sent, and those of the round before shall be in sight then.
LOOK_BACK_S = 6 * 3600
PERIODS = LOOK_BACK_S // PERIOD_S
# One cell of such a round lies in two quarter-hours at most: a lonely outlier is less than three.
STEADY = 3
REPEATED = 2
SINGLE_FAILURE = 1  # one failed request of a few is no rate
KEPT_ACCEPTANCE = 0.8
# 1 says by definition that no drafted token is accepted. 1.05 is above what rounding (0.5 %) makes of 1, and still says
# that of twenty steps one took a drafted token.
FLOOR_ACCEPTANCE = 1.05


def bench_alarms(scope: Scope) -> tuple[Alarm, ...]:
    """Return the alarms on the bench's figures."""
    return (*_counted(scope), *_compared(scope))


def unwatched(scope: Scope) -> Iterator[str]:
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
    for watching in scope.experiments:
        experiment = watching.experiment
        if any(variant.mode != "none" for variant in experiment.all_variants()) and not _gives_acceptance(experiment):
            yield (
                f"No acceptance of {experiment.name} is watched: nothing that runtime {experiment.runtime} counts "
                "gives tokens a step."
            )


def _counted(scope: Scope) -> Iterator[Alarm]:
    """Yield what is watched of every variant, reference or not."""
    environment = scope.environment
    for watching in scope.experiments:
        experiment = watching.experiment
        for variant in experiment.all_variants():
            if sent(metrics.BENCH, "requests") and sent(metrics.BENCH, "failed_requests"):
                yield _errors(environment, experiment, variant)
            if sent(metrics.BENCH, "unpublished_rounds"):
                yield _unpublished(environment, experiment, variant)
            if _wants_floor(environment, experiment, variant):
                yield _floor(environment, experiment, variant)


def _compared(scope: Scope) -> Iterator[Alarm]:
    """Yield what is held against the reference run."""
    reference = scope.environment.observability.reference
    known = {
        (watching.experiment.name, variant.name): (watching.experiment, variant)
        for watching in scope.experiments
        for variant in watching.experiment.all_variants()
    }
    for value in reference.values if reference else ():
        found = known.get((value.experiment, value.variant))
        if found is None:  # a rule refuses it; what nobody hosts sends nothing
            continue
        if value.ttft_ms is not None:
            yield _slower(scope.environment, value, "ttft_ms", value.ttft_ms)
        if value.tpot_ms is not None:
            yield _slower(scope.environment, value, "tpot_ms", value.tpot_ms)
        if value.acceptance_length is not None and _accepts(*found):
            yield _dropped(scope.environment, value, value.acceptance_length)


def _gives_acceptance(experiment: Experiment) -> bool:
    """Whether the runtime's counters give tokens a step: live ones count drafts, flat ones steps and tokens."""
    runtime = catalogue().runtimes[experiment.runtime]
    return runtime.rendered and runtime.counters.speculation.value in {"live", "flat"}


def _accepts(experiment: Experiment, variant: Variant) -> bool:
    return variant.mode != "none" and _gives_acceptance(experiment) and sent(metrics.BENCH, "acceptance_length")


def _wants_floor(environment: Environment, experiment: Experiment, variant: Variant) -> bool:
    """Whether a variant drafts and the reference has no acceptance of it."""
    reference = environment.observability.reference
    held = any(
        (value.experiment, value.variant) == (experiment.name, variant.name) and value.acceptance_length is not None
        for value in (reference.values if reference else ())
    )
    return _accepts(experiment, variant) and not held


def _errors(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    cell = _whole(environment, experiment, variant)
    percent = environment.observability.failed_percent
    return _Bursts(
        what=ERRORS,
        parts=(experiment.name, variant.name),
        says=f"Requests to {variant.name} of {experiment.name} in {environment.name} fail.",
        reason=f"more than {percent:g} percent of the requests of a quarter-hour (observability.failed_percent): a "
        f"healthy server fails none, and fewer than {SINGLE_FAILURE + 1} of a few are no rate",
        lines=(
            cell.line("failed_requests", "Sum", id_="failed"),
            cell.line("requests", "Sum", id_="requests"),
            Expression(
                text=f"IF(failed > {SINGLE_FAILURE}, 100 * failed / requests, 0)", label="percent failed", id="share"
            ),
        ),
        threshold=percent,
        datapoints=1,
    ).alarm(environment)


def _unpublished(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    cell = _whole(environment, experiment, variant)
    return _Bursts(
        what=UNPUBLISHED,
        parts=(experiment.name, variant.name),
        says=f"Rounds of {variant.name} of {experiment.name} are measured and do not reach CloudWatch "
        f"({environment.name}).",
        reason=f"more than 0 earlier rounds unpublished throughout {REPEATED} quarter-hours that have rounds: one "
        "that was late is made up for by the next",
        lines=(cell.line("unpublished_rounds", "Minimum", id_="unpublished", shown=True),),
        threshold=0,
        datapoints=REPEATED,
    ).alarm(environment)


def _floor(environment: Environment, experiment: Experiment, variant: Variant) -> Alarm:
    cell = _whole(environment, experiment, variant)
    return _Bursts(
        what=ACCEPTANCE,
        parts=(experiment.name, variant.name),
        says=f"{variant.name} of {experiment.name} in {environment.name} drafts, and almost nothing is accepted.",
        reason=f"median acceptance length below {FLOOR_ACCEPTANCE:g} tokens in {STEADY} quarter-hours: at 1 no drafted "
        "token is accepted and every draft is lost time; without a reference no better level is known",
        lines=(cell.line("acceptance_length", "p50", id_="acceptance", shown=True),),
        comparison="below",
        threshold=FLOOR_ACCEPTANCE,
        datapoints=STEADY,
    ).alarm(environment)


def _dropped(environment: Environment, value: ReferenceValue, before: float) -> Alarm:
    return _Bursts(
        what=ACCEPTANCE,
        parts=_named(value),
        says=f"{_spoken(value)} in {environment.name} accepts fewer drafted tokens than in run {_run(environment)}.",
        reason=f"median acceptance length below {100 * KEPT_ACCEPTANCE:g} percent of {before:g} tokens in {STEADY} "
        "quarter-hours: a fifth of the gain's source is lost, and rounding (0.5 percent) is far smaller",
        lines=(_cell(environment, value).line("acceptance_length", "p50", id_="acceptance", shown=True),),
        comparison="below",
        threshold=round(KEPT_ACCEPTANCE * before, 6),
        datapoints=STEADY,
    ).alarm(environment)


def _slower(environment: Environment, value: ReferenceValue, metric: str, before: float) -> Alarm:
    percent = environment.observability.regression_percent
    return _Bursts(
        what=metric.removesuffix("_ms"),
        parts=_named(value),
        says=f"{_spoken(value)} in {environment.name} is slower than in run {_run(environment)}: {metric}.",
        reason=f"median more than {percent:g} percent (observability.regression_percent) above {before:g} ms in "
        f"{STEADY} quarter-hours: fewer may be one round's outlier",
        lines=(_cell(environment, value).line(metric, "p50", id_="median", shown=True),),
        threshold=round(before * (1 + percent / 100), 6),
        datapoints=STEADY,
    ).alarm(environment)


def _whole(environment: Environment, experiment: Experiment, variant: Variant) -> Cell:
    """Return all classes and loads of a variant."""
    cell = (experiment.name, variant.name, metrics.EVERY, metrics.EVERY)
    return Cell(environment, metrics.BENCH, dict(zip(metrics.BENCH_DIMENSIONS, cell, strict=True)))


def _cell(environment: Environment, value: ReferenceValue) -> Cell:
    cell = (value.experiment, value.variant, value.prompt_class, str(value.concurrency))
    return Cell(environment, metrics.BENCH, dict(zip(metrics.BENCH_DIMENSIONS, cell, strict=True)))


def _named(value: ReferenceValue) -> tuple[str, ...]:
    return (value.experiment, value.variant, value.prompt_class, f"c{value.concurrency}")


def _spoken(value: ReferenceValue) -> str:
    classes = "all classes" if value.prompt_class == metrics.EVERY else value.prompt_class
    return f"{value.variant} of {value.experiment} ({classes}, concurrency {value.concurrency})"


def _run(environment: Environment) -> str:
    reference = environment.observability.reference
    assert reference is not None, "only a reference's value is compared"
    return reference.run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bursts:
    """An alarm on quarter-hours of bursts; `parts` follow `what` in its name."""

    what: str
    parts: tuple[str, ...]
    says: str
    reason: str
    lines: tuple[Line | Expression, ...]
    comparison: Comparison = "above"
    threshold: float
    datapoints: int

    def alarm(self, environment: Environment) -> Alarm:
        """Return it.

        A median of few values is evaluated all the same: `ignore` would keep an alarm in alarm from the end of a run
        on, when no values come any more, and what it notifies with it.
        """
        percentile = any(isinstance(each, Line) and each.statistic.startswith("p") for each in self.lines)
        return Alarm(
            name=names.alarm(environment, self.what, *self.parts),
            says=self.says,
            reason=self.reason,
            anchor=self.what,
            publishers=(metrics.BENCH,),
            lines=self.lines,
            comparison=self.comparison,
            threshold=self.threshold,
            period_s=PERIOD_S,
            periods=PERIODS,
            datapoints=self.datapoints,
            missing="notBreaching",
            low_samples="evaluate" if percentile else None,
        )
