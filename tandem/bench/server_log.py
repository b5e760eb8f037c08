"""What a server says it did, beside what was measured of it.

Invariant: the truth is counted from the server's own log by arithmetic of this module, never by `derive`, so that a
mistake there shows as a difference. Server and client must share a monotonic clock: one machine, two processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tandem.bench.fault import BenchError


class ServerLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its server logged it.

    Args:
        request_id: what the client sent as X-Request-Id.
        accepted_s: when the request's body had been read, on the monotonic clock.
        bursts: of every chunk with tokens: when it was written, on the same clock, and how many tokens it held.
        fault: what the server was told to do wrong; None for an honest answer.
    """

    request_id: str
    accepted_s: float
    bursts: tuple[tuple[float, int], ...] = ()
    fault: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens of the whole answer."""
        return sum(tokens for _, tokens in self.bursts)

    @property
    def ttft_ms(self) -> float:
        """From accepting the request to its first burst."""
        return (self.bursts[0][0] - self.accepted_s) * 1000

    @property
    def e2e_ms(self) -> float:
        """From accepting the request to its last burst."""
        return (self.bursts[-1][0] - self.accepted_s) * 1000

    @property
    def tpot_ms(self) -> float | None:
        """Time per token after the first burst's; None for a single token."""
        return (self.e2e_ms - self.ttft_ms) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def chunk_gap_ms(self) -> float | None:
        """Mean time between two bursts; None for a single one."""
        return (self.e2e_ms - self.ttft_ms) / (len(self.bursts) - 1) if len(self.bursts) > 1 else None

    @property
    def tokens_per_chunk(self) -> float:
        """Tokens by bursts."""
        return self.tokens / len(self.bursts)

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens by the whole time of the request."""
        return self.tokens / self.e2e_ms * 1000


@dataclass(frozen=True, slots=True)
class _LogLine:
    path: Path
    number: int
    text: bytes


def read_log(path: Path) -> dict[str, ServerLogEntry]:
    """Return what a server logged, by request id; requests that got no token at all are left out.

    Args:
        path: JSON lines; those without a `request_id` (the log's head) are passed over.

    Raises:
        BenchError: the file cannot be read, or a line of it is no such JSON.
    """
    entries = (_decode_entry(line) for line in _read_lines(path))
    return {entry.request_id: entry for entry in entries if entry is not None and entry.bursts}


def read_logs(paths: Sequence[Path]) -> dict[str, ServerLogEntry]:
    """Return the logs of several servers as one."""
    return {request_id: entry for path in paths for request_id, entry in read_log(path).items()}


def _read_lines(path: Path) -> Iterator[_LogLine]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchError(
            f"the server's log cannot be read: {error.strerror or error}",
            where=str(path),
            change="name the file that the server was started to log to",
        ) from error
    complete = content[: content.rfind(b"\n") + 1]  # a server that was killed may have left half a line
    yield from (_LogLine(path, number, text) for number, text in enumerate(complete.splitlines(), 1) if text)


class _LogHeader(msgspec.Struct):
    request_id: str | None = None


def _decode_entry(line: _LogLine) -> ServerLogEntry | None:
    try:
        if msgspec.json.decode(line.text, type=_LogHeader).request_id is None:
            return None
        return msgspec.json.decode(line.text, type=ServerLogEntry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BenchError(
            f"this is no line of a server's log: {error}",
            where=f"{line.path}:{line.number}",
            change="name the log of the server that was measured",
        ) from error
