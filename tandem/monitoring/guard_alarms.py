"""Alarms on the fleet and its stops, from metrics of the guard's functions, Lambda and SQS.

Invariant: none of them is ever muted. The suppressor of a parked fleet counts the nodes that log. A
node that is dead, that never joined or that nobody stops logs nothing and costs as much. A missing
value is also a fault. The reaper sends a value every five minutes, with or without a fleet, so its
absence has its own alarm.

These alarms are in Guard, exist before any fleet and as long as one lives, and depend on no
experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from tandem import cloudwatch_metrics as metrics
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.monitoring.alarm import EnvironmentAlarms, MetricAlarm, build_alarm, build_composites
from tandem.monitoring.scope import MetricSource

TOO_OLD = "too-old"
IDLE_BLOCK = "idle-block"
STOP_FAILURE = "stop-failed"
EXCESS_NODES = "excess-nodes"
GUARD_SILENCE = "guard-silent"
GUARD_ERRORS = "guard-errors"
GUARD_THROTTLES = "guard-throttles"
DEAD_LETTERS = "guard-gave-up"
STOP_ANCHOR = "when-the-fleet-must-stop"
PAGE = "runbook-guard.md"

PERIOD_S = 300  # one pass of the reaper
# At max_hours the reaper stops the fleet: EKS has 10 minutes, then the reaper ends instances by id;
# EC2 takes a while.
AGE_PERIODS = 5
# The next pass does the work of one failed pass; two failures in three are no accident.
FAILURE_PASSES = 2
WINDOW_PASSES = 3
MOST_PASSES = {"periods": WINDOW_PASSES, "datapoints": FAILURE_PASSES}
SILENT_PERIODS = 3

# composite -> its alarms, by their anchor, and its sentence
COMPOSITE_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "fleet": ((TOO_OLD, EXCESS_NODES, STOP_FAILURE), "the fleet lives and should not"),
    "idle": ((IDLE_BLOCK,), "a Capacity Block is paid for and nothing runs"),
    "guard": (
        (GUARD_SILENCE, GUARD_ERRORS, GUARD_THROTTLES, DEAD_LETTERS),
        "what stops the fleet does not work",
    ),
}


def build_guard_alarms(environment: Environment) -> EnvironmentAlarms:
    """Return the alarms of Guard and the composites that notify of them."""
    metric_alarms = (*_list_fleet_alarms(environment), *_list_function_alarms(environment))
    composites = build_composites(environment, COMPOSITE_KINDS, STOP_ANCHOR, metric_alarms)
    return EnvironmentAlarms(alarms=metric_alarms, suppressor=None, composites=tuple(composites))


def _list_fleet_alarms(environment: Environment) -> Iterator[MetricAlarm]:
    """Yield the alarms on the reaper's counts in each pass."""
    name = environment.name
    hours = environment.guard.max_hours
    idle_minutes = environment.guard.idle_minutes

    build = partial(_build_pass_alarm, MetricSource(environment, metrics.GUARD))
    yield build(
        (TOO_OLD,),
        "oldest_instance_hours",
        f"An instance of {name} is older than {hours} hours.",
        f"guard.max_hours, for {AGE_PERIODS * PERIOD_S // 60} minutes: at that age the reaper stops"
        " the fleet by itself, and needs most of that time where EKS does not end it",
        threshold=hours,
        periods=AGE_PERIODS,
        missing="ignore",  # a reaper that cannot see an instance must not report it gone
    )
    yield build(
        (EXCESS_NODES,),
        "excess_nodes",
        f"The fleet of {name} has more nodes than its lease.",
        "in one pass: `tandem start` never raises more than the lease says, and each node costs by"
        " the hour",
    )
    if environment.capacity.kind == "capacity-block":
        yield build(
            (IDLE_BLOCK,),
            "idle_block_minutes",
            f"The Capacity Block of {name} is paid for, and nothing runs under a lease.",
            f"in every pass of {idle_minutes} minutes (guard.idle_minutes): starting and compiling"
            " hold a lease, so nobody is about to use it",
            periods=-(-60 * idle_minutes // PERIOD_S),
        )
    yield build(
        (STOP_FAILURE,),
        "stop_failures",
        f"A stop of {name} is due and is not done.",
        f"in {FAILURE_PASSES} of {WINDOW_PASSES} passes:"
        " one that failed is made up for by the next",
        **MOST_PASSES,
    )
    yield build(
        (GUARD_SILENCE,),
        "instances_alive",
        f"Nobody has counted the instances of {name}"
        f" for {SILENT_PERIODS * PERIOD_S // 60} minutes.",
        f"no value in {SILENT_PERIODS} passes: the reaper sends one in each, also where there is no"
        " instance, unless it does not run or EC2 does not answer it",
        comparison="below",
        periods=SILENT_PERIODS,
        missing="breaching",
    )


def _list_function_alarms(environment: Environment) -> Iterator[MetricAlarm]:
    """Yield the alarms on the two functions that stop the fleet, and on calls given up."""
    periods_by_function: dict[Literal["stop", "reap"], dict[str, int]] = {
        "stop": {},
        "reap": MOST_PASSES,
    }
    error_reasons = {
        "stop": "more than 0: it is called once, when a budget is spent",
        "reap": f"in {FAILURE_PASSES} of {WINDOW_PASSES} passes: the next one tries again",
    }
    for function, periods in periods_by_function.items():
        name = names.guard_function_name(environment, function)
        build = partial(
            _build_pass_alarm, MetricSource(environment, metrics.LAMBDA, {"FunctionName": name})
        )
        sentence = f"The function {name} of {environment.name} ends with errors."
        yield build(
            (GUARD_ERRORS, function), "Errors", sentence, error_reasons[function], **periods
        )
        sentence = f"Lambda refuses to call {name} of {environment.name}."
        reason = (
            f"in {FAILURE_PASSES} of {WINDOW_PASSES} times of five minutes: Lambda tries a refused"
            " call again by "
        )
        yield build(
            (GUARD_THROTTLES, function), "Throttles", sentence, f"{reason}itself", **MOST_PASSES
        )
    queue_name = names.dead_letter_queue_name(environment)
    yield _build_pass_alarm(
        MetricSource(environment, metrics.SQS, {"QueueName": queue_name}),
        (DEAD_LETTERS,),
        "ApproximateNumberOfMessagesVisible",
        f"A stop of {environment.name} was given up: its call stands in {queue_name}.",
        "more than 0 messages: Scheduler and Lambda put a call there once they tried long enough",
    )


def _build_pass_alarm(
    source: MetricSource,
    name_parts: Sequence[str],
    metric: str,
    sentence: str,
    reason: str,
    **fields: Any,
) -> MetricAlarm:
    """Return an alarm on one metric, in one pass unless `fields` name more."""
    statistic = "Sum" if source.publisher == metrics.LAMBDA else "Maximum"
    line = source.line(metric, statistic, id="seen", is_visible=True)
    fields = {"periods": 1, **fields}
    return build_alarm(
        source.environment,
        name_parts,
        sentence,
        reason,
        line,
        period_s=PERIOD_S,
        page=PAGE,
        **fields,
    )
