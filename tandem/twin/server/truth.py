"""The truth log: what the server did, by its own clock, one JSON line for each request when it has ended.

Invariant: a line is written whole and flushed before anything else of the server happens; times are seconds of
CLOCK_MONOTONIC, which every process of the machine shares. The first line holds the knobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tandem.twin.server.knobs import Knobs


class Truth(msgspec.Struct, kw_only=True):
    """One request.

    Args:
        request_id: from X-Request-Id, else the twin's own.
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


class TruthLog:
    """Appends to one file, or keeps lines in memory where no file is named.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, knobs: Knobs, path: Path | None = None) -> None:
        self.requests: list[Truth] = []
        self._file: BinaryIO | None = path.open("ab", buffering=0) if path else None
        self._line({"knobs": knobs.model_dump(mode="json"), "monotonic_s": time.monotonic()})

    def request(self, truth: Truth) -> None:
        """Write one request."""
        if self._file is None:
            self.requests.append(truth)
        else:
            self._line(truth)

    def event(self, what: str, **more: Any) -> None:
        """Write what is no request: a restart."""
        self._line({"event": what, "at_s": time.monotonic(), **more})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _line(self, what: Any) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(what) + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A log as it was read: the knobs of its first line, its events, its requests in the order of their ends."""

    knobs: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    requests: tuple[Truth, ...]


def read_truth(path: Path) -> Told:
    """Read a truth log; a last line that was cut off is passed over.

    Raises:
        ValueError: a line in its middle is none of a truth log.
    """
    lines = list(_lines(path))
    knobs = [line["knobs"] for line in lines if "knobs" in line]
    return Told(
        knobs=knobs[0] if knobs else {},
        events=tuple(line for line in lines if "event" in line),
        requests=tuple(msgspec.convert(line, Truth) for line in lines if "request_id" in line),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    content = path.read_bytes().split(b"\n")
    for line in content[:-1]:  # what follows the last line break is nothing, or was cut off
        yield msgspec.json.decode(line)
