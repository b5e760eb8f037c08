"""One request over a real socket: an independent server, the client, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvloop
from independent_server import MODEL, Schedule, Server
from measured import arm

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.load.reply import ServerReply
from tandem.bench.plan.run_options import ApiName
from tandem.bench.plan.server_access import NO_ACCESS, ServerAccess
from tandem.bench.records.manifest import ServerOffers, Timeouts
from tandem.bench.records.record import RequestRecord

EVERYTHING = ServerOffers(include_usage=True, continuous_usage=True, token_ids=True, logprobs=True)
LONG = Timeouts(connect_s=20, first_token_s=20, gap_s=20, whole_s=20)
QUICK: dict[str, Any] = {"ttft_ms": 3.0, "step_ms": 1.0}
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Came:
    """What came of a request."""

    reply: ServerReply
    answer: RequestRecord
    server: Server


def asking(**fields: Any) -> CompletionRequest:
    """A small request."""
    options: dict[str, Any] = {"request_id": "r-1", "prompt": "count to ten", "max_tokens": 16}
    return CompletionRequest(**(options | fields))


def run(
    what: Callable[[CompletionClient, Server], Awaitable[T]],
    schedule: Schedule | None = None,
    *,
    limit: int = 4,
    api: ApiName = "chat",
    access: ServerAccess = NO_ACCESS,
    **fields: Any,
) -> T:
    """Run `what` on uvloop against a server of its own."""

    async def main() -> T:
        async with Server(schedule or Schedule(**QUICK)) as served:
            entry = arm(
                "arm", **({"url": f"http://127.0.0.1:{served.port}", "model": MODEL} | fields)
            )
            async with CompletionClient(entry, limit=limit, api=api, access=access) as client:
                return await what(client, served)

    return uvloop.run(main())


def come(
    ask: CompletionRequest | None = None,
    *,
    outs: Timeouts = LONG,
    api: ApiName = "chat",
    models: frozenset[str] = frozenset(),
    **schedule: Any,
) -> Came:
    """Ask once and read the answer."""
    request = ask or asking()

    async def what(client: CompletionClient, server: Server) -> Came:
        reply = await client.send_request(request, outs)
        return Came(reply, answer.parse_answer(reply, request, models), server)

    return run(what, Schedule(**(QUICK | schedule)), api=api)
