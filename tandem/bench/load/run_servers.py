"""The servers of a run: their clients, what the probe finds, and the sessions that are measured.

Invariant: either every server of the run can be measured, or nothing is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.bench.load.circuit_breaker import CircuitBreaker
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.loops import ArmSession
from tandem.bench.load.probe import DEFAULT_TIMEOUTS, ProbeResult, build_draft, probe_server
from tandem.bench.load.proxy import describe_proxy
from tandem.bench.plan.server_access import NO_ACCESS
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.manifest import ManifestArm


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServers:
    """What opens, probes and measures the servers of a run.

    Args:
        settings: of the run.
        limit: most connections to a server; 0 for no limit.
        stop: ends the run; an interrupt cuts every request.
        notify: shows a sentence to the operator.
        note: keeps a sentence for a reader of the figures.
        wait_s: longest wait for a server that went down, in seconds.
    """

    settings: RunSettings
    limit: int
    stop: StopSignal
    notify: Callable[[str], None]
    note: Callable[[str], None]
    wait_s: float

    def create_client(self, arm: ManifestArm) -> CompletionClient:
        """Return a client of an arm, not open yet."""
        access = self.settings.access.get(arm.name, NO_ACCESS)
        return CompletionClient(
            arm, limit=self.limit, api=self.settings.manifest.api, access=access
        )

    async def probe_all(self, clients: Sequence[CompletionClient]) -> list[ProbeResult]:
        """Return the probe result of each arm; an interrupted run ignores the results.

        Raises:
            TandemError: an arm cannot be measured; the fault of every further such arm is shown.
        """
        for client in clients:
            self.stop.add_callback(client.interrupt)
        results = await asyncio.gather(*map(self.probe, clients), return_exceptions=True)
        faults = [fault for fault in results if isinstance(fault, BaseException)]
        if faults and not self.stop.is_requested:
            for fault in faults[1:]:
                self.notify(f"error: {fault}")
            raise faults[0]
        return [result for result in results if isinstance(result, ProbeResult)]

    async def probe(self, client: CompletionClient) -> ProbeResult:
        """Request tiny answers as the run would request its own.

        Raises:
            TandemError: the server cannot be measured.
        """
        run = self.settings.manifest
        timeouts = run.time_outs or DEFAULT_TIMEOUTS
        extras = self.settings.extras
        return await probe_server(client, build_draft(run), extras=extras, timeouts=timeouts)

    def create_session(self, client: CompletionClient, probe_result: ProbeResult) -> ArmSession:
        """Return the session of a probed arm; note what its records will lack."""
        arm = probe_result.arm
        if client.proxy is not None:
            self.note(describe_proxy(arm.name, client.proxy))
        for sentence in probe_result.notes:
            self.note(sentence)
        for extra in sorted(self.settings.extras):
            if not getattr(arm.offers, extra):
                self.note(f"{arm.name} does not give {extra}, so its records have none")
        return ArmSession(
            name=arm.name,
            client=client,
            offers=arm.offers,
            models=probe_result.models,
            breaker=CircuitBreaker(client, self.stop, self.notify, self.wait_s),
            placement=arm.placement,
        )
