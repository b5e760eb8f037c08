"""One random history of a fleet in virtual time: people, deploys, budgets, faults and the reaper,
in any order.

What must be true is said in `forward`: whatever happened, from then on nobody but the armed stops
does anything, and in the end no instance is alive, or there was an alarm within the last hour:
where neither the fence can be written nor EKS sized, a pass ends instances by id, EKS starts
others, and these have their minutes until the next pass cries.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from guard_world import GUARDED, Crash, World

from tandem.errors import TandemError
from tandem.guard.apply import run_reaper_pass, stop_fleet
from tandem.guard.fence import FENCE_KEY
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.fleet_state import CLOCK_TOLERANCE
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.pass_metrics import OLDEST_INSTANCE_HOURS, PASS_MINUTES, STOP_FAILURES
from tandem.guard.release import release_fence

LIMITS = replace(GUARDED, max_hours=2, idle_minutes=20)
FAULTS = (
    "s3",
    "eks",
    "ec2",
    "sns",
    "cloudwatch",
    "scheduler",
    "s3.put_object",
    "eks.update_nodegroup_config",
    "eks.describe_nodegroup",
    "ec2.terminate_instances",
)
SPOILT = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"schema": 1, "state": "fine"}',
    b'{"schema": 1, "run": 7}',
    b"\xff\xfe",
)
MISS_SHARE = 0.15  # of the reaper's passes
ALARM = timedelta(hours=1)


@dataclass
class History:
    """One account, and who acts on it.

    Args:
        chance: decides everything.
        reaper, schedules: whether these paths are there at all.
        hostile: whether people raise by hand, spoil objects and break AWS too.
        seen: how often what happened.
    """

    chance: random.Random
    reaper: bool = True
    schedules: bool = True
    hostile: bool = True
    seen: Counter[str] = field(default_factory=Counter)
    # when a pass or a stop last failed, or saw an instance that was too old
    alarm_time: datetime | None = None
    runs: int = 0

    def __post_init__(self) -> None:
        chance = self.chance
        self.world = World(
            start_s=chance.choice([30, 120, 900]),
            stop_s=chance.choice([30, 120, 900]),
            fires=self.schedules,
            chance=chance,
        )

    # who acts

    def start(self) -> None:
        """A start, perhaps of a run that was started before."""
        fresh = self.chance.random() < 0.8 or not self.runs
        self.runs += fresh
        run = f"r{self.runs if fresh else self.chance.randint(1, self.runs)}"
        hours = self.chance.choice([0.25, 0.5, 1, 2])
        nodes = self.chance.choice([1, 2])
        request = RaiseRequest(
            run=run,
            hours=hours,
            experiment="first",
            nodes=nodes,
            node_labels={"raise.tandem/fast": "first"},
            who="anna",
            beats=self.chance.random() < 0.5,
        )
        raise_fleet(self.world.clients, LIMITS, request, self.world.now)
        self.seen["raised"] += 1

    def halt(self) -> None:
        """A stop by a person or a budget."""
        who = self.chance.choice(["anna", "budget"])
        report = stop_fleet(
            self.world.clients, LIMITS, who=who, why="enough", run=None, now=self.world.now
        )
        self.cry(bool(report.failures))

    def lift(self) -> None:
        release_fence(self.world.clients, LIMITS, who="anna", now=self.world.now)
        self.seen["lifted"] += 1

    def deploy(self) -> None:
        """CloudFormation sets what the template says."""
        self.world.want(0)

    def raise_by_hand(self) -> None:
        desired_size = self.chance.choice([1, 2])
        self.world.size(
            {"minSize": self.chance.choice([0, desired_size]), "desiredSize": desired_size}
        )

    def beat(self) -> None:
        beat = self.world.now + self.chance.choice([-1, 0, 0, 0, 0.5, 3]) * CLOCK_TOLERANCE
        pointer = self.world.read(POINTER_KEY) if self.readable(POINTER_KEY) else None
        if isinstance(pointer, dict) and pointer.get("run"):
            self.world.put(
                heartbeat_key(str(pointer["run"])), {"schema": 1, "at": beat.isoformat()}
            )

    def spoil(self) -> None:
        key = self.chance.choice(
            [
                FENCE_KEY,
                POINTER_KEY,
                lease_key(f"r{max(1, self.runs)}"),
                heartbeat_key(f"r{max(1, self.runs)}"),
            ]
        )
        self.world.put(key, self.chance.choice(SPOILT))

    def readable(self, key: str) -> bool:
        try:
            self.world.read(key)
        except ValueError:
            return False
        return True

    def break_aws(self) -> None:
        world = self.world
        chance = self.chance
        world.down = {chance.choice(FAULTS) for _ in range(chance.choice([0, 0, 1, 2]))}
        world.odds = {"*": chance.choice([0, 0, 0.05, 0.3])}
        world.loses = chance.choice([0, 0, 0.05])

    def break_fleet(self) -> None:
        for knob in ("ignores", "keeps", "immortal", "no_capacity"):
            setattr(self.world, knob, self.chance.random() < 0.1)

    def one_pass(self) -> None:
        report = run_reaper_pass(self.world.clients, LIMITS, self.world.now)
        old = report.metrics.get(OLDEST_INSTANCE_HOURS, 0) > LIMITS.max_hours
        self.seen["passes"] += 1
        self.cry(bool(report.failures) or report.metrics.get(STOP_FAILURES, 0) > 0 or old)
        self.seen["stops due"] += bool(report.plan.reasons)

    def cry(self, alarm: bool) -> None:
        """Remember an alarm."""
        if alarm:
            self.alarm_time = self.world.now
            self.seen["alarms"] += 1

    # what happens

    def step(self) -> None:
        """Let somebody act, perhaps with somebody else between two of his calls, perhaps dying in
        the middle."""
        good: list[Callable[[], None]] = [self.start] * 5 + [
            self.halt,
            self.lift,
            self.lift,
            self.deploy,
        ]
        bad = [self.raise_by_hand, self.spoil, self.break_aws, self.break_aws, self.break_fleet]
        others = [
            *good,
            *([self.beat] * 3),
            *(bad if self.hostile else []),
            *([self.one_pass] if self.reaper else []),
        ]
        chance = self.chance
        world = self.world
        if chance.random() < 0.3:
            at = chance.randint(0, 14)
            meddler = chance.choice(others)

            def between(_: str) -> None:
                nonlocal at
                at -= 1
                if at == 0:
                    self.seen["in between"] += 1
                    kept_dies_after = world.dies_after
                    world.dies_after = None
                    world.between = None
                    self.survive(meddler)
                    world.dies_after = kept_dies_after

            world.between = between
        world.dies_after = chance.randint(0, 16) if chance.random() < 0.3 else None
        self.survive(chance.choice(others))
        world.between = world.dies_after = None

    def survive(self, act: Callable[[], None]) -> None:
        self.seen[act.__name__] += 1
        try:
            act()
        except Crash:
            self.seen["crashes"] += 1
        except TandemError as fault:
            self.seen[type(fault).__name__] += 1

    def wait(self, minutes: float, *, miss_share: float) -> None:
        """Let time pass, with the reaper every five minutes, of whose passes some are missed or
        die."""
        while minutes > 0 and not (self.quiet() and not miss_share):
            part = min(PASS_MINUTES, minutes)
            self.world.advance(part)
            minutes -= part
            if self.reaper and self.chance.random() >= miss_share:
                self.world.dies_after = (
                    self.chance.randint(0, 12) if self.chance.random() < miss_share else None
                )
                self.survive(self.one_pass)
                self.world.dies_after = None

    def quiet(self) -> bool:
        """Whether nothing can happen any more unless somebody acts."""
        return not (self.world.alive or self.world.desired_size)

    def live(self, steps: int) -> None:
        """Live through so many steps."""
        for _ in range(steps):
            self.step()
            self.wait(self.chance.choice([0, 0, 1, 5, 10, 30]), miss_share=MISS_SHARE)

    def heal(self) -> None:
        """Let AWS do again what it is asked for."""
        world = self.world
        world.down = set()
        world.odds = {}
        world.loses = 0
        world.refuses = {}
        world.ignores = world.keeps = world.immortal = False

    def forward(self) -> str:
        """Let nobody act any more but the armed stops; what is wrong then, empty if nothing is."""
        horizon = LIMITS.max_hours * 60 + LIMITS.idle_minutes + 60
        self.wait(horizon, miss_share=0)
        heard = self.alarm_time is not None and self.world.now - self.alarm_time <= ALARM
        if self.world.alive and not heard:
            return f"{len(self.world.alive)} alive and no alarm: {self.picture()}"
        self.heal()
        self.wait(90, miss_share=0)
        return (
            f"{len(self.world.alive)} alive though AWS works: {self.picture()}"
            if self.world.alive
            else ""
        )

    def picture(self) -> Any:
        world = self.world
        return {
            "now": world.now,
            "group": world.group,
            "machines": world.alive,
            "down": world.down,
            "objects": {key: body for key, (body, _, _) in world.objects.items()},
        }

    def stopped(self) -> str:
        """Let a stop meet a start, each between two calls of the other; what is wrong then."""
        chance = self.chance
        world = self.world
        programs = [self.start, self.halt]
        first, second = programs if chance.random() < 0.5 else reversed(programs)
        at = chance.randint(1, 14)

        def between(_: str) -> None:
            nonlocal at
            at -= 1
            if at == 0:
                world.between = None
                self.survive(second)

        world.between = between
        self.survive(first)
        world.between = None
        if at > 0:
            self.survive(second)
        size = world.desired_size
        fence = world.read(FENCE_KEY)
        has_fence = fence is not None and fence["state"] != "lifted"
        return f"raised behind the fence: {self.picture()}" if size and has_fence else ""


def lives(history: History) -> str:
    """Live one history to its end; what is wrong then."""
    history.live(history.chance.randint(3, 25))
    return history.forward()


def many(
    seed: str, number: int, *, judge: Callable[[History], str] = lives, **paths: bool
) -> tuple[dict[int, str], Counter[str]]:
    """Live so many histories; what was wrong, by number, and how often what happened in all."""
    wrong: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for index in range(number):
        history = History(random.Random(f"{seed} {index}"), **paths)  # noqa: S311 - no secret
        fault = judge(history)
        seen += history.seen
        if fault:
            wrong[index] = fault
    return wrong, seen
