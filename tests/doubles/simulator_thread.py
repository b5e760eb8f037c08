"""The simulator inside this process, on a thread of its own: for tests and for whoever starts it by
hand.

Invariant: after `stop` its port refuses and its thread has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from tandem.simulator.server import SimulatorServer
from tandem.simulator.server_log import RequestLogEntry, ServerLog
from tandem.simulator.settings import SimulatorSettings

_TIMEOUT_S = 30.0


class _MemoryLog(ServerLog):
    """A truth log that keeps its requests."""

    def __init__(self, settings: SimulatorSettings, path: Path | None) -> None:
        super().__init__(settings, path)
        self.requests: list[RequestLogEntry] = []

    def write_request(self, entry: RequestLogEntry) -> None:
        """Keep and write one request."""
        self.requests.append(entry)
        super().write_request(entry)


class SimulatorThread:
    """One running simulator; a context manager.

    Args:
        settings: what it is. log: file of its truth log; the truth is kept in memory too.
    """

    def __init__(self, settings: SimulatorSettings, log: Path | None = None) -> None:
        self._settings = settings
        self._log_path = log
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._log: _MemoryLog | None = None
        self._server: SimulatorServer | None = None

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return self._server.url

    @property
    def log_entries(self) -> list[RequestLogEntry]:
        """Return the requests that have ended."""
        return self._log.requests

    def start(self) -> Self:
        """Listen; it may still take its start-up time until /health says 200."""
        self._log = _MemoryLog(self._settings, self._log_path)
        self._server = SimulatorServer(self._settings, self._log)
        self._thread.start()
        try:
            self._run_coroutine(self._server.start(0))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Cut what is open and end."""
        if self._server is not None:
            self._run_coroutine(self._server.stop())
            self._server = None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT_S)
        if self._log is not None:
            self._log.close()

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_S)
