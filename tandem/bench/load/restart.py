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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.metrics_scraper import is_alive
from tandem.bench.load.probe import ProbeResult
from tandem.bench.load.progress import RunProgress
from tandem.bench.load.restart_command import RestartCommand
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
    end_s: float
    start_s: float = field(default_factory=time.monotonic)
    utc: str = field(default_factory=utc_now)
    command_s: float = 0.0
    gone_s: float = 0.0
    start_id: str | None = None

    @property
    def names(self) -> str:
        """The servers, for a sentence."""
        return " and ".join(arm.name for arm in self.arms)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.start_s


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
        open_client: makes a client of an arm.
        probe: requests a tiny answer of a server.

    Attributes:
        numbers: name of each arm with a command to the number of its current start, from 1.
    """

    settings: RunSettings
    run: RunManifest
    clients: Sequence[CompletionClient]
    folder: Path
    stop: StopSignal
    progress: RunProgress
    open_client: Callable[[ManifestArm], CompletionClient]
    probe: Callable[[CompletionClient], Awaitable[ProbeResult]]
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
        if not self.numbers:
            return []
        start = self._starts[number]
        groups: dict[str, list[ManifestArm]] = {}
        for arm in self.run.arms:
            if self.numbers.get(arm.name, start) < start:
                groups.setdefault(self.settings.restart[arm.name], []).append(arm)
        names = []
        for command, arms in groups.items():
            if not self.stop.is_requested and await self._restart(command, arms, number):
                names += [arm.name for arm in arms]
        return names

    async def _restart(self, command: str, arms: Sequence[ManifestArm], number: int) -> bool:
        """Restart the servers of one command; return whether it was done, not interrupted."""
        start = self._starts[number]
        log = self.folder / f"restart-{start}-{arms[0].name}.log"
        async with contextlib.AsyncExitStack() as stack:
            watches = []
            for arm in arms:
                client = await stack.enter_async_context(self.open_client(arm))
                self.stop.add_callback(client.interrupt)
                watches.append(ServerWatch(client))
            names = " and ".join(arm.name for arm in arms)
            total = self.settings.manifest.starts
            self.progress.begin_wait(f"restart of {names}")
            self.progress.notify(f"start {start} of {total} of {names}: watching, then: {command}")
            await self._watch_before(watches)
            if self.stop.is_requested:
                return False

            for watch in watches:
                watch.begin()
            attempt = _RestartAttempt(
                arms=arms,
                watches=watches,
                command=RestartCommand(command, log),
                end_s=time.monotonic() + self.settings.restart_limit_s,
            )
            await self._wait_until_gone(attempt)
        await self._wait_until_back(attempt)
        if self.stop.is_requested:
            return False
        self._record(attempt, number)
        return True

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
        has_ended = False
        while not self.stop.is_requested:
            await asyncio.gather(*(watch.look() for watch in attempt.watches))
            if not has_ended and attempt.command.has_ended:
                has_ended = True
                attempt.command_s = attempt.elapsed_s
                self._accept_start_id(attempt)
            is_gone = all(watch.evidence for watch in attempt.watches)
            if is_gone and not attempt.gone_s:
                attempt.gone_s = attempt.elapsed_s
            if is_gone and has_ended:
                return
            if time.monotonic() >= attempt.end_s:
                raise self._explain_limit(attempt, has_ended=has_ended)
            await self.stop.sleep(POLL_S)
        if not attempt.command.has_ended:
            pid = attempt.command.pid
            self.progress.notify(f"the restart command goes on by itself (process {pid})")

    def _accept_start_id(self, attempt: _RestartAttempt) -> None:
        """Take the ID that the command printed as evidence, if it is another than the last one."""
        start_id = attempt.command.read_start_id()
        attempt.start_id = start_id
        for arm, watch in zip(attempt.arms, attempt.watches, strict=True):
            if start_id is not None and start_id != self._last_ids.get(arm.name):
                watch.evidence = watch.evidence or f"its command printed start={start_id}"

    def _explain_limit(self, attempt: _RestartAttempt, *, has_ended: bool) -> ExternalError:
        """Return the fault of a restart whose time is over."""
        where = str(attempt.command.log)
        wait = format_duration(self.settings.restart_limit_s)
        if not has_ended:
            return ExternalError(
                f"the restart command of {attempt.names} is still running after {wait}"
                f" (process {attempt.command.pid})",
                where=where,
                change="let it end once the server is started, which runs on in the background;"
                " or raise --restart-limit",
            )
        same_id = f" (it printed start={attempt.start_id} again)" if attempt.start_id else ""
        return ExternalError(
            f"the old server of {attempt.names} was not seen to go within {wait}{same_id}",
            where=where,
            change="see that the command restarts it; behind a proxy that hides it, let the"
            " command's last line be start=ID, with another ID for each start, such as a process"
            " or container ID",
        )

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
        reason = f"{arm.root}/health does not answer"
        next_message_s = MESSAGE_INTERVAL_S
        while not self.stop.is_requested:
            remaining_s = attempt.end_s - time.monotonic()
            if remaining_s <= 0:
                wait = format_duration(self.settings.restart_limit_s)
                problem = f"{arm.name} did not come back within {wait} of its restart: {reason}"
                change = "bring it back, then run again with --resume; or raise --restart-limit"
                raise SilentServerError(problem, where=str(attempt.command.log), change=change)
            if await is_alive(client):
                try:
                    result = await asyncio.wait_for(self.probe(client), remaining_s)
                except TandemError as fault:
                    reason = fault.problem
                except TimeoutError:
                    reason = "a small test request gets no answer"
                else:
                    _require_same_server(arm, result.arm)
                    return
            if attempt.elapsed_s >= next_message_s:
                next_message_s += MESSAGE_INTERVAL_S
                self.progress.notify(f"{arm.name} is not back yet: {reason}")
            await self.stop.sleep(POLL_S)

    def _record(self, attempt: _RestartAttempt, number: int) -> None:
        """Record the restart of each server of the attempt.

        Raises:
            ExternalError: the disk takes no more.
        """
        start = self._starts[number]
        for arm, watch in zip(attempt.arms, attempt.watches, strict=True):
            entry = restart.RestartEntry(
                arm=arm.name,
                start=start,
                round=number,
                utc=attempt.utc,
                command_s=round(attempt.command_s, 3),
                gone_s=round(attempt.gone_s, 3),
                back_s=round(attempt.elapsed_s, 3),
                evidence=watch.evidence,
                start_id=attempt.start_id,
            )
            restart.append_restart(self.folder, entry)
            self.numbers[arm.name] = start
            self._last_ids[arm.name] = attempt.start_id
            self.progress.notify(
                f"{arm.name} is back after {format_duration(attempt.elapsed_s)}: {watch.evidence}"
            )


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
