"""The raw reply to one request: bytes and their times, and the events and pages in the bytes.

Invariant: a reply has every read of the body, in order, with the time of the read; every event has
the time of the read that completed it. `tandem.bench.load.answer` parses the events after the end
of the request.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import math
import re
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

from tandem.bench.load.event import (
    DETAIL_CHARACTERS,
    EventError,
    decode_event,
    describe_error,
    format_bytes,
    read_event,
)
from tandem.bench.load.sse import EventSplitter, ServerEvent
from tandem.bench.plan.server_access import NO_ACCESS, ServerAccess

NS_PER_S = 1_000_000_000
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]*)?")


@dataclass(slots=True)
class ServerReply:
    """One request's reply. Times are nanoseconds of CLOCK_MONOTONIC.

    Args:
        start_ns: just before the request's bytes went to the socket; if none did, the creation of
            the request.
        headers_ns: arrival of the response's headers; None if none came.
        reads: time and bytes of each read of the body, after decoding of content codings.
        end_ns: end, failure or cut of the stream.
        status: HTTP status; None if none came.
        headers: of the response; names ignore case; empty if none came.
        error: fault on the wire, one word of `tandem.bench.records.record.ERROR_WORDS` or
            `status_<code>`, or None. `answer.parse_answer` finds faults in the bytes.
        error_detail: the fault, for a person.
        error_number: the system's number of a fault of the connection to the server; None for any
            other fault, and for a connection to a proxy.
        had_open_connection: whether the connection was open before the request; None without a
            connection.
        reconnects: 1 if the client sent the request again on a new connection, because the reused
            one died before the answer's head; all times are then those of the second sending.
        url: of the request, for messages.
        limit_bytes: most bytes of the body, after decompression.
        access: secrets of the request, which no record may repeat.
        repeats_secret: whether the body repeated one of them, before it was hidden there.
    """

    start_ns: int
    headers_ns: int | None = None
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    end_ns: int = 0
    status: int | None = None
    headers: MutableMapping[str, str] = field(default_factory=dict)
    error: str | None = None
    error_detail: str | None = None
    error_number: int | None = None
    had_open_connection: bool | None = None
    reconnects: int = 0
    url: str = "the server"
    limit_bytes: int = 0
    access: ServerAccess = NO_ACCESS
    repeats_secret: bool = False

    @property
    def start_s(self) -> float:
        """Start in seconds of CLOCK_MONOTONIC, as in a record."""
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
        """All bytes of the body so far."""
        return b"".join(piece for _, piece in self.reads)

    @property
    def content_type(self) -> str:
        """Content type of the response, lower case, without parameters; empty if absent."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def retry_after_s(self) -> float | None:
        """Seconds to wait by the Retry-After header, from 0; None if it is absent or unreadable.

        The header has seconds or a date (RFC 9110 10.2.3), from some gateways a fraction. A date
        counts from the date of the answer, else from the whole second in which its headers came:
        both are cut to whole seconds.
        """
        value = self.headers.get("Retry-After", "").strip()
        if _DECIMAL.fullmatch(value):
            return float(value)
        moment_s = _parse_http_date(value)
        if moment_s is None:
            return None
        answer_s = _parse_http_date(self.headers.get("Date", ""))
        if answer_s is None:
            age_ns = time.monotonic_ns() - (self.headers_ns or self.start_ns)
            answer_s = math.floor(time.time() - age_ns / NS_PER_S)
        return max(0.0, moment_s - answer_s)

    def since_start_s(self, at_ns: int) -> float:
        """Return a time as seconds from the start."""
        return (at_ns - self.start_ns) / NS_PER_S


def _parse_http_date(text: str) -> float | None:
    """Return a date of HTTP in seconds of Unix time; None if the text is none.

    All three forms of RFC 9110 5.6.7 are read; one without a zone is UTC.
    """
    try:
        moment = email.utils.parsedate_to_datetime(text.strip())
    except (ValueError, TypeError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def split_events(
    reply: ServerReply, splitter: EventSplitter
) -> Iterator[tuple[float, ServerEvent]]:
    """Yield each event with the seconds from the request's start to the read that completed it."""
    for at_ns, piece in reply.reads:
        for event in splitter.feed(piece):
            yield reply.since_start_s(at_ns), event


def read_page(reply: ServerReply) -> bytes:
    """Return the bytes of a page.

    Raises:
        EventError: the request failed, or the page is too long.
    """
    if reply.error is not None:
        raise EventError(reply.error, reply.error_detail or describe_refusal(reply) or "")
    return reply.body


def describe_foreign_body(reply: ServerReply) -> EventError:
    """Return the fault of a body that is no event stream."""
    body = reply.body.strip()
    if body[:1] not in {b"{", b"["} and "json" not in reply.content_type:
        kind = reply.content_type or "of no type"
        return EventError(
            "not_sse", f"the answer is {kind}, not text/event-stream: {format_bytes(body)}"
        )
    try:
        fields = read_event(body)
    except EventError as error:
        return error
    if not isinstance(fields.get("choices"), list) and not isinstance(fields.get("usage"), dict):
        return EventError("no_choices", f"an event has no choices: {format_bytes(body)}")
    return EventError(
        "not_sse", f"the answer came whole instead of as a stream: {format_bytes(body)}"
    )


def describe_refusal(reply: ServerReply) -> str | None:
    """Return the message in the body of a refusal; None if there is none."""
    body = reply.body.strip()
    if body == b"{}":
        return None
    text = " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())
    if body[:1] == b"{":
        with contextlib.suppress(EventError):
            text = describe_error(decode_event(body))
    return text[:DETAIL_CHARACTERS] or None
