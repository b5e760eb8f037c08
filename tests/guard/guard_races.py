"""Histories in which processes freeze between any two of their calls while others act, in virtual
time.

Each process (a start, a stop, a release, a normal end, a relabel, a pass of the reaper) is a
greenlet, and one of them runs at a time: before each call that it makes it may freeze there, so
that others act, time passes, and it wakes much later or dies. The random numbers alone decide, so
that a seed repeats a history. AWS itself works here: what a broken AWS does is in
guard_interleavings.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from greenlet import getcurrent, greenlet
from guard_world import GUARDED, Crash, World

from tandem.errors import TandemError
from tandem.guard.apply import REAPER, run_reaper_pass, stop_fleet
from tandem.guard.fence import FENCE_KEY
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.fleet_state import NORMAL_END_LIMIT, FleetState
from tandem.guard.lease import POINTER_KEY, lease_key
from tandem.guard.node_labels import relabel_nodes
from tandem.guard.normal_end import end_lease
from tandem.guard.ownership import MAX_READING_AGE_S
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.guard.release import release_fence

LIMITS = replace(GUARDED, max_hours=2, idle_minutes=20)
STANDING = timedelta(minutes=2 * PASS_MINUTES) + LIMITS.grace_period  # two passes and the grace
RETRIES = timedelta(hours=1)  # of Scheduler
PASSES = timedelta(minutes=2 * PASS_MINUTES)
LONGEST = timedelta(hours=LIMITS.max_hours)
# fence, pointer and lease before a raise; fence and pointer before it is undone
OWN_READS = 3
TAKE_BACK_READS = 2
# before which a freeze does most harm
RISKY = {"eks.update_nodegroup_config", "scheduler.delete_schedule"}
FROZEN = 5  # processes at once: one, three others and the reaper


@dataclass(eq=False)
class Process:
    """One program at work, which runs only while it holds the baton.

    Args:
        act: what it does.
        run: whose schedule it may delete; None: nobody's, or that of the run that it ends.
        freezes: how likely it freezes before a call.
    """

    act: Callable[[], None]
    run: str | None = None
    freezes: float = 0.06
    body: greenlet | None = None
    done: bool = False
    dies: bool = False
    error: BaseException | None = None
    calls: int = 0
    slept_at: int = -9  # the number of the call before which it froze last
    slept_for: timedelta = timedelta()
    described_at: datetime | None = None
    naps: bool = False  # whether it froze for so short that no clock tells

    def is_awake(self, reads: int) -> bool:
        """Whether nothing excuses its present call: no freeze right before it, and no short one
        since it read.

        Args:
            reads: calls by which it sees whose fleet it is, directly before this one.
        """
        since = self.calls - self.slept_at
        return since > reads or (
            since > 0 and self.slept_for > timedelta(seconds=MAX_READING_AGE_S)
        )


class Race:
    """One history.

    Args:
        chance: decides everything.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.world = World(
            start_s=chance.choice([30, 120]), stop_s=chance.choice([30, 120]), chance=chance
        )
        self.world.between = self.before_call
        self.frozen: list[Process] = []
        self.current: Process | None = None
        self.history = getcurrent()
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []
        self.runs = 0
        self.deadlines: dict[str, datetime] = {}
        self.labels: dict[str, dict[str, str]] = {}
        # when somebody last asked for more nodes, or for other labels
        self.raised_at = self.world.now
        self.wrong_since: datetime | None = None
        self.labels_changed_at: datetime | None = None
        self.ended: dict[str, datetime] = {}  # runs that ended normally, and when
        self.ends_looked_at = self.world.now  # when the latest normal end looked at the fleet last
        self.watch_deletes()
        self.watch_sizes()

    # what is watched

    def watch_deletes(self) -> None:
        delete = self.world._delete

        def watched(*, GroupName: str, Name: str) -> object:  # noqa: N803 - boto3's names
            process = self.current
            run = Name.removeprefix("stop-")
            named_run = (self.world.read(POINTER_KEY) or {}).get("run")
            # a lease that is over
            left = (self.world.read(lease_key(run)) or {}).get("ending") and named_run != run
            if process and process.run is not None and process.run != run and not left:
                self.faults.append(
                    f"the schedule of {run} was deleted by a process of {process.run}"
                )
            if named_run == run and not (process and process.run == run):
                self.faults.append(f"the schedule of {run} was deleted while it has the fleet")
            self.seen["schedules deleted"] += 1
            return delete(GroupName=GroupName, Name=Name)

        self.world._delete = watched  # type: ignore[method-assign]

    def watch_sizes(self) -> None:
        update = self.world._update

        def watched(**request: object) -> object:
            group = self.world.group
            if not group:
                return update(**request)  # type: ignore[arg-type]
            size = group["scalingConfig"]["desiredSize"]
            labels = dict(group["labels"])
            answer = update(**request)  # type: ignore[arg-type]
            growth = group["scalingConfig"]["desiredSize"] - size
            has_new_labels = group["labels"] != labels
            if growth > 0 or has_new_labels:
                self.raised_at = self.world.now
                self.wrong_since = None
                self.check_raised(has_new_labels=growth <= 0)
            if has_new_labels:
                self.labels_changed_at = self.world.now
            if growth < 0:
                self.check_taken_back()
            return answer

        self.world._update = watched  # type: ignore[method-assign]

    def check_raised(self, *, has_new_labels: bool) -> None:
        """Nobody who is awake raises or relabels a fleet that is not its own; a relabel is not to
        blame for a size."""
        why = self.wrong()
        if not why or (
            has_new_labels and "under a lease for" in why and not why.startswith("labels")
        ):
            return
        last_described_at = self.current.described_at if self.current else None
        labels_changed_at = self.labels_changed_at
        if (
            why.startswith("labels")
            and last_described_at
            and labels_changed_at
            and last_described_at <= labels_changed_at
        ):
            return  # another that slept set labels between this one's look at them and its call
        self.seen["raised in the gap"] += 1
        if self.current and self.current.is_awake(OWN_READS):
            self.faults.append(f"raised wide awake: {why}")

    def check_taken_back(self) -> None:
        """A start takes back no fleet but its own."""
        process = self.current
        run = (self.world.read(POINTER_KEY) or {}).get("run")
        has_fence = (self.world.read(FENCE_KEY) or {"state": "lifted"})["state"] != "lifted"
        if process is None or run is None or process.run == run or has_fence:
            return
        # a stop reads no more than its fence, and that only where the clock moved
        awake = (
            process.is_awake(TAKE_BACK_READS)
            if process.run
            else process.is_awake(0) and not process.naps
        )
        if awake:
            self.faults.append(
                f"a process of {process.run or 'a stop'} set the fleet of {run} to 0"
            )

    def wrong(self) -> str:
        """What of the fleet should not be, at this moment; empty where all is well."""
        world = self.world
        assert world.group is not None
        desired_size = world.desired_size
        up = sum(machine.state in {"pending", "running"} for machine in world.machines)
        if not desired_size and not up:
            return ""
        fence = world.read(FENCE_KEY)
        pointer = world.read(POINTER_KEY)
        if fence and fence["state"] != "lifted":
            return f"{desired_size} wanted and {up} up behind a fence"
        run = (pointer or {}).get("run")
        if run is None:
            return f"{desired_size} wanted and {up} up without a lease"
        lease = world.read(lease_key(run))
        if max(desired_size, up) > lease["nodes"]:
            return f"{desired_size} wanted and {up} up under a lease for {lease['nodes']}"
        labels = {
            name: value for name, value in world.group["labels"].items() if name != "workload"
        }
        if desired_size and labels not in (lease["node_label"], lease["former_label"]):
            return f"labels {labels} under a lease for {lease['node_label']}"
        return ""

    def check(self) -> None:
        """Hold the fleet against what may stand, and for how long."""
        why = self.wrong()
        if not why:
            self.wrong_since = None
            return
        self.wrong_since = self.wrong_since or self.world.now
        if self.world.now - max(self.wrong_since, self.raised_at) > STANDING:
            self.faults.append(
                f"{why} since {self.wrong_since:%H:%M}, at {self.world.now:%H:%M}: {self.picture()}"
            )

    def check_deadline(self) -> None:
        """Nothing of a lease is alive after its deadline, two passes, three graces and Scheduler's
        retries."""
        latest = max([*self.deadlines.values(), self.raised_at])
        if (
            self.world.alive
            and self.world.now > latest + PASSES + 3 * LIMITS.grace_period + RETRIES
        ):
            self.faults.append(
                f"{len(self.world.alive)} alive at {self.world.now:%H:%M}: {self.picture()}"
            )

    def picture(self) -> object:
        world = self.world
        return {
            "group": world.group,
            "machines": world.alive,
            "objects": {key: body for key, (body, _, _) in world.objects.items()},
        }

    # the baton

    def before_call(self, operation: str) -> None:
        process = self.current
        if process is None:
            return
        process.calls += 1
        if operation == "eks.describe_nodegroup":
            process.described_at = self.world.now
        if self.chance.random() < process.freezes * (5 if operation in RISKY else 1):
            self.frozen.append(process)
            self.seen["frozen"] += 1
            process.slept_at = process.calls
            began = self.world.now
            self.yield_turn()
            process.slept_for = self.world.now - began
            process.naps = process.naps or process.slept_for <= timedelta(seconds=MAX_READING_AGE_S)
            if process.dies:
                raise Crash

    def run_process(self, process: Process) -> None:
        """Let a process run until it freezes again or ends."""
        assert process.body is not None
        self.current = process
        process.body.switch()
        self.current = None
        if process.error:
            raise process.error

    def yield_turn(self) -> None:
        """Let the history go on, until it wakes the process that calls."""
        self.history.switch()

    def begin(self, process: Process) -> None:
        """Start a process."""

        def live() -> None:
            try:
                process.act()
            except Crash:
                self.seen["killed"] += 1
            except TandemError as fault:
                self.seen[type(fault).__name__] += 1
            except BaseException as error:  # noqa: BLE001 - told by whoever waits
                process.error = error
            process.done = True

        process.body = greenlet(live, self.history)
        self.run_process(process)

    def wake(self, process: Process, *, dies: bool = False) -> None:
        """Let a frozen process go on, or die where it is."""
        self.frozen.remove(process)
        process.dies = dies
        self.run_process(process)

    # who acts

    def start(self) -> Process:
        fresh = self.chance.random() < 0.85 or not self.runs
        self.runs += fresh
        run = f"r{self.runs if fresh else self.chance.randint(1, self.runs)}"
        nodes = self.chance.choice([1, 1, 2])
        if run not in self.labels:
            self.labels[run] = self.chance.choice(
                [{"raise.tandem/fast": "first"}, {"raise.tandem/slow": "second"}, {}]
            )
        hours = self.chance.choice([0.5, 1, 2])

        def act() -> None:
            self.deadlines[run] = max(
                self.deadlines.get(run, self.world.now), self.world.now + timedelta(hours=hours)
            )
            request = RaiseRequest(
                run=run,
                hours=hours,
                experiment="first",
                nodes=nodes,
                node_labels=self.labels[run],
                who="anna",
            )
            raise_fleet(self.world.clients, LIMITS, request, self.world.now)
            self.seen["raised"] += 1

        return Process(act, run=run)

    def halt(self) -> Process:
        def act() -> None:
            stop_fleet(
                self.world.clients, LIMITS, who="anna", why="enough", run=None, now=self.world.now
            )
            self.seen["stopped"] += 1

        return Process(act)

    def lift(self) -> Process:
        def act() -> None:
            release_fence(self.world.clients, LIMITS, who="anna", now=self.world.now)
            self.seen["released"] += 1

        return Process(act)

    def end(self) -> Process:
        """A normal end of whoever has the lease now; it may sleep between its looks."""
        run = (self.world.read(POINTER_KEY) or {}).get("run")
        process = Process(lambda: None, run=run)

        def rest(_pause: timedelta) -> None:
            self.frozen.append(process)
            self.yield_turn()
            if process.dies:
                raise Crash

        def act() -> None:
            if run is not None:
                end_lease(
                    self.world.clients, LIMITS, run=run, clock=lambda: self.world.now, wait=rest
                )
                self.seen["ended"] += 1
                self.ended[run] = self.world.now
                self.ends_looked_at = process.described_at or self.ends_looked_at

        process.act = act
        return process

    def relabel(self) -> Process:
        run = (self.world.read(POINTER_KEY) or {}).get("run")
        label = self.chance.choice(
            [{"compile.tandem/experiment": "first"}, {"raise.tandem/fast": "first"}]
        )

        def act() -> None:
            if run is not None:
                relabel_nodes(
                    self.world.clients, LIMITS, run=run, node_labels=label, now=self.world.now
                )
                self.seen["relabelled"] += 1

        return Process(act, run=run)

    def deploy(self) -> None:
        """CloudFormation sets what the template of Fleet says."""
        self.world.want(0)

    def edit(self) -> None:
        """A hand sizes the node group in the console."""
        assert self.world.group is not None
        before = self.world.desired_size
        desired_size = self.chance.choice([0, 1, 2])
        self.world.want(desired_size)
        if desired_size > before:
            self.raised_at = self.world.now
            self.wrong_since = None

    # what happens

    def meddle(self) -> None:
        """Let somebody act, wake or die."""
        chance = self.chance
        if self.frozen and chance.random() < 0.15:
            self.usurp()
            return
        if self.frozen and (len(self.frozen) >= FROZEN or chance.random() < 0.5):
            self.wake(chance.choice(self.frozen), dies=chance.random() < 0.08)
            return
        hands: list[Callable[[], None]] = [self.deploy, self.edit]
        fence = self.world.read(FENCE_KEY)
        has_fence = fence is not None and fence["state"] != "lifted"
        has_lease = (self.world.read(POINTER_KEY) or {}).get("run") is not None
        likely = (
            [self.lift] * 6
            if has_fence
            else [self.end] * 2 + [self.relabel, self.halt]
            if has_lease
            else [self.start]
        )
        programs = [
            self.start,
            self.start,
            self.halt,
            self.lift,
            self.end,
            self.relabel,
            *(likely * 2),
        ]
        if chance.random() < 0.06:
            chance.choice(hands)()
        else:
            program = chance.choice(programs)
            self.seen[program.__name__] += 1
            self.begin(program())

    def usurp(self) -> None:
        """Three others take the fleet from whoever sleeps: a stop or an end, a release, a start."""
        for program in (
            self.chance.choice([self.halt, self.halt, self.end]),
            self.lift,
            self.start,
        ):
            self.seen[program.__name__] += 1
            process = program()
            process.freezes = 0.01
            self.begin(process)
            for _ in range(3):  # an end rests between its looks
                if process in self.frozen:
                    self.wake(process)
        self.seen["usurped"] += 1

    def advance(self, minutes: int, *, meddles: bool = True) -> None:
        """Let time pass with a pass of the reaper every five minutes, between whose calls others
        may act."""
        for _ in range(minutes):
            self.world.advance(1)
            self.check()
            self.check_deadline()
            if int(self.world.now.timestamp()) // 60 % PASS_MINUTES == 0:
                self.make_pass(meddles=meddles)
                self.check()

    def make_pass(self, *, meddles: bool) -> None:
        self.seen["passes"] += 1
        if not meddles:
            self.reap()  # alone, so it needs no process
            return
        process = Process(self.reap, freezes=0.08)
        self.begin(process)
        while not process.done:
            for _ in range(self.chance.randint(0, 3)):
                self.meddle()
                if process.done:
                    return
            if process in self.frozen:
                self.wake(process)

    def reap(self) -> None:
        report = run_reaper_pass(self.world.clients, LIMITS, self.world.now)
        fenced_fence = report.fleet.fence
        if (
            fenced_fence is not None
            and fenced_fence.who == REAPER
            and any(line.startswith("fenced") for line in report.actions)
        ):
            self.seen["fenced by the reaper"] += 1
            self.check_end(report.fleet, fenced_fence.run or "", fenced_fence.why)

    def check_end(self, seen: FleetState, run: str, why: str) -> None:
        """The reaper fences neither a lease that ends, nor one that has ended; what goes beyond a
        lease it does.

        It fences what a hand raised while an end slept behind its last look.
        """
        ending = seen.lease.ending if seen.lease else None
        if "without a lease" in why and self.raised_at < self.ends_looked_at < seen.now:
            self.faults.append(f"fenced after a normal end left something: {why}")
        if any(
            words in why for words in ("the node group wants", "the nodes carry", "without a lease")
        ):
            return
        if ending is not None and ending <= seen.now < ending + NORMAL_END_LIMIT:
            self.faults.append(f"fenced while {run} ends since {ending:%H:%M}: {why}")
        if run in self.ended and self.ended[run] < seen.now:
            self.faults.append(f"fenced after the normal end of {run}: {why}")

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.meddle()
            self.check()
            self.advance(self.chance.choice([0, 0, 0, 1, 3, 10, 40]))
        for process in list(self.frozen):  # who sleeps on wakes at last, or never
            if process in self.frozen:
                self.wake(process, dies=self.chance.random() < 0.5)
        while self.frozen:
            self.wake(self.frozen[0], dies=True)

    def settle(self) -> None:
        """Let nobody act any more but the armed stops."""
        horizon = (
            LONGEST + PASSES + 3 * LIMITS.grace_period + RETRIES + timedelta(minutes=PASS_MINUTES)
        )
        while horizon > timedelta() and not self.is_quiet():
            self.advance(PASS_MINUTES, meddles=False)
            horizon -= timedelta(minutes=PASS_MINUTES)
        if self.world.alive:
            self.faults.append(f"{len(self.world.alive)} alive in the end: {self.picture()}")

    def is_quiet(self) -> bool:
        return not (self.world.alive or self.world.desired_size)

    def finish(self) -> None:
        """Let every process that still sleeps end."""
        while self.frozen:
            self.wake(self.frozen[0], dies=True)


def run_race(chance: random.Random) -> tuple[list[str], Counter[str]]:
    """Live one history to its end; what was wrong, and how often what happened."""
    race = Race(chance)
    try:
        race.live(chance.randint(4, 16))
        race.settle()
    finally:
        race.finish()
    return race.faults, race.seen


def run_races(
    seed: str, number: int, *, until_wrong: bool = False
) -> tuple[dict[int, list[str]], Counter[str]]:
    """Live so many histories; what was wrong, by number, and how often what happened in all.

    Args:
        seed: gives the same histories again.
        number: of histories.
        until_wrong: ends at the first in which something is wrong.
    """
    wrong: dict[int, list[str]] = {}
    seen: Counter[str] = Counter()
    for index in range(number):
        faults, counts = run_race(random.Random(f"{seed} {index}"))  # noqa: S311 - no secret
        seen += counts
        if faults:
            wrong[index] = faults
        if wrong and until_wrong:
            break
    return wrong, seen
