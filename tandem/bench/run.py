"""One run: probe, connect, warm up, take every turn, summarize.

Invariant: whatever ends it, what was recorded is on disk and readable, the manifest says how it ended, and nothing is
sent that the plan does not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import math
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from tandem.bench import folder as folders
from tandem.bench import host, manifest, statement, summary
from tandem.bench.between import Between, OnRound
from tandem.bench.client import Client
from tandem.bench.estimate import Estimate, request_s
from tandem.bench.fault import BenchError, WorldError
from tandem.bench.folder import RECORDS, WARM_UP
from tandem.bench.gate import WAIT_S, Gate
from tandem.bench.interrupt import Stop, signals
from tandem.bench.loops import Arm, Loops
from tandem.bench.manifest import Manifest
from tandem.bench.pages import Pages, append
from tandem.bench.plan import Plan, Turn
from tandem.bench.probe import Found, probe
from tandem.bench.progress import Progress
from tandem.bench.record import Record
from tandem.bench.recorder import Recorder, recording
from tandem.bench.resume import Recorded, recorded, refuse_other
from tandem.bench.rounds import Laps
from tandem.bench.settings import Settings
from tandem.bench.shown import clean
from tandem.bench.simulation import combine_simulated
from tandem.bench.starts import Starts
from tandem.bench.warm import Warmed, warm_up

Reason = Literal["done", "interrupted", "failed", "duration"]
OPTIONAL = ("token_ids", "logprobs")  # extras that make answers larger: asked where --ask names them
MOST_OPENED = 64  # connections opened before an open loop; it may open more while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Args:
        reason: as the manifest has it.
        begun: whether there is a folder to report on.
        fault: what ended it, where something did.
    """

    reason: Reason
    begun: bool = True
    fault: BenchError | None = None


@dataclass(kw_only=True)
class Run:
    """A run under way.

    Args:
        settings: what was asked.
        folder: where it is written.
        resume: whether it goes on with what the folder holds.
        out: takes what the operator reads while it goes on.
        wait_s: how long an arm that went down is waited for.
        check: called with the manifest before anything is written; it raises BenchError where the run must not begin.
        on_round: called in a thread of its own between two rounds, and once at the end when every file is final; what
            it may do is said in `between`.
    """

    settings: Settings
    folder: Path
    resume: bool = False
    out: TextIO = field(default_factory=lambda: sys.stderr)
    wait_s: float = WAIT_S
    check: Callable[[Manifest], None] | None = None
    on_round: OnRound | None = None
    stop: Stop = field(init=False)
    plan: Plan = field(init=False)
    estimate: Estimate = field(init=False)
    progress: Progress = field(init=False)
    starts: Starts = field(init=False)
    notes: list[str] = field(init=False, default_factory=list)
    rounds: int = field(init=False, default=0)

    async def run(self) -> Outcome:
        """Do all of it.

        Raises:
            BenchError: it could not begin: the folder, a server, or settings that differ from the resumed run's.
        """
        folders.check(self.folder, resume=self.resume)
        self.stop, self.plan, self.estimate = Stop(), self.settings.plan(), Estimate()
        self.progress = Progress(self.out, requests=self.plan.requests, expected_s=self._expected_s())
        for line in statement.plan_lines(self.settings, self.plan, self._expected_s()):
            self.progress.tell(line)
        async with contextlib.AsyncExitStack() as open_:
            open_.enter_context(signals(self.stop, self.progress.tell))
            servers = [self.settings.server(arm) for arm in self.settings.arms]
            limit = max(block.load.concurrency or 0 for block in self.plan.blocks)
            clients = [await open_.enter_async_context(Client(server, limit=limit)) for server in servers]
            control = self.settings.server(self.settings.arms[0], self.plan.control)
            pages = await open_.enter_async_context(Pages([*servers, control]))
            found = await self._probe(clients)
            if found is None:
                return Outcome(reason="interrupted", begun=False)
            open_.enter_context(folders.claimed(self.folder, resume=self.resume))
            arms = [self._arm(client, each, pages) for client, each in zip(clients, found, strict=True)]
            return await self._measure(arms, found, pages)

    def _expected_s(self) -> float:
        if self.settings.duration_s is not None:
            return self.settings.duration_s
        return self.estimate.run_s(self.plan)

    async def _probe(self, clients: Sequence[Client]) -> list[Found] | None:
        """Return what each arm offers, or None where the run was interrupted meanwhile.

        Raises:
            BenchError: an arm cannot be measured; every further one is told.
        """
        for client in clients:
            self.stop.on_cut(client.interrupt)
        ignore_eos = any(suite.defaults.ignore_eos for suite in self.settings.suites)
        asked = (
            probe(each, each.server, thinking=self.settings.thinking, ignore_eos=ignore_eos, seed=self.settings.seed)
            for each in clients
        )
        results = await asyncio.gather(*asked, return_exceptions=True)
        if self.stop.asked:
            return None
        faults = [result for result in results if isinstance(result, BaseException)]
        for fault in faults[1:]:
            self.progress.tell(f"error: {fault}")
        if faults:
            raise faults[0]
        return [result for result in results if isinstance(result, Found)]

    def _arm(self, client: Client, found: Found, pages: Pages) -> Arm:
        name = client.server.name
        self.progress.tell(f"{name} says of itself: {clean(found.names)}")
        for note in found.notes:
            self._note(f"{name}: {note}")
        for extra in sorted(self.settings.wanted):
            if not getattr(found.offers, extra):
                self._note(f"{name} does not give {extra}, so its records have none")
        unwanted = {extra: False for extra in OPTIONAL if extra not in self.settings.wanted}
        gate = Gate(
            arm=name, url=client.server.root, alive=pages.alive, stop=self.stop, tell=self.progress.tell,
            wait_s=self.wait_s,
        )  # fmt: skip
        offers = msgspec.structs.replace(found.offers, **unwanted)
        placement = next(arm.placement for arm in self.settings.arms if arm.name == name)
        return Arm(name=name, client=client, offers=offers, models=found.models, gate=gate, placement=placement)

    async def _measure(self, arms: Sequence[Arm], found: Sequence[Found], pages: Pages) -> Outcome:
        written = statement.of_run(self.settings, self.plan, found)
        had = Recorded(interrupted={})
        if self.resume:
            before = manifest.read(self.folder)
            refuse_other(before, written, self.folder)
            had = await asyncio.to_thread(recorded, self.folder, self.progress.tell)
            if before.ended is not None and before.ended.reason == "duration":
                had = dataclasses.replace(had, spent_s=math.inf)
            self.notes += [note for note in before.notes if note not in self.notes]
            arms_now = tuple(
                msgspec.structs.replace(
                    was, placement=is_.placement, simulated=is_.simulated or was.simulated, owned_by=is_.owned_by
                )
                for was, is_ in zip(before.arms, written.arms, strict=True)
            )
            written = msgspec.structs.replace(
                before, schema=manifest.SCHEMA, ended=None, resumed=(*before.resumed, written.clock), arms=arms_now,
                simulated=combine_simulated(arm.simulated for arm in arms_now),
                goodput=written.goodput or before.goodput,
                price_usd_per_hour=written.price_usd_per_hour or before.price_usd_per_hour,
            )  # fmt: skip
        if self.check is not None:
            self.check(written)
        self.starts = Starts(self.folder)
        manifest.write(self.folder, written)
        watch = host.HostWatch()
        between = Between(call=self.on_round, note=self._note, stop=self.stop, watch=watch)
        reason: Reason = "failed"
        try:
            if self._missing(had):
                written = await self._warm_up(arms, written)
            watch.start()
            laps = Laps(folder=self.folder, watch=watch)
            asked = [*arms, dataclasses.replace(arms[0], name=self.plan.control)]
            reason = await self._turns(asked, pages, had, between, laps)
        except BenchError as fault:
            self.stop.ask("failed", fault)
        finally:
            ended = await self._end(written, watch, self.stop.reason or reason)
        reason = self.stop.reason or reason
        await self._last(between, ended)
        return Outcome(reason=reason, fault=self.stop.fault)

    def _missing(self, had: Recorded) -> bool:
        """Return whether anything is left to ask."""
        if self.settings.duration_s is not None:
            return had.spent_s < self.settings.duration_s
        return not all(identity in had.done for turn in self.plan.turns() for identity in turn.ids())

    async def _warm_up(self, arms: Sequence[Arm], written: Manifest) -> Manifest:
        if self.settings.warm_up == 0:
            return written
        path = self.folder / WARM_UP
        first = path.read_bytes().count(b"\n") if path.exists() else 0  # windows are numbered on over resumptions
        with recording(path) as recorder, self.progress.shown():
            loops = self._loops(recorder, Recorded(interrupted={}), self.progress.count_warm_up)
            each = (self._warm(arm, loops, first) for arm in arms)
            together = self.settings.schedule == "simultaneous"
            warmed = await asyncio.gather(*each) if together else [await one for one in each]
        factors = {arm.name: one.factor for arm, one in zip(arms, warmed, strict=True) if one.factor is not None}
        if arms[0].name in factors:
            factors[self.plan.control] = factors[arms[0].name]
        self.estimate = Estimate(factors=factors)
        self.progress.expect(self._expected_s())
        if self.settings.duration_s is None and not self.stop.asked:
            self.progress.tell(statement.refined(self.settings, self._expected_s()))
        seen = {arm.name: one.seen for arm, one in zip(arms, warmed, strict=True)}
        return msgspec.structs.replace(written, warm_up=seen)

    async def _warm(self, arm: Arm, loops: Loops, first: int) -> Warmed:
        with self.progress.warming(arm.name):
            await arm.client.open_connections(self._connections(self.plan.round(self.plan.first)[0]))
            warmed = await warm_up(arm, self.plan, loops, requests=self.settings.warm_up, first=first)
        if warmed.seen.stable is False and not self.stop.asked:
            self._note(
                f"{arm.name} was not stable after {warmed.seen.requests} requests of warm-up, {warmed.seen.failed} of "
                "them failed: its first rounds may differ from its last"
            )
        return warmed

    def _loops(self, recorder: Recorder, had: Recorded, done: Callable[[Record], None]) -> Loops:
        return Loops(
            settings=self.settings, recorder=recorder, stop=self.stop, attempts=had.interrupted, done=done
        )  # fmt: skip

    async def _turns(self, arms: Sequence[Arm], pages: Pages, had: Recorded, between: Between, laps: Laps) -> Reason:
        """Take every turn that is not recorded yet; where the clock decides, begin no block after its end."""
        ends = math.inf
        if self.settings.duration_s is not None:
            left_s = max(self.settings.duration_s - had.spent_s, 0.0)
            self.progress.expect(left_s)
            ends = time.monotonic() + left_s
        gc.freeze()  # a full collection of all that was loaded would hold the event loop up for tens of milliseconds
        try:
            with recording(self.folder / RECORDS) as recorder, self.progress.shown():
                loops = self._loops(recorder, had, self.progress.done)
                for turn in self.plan.turns():
                    over = self._over(turn, ends, had)
                    if over is None and await between.before(turn):
                        over = self._over(turn, ends, had)  # it took a while
                    if over is not None:
                        return over
                    self.rounds = turn.round + 1
                    laps.before(turn)
                    asked = await self._turn(turn, arms, loops, pages, had.done)
                    between.asked |= asked
                    laps.asked |= asked
        finally:
            with contextlib.suppress(WorldError):  # a full disk is told of by what is written next
                laps.end()
            gc.unfreeze()
        return "done"

    def _over(self, turn: Turn, ends: float, had: Recorded) -> Reason | None:
        if self.stop.asked:
            return "interrupted"
        if turn.slot == 0 and time.monotonic() >= ends and had.done.isdisjoint(turn.ids()):
            return "duration"  # a block that an earlier run began is still made whole
        return None

    async def _turn(self, turn: Turn, arms: Sequence[Arm], loops: Loops, pages: Pages, done: frozenset[str]) -> bool:
        """Take what of a turn is missing; return whether anything was."""
        missing = {
            arm.name: [item for item in turn.items if turn.request_id(arm.name, item) not in done]
            for arm in arms
            if arm.name in turn.arms
        }
        asked = sum(map(len, missing.values()))
        self.progress.turn(turn, self.estimate, had=turn.requests - asked)
        if not asked:
            return False
        taking = [arm for arm in arms if missing.get(arm.name)]
        await asyncio.gather(*(self._connect(arm, turn) for arm in taking))
        if self.stop.asked:
            return True
        starts = await self._scrape(taking, turn, pages, "before")
        async with asyncio.TaskGroup() as group:
            for arm in taking:
                begun = dataclasses.replace(arm, start=starts[arm.name])
                group.create_task(loops.run(begun, turn, missing[arm.name]))
        if not self.stop.asked:  # what was cut has tokens that no record holds
            await self._scrape(taking, turn, pages, "after")
        return True

    async def _connect(self, arm: Arm, turn: Turn) -> None:
        """Open an arm's connections; wait for an arm that takes none, before any request is spent on it."""
        if not await arm.client.open_connections(self._connections(turn)):
            arm.gate.doubt("no connection could be opened")
            await arm.gate.passed()
            if not self.stop.asked:
                await arm.client.open_connections(self._connections(turn))

    async def _scrape(
        self, arms: Sequence[Arm], turn: Turn, pages: Pages, when: Literal["before", "after"]
    ) -> dict[str, str | None]:
        """Keep the counters of each arm, and return which start of its server each arm meets."""
        scrapes = await asyncio.gather(*(pages.scrape(arm.name, turn, when) for arm in arms))
        for scrape in scrapes:
            append(self.folder, scrape)
            if scrape.error is not None and scrape.arm != self.plan.control:  # the baseline's own page
                self._note(f"{scrape.arm} gives no counters ({scrape.error}): its acceptance may be absent")
        return {scrape.arm: self.starts.of(scrape) for scrape in scrapes}

    def _connections(self, turn: Turn) -> int:
        if turn.block.load.concurrency is not None:
            return min(turn.block.load.concurrency, len(turn.items))
        in_flight = (turn.block.load.rate_per_s or 1.0) * max(request_s(item.entry.max_tokens) for item in turn.items)
        return min(math.ceil(in_flight), len(turn.items), MOST_OPENED)

    async def _end(self, written: Manifest, watch: host.HostWatch, reason: Reason) -> Manifest:
        """Write how it ended, and the summary of what is there; a full disk may take neither."""
        seen = dataclasses.replace(await watch.end(), load_1m_start=written.host.load_1m_start)
        for warning in seen.warnings(written.host.cpus):
            self._note(warning)
        ended = msgspec.structs.replace(
            written,
            host=msgspec.structs.replace(written.host, **dataclasses.asdict(seen)),
            rounds=self._others() if self.plan.rounds is None else written.rounds,
            notes=tuple(self.notes),
            ended=manifest.Ended(reason=reason, utc=statement.utc_now()),
        )
        try:
            manifest.write(self.folder, ended)
            if (self.folder / RECORDS).exists():
                await asyncio.to_thread(summary.write, self.folder)  # a signal is still heard meanwhile
        except (BenchError, OSError) as error:
            fault = error if isinstance(error, BenchError) else WorldError(
                f"the summary cannot be written: {error.strerror or error}", where=str(self.folder),
                change="make room, then: tandem bench report DIR",
            )  # fmt: skip
            self.stop.fault = self.stop.fault or fault
        return ended

    def _others(self) -> int:
        """Return how many of the rounds that were begun are no control rounds."""
        return self.rounds - bisect_left(self.plan.controls, self.rounds)

    async def _last(self, between: Between, ended: Manifest) -> None:
        """Call once more what is called between rounds; what it gave to note is added to the manifest."""
        if not self.rounds or not (self.folder / RECORDS).exists():
            return
        await between.end(self.rounds - 1, cut=self.stop.asked)
        if tuple(self.notes) != ended.notes:
            with contextlib.suppress(WorldError):  # a full disk has been told of already
                manifest.write(self.folder, msgspec.structs.replace(ended, notes=tuple(self.notes)))

    def _note(self, sentence: str) -> None:
        """Tell a sentence once, and keep it for the manifest."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            self.progress.tell(f"note: {sentence}")
