"""What came back for one request, as it came: bytes and their times; and the events and pages that the bytes hold.

Invariant: every read of the body stands here in order with the time it was taken from the socket; every event has the
time of the read that completed it, whatever coding was on the bytes. `tandem.bench.answer` gives the events their
meaning after the request has ended.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tandem.bench.event import DETAIL_CHARACTERS, EventError, decode_event, describe_error, format_bytes, read_event
from tandem.bench.response_limits import EVENT_BYTES, INFLATED_PIECE_BYTES, STREAM_BYTES, describe_excess
from tandem.bench.sse import EventSplitter

NS_PER_S = 1_000_000_000
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


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
            nothing. What the bytes say is judged by `answer.parse_answer`.
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
        return None if self.headers_ns is None else self.since_start_s(self.headers_ns)

    @property
    def end_s(self) -> float:
        """Seconds from the start to the end."""
        return self.since_start_s(self.end_ns)

    @property
    def body(self) -> bytes:
        """All bytes that came, content coding left on."""
        return b"".join(piece for _, piece in self.reads)

    def since_start_s(self, at_ns: int) -> float:
        """Return a time as seconds from the start."""
        return (at_ns - self.start_ns) / NS_PER_S


def split_events(reply: ServerReply, splitter: EventSplitter) -> Iterator[tuple[float, bytes]]:
    """Yield each event's data with the seconds from the request's start to the read that completed it.

    Raises:
        EventError: the content coding cannot be undone, or an event or the body is too long.
    """
    for at_ns, piece in decode_reads(reply):
        for data in splitter.feed(piece):
            yield reply.since_start_s(at_ns), data
        if splitter.has_excess:
            raise EventError("endless", describe_excess(f"one event of {reply.url}", EVENT_BYTES))


def decode_reads(reply: ServerReply) -> Iterator[tuple[int, bytes]]:
    """Yield time and plain bytes of each read, of a compressed one in pieces of INFLATED_PIECE_BYTES at most.

    Raises:
        EventError: a content coding that was not asked for and is not gzip or deflate, or is broken; or the plain
            bytes are more than the reply may have.
    """
    coding = reply.content_encoding
    if coding in {"", "identity"}:
        yield from reply.reads
        return
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise EventError("decode", f"the body is coded as {coding}, though identity was asked for")
    inflate, size = zlib.decompressobj(GZIP_OR_ZLIB), 0
    try:
        for at_ns, packed in reply.reads:
            rest = packed
            while plain := inflate.decompress(rest, INFLATED_PIECE_BYTES):
                rest, size = inflate.unconsumed_tail, size + len(plain)
                if size > reply.limit_bytes:
                    raise EventError("endless", describe_excess(f"{reply.url}, decompressed,", reply.limit_bytes))
                yield at_ns, plain
    except zlib.error as error:
        raise EventError("decode", f"the body's {coding} coding is broken: {error}") from error


def read_page(reply: ServerReply) -> bytes:
    """Return the plain bytes of a page.

    Raises:
        EventError: the request failed, or the page is too long or coded in a way that cannot be undone.
    """
    if reply.error is not None:
        raise EventError(reply.error, reply.error_detail or describe_refusal(reply) or "")
    return b"".join(piece for _, piece in decode_reads(reply))


def describe_foreign_body(reply: ServerReply) -> EventError:
    """Return what a body that is no event stream is."""
    body = b"".join(piece for _, piece in decode_reads(reply)).strip()
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
    if reply.excess is not None:
        return f"{reply.excess}; it begins with {_strip_tags(reply.body[:DETAIL_CHARACTERS])}"[:DETAIL_CHARACTERS]
    try:
        body = b"".join(piece for _, piece in decode_reads(reply)).strip()
        if body == b"{}":
            return None
        text = describe_error(decode_event(body)) if body[:1] == b"{" else _strip_tags(body)
    except EventError as error:
        text = error.detail if error.word == "endless" else _strip_tags(reply.body)
    return text[:DETAIL_CHARACTERS] or None


def _strip_tags(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())
