"""Whole runs against independent servers, over real HTTP, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from independent_server import MODEL, Schedule, Server
from planned import suite_file

from tandem.bench.load.run import MeasurementRun, RunOutcome
from tandem.bench.plan.request_plan import RunPlan
from tandem.bench.plan.settings import RunSettings, draft_manifest
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.records.record import RequestRecord, read_records
from tandem.bench.suites.suite import load_suite

QUICK = Schedule(ttft_ms=4, step_ms=1, tokens=4)
METRICS = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total {}\n"


class Counting(Server):
    """An independent server that counts its tokens on /metrics, too."""

    async def _answer_get(self, connection, request):
        if request.path != "/metrics":
            await super()._answer_get(connection, request)
            return
        tokens = sum(size for truth in self.posted for _, size in truth["bursts"])
        await connection.whole(
            "200 OK", "text/plain; version=0.0.4", METRICS.format(tokens).encode()
        )


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    outcome: RunOutcome
    folder: Path
    servers: Sequence[Server]
    said: str
    plan: RunPlan

    @property
    def records(self) -> list[RequestRecord]:
        return list(read_records(self.folder / "records.jsonl"))

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())


def settings(ports: Sequence[int], suite: Path, **changes: Any) -> RunSettings:
    """A small run: no warm-up, concurrency 2, arms a, b, ...; what is changed is the manifest's or
    the settings'."""
    arms = tuple(
        ManifestArm(
            name="abcdef"[place],
            role="variant" if place else "baseline",
            url=f"http://127.0.0.1:{port}",
            model=MODEL,
        )
        for place, port in enumerate(ports)
    )
    fields: dict[str, Any] = {"suites": (load_suite(suite),), "concurrency": (2,), "warm_up": 0}
    fields |= {name: changes.pop(name) for name in RunSettings.__slots__ if name in changes}
    defaults: dict[str, Any] = {
        "arms": arms,
        "schedule": "interleaved",
        "seed": 0,
        "api": "chat",
        "rounds": 1,
    }
    return RunSettings(manifest=draft_manifest(**(defaults | changes)), **fields)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another task does."""
    while not true():  # noqa: ASYNC110 - it has no event of its own
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def serving(schedules: Sequence[Schedule], at: Sequence[int]) -> AsyncIterator[list[Server]]:
    """Start one server for each schedule, on ports of their own or `at` given ones."""
    ports = [*at, *[0] * len(schedules)]
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Counting(schedule, port=port))
            for schedule, port in zip(schedules, ports, strict=False)
        ]


def measure(
    folder: Path,
    prompts: dict[str, Sequence[str]] | None = None,
    *,
    schedules: Sequence[Schedule] = (QUICK, QUICK),
    meanwhile: Callable[[Sequence[Server], MeasurementRun], Awaitable[None]] | None = None,
    wait_s: float = 5.0,
    resume: bool = False,
    ports: Sequence[int] | None = None,
    at: Sequence[int] = (),
    on_round: Callable[[int, float], None] | None = None,
    only_round: int | None = None,
    **changes: Any,
) -> Ran:
    """Run once into `folder`/out; `meanwhile` goes on beside it."""
    suite = suite_file(folder, prompts or {"code": ["a", "b", "c", "d"]})
    screen = io.StringIO()

    async def main() -> Ran:
        async with serving(schedules, at) as servers:
            run_settings = settings(ports or [server.port for server in servers], suite, **changes)
            run = MeasurementRun(
                settings=run_settings,
                folder=folder / "out",
                out=screen,
                wait_s=wait_s,
                resume=resume,
                on_round=on_round,
                only_round=only_round,
            )
            task = asyncio.create_task(meanwhile(servers, run)) if meanwhile else None
            outcome = await run.run()
            if task is not None:
                await task
            return Ran(outcome, folder / "out", servers, screen.getvalue(), run.plan)

    return uvloop.run(main())
