"""Lives of a run whose runners freeze between any two of their calls, are replaced, and wake with
what they remembered.

Each runner is a greenlet, and one of them runs at a time: before any call of AWS or Kubernetes it
may freeze. Then another runner takes its place, at once or hours later, and the frozen one wakes
within minutes or hours, goes on in the middle of its look, and goes on looking until it finds that
it lost its place. A pause of a step ends its turn, so that time passes for all. The random numbers
alone decide: a seed repeats a life. AWS and Kubernetes themselves work here: what they do when they
fail is in test_run_kills.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from greenlet import getcurrent, greenlet
from guard_world import Machine
from virtual_world import LOOK_S, VirtualWorld

from tandem.errors import ExternalError
from tandem.run.journal import LostRunError
from tandem.run.runner import Runner

GAPS = (1, 3, 10, 30, 60, 150, 300)  # calls of all runners from one freeze to the next
SHORT_FREEZES_S = (5, 30, 90, 300, 1200, 3600, 4 * 3600)
REPLACED_AFTER_S = (0, 30, 60, 120)  # a pod of the Deployment starts in so long
ABSENCE_HOURS = (1, 2, 3, 4, 5, 6)  # in which no runner lives
LATE_LOOKS = 10  # after the last frozen runner has woken, until nothing may be left


@dataclass(eq=False)
class RunnerProcess:
    """One runner at work, which runs only while it has the baton.

    Attributes:
        body: its greenlet.
        frozen_until: when it wakes; None while it is awake.
        paused_until: when the pause of its step is over.
        is_over: whether it found that another runner is at work.
    """

    name: str
    body: greenlet | None = None
    frozen_until: datetime | None = None
    paused_until: datetime | None = None
    is_over: bool = False


@dataclass
class FreezePlan:
    """When runners of a life freeze.

    Args:
        chance: decides everything.
        freezes: how many there are.
        absent_at: number of the freeze after which no runner lives for `absence`, once a run is at
            work; None for none.
        absence: that time.
        was_absent: whether that time has come.
    """

    chance: random.Random
    freezes: int
    absent_at: int | None = None
    absence: timedelta = timedelta()
    was_absent: bool = False
    done: int = 0
    calls_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.calls_left = self.chance.choice(GAPS)

    def is_due(self) -> bool:
        """Count a call, and tell whether its caller freezes before it."""
        if self.done >= self.freezes:
            return False
        self.calls_left -= 1
        if self.calls_left >= 0:
            return False
        self.done += 1
        self.calls_left = self.chance.choice(GAPS)
        return True


class FrozenWorld(VirtualWorld):
    """A virtual world with any number of runners.

    Args:
        plan: of the freezes.
        settings: as of a VirtualWorld.
    """

    def __init__(self, plan: FreezePlan, **settings: object) -> None:
        self.plan = plan
        self.hub = getcurrent()
        self.processes: list[RunnerProcess] = []
        self.current: RunnerProcess | None = None
        self.replaced_at: datetime | None = None
        super().__init__(**settings)
        self.account.between = self.before_call
        self.begin_runner()

    # the baton

    def before_call(self, _operation: str) -> None:
        """Freeze the runner that makes a call, if its turn has come."""
        process = self.current
        if process is None or not self.plan.is_due():
            return
        chance = self.plan.chance
        replaced_after = timedelta(seconds=chance.choice(REPLACED_AFTER_S))
        frozen_for = timedelta(seconds=chance.choice(SHORT_FREEZES_S))
        if self.is_absence_due():
            self.plan.was_absent = True
            replaced_after = self.plan.absence
            frozen_for = max(frozen_for, self.plan.absence)
            back_at = self.account.now + frozen_for
            for other in self.processes:
                other.frozen_until = max(other.frozen_until or back_at, back_at)
        process.frozen_until = self.account.now + frozen_for
        self.replaced_at = self.account.now + replaced_after
        self.hub.switch()

    def is_absence_due(self) -> bool:
        """Tell whether no runner lives from now on, for the time of the plan."""
        plan = self.plan
        if plan.absent_at is None or plan.was_absent or plan.done < plan.absent_at:
            return False
        return (self.read_run() or {}).get("state") == "running"

    def pass_time(self, seconds: float) -> None:
        """Let a runner's pause end its turn; only the hub moves the clock."""
        process = self.current
        if process is None:
            super().pass_time(seconds)
            return
        process.paused_until = self.account.now + timedelta(seconds=seconds)
        self.hub.switch()

    def begin_runner(self) -> None:
        """Begin the runner that `start_runner` made last."""
        process = RunnerProcess(f"runner-{self.runner_number}")
        runner = self.runner
        process.body = greenlet(lambda: self._look_on(process, runner), self.hub)
        self.processes.append(process)
        self.newest = process

    def _look_on(self, process: RunnerProcess, runner: Runner) -> None:
        while True:
            try:
                runner.look()
            except LostRunError as loss:
                self.log.append(f"{process.name} lost its place: {loss}")
                process.is_over = True
                return
            except ExternalError as fault:
                self.log.append(f"{process.name}: {fault}")
            process.paused_until = self.account.now + timedelta(seconds=self.look_s)
            self.hub.switch()

    def take_turn(self) -> None:
        """Let each runner that is awake have its turn, replace one that froze, and let time
        pass."""
        now = self.account.now
        if self.replaced_at is not None and now >= self.replaced_at:
            self.replaced_at = None
            self.runner = self.start_runner()
            self.begin_runner()
        for process in list(self.processes):
            if process.frozen_until is not None and now >= process.frozen_until:
                process.frozen_until = None
                process.paused_until = None
            is_awake = process.frozen_until is None and (process.paused_until or now) <= now
            if is_awake and not process.is_over:
                self._run(process)
        self.processes = [process for process in self.processes if not process.is_over]
        # the Deployment starts its pod again; a pod of an earlier one that wakes is already deleted
        if self.newest.is_over and self.replaced_at is None:
            self.replaced_at = now + timedelta(seconds=REPLACED_AFTER_S[1])
        self.current = None
        super().pass_time(self._find_pause_s())

    def _find_pause_s(self) -> float:
        """Return the seconds until a runner may have its turn, at most one look."""
        pauses = [
            process.paused_until for process in self.processes if process.frozen_until is None
        ]
        waits = [(time - self.account.now).total_seconds() for time in pauses if time is not None]
        return max(1.0, min([LOOK_S, *waits]))

    def _run(self, process: RunnerProcess) -> None:
        assert process.body is not None
        self.current = process
        process.body.switch()
        self.current = None

    # lives

    def live_on(self) -> dict:
        """Take turns until the run has ended or waits and no runner is frozen any more; return its
        record."""
        late_looks = 0
        end = self.account.now + timedelta(hours=80)
        while self.account.now < end:
            self.take_turn()
            record = self.read_run()
            is_over = record is not None and record["state"] != "running"
            is_quiet = self.replaced_at is None and not any(
                process.frozen_until for process in self.processes
            )
            if is_over and is_quiet:
                late_looks += 1
                if late_looks > LATE_LOOKS:
                    return record
        raise AssertionError(f"still at work after 80 h: {self.log[-3:]}, {self.list_steps()[-3:]}")

    def finish(self) -> None:
        """End every runner's greenlet."""
        for process in self.processes:
            if process.body is not None and not process.body.dead:
                process.body.throw()


def sum_node_minutes(machines: list[Machine]) -> float:
    """Return the minutes of all instances, from EC2's launch to EC2's end."""
    return (
        sum(
            (machine.ended - machine.launch_time).total_seconds()
            for machine in machines
            if machine.ended
        )
        / 60
    )
