"""A reply's body: plain bytes out of what came, events out of bytes, and what a body is that holds no events.

Invariant: every event has the time of the read that completed it, whatever coding was on the bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from tandem.bench.event import (
    DETAIL_CHARACTERS,
    EventError,
    check_message,
    decode_event,
    error_message,
    first_choice,
    format_bytes,
)
from tandem.bench.reply import NS_PER_S, ServerReply
from tandem.bench.response_limits import EVENT_BYTES, INFLATED_PIECE_BYTES, describe_excess
from tandem.bench.sse import EventSplitter

GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def split_events(reply: ServerReply, splitter: EventSplitter) -> Iterator[tuple[float, bytes]]:
    """Yield each event's data with the seconds from the request's start to the read that completed it.

    Raises:
        EventError: the content coding cannot be undone, or an event or the body is too long.
    """
    for at_ns, piece in decode_reads(reply):
        payloads = splitter.feed(piece)
        if payloads:
            at_s = seconds_since_start(reply, at_ns)
            for data in payloads:
                yield at_s, data
        if splitter.has_excess:
            raise EventError("endless", describe_excess(f"one event of {reply.url}", EVENT_BYTES))


def seconds_since_start(reply: ServerReply, at_ns: int) -> float:
    """Return a time as seconds from the request's start."""
    return (at_ns - reply.start_ns) / NS_PER_S


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
    for at_ns, piece in reply.reads:
        for plain in _inflate_piece(inflate, piece, coding):
            size += len(plain)
            if size > reply.limit_bytes:
                raise EventError("endless", describe_excess(f"{reply.url}, decompressed,", reply.limit_bytes))
            yield at_ns, plain


def _inflate_piece(inflate: zlib._Decompress, piece: bytes, coding: str) -> Iterator[bytes]:
    try:
        while plain := inflate.decompress(piece, INFLATED_PIECE_BYTES):
            yield plain
            piece = inflate.unconsumed_tail
    except zlib.error as error:
        raise EventError("decode", f"the body's {coding} coding is broken: {error}") from error


def read_page(reply: ServerReply) -> bytes:
    """Return the plain bytes of a page.

    Raises:
        EventError: the request failed, or the page is too long or coded in a way that cannot be undone.
    """
    if reply.error is not None:
        raise EventError(reply.error, reply.error_detail or refusal_message(reply) or "")
    return b"".join(piece for _, piece in decode_reads(reply))


def no_stream_error(reply: ServerReply) -> EventError:
    """Return what a body that is no event stream is."""
    body = b"".join(piece for _, piece in decode_reads(reply)).strip()
    description = f"the answer is {reply.content_type or 'of no type'}, not text/event-stream: {format_bytes(body)}"
    if body[:1] not in {b"{", b"["} and "json" not in reply.content_type:
        return EventError("not_sse", description)
    try:
        message = decode_event(body)
        check_message(message)
        first_choice(message)
    except EventError as error:
        return error
    return EventError("not_sse", f"the answer came whole instead of as a stream: {format_bytes(body)}")


def refusal_message(reply: ServerReply) -> str | None:
    """Return what the body of a refusal says; None for nothing."""
    if reply.excess is not None:
        start = _strip_tags(b"".join(piece for _, piece in reply.reads)[:DETAIL_CHARACTERS])
        return f"{reply.excess}; it begins with {start}"[:DETAIL_CHARACTERS]
    try:
        body = b"".join(piece for _, piece in decode_reads(reply)).strip()
        if body in {b"", b"{}"}:
            return None
        return (error_message(decode_event(body)) if body[:1] == b"{" else _strip_tags(body))[:DETAIL_CHARACTERS]
    except EventError as error:
        if error.word == "endless":
            return error.detail
        return _strip_tags(b"".join(piece for _, piece in reply.reads))[:DETAIL_CHARACTERS] or None


def _strip_tags(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())
