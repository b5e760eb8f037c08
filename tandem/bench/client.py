"""One request on the wire, measured right."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tandem.bench.reply import Reply
from tandem.bench.wire import Ask, Server, TimeOuts


class Client:
    """Asks one server. An async context manager; one per arm.

    Args:
        server: whom to ask.
        limit: connections at most, the concurrency; 0 for no limit (an open loop).
        trust_env: use the proxies that HTTP_PROXY and the like name.
    """

    def __init__(self, server: Server, *, limit: int, trust_env: bool = False) -> None:
        self.server = server

    async def __aenter__(self) -> Self:
        """Open the session; no connection yet."""
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""

    async def open_connections(self, count: int) -> int:
        """Open connections until `count` are open and idle; return how many are. Never raises for a server."""
        raise NotImplementedError

    async def ask(self, ask: Ask, outs: TimeOuts) -> Reply:
        """Send one request, once, and return its reply; never raises for what the server does."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Cut every request in flight: each `ask` returns at once with the error `interrupted` and what it has."""
        raise NotImplementedError
