"""One run: probe, connect, warm up, send every turn, summarize.

Invariant: whatever ends the run, its records are on disk and readable, the manifest has the reason
of the end, and no measured request is outside the plan.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import msgspec

from tandem.bench.figures import summary
from tandem.bench.figures.knee_turns import read_knee_history
from tandem.bench.load import host
from tandem.bench.load.arm_notes import list_arm_notes
from tandem.bench.load.circuit_breaker import MAX_WAIT_S
from tandem.bench.load.counter_log import CounterLog
from tandem.bench.load.file_limit import raise_file_limit
from tandem.bench.load.interrupt import StopSignal, catch_signals
from tandem.bench.load.knee_run import KneeRun, create_search
from tandem.bench.load.loops import ArmSession, RequestLoops
from tandem.bench.load.probe import ProbeResult
from tandem.bench.load.progress import RunProgress
from tandem.bench.load.recorder import open_recorder
from tandem.bench.load.restart import ServerRestarts
from tandem.bench.load.resume import RunHistory, continue_manifest, read_history
from tandem.bench.load.round_callback import RoundCallback, RoundHook
from tandem.bench.load.run_servers import RunServers
from tandem.bench.load.synthesis import PromptFitter, save_fitted
from tandem.bench.load.warm_up import join_entries, warm_up_arm
from tandem.bench.plan.estimate import estimate_connections, estimate_work
from tandem.bench.plan.request_plan import PlanItem, PlanTurn, RunPlan
from tandem.bench.plan.run_description import describe_plan, note_own_fields
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records import json_file, manifest
from tandem.bench.records.folder import RECORDS_FILE, WARM_UP_FILE, claim_folder
from tandem.bench.records.manifest import EndReason, RunManifest, WarmUpEntry
from tandem.bench.records.simulation import combine_simulated
from tandem.errors import ExternalError, TandemError

SEARCH_SOCKETS = 4096  # a search overloads its servers on purpose
MIN_SOCKETS = 512  # an open loop has as many as its servers are slow


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """End of a run.

    Args:
        reason: as in the manifest.
        fault: that ended the run, if any.
    """

    reason: EndReason
    fault: TandemError | None = None


@dataclass(kw_only=True)
class MeasurementRun:
    """A live run.

    Args:
        settings: of the run.
        folder: for the output.
        resume: whether the run continues the run in the folder.
        out: stream for the operator's messages.
        wait_s: longest wait for an arm that went down, in seconds.
        check: called with the manifest before the manifest is written; raises InputError if the run
            must not begin.
        on_round: called in a separate thread between two rounds, and once at the end when every
            file is final; `round_callback` has its rules.
        only_round: number of the only round to measure; other processes resume the folder for the
            other rounds. None measures all rounds.
    """

    settings: RunSettings
    folder: Path
    resume: bool = False
    out: TextIO = field(default_factory=lambda: sys.stderr)
    wait_s: float = MAX_WAIT_S
    check: Callable[[RunManifest], None] | None = None
    on_round: RoundHook | None = None
    only_round: int | None = None
    stop: StopSignal = field(init=False, default_factory=StopSignal)
    watch: host.HostWatch = field(init=False, default_factory=host.HostWatch)
    plan: RunPlan = field(init=False)
    progress: RunProgress = field(init=False)
    counter_log: CounterLog = field(init=False)
    servers: RunServers = field(init=False)
    restarts: ServerRestarts = field(init=False)
    history: RunHistory = field(init=False, default_factory=RunHistory)
    notes: list[str] = field(init=False, default_factory=list)
    warm_ups: dict[str, WarmUpEntry] = field(init=False, default_factory=dict)
    round_count: int = field(init=False, default=0)
    asked_round: int | None = field(init=False, default=None)

    async def run(self) -> RunOutcome:
        """Execute the run and return its end.

        Raises:
            InputError: the run could not begin, because of the folder, a server, settings that
                differ from the resumed run's, or a round that the plan does not have.
            ExternalError: a server does not answer the probe, or the manifest cannot be written.
        """
        settings = self.settings
        self.plan = settings.plan()
        least = SEARCH_SOCKETS if self.plan.searches_knee else MIN_SOCKETS
        arm_sockets = max((*(settings.concurrency or ()), least))
        raise_file_limit(len(settings.manifest.arms) * arm_sockets)
        expected_s, request_count = estimate_work(self.plan, self.only_round)
        self.progress = RunProgress(self.out, requests=request_count, expected_s=expected_s)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(claim_folder(self.folder, resume=self.resume))
            stack.enter_context(catch_signals(self.stop, self.progress.notify))
            for line in describe_plan(settings, self.plan, expected_s):
                self.progress.notify(line)

            self.servers = self._describe_servers()
            clients = list(map(self.servers.create_client, settings.manifest.arms))
            for client in clients:
                await stack.enter_async_context(client)
            probe_results = await self.servers.probe_all(clients)
            if self.stop.is_requested:
                return RunOutcome(reason="interrupted")
            arms = list(map(self.servers.create_session, clients, probe_results))
            for note in list_arm_notes([result.arm for result in probe_results], settings):
                self._note(note)
            fitter = PromptFitter(settings, self.stop, self.progress.notify, self._note)
            self.settings = await fitter.fit_settings(arms, self.folder if self.resume else None)
            if self.stop.is_requested:
                return RunOutcome(reason="interrupted")
            self.plan = self.settings.plan()
            return await self._measure(arms, self._complete_manifest(probe_results))

    def _describe_servers(self) -> RunServers:
        return RunServers(
            settings=self.settings,
            limit=max(block.load.concurrency or 0 for block in self.plan.blocks),
            stop=self.stop,
            notify=self.progress.notify,
            note=self._note,
            wait_s=self.wait_s,
        )

    def _complete_manifest(self, probe_results: Sequence[ProbeResult]) -> RunManifest:
        """Return the manifest of a run before its start, with the facts of plan and servers."""
        plan = self.plan
        for note in note_own_fields(self.settings.manifest.arms):
            self._note(note)
        return msgspec.structs.replace(
            self.settings.manifest,
            arms=tuple(result.arm for result in probe_results),
            simulated=combine_simulated(result.arm.simulated for result in probe_results),
            suites=self.settings.list_suites(),
            concurrency=tuple(
                sorted({block.load.concurrency for block in plan.blocks if block.load.concurrency})
            ),
            plan=manifest.PlanTotals(
                requests=plan.request_count,
                requests_per_round=None if plan.searches_knee else plan.requests_per_round,
            ),
        )

    async def _measure(self, arms: Sequence[ArmSession], run_manifest: RunManifest) -> RunOutcome:
        if self.resume:
            run_manifest = await self._join_earlier_run(run_manifest)
            # the new value, else the earlier one
            arms = [
                dataclasses.replace(session, placement=arm.placement)
                for session, arm in zip(arms, run_manifest.arms, strict=True)
            ]
        if self.check is not None:
            self.check(run_manifest)
        self.restarts = self._create_restarts(arms, run_manifest)
        self.counter_log = CounterLog(self.folder, self._note, self.restarts.numbers)
        manifest.write_manifest(self.folder, run_manifest)
        save_fitted(self.settings, self.folder)

        reason: EndReason = "failed"
        callback = RoundCallback(self.on_round, self._note, self.stop)
        try:
            if self.settings.warm_up != 0 and self._has_missing_requests():
                await self._warm_up(arms)
            reason = await self._run_rounds(arms, callback)
        except TandemError as fault:
            self.stop.request("failed", fault)
        except asyncio.CancelledError:
            reason = "interrupted"
            raise
        finally:
            reason = self.stop.reason or reason
            final_manifest = await self._finish(run_manifest, reason)

        if self.round_count and (self.folder / RECORDS_FILE).exists():
            await callback.call_at_end(self.round_count - 1, after_interrupt=self.stop.is_requested)
        self._write_late_notes(final_manifest)
        # a signal may have come meanwhile
        return RunOutcome(reason=self.stop.reason or reason, fault=self.stop.fault)

    def _create_restarts(
        self, arms: Sequence[ArmSession], run_manifest: RunManifest
    ) -> ServerRestarts:
        return ServerRestarts(
            settings=self.settings,
            run=run_manifest,
            clients=[arm.client for arm in arms],
            folder=self.folder,
            stop=self.stop,
            progress=self.progress,
            servers=self.servers,
        )

    def _write_late_notes(self, final_manifest: RunManifest) -> None:
        """Write the notes that came after the end of the run, such as those of the last hook."""
        notes = tuple(self.notes)
        if notes != final_manifest.notes:
            with contextlib.suppress(ExternalError):  # a full disk was already reported
                manifest.write_manifest(
                    self.folder, msgspec.structs.replace(final_manifest, notes=notes)
                )

    async def _join_earlier_run(self, run_manifest: RunManifest) -> RunManifest:
        """Read what the earlier run recorded; return the manifest of both."""
        earlier_manifest = manifest.read_manifest(self.folder)
        joined_manifest = continue_manifest(earlier_manifest, run_manifest, self.folder)
        self.history = await asyncio.to_thread(read_history, self.folder, self.progress.notify)
        if earlier_manifest.ended is not None and earlier_manifest.ended.reason == "duration":
            self.history = dataclasses.replace(self.history, spent_s=math.inf)
        self.notes += [note for note in earlier_manifest.notes if note not in self.notes]
        return joined_manifest

    def _has_missing_requests(self) -> bool:
        if self.settings.manifest.duration_s is not None:
            return self.history.spent_s < self.settings.manifest.duration_s
        if self.plan.searches_knee:
            counts = read_knee_history(self.folder, self.plan.manifest).counts
            return create_search(self.plan, {}).next_turn(counts) is not None
        return not all(map(self._is_recorded, self._list_rounds()))

    def _list_rounds(self) -> Iterable[tuple[PlanTurn, ...]]:
        """Return the turns of each round of this process."""
        if self.only_round is not None:
            return [self.plan.round(self.only_round)]
        return self.plan.rounds_of_turns()

    def _is_recorded(self, turns: Sequence[PlanTurn]) -> bool:
        """Return whether an earlier process recorded the complete round."""
        return all(self.history.done_ids.issuperset(turn.request_ids()) for turn in turns)

    @contextlib.contextmanager
    def _open_loops(
        self, file: str, attempts: dict[str, int] | None = None, end_s: float = math.inf
    ) -> Iterator[RequestLoops]:
        """Open a file of records, and show the progress of what is sent into it."""
        with open_recorder(self.folder / file) as write_record, self.progress.show_line():
            count = self.progress.count_record
            yield RequestLoops(self.settings, write_record, self.stop, attempts or {}, count, end_s)

    async def _warm_up(self, arms: Sequence[ArmSession]) -> None:
        """Warm up every arm, and add the results to those of earlier starts."""
        path = self.folder / WARM_UP_FILE
        # a resumed run gives its windows higher numbers than the earlier windows
        first_window = path.read_bytes().count(b"\n") if path.exists() else 0
        with self._open_loops(WARM_UP_FILE) as loops:
            if self.settings.manifest.schedule == "simultaneous":
                self.progress.begin_warm_up(" and ".join(arm.name for arm in arms))
                entries = await asyncio.gather(
                    *(self._warm_up_arm(arm, loops, first_window) for arm in arms)
                )
            else:
                entries = []
                for arm in arms:
                    self.progress.begin_warm_up(arm.name)
                    entries.append(await self._warm_up_arm(arm, loops, first_window))
        for arm, entry in zip(arms, entries, strict=True):
            self.warm_ups[arm.name] = join_entries(self.warm_ups.get(arm.name), entry)

    async def _warm_up_arm(
        self, arm: ArmSession, loops: RequestLoops, first_window: int
    ) -> WarmUpEntry:
        requests = self.settings.warm_up
        await arm.client.open_connections(
            estimate_connections(self.plan.round(self.plan.first_round)[0])
        )
        entry = await warm_up_arm(
            arm, self.plan, loops, requests=requests, first_window=first_window
        )
        if entry.stable is False and not self.stop.is_requested:
            counts = f"{entry.requests} requests of warm-up, {entry.failed} of them failed"
            self._note(
                f"{arm.name} was not stable after {counts}:"
                " its first rounds may differ from its last"
            )
        return entry

    async def _search_knee(self, arms: Sequence[ArmSession]) -> EndReason | None:
        """Send every turn of the search; return the reason if the run ends before, else None."""
        history = await asyncio.to_thread(read_knee_history, self.folder, self.plan.manifest)
        with self._open_loops(RECORDS_FILE) as loops:
            search = KneeRun(
                arms=arms,
                plan=self.plan,
                loops=loops,
                counter_log=self.counter_log,
                progress=self.progress,
                connect=self._connect_arm,
                history=history,
                warm_up=self.warm_ups,
            )
            self.watch.begin_round()
            self.asked_round = 0
            try:
                return await search.run()
            finally:
                self.watch.end_round(0)

    async def _run_rounds(self, arms: Sequence[ArmSession], callback: RoundCallback) -> EndReason:
        """Send every turn that is not recorded; begin no block after the run's time limit."""
        arms = [*arms, dataclasses.replace(arms[0], name=self.plan.control_arm)]
        end_s = math.inf
        if self.settings.manifest.duration_s is not None:
            remaining_s = self.settings.manifest.duration_s - self.history.spent_s
            self.progress.expected_s = max(remaining_s, 0.0)
            end_s = time.monotonic() + self.progress.expected_s
        gc.freeze()  # a full garbage collection would block the event loop for tens of milliseconds
        try:
            if self.plan.searches_knee:
                reason = await self._search_knee(arms)
            else:
                reason = await self._send_rounds(arms, callback, end_s)
        finally:
            gc.unfreeze()
        return reason or ("done" if self._is_whole() else "paused")

    def _is_whole(self) -> bool:
        """Return whether every round is recorded, once this process has measured its own."""
        other_rounds = [] if self.only_round is None else self.plan.rounds_of_turns()
        return all(
            turns[0].round == self.only_round or self._is_recorded(turns) for turns in other_rounds
        )

    async def _send_rounds(
        self, arms: Sequence[ArmSession], callback: RoundCallback, end_s: float
    ) -> EndReason | None:
        """Send the rounds of this process; return the reason if the run ends before, else None."""
        attempts = self.history.interrupt_counts
        # of one server alone, nothing needs the rest of a block
        limit_s = end_s if len(self.plan.arms) == 1 else math.inf
        with self._open_loops(RECORDS_FILE, attempts, limit_s) as loops:
            for turns in self._list_rounds():
                number = turns[0].round
                is_stopped = self.stop.is_requested or self._is_over(turns[0], end_s)
                if self.asked_round == number - 1 and not is_stopped:
                    await callback.call_between(number - 1)
                if not is_stopped and not self._is_recorded(turns):
                    await self._restart_servers(number, arms)
                reason = await self._run_round(turns, arms, loops, end_s)
                if reason is not None:
                    return reason
        return None

    async def _restart_servers(self, number: int, arms: Sequence[ArmSession]) -> None:
        """Restart the servers whose start ends before round `number`, and warm them up."""
        names = await self.restarts.prepare_round(number)
        for name in names:
            self.counter_log.forget_work(name)
        restarted = [arm for arm in arms if arm.name in names]
        if restarted and self.settings.warm_up != 0 and not self.stop.is_requested:
            await self._warm_up(restarted)

    async def _run_round(
        self,
        turns: Sequence[PlanTurn],
        arms: Sequence[ArmSession],
        loops: RequestLoops,
        end_s: float,
    ) -> EndReason | None:
        """Send the turns of a round; return the reason if the run ends in this round, else None."""
        self.watch.begin_round()
        try:
            for turn in turns:
                if self.stop.is_requested:
                    return "interrupted"
                if self._is_over(turn, end_s):
                    return "duration"
                self.round_count = turn.round + 1
                await self._run_turn(turn, arms, loops)
        finally:
            load = self.watch.end_round(turns[0].round)
            if self.asked_round == turns[0].round:
                with contextlib.suppress(ExternalError):  # the next write reports a full disk
                    json_file.append_json(
                        self.folder / host.FILE, load, label="the load of a round"
                    )
        return None

    def _is_over(self, turn: PlanTurn, end_s: float) -> bool:
        """Return whether it is too late for `turn`; a begun block of several arms is completed."""
        if len(self.plan.arms) == 1:
            return time.monotonic() >= end_s
        is_late = turn.slot == 0 and time.monotonic() >= end_s
        return is_late and self.history.done_ids.isdisjoint(turn.request_ids())

    async def _run_turn(
        self, turn: PlanTurn, arms: Sequence[ArmSession], loops: RequestLoops
    ) -> None:
        """Send the missing requests of a turn."""
        missing = {arm: self._list_missing(turn, arm) for arm in turn.arms}
        request_count = sum(map(len, missing.values()))
        self.progress.begin_turn(turn, recorded_count=turn.request_count - request_count)
        if not request_count:
            return
        self.asked_round = turn.round
        turn_arms = [arm for arm in arms if missing.get(arm.name)]
        await asyncio.gather(*(self._connect_arm(arm, turn) for arm in turn_arms))
        if self.stop.is_requested:
            return
        starts = await self.counter_log.scrape_arms(turn_arms, turn, "before")
        async with asyncio.TaskGroup() as group:
            for arm in turn_arms:
                self.counter_log.count_work(arm.name, missing[arm.name])
                arm_session = dataclasses.replace(arm, start=starts[arm.name])
                group.create_task(loops.run(arm_session, turn, missing[arm.name]))
        if not self.stop.is_requested:  # cut requests have tokens that no record has
            await self.counter_log.scrape_arms(turn_arms, turn, "after")

    def _list_missing(self, turn: PlanTurn, arm: str) -> list[PlanItem]:
        """Return the items of a turn that an arm was not sent yet."""
        done_ids = self.history.done_ids
        return [item for item in turn.items if turn.request_id(arm, item) not in done_ids]

    async def _connect_arm(self, arm: ArmSession, turn: PlanTurn) -> None:
        """Open an arm's connections; if it accepts none, wait for it before the first request."""
        if not await arm.client.open_connections(estimate_connections(turn)):
            arm.breaker.trip("no connection could be opened")
            await arm.breaker.wait_until_closed()
            if not self.stop.is_requested:
                await arm.client.open_connections(estimate_connections(turn))

    async def _finish(self, run_manifest: RunManifest, reason: EndReason) -> RunManifest:
        """Write the manifest with the run's end, and the summary; a full disk may prevent both."""
        host_info = run_manifest.host
        if self.asked_round is not None:
            host_info = self.watch.complete_host(host_info)
        for warning in host.list_warnings(host_info):
            self._note(warning)
        rounds = self.plan.rounds
        if rounds is None:
            rounds = self.round_count - bisect_left(
                self.plan.control_round_numbers, self.round_count
            )
        final_manifest = msgspec.structs.replace(
            run_manifest,
            host=host_info,
            rounds=rounds,
            warm_up=self.warm_ups or run_manifest.warm_up,
            notes=tuple(self.notes),
            ended=manifest.RunEnd(reason=reason, utc=manifest.utc_now()),
        )
        try:
            manifest.write_manifest(self.folder, final_manifest)
            if (self.folder / RECORDS_FILE).exists():
                # signals still arrive meanwhile
                await asyncio.to_thread(summary.write_summary, self.folder)
        except TandemError as fault:
            self.stop.fault = self.stop.fault or fault
        return final_manifest

    def _note(self, sentence: str) -> None:
        """Show a sentence once, and keep it for the manifest."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            self.progress.notify(f"note: {sentence}")
