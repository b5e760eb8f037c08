"""The truth log: what the server did, by its own clock, one JSON line for each request when it has ended.

Invariant: a line is written whole and flushed before anything else of the server happens; times are seconds of
CLOCK_MONOTONIC, which every process of the machine shares. The first line holds the knobs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tandem.simulator.settings import SimulatorSettings


class RequestLogEntry(msgspec.Struct, kw_only=True):
    """One request.

    Args:
        request_id: from X-Request-Id, else the simulator's own.
        number: of acceptance since the server started, from 1.
        class_: "class" in the file.
        api, stream: how it was asked.
        status: HTTP status that was sent.
        accepted_s: when its whole body had been read.
        queued_s: from then until its prefill began.
        bursts: when each was handed to the socket, and the tokens it held; the role and the usage are no bursts.
        due_s: when each of them should have been written.
        prompt_tokens, completion_tokens, reasoning_tokens: the true counts, whatever a fault told.
        drawn: what the model committed at each decode step, before the last was cut.
        finish_reason: stop or length; null for a request that did not end in order.
        stop: the stop string that ended it.
        fault: what was done to it on purpose; `gone` when its client left.
        ended_s: when its last byte was handed to the socket, or it ended otherwise.
    """

    request_id: str
    number: int
    class_: str = msgspec.field(name="class", default="")
    api: str = ""
    stream: bool = False
    status: int = 200
    accepted_s: float
    queued_s: float | None = None
    bursts: list[tuple[float, int]] = []
    due_s: list[float] = []
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    drawn: list[int] = []
    finish_reason: str | None = None
    stop: str | None = None
    fault: str | None = None
    ended_s: float = 0.0


class ServerLog:
    """Appends to one file; without one it logs nothing.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, settings: SimulatorSettings, path: Path | None = None) -> None:
        self._file: BinaryIO | None = path.open("ab", buffering=0) if path else None
        self._write_line({"knobs": settings.model_dump(mode="json"), "monotonic_s": time.monotonic()})

    def write_request(self, entry: RequestLogEntry) -> None:
        """Write one request."""
        self._write_line(entry)

    def write_event(self, event_name: str, **fields: Any) -> None:
        """Write what is no request: a restart."""
        self._write_line({"event": event_name, "at_s": time.monotonic(), **fields})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write_line(self, document: Any) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(document) + b"\n")
