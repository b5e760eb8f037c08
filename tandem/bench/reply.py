"""What came back for one request, as it came: bytes and their times, nothing understood yet.

Invariant: every read of the body stands here in order with the time it was taken from the socket; `tandem.bench.answer`
gives them their meaning after the request has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tandem.bench.response_limits import STREAM_BYTES

NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class ServerReply:
    """One request's reply. Times are nanoseconds of CLOCK_MONOTONIC.

    Args:
        start_ns: just before the request's bytes went to the socket; where none did, when the request was begun.
        headers_ns: when the response's headers had come; None where none came.
        reads: time and raw bytes of each read of the body (transfer coding taken off, content coding left on).
        end_ns: when the stream ended, or failed, or was cut.
        status: HTTP status; None where none came.
        content_type: the response's, lower case, without parameters.
        content_encoding: the response's, lower case; empty for none.
        error: what went wrong on the wire, one word of `tandem.bench.record.ERROR_WORDS` or `status_<code>`; None for
            nothing. What the bytes say is judged by `answer.read`.
        error_detail: what was seen, for a person.
        retry_after_s: what a Retry-After header asked for.
        had_open_connection: whether the connection was open before the request; None where there was none.
        reconnects: 1 where it was asked again on a fresh connection, because the reused one died before any byte; all
            times are then those of the second asking.
        claims_keep_alive: whether the response lets another request follow on its connection.
        server_header: what the response's Server header says; None where it has none.
        url: what was asked, for messages.
        simulated_header: value of the header by which a server announces that it is simulated; None where there is
            none.
        limit_bytes: how many bytes the body may have, before and after decompression.
        excess: the sentence that says how the body exceeded its limit; None where it did not.
    """

    start_ns: int
    headers_ns: int | None = None
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    end_ns: int = 0
    status: int | None = None
    content_type: str = ""
    content_encoding: str = ""
    error: str | None = None
    error_detail: str | None = None
    retry_after_s: float | None = None
    had_open_connection: bool | None = None
    reconnects: int = 0
    claims_keep_alive: bool = False
    server_header: str | None = None
    url: str = "the server"
    simulated_header: str | None = None
    limit_bytes: int = STREAM_BYTES
    excess: str | None = None

    @property
    def start_s(self) -> float:
        """Seconds of CLOCK_MONOTONIC, as a record has it."""
        return self.start_ns / NS_PER_S

    @property
    def headers_s(self) -> float | None:
        """Seconds from the start to the response's headers."""
        return None if self.headers_ns is None else (self.headers_ns - self.start_ns) / NS_PER_S

    @property
    def end_s(self) -> float:
        """Seconds from the start to the end."""
        return (self.end_ns - self.start_ns) / NS_PER_S
