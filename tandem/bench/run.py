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
from tandem.bench import host, manifest, run_description, summary
from tandem.bench.circuit_breaker import MAX_WAIT_S, CircuitBreaker
from tandem.bench.client import CompletionClient
from tandem.bench.client_load import ClientLoadWriter
from tandem.bench.estimate import DurationEstimate, estimate_request_s
from tandem.bench.fault import BenchError, ExternalBenchError
from tandem.bench.folder import RECORDS_FILE, WARM_UP_FILE
from tandem.bench.interrupt import StopSignal, catch_signals
from tandem.bench.loops import ArmSession, RequestLoops
from tandem.bench.manifest import RunManifest
from tandem.bench.metrics_scraper import MetricsScraper, ServerRestarts, append_scrape
from tandem.bench.plan import PlanTurn, RunPlan
from tandem.bench.probe import ProbeResult, probe_server
from tandem.bench.progress import RunProgress
from tandem.bench.record import RequestRecord
from tandem.bench.recorder import RunRecorder, open_recorder
from tandem.bench.resume import RunHistory, check_same_run, read_history
from tandem.bench.round_callback import RoundCallback, RoundHook
from tandem.bench.settings import RunSettings
from tandem.bench.simulation import combine_simulated
from tandem.bench.terminal_text import clean_text
from tandem.bench.warm_up import WarmUpOutcome, warm_up_arm

EndReason = Literal["done", "interrupted", "failed", "duration"]
OPTIONAL_EXTRAS = ("token_ids", "logprobs")  # extras that make answers larger: asked where --record names them
MAX_OPEN_CONNECTIONS = 64  # connections opened before an open loop; it may open more while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended.

    Args:
        reason: as the manifest has it.
        has_folder: whether there is a folder to report on.
        fault: what ended it, where something did.
    """

    reason: EndReason
    has_folder: bool = True
    fault: BenchError | None = None


@dataclass(kw_only=True)
class MeasurementRun:
    """A run under way.

    Args:
        settings: what was asked.
        folder: where it is written.
        resume: whether it goes on with what the folder holds.
        out: takes what the operator reads while it goes on.
        wait_s: how long an arm that went down is waited for.
        check: called with the manifest before anything is written; it raises BenchError where the run must not begin.
        on_round: called in a thread of its own between two rounds, and once at the end when every file is final;
            `round_callback` says what it may do.
    """

    settings: RunSettings
    folder: Path
    resume: bool = False
    out: TextIO = field(default_factory=lambda: sys.stderr)
    wait_s: float = MAX_WAIT_S
    check: Callable[[RunManifest], None] | None = None
    on_round: RoundHook | None = None
    stop: StopSignal = field(init=False)
    plan: RunPlan = field(init=False)
    estimate: DurationEstimate = field(init=False)
    progress: RunProgress = field(init=False)
    restarts: ServerRestarts = field(init=False)
    notes: list[str] = field(init=False, default_factory=list)
    round_count: int = field(init=False, default=0)

    async def run(self) -> RunOutcome:
        """Do all of it.

        Raises:
            BenchError: it could not begin: the folder, a server, or settings that differ from the resumed run's.
        """
        folders.check_folder(self.folder, resume=self.resume)
        self.stop, self.plan, self.estimate = StopSignal(), self.settings.plan(), DurationEstimate()
        self.progress = RunProgress(self.out, requests=self.plan.request_count, expected_s=self._estimate_s())
        for line in run_description.describe_plan(self.settings, self.plan, self._estimate_s()):
            self.progress.notify(line)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(catch_signals(self.stop, self.progress.notify))
            servers = [self.settings.server(arm) for arm in self.settings.arms]
            limit = max(block.load.concurrency or 0 for block in self.plan.blocks)
            clients = [await stack.enter_async_context(CompletionClient(server, limit=limit)) for server in servers]
            control = self.settings.server(self.settings.arms[0], self.plan.control_arm)
            scraper = await stack.enter_async_context(MetricsScraper([*servers, control]))
            probe_results = await self._probe_servers(clients)
            if probe_results is None:
                return RunOutcome(reason="interrupted", has_folder=False)
            stack.enter_context(folders.claim_folder(self.folder, resume=self.resume))
            arms = [
                self._create_arm(client, probe_result, scraper)
                for client, probe_result in zip(clients, probe_results, strict=True)
            ]
            return await self._measure(arms, probe_results, scraper)

    def _estimate_s(self) -> float:
        if self.settings.duration_s is not None:
            return self.settings.duration_s
        return self.estimate.run_s(self.plan)

    async def _probe_servers(self, clients: Sequence[CompletionClient]) -> list[ProbeResult] | None:
        """Return what each arm offers, or None where the run was interrupted meanwhile.

        Raises:
            BenchError: an arm cannot be measured; every further one is told.
        """
        for client in clients:
            self.stop.add_callback(client.interrupt)
        ignore_eos = any(suite.defaults.ignore_eos for suite in self.settings.suites)
        probes = (
            probe_server(
                probe_client,
                probe_client.server,
                thinking=self.settings.thinking,
                ignore_eos=ignore_eos,
                seed=self.settings.seed,
            )
            for probe_client in clients
        )
        results = await asyncio.gather(*probes, return_exceptions=True)
        if self.stop.is_requested:
            return None
        faults = [result for result in results if isinstance(result, BaseException)]
        for fault in faults[1:]:
            self.progress.notify(f"error: {fault}")
        if faults:
            raise faults[0]
        return [result for result in results if isinstance(result, ProbeResult)]

    def _create_arm(self, client: CompletionClient, probe_result: ProbeResult, scraper: MetricsScraper) -> ArmSession:
        name = client.server.name
        self.progress.notify(f"{name} says of itself: {clean_text(probe_result.names)}")
        for note in probe_result.notes:
            self._note(f"{name}: {note}")
        for extra in sorted(self.settings.extras):
            if not getattr(probe_result.offers, extra):
                self._note(f"{name} does not give {extra}, so its records have none")
        no_extras = {extra: False for extra in OPTIONAL_EXTRAS if extra not in self.settings.extras}
        breaker = CircuitBreaker(
            arm=name, url=client.server.root, is_alive=scraper.is_alive, stop=self.stop, notify=self.progress.notify,
            wait_s=self.wait_s,
        )  # fmt: skip
        offers = msgspec.structs.replace(probe_result.offers, **no_extras)
        placement = next(arm.placement for arm in self.settings.arms if arm.name == name)
        return ArmSession(
            name=name, client=client, offers=offers, models=probe_result.models, breaker=breaker, placement=placement
        )

    async def _measure(
        self, arms: Sequence[ArmSession], probe_results: Sequence[ProbeResult], scraper: MetricsScraper
    ) -> RunOutcome:
        run_manifest = run_description.create_manifest(self.settings, self.plan, probe_results)
        history = RunHistory(interrupt_counts={})
        if self.resume:
            earlier_manifest = manifest.read_manifest(self.folder)
            check_same_run(earlier_manifest, run_manifest, self.folder)
            history = await asyncio.to_thread(read_history, self.folder, self.progress.notify)
            if earlier_manifest.ended is not None and earlier_manifest.ended.reason == "duration":
                history = dataclasses.replace(history, spent_s=math.inf)
            self.notes += [note for note in earlier_manifest.notes if note not in self.notes]
            arms_now = tuple(
                msgspec.structs.replace(
                    old_arm,
                    placement=new_arm.placement,
                    simulated=new_arm.simulated or old_arm.simulated,
                    owned_by=new_arm.owned_by,
                )
                for old_arm, new_arm in zip(earlier_manifest.arms, run_manifest.arms, strict=True)
            )
            run_manifest = msgspec.structs.replace(
                earlier_manifest,
                schema=manifest.SCHEMA,
                ended=None,
                resumed=(*earlier_manifest.resumed, run_manifest.clock),
                arms=arms_now,
                simulated=combine_simulated(arm.simulated for arm in arms_now),
                goodput=run_manifest.goodput or earlier_manifest.goodput,
                price_usd_per_hour=run_manifest.price_usd_per_hour or earlier_manifest.price_usd_per_hour,
            )
        if self.check is not None:
            self.check(run_manifest)
        self.restarts = ServerRestarts(self.folder)
        manifest.write_manifest(self.folder, run_manifest)
        watch = host.HostWatch()
        callback = RoundCallback(call=self.on_round, note=self._note, stop=self.stop, watch=watch)
        reason: EndReason = "failed"
        try:
            if self._has_missing_requests(history):
                run_manifest = await self._warm_up(arms, run_manifest)
            watch.start()
            load_writer = ClientLoadWriter(folder=self.folder, watch=watch)
            turn_arms = [*arms, dataclasses.replace(arms[0], name=self.plan.control_arm)]
            reason = await self._run_turns(turn_arms, scraper, history, callback, load_writer)
        except BenchError as fault:
            self.stop.request("failed", fault)
        finally:
            final_manifest = await self._finish(run_manifest, watch, self.stop.reason or reason)
        reason = self.stop.reason or reason
        await self._run_last_callback(callback, final_manifest)
        return RunOutcome(reason=reason, fault=self.stop.fault)

    def _has_missing_requests(self, history: RunHistory) -> bool:
        """Return whether anything is left to ask."""
        if self.settings.duration_s is not None:
            return history.spent_s < self.settings.duration_s
        return not all(identity in history.done_ids for turn in self.plan.turns() for identity in turn.request_ids())

    async def _warm_up(self, arms: Sequence[ArmSession], run_manifest: RunManifest) -> RunManifest:
        if self.settings.warm_up == 0:
            return run_manifest
        path = self.folder / WARM_UP_FILE
        # windows are numbered on over resumptions
        first_window = path.read_bytes().count(b"\n") if path.exists() else 0
        with open_recorder(path) as recorder, self.progress.show_line():
            loops = self._create_loops(recorder, RunHistory(interrupt_counts={}), self.progress.count_warm_up)
            warm_ups = (self._warm_up_arm(arm, loops, first_window) for arm in arms)
            is_simultaneous = self.settings.schedule == "simultaneous"
            outcomes = await asyncio.gather(*warm_ups) if is_simultaneous else [await outcome for outcome in warm_ups]
        factors = {
            arm.name: outcome.factor for arm, outcome in zip(arms, outcomes, strict=True) if outcome.factor is not None
        }
        if arms[0].name in factors:
            factors[self.plan.control_arm] = factors[arms[0].name]
        self.estimate = DurationEstimate(factors=factors)
        self.progress.set_expected_s(self._estimate_s())
        if self.settings.duration_s is None and not self.stop.is_requested:
            self.progress.notify(run_description.describe_new_estimate(self.settings, self._estimate_s()))
        entries = {arm.name: outcome.entry for arm, outcome in zip(arms, outcomes, strict=True)}
        return msgspec.structs.replace(run_manifest, warm_up=entries)

    async def _warm_up_arm(self, arm: ArmSession, loops: RequestLoops, first_window: int) -> WarmUpOutcome:
        with self.progress.show_warm_up(arm.name):
            await arm.client.open_connections(self._count_connections(self.plan.round(self.plan.first_round)[0]))
            outcome = await warm_up_arm(
                arm, self.plan, loops, requests=self.settings.warm_up, first_window=first_window
            )
        if outcome.entry.stable is False and not self.stop.is_requested:
            self._note(
                f"{arm.name} was not stable after {outcome.entry.requests} requests of warm-up, "
                f"{outcome.entry.failed} of them failed: its first rounds may differ from its last"
            )
        return outcome

    def _create_loops(
        self, recorder: RunRecorder, history: RunHistory, on_record: Callable[[RequestRecord], None]
    ) -> RequestLoops:
        return RequestLoops(
            settings=self.settings,
            recorder=recorder,
            stop=self.stop,
            attempts=history.interrupt_counts,
            on_record=on_record,
        )

    async def _run_turns(
        self,
        arms: Sequence[ArmSession],
        scraper: MetricsScraper,
        history: RunHistory,
        callback: RoundCallback,
        load_writer: ClientLoadWriter,
    ) -> EndReason:
        """Take every turn that is not recorded yet; where the clock decides, begin no block after its end."""
        end_s = math.inf
        if self.settings.duration_s is not None:
            remaining_s = max(self.settings.duration_s - history.spent_s, 0.0)
            self.progress.set_expected_s(remaining_s)
            end_s = time.monotonic() + remaining_s
        gc.freeze()  # a full collection of all that was loaded would hold the event loop up for tens of milliseconds
        try:
            with open_recorder(self.folder / RECORDS_FILE) as recorder, self.progress.show_line():
                loops = self._create_loops(recorder, history, self.progress.count_record)
                for turn in self.plan.turns():
                    end_reason = self._find_end_reason(turn, end_s, history)
                    if end_reason is None and await callback.begin_turn(turn):
                        end_reason = self._find_end_reason(turn, end_s, history)  # it took a while
                    if end_reason is not None:
                        return end_reason
                    self.round_count = turn.round + 1
                    load_writer.begin_turn(turn)
                    has_requests = await self._run_turn(turn, arms, loops, scraper, history.done_ids)
                    callback.has_requests |= has_requests
                    load_writer.has_requests |= has_requests
        finally:
            with contextlib.suppress(ExternalBenchError):  # a full disk is told of by what is written next
                load_writer.end()
            gc.unfreeze()
        return "done"

    def _find_end_reason(self, turn: PlanTurn, end_s: float, history: RunHistory) -> EndReason | None:
        if self.stop.is_requested:
            return "interrupted"
        if turn.slot == 0 and time.monotonic() >= end_s and history.done_ids.isdisjoint(turn.request_ids()):
            return "duration"  # a block that an earlier run began is still made whole
        return None

    async def _run_turn(
        self,
        turn: PlanTurn,
        arms: Sequence[ArmSession],
        loops: RequestLoops,
        scraper: MetricsScraper,
        done_ids: frozenset[str],
    ) -> bool:
        """Take what of a turn is missing; return whether anything was."""
        missing = {
            arm.name: [item for item in turn.items if turn.request_id(arm.name, item) not in done_ids]
            for arm in arms
            if arm.name in turn.arms
        }
        request_count = sum(map(len, missing.values()))
        self.progress.begin_turn(turn, self.estimate, recorded_count=turn.request_count - request_count)
        if not request_count:
            return False
        turn_arms = [arm for arm in arms if missing.get(arm.name)]
        await asyncio.gather(*(self._connect_arm(arm, turn) for arm in turn_arms))
        if self.stop.is_requested:
            return True
        starts = await self._scrape_arms(turn_arms, turn, scraper, "before")
        async with asyncio.TaskGroup() as group:
            for arm in turn_arms:
                arm_session = dataclasses.replace(arm, start=starts[arm.name])
                group.create_task(loops.run(arm_session, turn, missing[arm.name]))
        if not self.stop.is_requested:  # what was cut has tokens that no record holds
            await self._scrape_arms(turn_arms, turn, scraper, "after")
        return True

    async def _connect_arm(self, arm: ArmSession, turn: PlanTurn) -> None:
        """Open an arm's connections; wait for an arm that takes none, before any request is spent on it."""
        if not await arm.client.open_connections(self._count_connections(turn)):
            arm.breaker.trip("no connection could be opened")
            await arm.breaker.wait_until_closed()
            if not self.stop.is_requested:
                await arm.client.open_connections(self._count_connections(turn))

    async def _scrape_arms(
        self, arms: Sequence[ArmSession], turn: PlanTurn, scraper: MetricsScraper, when: Literal["before", "after"]
    ) -> dict[str, str | None]:
        """Keep the counters of each arm, and return which start of its server each arm meets."""
        scrapes = await asyncio.gather(*(scraper.scrape(arm.name, turn, when) for arm in arms))
        for scrape in scrapes:
            append_scrape(self.folder, scrape)
            if scrape.error is not None and scrape.arm != self.plan.control_arm:  # the baseline's own page
                self._note(f"{scrape.arm} gives no counters ({scrape.error}): its acceptance may be absent")
        return {scrape.arm: self.restarts.identify_start(scrape) for scrape in scrapes}

    def _count_connections(self, turn: PlanTurn) -> int:
        if turn.block.load.concurrency is not None:
            return min(turn.block.load.concurrency, len(turn.items))
        in_flight = (turn.block.load.rate_per_s or 1.0) * max(
            estimate_request_s(item.entry.max_tokens) for item in turn.items
        )
        return min(math.ceil(in_flight), len(turn.items), MAX_OPEN_CONNECTIONS)

    async def _finish(self, run_manifest: RunManifest, watch: host.HostWatch, reason: EndReason) -> RunManifest:
        """Write how it ended, and the summary of what is there; a full disk may take neither."""
        host_load = dataclasses.replace(await watch.end(), load_1m_start=run_manifest.host.load_1m_start)
        for warning in host_load.warnings(run_manifest.host.cpus):
            self._note(warning)
        final_manifest = msgspec.structs.replace(
            run_manifest,
            host=msgspec.structs.replace(run_manifest.host, **dataclasses.asdict(host_load)),
            rounds=self._count_main_rounds() if self.plan.rounds is None else run_manifest.rounds,
            notes=tuple(self.notes),
            ended=manifest.RunEnd(reason=reason, utc=run_description.utc_now()),
        )
        try:
            manifest.write_manifest(self.folder, final_manifest)
            if (self.folder / RECORDS_FILE).exists():
                await asyncio.to_thread(summary.write_summary, self.folder)  # a signal is still heard meanwhile
        except (BenchError, OSError) as error:
            fault = error if isinstance(error, BenchError) else ExternalBenchError(
                f"the summary cannot be written: {error.strerror or error}", where=str(self.folder),
                change="make room, then: tandem bench report DIR",
            )  # fmt: skip
            self.stop.fault = self.stop.fault or fault
        return final_manifest

    def _count_main_rounds(self) -> int:
        """Return how many of the rounds that were begun are no control rounds."""
        return self.round_count - bisect_left(self.plan.control_round_numbers, self.round_count)

    async def _run_last_callback(self, callback: RoundCallback, final_manifest: RunManifest) -> None:
        """Call once more what is called between rounds; what it gave to note is added to the manifest."""
        if not self.round_count or not (self.folder / RECORDS_FILE).exists():
            return
        await callback.end(self.round_count - 1, after_interrupt=self.stop.is_requested)
        if tuple(self.notes) != final_manifest.notes:
            with contextlib.suppress(ExternalBenchError):  # a full disk has been told of already
                manifest.write_manifest(self.folder, msgspec.structs.replace(final_manifest, notes=tuple(self.notes)))

    def _note(self, sentence: str) -> None:
        """Tell a sentence once, and keep it for the manifest."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            self.progress.notify(f"note: {sentence}")
