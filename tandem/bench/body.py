"""A reply's body: plain bytes out of what came, events out of bytes, and what a body is that holds no events.

Invariant: every event has the time of the read that completed it, whatever coding was on the bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from tandem.bench.event import DETAIL, EventError, choice_of, decoded, message_of, refuse, shown
from tandem.bench.reply import NS_PER_S, Reply
from tandem.bench.response_limits import EVENT_BYTES, INFLATED_PIECE_BYTES, describe_excess
from tandem.bench.sse import Splitter

GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def events(reply: Reply, splitter: Splitter) -> Iterator[tuple[float, bytes]]:
    """Yield each event's data with the seconds from the request's start to the read that completed it.

    Raises:
        EventError: the content coding cannot be undone, or an event or the body is too long.
    """
    for at_ns, piece in pieces(reply):
        completed = splitter.feed(piece)
        if completed:
            at_s = since_s(reply, at_ns)
            for data in completed:
                yield at_s, data
        if splitter.excess:
            raise EventError("endless", describe_excess(f"one event of {reply.url}", EVENT_BYTES))


def since_s(reply: Reply, at_ns: int) -> float:
    """Return a time as seconds from the request's start."""
    return (at_ns - reply.start_ns) / NS_PER_S


def pieces(reply: Reply) -> Iterator[tuple[int, bytes]]:
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


def read_page(reply: Reply) -> bytes:
    """Return the plain bytes of a page.

    Raises:
        EventError: the request failed, or the page is too long or coded in a way that cannot be undone.
    """
    if reply.error is not None:
        raise EventError(reply.error, reply.error_detail or said(reply) or "")
    return b"".join(piece for _, piece in pieces(reply))


def no_stream(reply: Reply) -> EventError:
    """Return what a body that is no event stream is."""
    body = b"".join(piece for _, piece in pieces(reply)).strip()
    told = f"the answer is {reply.content_type or 'of no type'}, not text/event-stream: {shown(body)}"
    if body[:1] not in {b"{", b"["} and "json" not in reply.content_type:
        return EventError("not_sse", told)
    try:
        message = decoded(body)
        refuse(message)
        choice_of(message)
    except EventError as bad:
        return bad
    return EventError("not_sse", f"the answer came whole instead of as a stream: {shown(body)}")


def said(reply: Reply) -> str | None:
    """Return what the body of a refusal says; None for nothing."""
    if reply.excess is not None:
        start = _plain(b"".join(piece for _, piece in reply.reads)[:DETAIL])
        return f"{reply.excess}; it begins with {start}"[:DETAIL]
    try:
        body = b"".join(piece for _, piece in pieces(reply)).strip()
        if body in {b"", b"{}"}:
            return None
        return (message_of(decoded(body)) if body[:1] == b"{" else _plain(body))[:DETAIL]
    except EventError as bad:
        if bad.word == "endless":
            return bad.detail
        return _plain(b"".join(piece for _, piece in reply.reads))[:DETAIL] or None


def _plain(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())
