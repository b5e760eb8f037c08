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
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch.alarm import Alarm, Alarms, Comparison, Composite, Missing
from tandem.watch.source import Cell
from tandem.watch.widget import Statistic

TOO_OLD, IDLE_BLOCK, STOP_FAILED = "too-old", "idle-block", "stop-failed"
EXCESS_NODES = "excess-nodes"
SILENT, FAULTY, THROTTLED, GIVEN_UP = "guard-silent", "guard-errors", "guard-throttles", "guard-gave-up"
FLEET_STOPS = "when-the-fleet-must-stop"

PERIOD_S = 300  # one pass of the reaper
# At max_hours the reaper stops the fleet itself: EKS has 10 minutes, then it ends instances by id, and EC2 takes some.
OLD_PERIODS = 5
# One pass that failed is made up by the next; two of three are no accident.
TRIED, TRIED_OF = 2, 3
SILENT_PERIODS = 3

_FUNCTIONS: tuple[Literal["stop", "reap"], ...] = ("stop", "reap")

# composite -> the alarms it holds, by their anchor, and what it says
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "fleet": ((TOO_OLD, EXCESS_NODES, STOP_FAILED), "the fleet lives and should not"),
    "idle": ((IDLE_BLOCK,), "a Capacity Block is paid for and nothing runs"),
    "guard": ((SILENT, FAULTY, THROTTLED, GIVEN_UP), "what stops the fleet does not work"),
}


def guard_alarms(environment: Environment) -> Alarms:
    """Return the alarms of Guard and what notifies of them."""
    found = tuple(_alarms(environment))
    return Alarms(
        alarms=found,
        parked=None,
        composites=tuple(
            Composite(
                name=names.alarm(environment, names.NOTIFY, kind),
                says=f"{environment.name}: {says}.",
                anchor=FLEET_STOPS,
                alarms=held,
                suppressor=None,
                wait_s=0,
                extend_s=0,
            )
            for kind, (anchors, says) in KINDS.items()
            if (held := tuple(alarm.name for alarm in found if alarm.anchor in anchors))
        ),
    )


def _alarms(environment: Environment) -> Iterator[Alarm]:
    yield _too_old(environment)
    yield _excess_nodes(environment)
    if environment.capacity.kind == "capacity-block":
        yield _idle_block(environment)
    yield _stop_failed(environment)
    yield _silent(environment)
    for what in _FUNCTIONS:
        yield _faulty(environment, what)
        yield _throttled(environment, what)
    yield _gave_up(environment)


def _too_old(environment: Environment) -> Alarm:
    hours = environment.guard.max_hours
    return _Look(
        what=TOO_OLD,
        says=f"An instance of {environment.name} is older than {hours} hours.",
        reason=f"guard.max_hours, for {OLD_PERIODS * PERIOD_S // 60} minutes: at that age the reaper stops the fleet "
        "by itself, and needs most of that time where EKS does not end it",
        metric="oldest_instance_hours",
        threshold=hours,
        periods=OLD_PERIODS,
        missing="ignore",  # who cannot see it must not say that it is gone
    ).alarm(environment)


def _excess_nodes(environment: Environment) -> Alarm:
    return _Look(
        what=EXCESS_NODES,
        says=f"The fleet of {environment.name} has more nodes than its lease.",
        reason="in one pass: `tandem start` never raises more than the lease says, and each node costs by the hour",
        metric="excess_nodes",
        threshold=0,
        periods=1,
    ).alarm(environment)


def _idle_block(environment: Environment) -> Alarm:
    minutes = environment.guard.idle_minutes
    periods = -(-60 * minutes // PERIOD_S)
    return _Look(
        what=IDLE_BLOCK,
        says=f"The Capacity Block of {environment.name} is paid for, and nothing runs under a lease.",
        reason=f"in every pass of {minutes} minutes (guard.idle_minutes): starting and compiling hold a lease, so "
        "nobody is about to use it",
        metric="idle_block_minutes",
        threshold=0,
        periods=periods,
    ).alarm(environment)


def _stop_failed(environment: Environment) -> Alarm:
    return _Look(
        what=STOP_FAILED,
        says=f"A stop of {environment.name} is due and is not done.",
        reason=f"in {TRIED} of {TRIED_OF} passes: one that failed is made up for by the next",
        metric="stop_failures",
        threshold=0,
        periods=TRIED_OF,
        datapoints=TRIED,
    ).alarm(environment)


def _silent(environment: Environment) -> Alarm:
    return _Look(
        what=SILENT,
        says=f"Nobody has counted the instances of {environment.name} for {SILENT_PERIODS * PERIOD_S // 60} minutes.",
        reason=f"no value in {SILENT_PERIODS} passes: the reaper sends one in each, also where there is no instance, "
        "unless it does not run or EC2 does not answer it",
        metric="instances_alive",
        comparison="below",
        threshold=0,
        periods=SILENT_PERIODS,
        missing="breaching",
    ).alarm(environment)


def _faulty(environment: Environment, what: Literal["stop", "reap"]) -> Alarm:
    again = what == "reap"
    return _Look(
        what=FAULTY,
        part=what,
        says=f"The function {names.guard_function(environment, what)} of {environment.name} ends with errors.",
        reason=f"in {TRIED} of {TRIED_OF} passes: the next one tries again"
        if again
        else "more than 0: it is called once, when a budget is spent",
        publisher=metrics.LAMBDA,
        metric="Errors",
        dimensions={"FunctionName": names.guard_function(environment, what)},
        statistic="Sum",
        threshold=0,
        periods=TRIED_OF if again else 1,
        datapoints=TRIED if again else 1,
    ).alarm(environment)


def _throttled(environment: Environment, what: Literal["stop", "reap"]) -> Alarm:
    return _Look(
        what=THROTTLED,
        part=what,
        says=f"Lambda refuses to call {names.guard_function(environment, what)} of {environment.name}.",
        reason=f"in {TRIED} of {TRIED_OF} times of five minutes: Lambda tries a refused call again by itself",
        publisher=metrics.LAMBDA,
        metric="Throttles",
        dimensions={"FunctionName": names.guard_function(environment, what)},
        statistic="Sum",
        threshold=0,
        periods=TRIED_OF,
        datapoints=TRIED,
    ).alarm(environment)


def _gave_up(environment: Environment) -> Alarm:
    return _Look(
        what=GIVEN_UP,
        says=f"A stop of {environment.name} was given up: its call stands in {names.dead_letter_queue(environment)}.",
        reason="more than 0 messages: Scheduler and Lambda put a call there once they tried long enough",
        publisher=metrics.SQS,
        metric="ApproximateNumberOfMessagesVisible",
        dimensions={"QueueName": names.dead_letter_queue(environment)},
        threshold=0,
        periods=1,
    ).alarm(environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """An alarm on one metric, pass by pass; `part` follows `what` in its name."""

    what: str
    part: str = ""
    says: str
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

    def alarm(self, environment: Environment) -> Alarm:
        """Return it."""
        cell = Cell(environment, self.publisher, self.dimensions or {})
        return Alarm(
            name=names.alarm(environment, self.what, *([self.part] if self.part else [])),
            says=self.says,
            reason=self.reason,
            anchor=self.what,
            publishers=(self.publisher,),
            lines=(cell.line(self.metric, self.statistic, id_="seen", shown=True),),
            comparison=self.comparison,
            threshold=self.threshold,
            period_s=PERIOD_S,
            periods=self.periods,
            datapoints=self.datapoints or self.periods,
            missing=self.missing,
        )
