"""Alarms on the fleet itself and on what stops it, from what the guard's functions, Lambda and SQS send.

Invariant: none of them is ever muted. The suppressor of a parked fleet counts what nodes log, and a node that is dead,
that never joined or that nobody stops logs nothing and costs as much. And silence is no good news here: the reaper
sends a value every five minutes, fleet or no fleet, so that its absence is an alarm of its own.

They stand in Guard, before any fleet and as long as one lives, and depend on no experiment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tandem import metrics
from tandem.monitoring.alarm import Comparison, CompositeAlarm, EnvironmentAlarms, MetricAlarm, Missing
from tandem.monitoring.metric_source import MetricSource
from tandem.monitoring.widget import Statistic
from tandem.spec import names
from tandem.spec.environment import Environment

TOO_OLD, IDLE_BLOCK, STOP_FAILURE = "too-old", "idle-block", "stop-failed"
EXCESS_NODES = "excess-nodes"
GUARD_SILENCE, GUARD_ERRORS, GUARD_THROTTLES, DEAD_LETTERS = (
    "guard-silent",
    "guard-errors",
    "guard-throttles",
    "guard-gave-up",
)
STOP_ANCHOR = "when-the-fleet-must-stop"

PERIOD_S = 300  # one pass of the reaper
# At max_hours the reaper stops the fleet itself: EKS has 10 minutes, then it ends instances by id, and EC2 takes some.
AGE_PERIODS = 5
# One pass that failed is made up by the next; two of three are no accident.
FAILURE_PASSES, WINDOW_PASSES = 2, 3
SILENT_PERIODS = 3

_FUNCTIONS: tuple[Literal["stop", "reap"], ...] = ("stop", "reap")

# composite -> the alarms it holds, by their anchor, and what it says
COMPOSITE_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "fleet": ((TOO_OLD, EXCESS_NODES, STOP_FAILURE), "the fleet lives and should not"),
    "idle": ((IDLE_BLOCK,), "a Capacity Block is paid for and nothing runs"),
    "guard": ((GUARD_SILENCE, GUARD_ERRORS, GUARD_THROTTLES, DEAD_LETTERS), "what stops the fleet does not work"),
}


def build_guard_alarms(environment: Environment) -> EnvironmentAlarms:
    """Return the alarms of Guard and what notifies of them."""
    metric_alarms = tuple(_list_metric_alarms(environment))
    return EnvironmentAlarms(
        alarms=metric_alarms,
        suppressor=None,
        composites=tuple(
            CompositeAlarm(
                name=names.alarm_name(environment, names.NOTIFY, kind),
                sentence=f"{environment.name}: {sentence}.",
                anchor=STOP_ANCHOR,
                alarms=alarm_names,
                suppressor=None,
                wait_s=0,
                extension_s=0,
            )
            for kind, (anchors, sentence) in COMPOSITE_KINDS.items()
            if (alarm_names := tuple(alarm.name for alarm in metric_alarms if alarm.anchor in anchors))
        ),
    )


def _list_metric_alarms(environment: Environment) -> Iterator[MetricAlarm]:
    yield _age_alarm(environment)
    yield _excess_nodes_alarm(environment)
    if environment.capacity.kind == "capacity-block":
        yield _idle_block_alarm(environment)
    yield _stop_failure_alarm(environment)
    yield _silence_alarm(environment)
    for function_name in _FUNCTIONS:
        yield _error_alarm(environment, function_name)
        yield _throttle_alarm(environment, function_name)
    yield _dead_letter_alarm(environment)


def _age_alarm(environment: Environment) -> MetricAlarm:
    hours = environment.guard.max_hours
    return _PassAlarm(
        kind=TOO_OLD,
        sentence=f"An instance of {environment.name} is older than {hours} hours.",
        reason=f"guard.max_hours, for {AGE_PERIODS * PERIOD_S // 60} minutes: at that age the reaper stops the fleet "
        "by itself, and needs most of that time where EKS does not end it",
        metric="oldest_instance_hours",
        threshold=hours,
        periods=AGE_PERIODS,
        missing="ignore",  # who cannot see it must not say that it is gone
    ).build(environment)


def _excess_nodes_alarm(environment: Environment) -> MetricAlarm:
    return _PassAlarm(
        kind=EXCESS_NODES,
        sentence=f"The fleet of {environment.name} has more nodes than its lease.",
        reason="in one pass: `tandem start` never raises more than the lease says, and each node costs by the hour",
        metric="excess_nodes",
        threshold=0,
        periods=1,
    ).build(environment)


def _idle_block_alarm(environment: Environment) -> MetricAlarm:
    minutes = environment.guard.idle_minutes
    periods = -(-60 * minutes // PERIOD_S)
    return _PassAlarm(
        kind=IDLE_BLOCK,
        sentence=f"The Capacity Block of {environment.name} is paid for, and nothing runs under a lease.",
        reason=f"in every pass of {minutes} minutes (guard.idle_minutes): starting and compiling hold a lease, so "
        "nobody is about to use it",
        metric="idle_block_minutes",
        threshold=0,
        periods=periods,
    ).build(environment)


def _stop_failure_alarm(environment: Environment) -> MetricAlarm:
    return _PassAlarm(
        kind=STOP_FAILURE,
        sentence=f"A stop of {environment.name} is due and is not done.",
        reason=f"in {FAILURE_PASSES} of {WINDOW_PASSES} passes: one that failed is made up for by the next",
        metric="stop_failures",
        threshold=0,
        periods=WINDOW_PASSES,
        datapoints=FAILURE_PASSES,
    ).build(environment)


def _silence_alarm(environment: Environment) -> MetricAlarm:
    return _PassAlarm(
        kind=GUARD_SILENCE,
        sentence=f"Nobody has counted the instances of {environment.name} for {SILENT_PERIODS * PERIOD_S // 60} "
        "minutes.",
        reason=f"no value in {SILENT_PERIODS} passes: the reaper sends one in each, also where there is no instance, "
        "unless it does not run or EC2 does not answer it",
        metric="instances_alive",
        comparison="below",
        threshold=0,
        periods=SILENT_PERIODS,
        missing="breaching",
    ).build(environment)


def _error_alarm(environment: Environment, function_name: Literal["stop", "reap"]) -> MetricAlarm:
    is_periodic = function_name == "reap"
    return _PassAlarm(
        kind=GUARD_ERRORS,
        name_part=function_name,
        sentence=f"The function {names.guard_function_name(environment, function_name)} of {environment.name} "
        "ends with errors.",
        reason=f"in {FAILURE_PASSES} of {WINDOW_PASSES} passes: the next one tries again"
        if is_periodic
        else "more than 0: it is called once, when a budget is spent",
        publisher=metrics.LAMBDA,
        metric="Errors",
        dimensions={"FunctionName": names.guard_function_name(environment, function_name)},
        statistic="Sum",
        threshold=0,
        periods=WINDOW_PASSES if is_periodic else 1,
        datapoints=FAILURE_PASSES if is_periodic else 1,
    ).build(environment)


def _throttle_alarm(environment: Environment, function_name: Literal["stop", "reap"]) -> MetricAlarm:
    return _PassAlarm(
        kind=GUARD_THROTTLES,
        name_part=function_name,
        sentence=f"Lambda refuses to call {names.guard_function_name(environment, function_name)} of "
        f"{environment.name}.",
        reason=f"in {FAILURE_PASSES} of {WINDOW_PASSES} times of five minutes: Lambda tries a refused call "
        "again by itself",
        publisher=metrics.LAMBDA,
        metric="Throttles",
        dimensions={"FunctionName": names.guard_function_name(environment, function_name)},
        statistic="Sum",
        threshold=0,
        periods=WINDOW_PASSES,
        datapoints=FAILURE_PASSES,
    ).build(environment)


def _dead_letter_alarm(environment: Environment) -> MetricAlarm:
    return _PassAlarm(
        kind=DEAD_LETTERS,
        sentence=f"A stop of {environment.name} was given up: its call stands in "
        f"{names.dead_letter_queue_name(environment)}.",
        reason="more than 0 messages: Scheduler and Lambda put a call there once they tried long enough",
        publisher=metrics.SQS,
        metric="ApproximateNumberOfMessagesVisible",
        dimensions={"QueueName": names.dead_letter_queue_name(environment)},
        threshold=0,
        periods=1,
    ).build(environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PassAlarm:
    """An alarm on one metric, pass by pass; `name_part` follows `kind` in its name."""

    kind: str
    name_part: str = ""
    sentence: str
    reason: str
    metric: str
    threshold: float
    periods: int
    datapoints: int | None = None
    publisher: str = metrics.GUARD
    dimensions: dict[str, str] | None = None
    statistic: Statistic = "Maximum"
    comparison: Comparison = "above"
    missing: Missing = "notBreaching"

    def build(self, environment: Environment) -> MetricAlarm:
        """Return it."""
        source = MetricSource(environment, self.publisher, self.dimensions or {})
        return MetricAlarm(
            name=names.alarm_name(environment, self.kind, *([self.name_part] if self.name_part else [])),
            sentence=self.sentence,
            reason=self.reason,
            anchor=self.kind,
            publishers=(self.publisher,),
            lines=(source.line(self.metric, self.statistic, id_="seen", is_visible=True),),
            comparison=self.comparison,
            threshold=self.threshold,
            period_s=PERIOD_S,
            periods=self.periods,
            datapoints=self.datapoints or self.periods,
            missing=self.missing,
        )
