"""One request over a real socket: an independent server, the client, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvloop
from independent_server import MODEL, Schedule, Server

from tandem.bench import answer, wire
from tandem.bench.answer import Answer
from tandem.bench.client import Client
from tandem.bench.manifest import Offers
from tandem.bench.reply import Reply
from tandem.bench.wire import Ask, TimeOuts

EVERYTHING = Offers(include_usage=True, continuous_usage=True, token_ids=True, logprobs=True)
LONG = TimeOuts(connect_s=20, first_token_s=20, gap_s=20, whole_s=20)
QUICK: dict[str, Any] = {"ttft_ms": 3.0, "step_ms": 1.0}
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Came:
    """What came of a request."""

    reply: Reply
    answer: Answer
    server: Server


def asking(**fields: Any) -> Ask:
    """A small request."""
    given: dict[str, Any] = {"request_id": "r-1", "prompt": "count to ten", "max_tokens": 16}
    return Ask(**(given | fields))


def address(server: Server, **fields: Any) -> wire.Server:
    """How the client names `server`."""
    return wire.Server(**({"name": "arm", "url": f"http://127.0.0.1:{server.port}", "model": MODEL} | fields))


def run(
    what: Callable[[Client, Server], Awaitable[T]], schedule: Schedule | None = None, *, limit: int = 4, **server: Any
) -> T:
    """Run `what` on uvloop against a server of its own."""

    async def main() -> T:
        async with (
            Server(schedule or Schedule(**QUICK)) as served,
            Client(address(served, **server), limit=limit) as client,
        ):
            return await what(client, served)

    return uvloop.run(main())


def come(
    ask: Ask | None = None,
    *,
    outs: TimeOuts = LONG,
    api: str = "chat",
    models: frozenset[str] = frozenset(),
    **schedule: Any,
) -> Came:
    """Ask once and read the answer."""
    asked = ask or asking()

    async def what(client: Client, server: Server) -> Came:
        reply = await client.ask(asked, outs)
        return Came(reply, answer.read(reply, asked, models), server)

    return run(what, Schedule(**(QUICK | schedule)), api=api)
