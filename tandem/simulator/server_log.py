"""The truth log: the server's actions by its own clock, one JSON line per request after its end.

Invariant: a line is written whole and flushed before the server does anything else; times are
seconds of CLOCK_MONOTONIC, which every process of the machine shares. The first line has the knobs.
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
        class_: prompt class; "class" in the file.
        api, stream: of the request.
        status: HTTP status of the answer.
        accepted_s: time at which the whole body had been read.
        queued_s: seconds from then until the prefill began.
        bursts: time of the handover to the socket and tokens of each burst; the role and the usage
            are no bursts.
        due_s: planned time of each burst.
        prompt_tokens, completion_tokens, reasoning_tokens: the true counts, even if a fault reports
            others.
        drawn: tokens that the model committed at each decode step, before the cut of the last.
        finish_reason: stop or length; null for a request without a regular end.
        stop: the stop string that ended the answer.
        fault: the fault from the knobs; `gone` if the client left.
        ended_s: time at which the last byte was handed to the socket, or of another end.
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
    """The log file, appended to; without a path nothing is logged.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, settings: SimulatorSettings, path: Path | None = None) -> None:
        self._file: BinaryIO | None = path.open("ab", buffering=0) if path else None
        self._write_line(
            {"knobs": settings.model_dump(mode="json"), "monotonic_s": time.monotonic()}
        )

    def write_request(self, entry: RequestLogEntry) -> None:
        """Write the line of one request."""
        self._write_line(entry)

    def write_restart(self, seconds: float) -> None:
        """Write the line of a restart that takes so many seconds."""
        self._write_line({"event": "restart", "at_s": time.monotonic(), "seconds": seconds})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write_line(self, document: Any) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(document) + b"\n")
