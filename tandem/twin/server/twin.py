"""The twin inside this process, on a thread of its own: for tests and for whoever starts it by hand.

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

from tandem.twin.server.app import Server
from tandem.twin.server.knobs import Knobs, checked
from tandem.twin.server.start import require_artifact
from tandem.twin.server.truth import Truth, TruthLog

_STARTS_S = 30.0


class Twin:
    """One running twin; a context manager.

    Args:
        knobs: what it is. log: file of its truth log; None keeps the truth in memory.

    Raises:
        SpecError: the knobs contradict each other.
        ArtifactError: the artifact that it needs is not there.
    """

    def __init__(self, knobs: Knobs, log: Path | None = None, *, port: int = 0) -> None:
        self._knobs, self._port = checked(knobs), port
        self._log_path = log
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._log: TruthLog | None = None
        self._server: Server | None = None

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        assert self._server is not None
        return self._server.url

    @property
    def truth(self) -> list[Truth]:
        """Return the requests that have ended, where no file takes them."""
        assert self._log is not None
        return self._log.requests

    def start(self) -> Self:
        """Listen; it may still take its start-up time until /health says 200."""
        if self._knobs.start.artifact is not None:
            require_artifact(self._knobs.start.artifact)
        self._log = TruthLog(self._knobs, self._log_path)
        self._server = Server(self._knobs, self._log)
        self._thread.start()
        try:
            self._do(self._server.start(self._port))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Cut what is open and end."""
        if self._server is not None:
            self._do(self._server.stop())
            self._server = None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STARTS_S)
        if self._log is not None:
            self._log.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_STARTS_S)
