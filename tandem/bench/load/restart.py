"""The restarts of a run's servers between rounds, by the user's commands.

Invariant: a start counts only if the old server is known to be gone (`server_watch`), or the
command says so by an ID (`start=ID`) that differs from its last one, and if the server then answers
as the same server. Nothing is measured meanwhile, no command or server is ended, and a restart that
did not come to its end is done again by a resumed run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.metrics_scraper import is_alive
from tandem.bench.load.progress import RunProgress
from tandem.bench.load.restart_command import RestartCommand
from tandem.bench.load.run_servers import RunServers
from tandem.bench.load.server_watch import POLL_S, STEADY_S, ServerWatch
from tandem.bench.plan.estimate import format_duration
from tandem.bench.plan.schedule import assign_starts
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records import restart
from tandem.bench.records.manifest import ManifestArm, RunManifest, utc_now
from tandem.errors import ExternalError, SilentServerError, TandemError

MESSAGE_INTERVAL_S = 30.0  # between two messages about the same wait
_SERVER_FACTS = ("server_version", "simulated")  # that no restart may change


@dataclass(kw_only=True)
class _RestartAttempt:
    """One run of a command, and the servers that it restarts."""

    arms: Sequence[ManifestArm]
    watches: Sequence[ServerWatch]
    command: RestartCommand
    limit_s: float
    start_s: float = field(default_factory=time.monotonic)
    utc: str = field(default_factory=utc_now)
    command_s: float | None = None
    gone_s: float | None = None
    start_id: str | None = None

    @property
    def names(self) -> str:
        """The servers, for a sentence."""
        return _join_names(self.arms)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.start_s

    @property
    def is_late(self) -> bool:
        """Whether the limit is over."""
        return self.elapsed_s >= self.limit_s

    async def look(self, last_ids: Mapping[str, str | None]) -> bool:
        """Look at command and servers; return whether it has ended and all old ones are gone.

        Args:
            last_ids: name of each server to the ID of its current start.

        Raises:
            ExternalError: the command failed.
        """
        await asyncio.gather(*(watch.look() for watch in self.watches))
        if self.command_s is None and self.command.has_ended:
            self.command_s = self.elapsed_s
            self._accept_start_id(last_ids)
        is_gone = all(watch.evidence for watch in self.watches)
        if is_gone and self.gone_s is None:
            self.gone_s = self.elapsed_s
        return is_gone and self.command_s is not None

    def _accept_start_id(self, last_ids: Mapping[str, str | None]) -> None:
        """Take the ID that the command printed as evidence, if it is another than the last one."""
        self.start_id = self.command.read_start_id()
        if self.start_id is None:
            return
        for arm, watch in zip(self.arms, self.watches, strict=True):
            if self.start_id != last_ids.get(arm.name):
                watch.evidence = watch.evidence or f"its command printed start={self.start_id}"

    def explain_limit(self) -> ExternalError:
        """Return the fault of a command or of an old server whose time is over."""
        where = str(self.command.log)
        wait = format_duration(self.limit_s)
        if self.command_s is None:
            return ExternalError(
                f"the restart command of {self.names} is still running after {wait}"
                f" (process {self.command.pid})",
                where=where,
                change="let it end once the server is started, which runs on in the background;"
                " or raise --restart-limit",
            )
        same_id = "" if self.start_id is None else f" (it printed start={self.start_id} again)"
        return ExternalError(
            f"the old server of {self.names} was not seen to go within {wait}{same_id}",
            where=where,
            change="see that the command restarts it; behind a proxy that hides it, let the"
            " command's last line be start=ID, with another ID for each start, such as a process"
            " or container ID",
        )


@dataclass(kw_only=True)
class ServerRestarts:
    """The restarts of a run.

    Args:
        settings: of the run, with its commands.
        run: the manifest, with the facts of the servers; its arms are in the order of `clients`.
        clients: of the arms.
        folder: of the run.
        stop: ends every wait.
        progress: shows sentences to the operator.
        servers: opens a client of an arm, and probes it.

    Attributes:
        numbers: name of each arm with a command to the number of its current start, from 1.
    """

    settings: RunSettings
    run: RunManifest
    clients: Sequence[CompletionClient]
    folder: Path
    stop: StopSignal
    progress: RunProgress
    servers: RunServers
    numbers: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Read what an earlier process of the run restarted."""
        self.numbers = dict.fromkeys(self.settings.restart, 1)
        self._last_ids: dict[str, str | None] = {}
        for entry in restart.read_restarts(self.folder):
            self.numbers[entry.arm] = entry.start
            self._last_ids[entry.arm] = entry.start_id
        run = self.settings.manifest
        self._starts = assign_starts(run.rounds, run.control_rounds, run.starts)

    async def prepare_round(self, number: int) -> list[str]:
        """Restart the servers whose start ends before round `number`; return their names.

        Raises:
            ExternalError: a command failed, or a server was not seen to go or to come back.
        """
        names = []
        for command, arms in self._group_arms(number).items():
            if self.stop.is_requested:
                break
            attempt = await self._restart(command, arms, number)
            if attempt is not None:
                self._record(attempt, number)
                names += [arm.name for arm in arms]
        return names

    def _group_arms(self, number: int) -> dict[str, list[ManifestArm]]:
        """Return the arms that are restarted before a round, by their command."""
        groups: dict[str, list[ManifestArm]] = {}
        for arm in self.run.arms:
            if arm.name in self.numbers and self.numbers[arm.name] < self._starts[number]:
                groups.setdefault(self.settings.restart[arm.name], []).append(arm)
        return groups

    async def _restart(
        self, command: str, arms: Sequence[ManifestArm], number: int
    ) -> _RestartAttempt | None:
        """Restart the servers of one command; return None if the run is interrupted."""
        start = self._starts[number]
        names = _join_names(arms)
        total = self.settings.manifest.starts
        self.progress.begin_wait(f"restart of {names}")
        self.progress.notify(f"start {start} of {total} of {names}: watching, then: {command}")
        async with contextlib.AsyncExitStack() as stack:
            watches = [await self._open_watch(stack, arm) for arm in arms]
            await self._watch_before(watches)
            if self.stop.is_requested:
                return None
            for watch in watches:
                watch.begin()
            log = self.folder / f"restart-{start}-{arms[0].name}.log"
            attempt = _RestartAttempt(
                arms=arms,
                watches=watches,
                command=RestartCommand(command, log),
                limit_s=self.settings.restart_limit_s,
            )
            await self._wait_until_gone(attempt)
        await self._wait_until_back(attempt)
        return None if self.stop.is_requested else attempt

    async def _open_watch(self, stack: contextlib.AsyncExitStack, arm: ManifestArm) -> ServerWatch:
        client = await stack.enter_async_context(self.servers.create_client(arm))
        self.stop.add_callback(client.interrupt)
        return ServerWatch(client)

    async def _watch_before(self, watches: Sequence[ServerWatch]) -> None:
        """Watch the old servers for so long that a closed connection tells something."""
        end_s = time.monotonic() + STEADY_S + POLL_S
        while not self.stop.is_requested and time.monotonic() < end_s:
            await asyncio.gather(*(watch.look() for watch in watches))
            await self.stop.sleep(POLL_S)

    async def _wait_until_gone(self, attempt: _RestartAttempt) -> None:
        """Wait until the command has ended and every old server is gone.

        Raises:
            ExternalError: the command failed, or the limit is over.
        """
        while not self.stop.is_requested:
            if await attempt.look(self._last_ids):
                return
            if attempt.is_late:
                raise attempt.explain_limit()
            await self.stop.sleep(POLL_S)
        if attempt.command_s is None:
            pid = attempt.command.pid
            self.progress.notify(f"the restart command goes on by itself (process {pid})")

    async def _wait_until_back(self, attempt: _RestartAttempt) -> None:
        """Wait until every server answers again, as the server that it was.

        Raises:
            ExternalError: one does not within the limit, or another server answers.
        """
        waits = [
            self._wait_for_server(client, arm, attempt)
            for client, arm in zip(self.clients, self.run.arms, strict=True)
            if arm in attempt.arms
        ]
        await asyncio.gather(*waits)

    async def _wait_for_server(
        self, client: CompletionClient, arm: ManifestArm, attempt: _RestartAttempt
    ) -> None:
        next_message_s = MESSAGE_INTERVAL_S
        while not self.stop.is_requested:
            reason = await self._find_absence(client, arm, attempt)
            if not reason:
                return
            if attempt.is_late:
                wait = format_duration(attempt.limit_s)
                problem = f"{arm.name} did not come back within {wait} of its restart: {reason}"
                change = "bring it back, then run again with --resume; or raise --restart-limit"
                raise SilentServerError(problem, where=str(attempt.command.log), change=change)
            if attempt.elapsed_s >= next_message_s:
                next_message_s += MESSAGE_INTERVAL_S
                self.progress.notify(f"{arm.name} is not back yet: {reason}")
            await self.stop.sleep(POLL_S)

    async def _find_absence(
        self, client: CompletionClient, arm: ManifestArm, attempt: _RestartAttempt
    ) -> str:
        """Return why a server does not answer yet; empty if it does.

        Raises:
            ExternalError: it is another server than before.
        """
        if not await is_alive(client):
            return f"{arm.root}/health does not answer"
        remaining_s = max(attempt.limit_s - attempt.elapsed_s, POLL_S)
        try:
            result = await asyncio.wait_for(self.servers.probe(client), remaining_s)
        except TandemError as fault:
            return fault.problem
        except TimeoutError:
            return "a small test request gets no answer"
        _require_same_server(arm, result.arm)
        return ""

    def _record(self, attempt: _RestartAttempt, number: int) -> None:
        """Record the restart of each server of the attempt.

        Raises:
            ExternalError: the disk takes no more.
        """
        start = self._starts[number]
        back_s = attempt.elapsed_s
        for arm, watch in zip(attempt.arms, attempt.watches, strict=True):
            entry = restart.RestartEntry(
                arm=arm.name,
                start=start,
                round=number,
                utc=attempt.utc,
                command_s=round(attempt.command_s or 0.0, 3),
                gone_s=round(attempt.gone_s or 0.0, 3),
                back_s=round(back_s, 3),
                evidence=watch.evidence,
                start_id=attempt.start_id,
            )
            restart.append_restart(self.folder, entry)
            self.numbers[arm.name] = start
            self._last_ids[arm.name] = attempt.start_id
            wait = format_duration(back_s)
            self.progress.notify(f"{arm.name} is back after {wait}: {watch.evidence}")


def _join_names(arms: Sequence[ManifestArm]) -> str:
    return " and ".join(arm.name for arm in arms)


def _require_same_server(before: ManifestArm, now: ManifestArm) -> None:
    """Refuse a server that is another than before its restart.

    Raises:
        ExternalError: it is.
    """
    for fact in _SERVER_FACTS:
        old = getattr(before, fact)
        new = getattr(now, fact)
        if old != new:
            problem = f"{fact} of {before.name} was {old} before its restart and is {new} now"
            change = "let the command start the same server, then run again with --resume"
            raise ExternalError(problem, where=before.root, change=change)
