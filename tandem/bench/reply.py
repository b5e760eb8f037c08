"""What came back for one request, as it came: bytes and their times; and the events and pages that the bytes hold.

Invariant: every read of the body stands here in order with the time it was taken from the socket; every event has the
time of the read that completed it. `tandem.bench.answer` gives the events their meaning after the request has ended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tandem.bench.event import DETAIL_CHARACTERS, EventError, decode_event, describe_error, format_bytes, read_event
from tandem.bench.sse import EventSplitter

NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class ServerReply:
    """One request's reply. Times are nanoseconds of CLOCK_MONOTONIC.

    Args:
        start_ns: just before the request's bytes went to the socket; where none did, when the request was begun.
        headers_ns: when the response's headers had come; None where none came.
        reads: time and bytes of each read of the body, codings taken off.
        end_ns: when the stream ended, or failed, or was cut.
        status: HTTP status; None where none came.
        headers: the response's, found by names in any case; empty where none came.
        error: what went wrong on the wire, one word of `tandem.bench.record.ERROR_WORDS` or `status_<code>`; None for
            nothing. What the bytes say is judged by `answer.parse_answer`.
        error_detail: what was seen, for a person.
        had_open_connection: whether the connection was open before the request; None where there was none.
        reconnects: 1 where it was asked again on a fresh connection, because the reused one died before the answer's
            head; all times are then those of the second asking.
        url: what was asked, for messages.
        limit_bytes: how many bytes the body may have, after decompression.
    """

    start_ns: int
    headers_ns: int | None = None
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    end_ns: int = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    error_detail: str | None = None
    had_open_connection: bool | None = None
    reconnects: int = 0
    url: str = "the server"
    limit_bytes: int = 0

    @property
    def start_s(self) -> float:
        """Seconds of CLOCK_MONOTONIC, as a record has it."""
        return self.start_ns / NS_PER_S

    @property
    def headers_s(self) -> float | None:
        """Seconds from the start to the response's headers."""
        return None if self.headers_ns is None else self.since_start_s(self.headers_ns)

    @property
    def end_s(self) -> float:
        """Seconds from the start to the end."""
        return self.since_start_s(self.end_ns)

    @property
    def body(self) -> bytes:
        """All bytes that came."""
        return b"".join(piece for _, piece in self.reads)

    @property
    def content_type(self) -> str:
        """The response's, lower case, without parameters; empty for none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def retry_after_s(self) -> float | None:
        """The seconds that a Retry-After header asks for."""
        value = self.headers.get("Retry-After", "").strip()
        return float(value) if value.isdecimal() else None

    def since_start_s(self, at_ns: int) -> float:
        """Return a time as seconds from the start."""
        return (at_ns - self.start_ns) / NS_PER_S


def split_events(reply: ServerReply, splitter: EventSplitter) -> Iterator[tuple[float, bytes]]:
    """Yield each event's data with the seconds from the request's start to the read that completed it."""
    for at_ns, piece in reply.reads:
        for data in splitter.feed(piece):
            yield reply.since_start_s(at_ns), data


def read_page(reply: ServerReply) -> bytes:
    """Return the bytes of a page.

    Raises:
        EventError: the request failed, or the page is too long.
    """
    if reply.error is not None:
        raise EventError(reply.error, reply.error_detail or describe_refusal(reply) or "")
    return reply.body


def describe_foreign_body(reply: ServerReply) -> EventError:
    """Return what a body that is no event stream is."""
    body = reply.body.strip()
    if body[:1] not in {b"{", b"["} and "json" not in reply.content_type:
        kind = reply.content_type or "of no type"
        return EventError("not_sse", f"the answer is {kind}, not text/event-stream: {format_bytes(body)}")
    try:
        read_event(body)
    except EventError as error:
        return error
    return EventError("not_sse", f"the answer came whole instead of as a stream: {format_bytes(body)}")


def describe_refusal(reply: ServerReply) -> str | None:
    """Return what the body of a refusal says; None for nothing."""
    body = reply.body.strip()
    if body == b"{}":
        return None
    text = " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())
    if body[:1] == b"{":
        with contextlib.suppress(EventError):
            text = describe_error(decode_event(body))
    return text[:DETAIL_CHARACTERS] or None
