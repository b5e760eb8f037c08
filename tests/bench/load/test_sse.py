"""The splitter of event streams: every form the standard allows, cut anywhere."""

from __future__ import annotations

import random

import pytest
from recordings import RECORDINGS, recorded

from tandem.bench.load.sse import EventSplitter, ServerEvent, has_only_comments

FORMS = (
    b'\xef\xbb\xbfdata: {"a": 1}\r\n\r\n: a comment\r\ndata:{"b": 2}\r\rid: 7\nevent:'
    b' message\nretry: 10\ndata: {"c":\ndata:  3}\n\n:\n\ndata\n\ndata: \xe2\x82\xac'
    b" \xf0\x9f\x9a\x80\n\ndata: one: two\r\n\r\n\n\ndata: [DONE]\n\n"
)
EVENTS = [
    b'{"a": 1}',
    b'{"b": 2}',
    b'{"c":\n 3}',
    "\N{EURO SIGN} \N{ROCKET}".encode(),
    b"one: two",
    b"[DONE]",
]
SEED = 20261121


def split(*pieces: bytes) -> list[bytes]:
    """The data of the framed events."""
    return [event.data for event in split_events(*pieces) if event.is_framed]


def split_events(*pieces: bytes) -> list[ServerEvent]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.end()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data:  x\n\n", [b" x"]),
        (b":\ndata: x\n:\n\n", [b"x"]),
        (b"data\n\ndata:\n\ndata: \n\n", []),
        (b"data: x\n", [b"x"]),
        (b"database: x\n\n", []),
    ],
)
def test_a_stream_gives_the_events_of_the_standard(stream, events):
    assert split(stream) == events


@pytest.mark.parametrize("name", ["FORMS", *RECORDINGS])
def test_a_stream_cut_anywhere_gives_the_same_events(name):
    stream = FORMS if name == "FORMS" else recorded(name).body
    complete = split(stream)
    generator = random.Random(SEED)  # noqa: S311
    assert complete if name != "FORMS" else complete == EVENTS

    for at in range(len(stream) + 1) if name == "FORMS" else ():
        assert split(stream[:at], stream[at:]) == complete, at
    for _ in range(20):
        cuts = sorted(generator.choices(range(len(stream) + 1), k=generator.randint(1, 60)))
        pieces = [
            stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        ]
        assert split(*pieces) == complete, cuts


@pytest.mark.parametrize(
    ("stream", "last"),
    [(b"data: x\n\n", b"\n"), (b"data: x\r\n\r\n", b"\r"), (b"data: x\r\r", b"\r")],
)
def test_an_event_ends_with_its_blank_line(stream, last):
    splitter = EventSplitter()
    places = [at for at in range(len(stream)) if splitter.feed(stream[at : at + 1])]
    assert places == [stream.rindex(last)]


@pytest.mark.parametrize(
    ("stream", "left", "foreign_line"),
    [
        (b"data: [DONE]\n", [ServerEvent(b"[DONE]")], None),
        (b"", [], None),
        (
            b"<!DOCTYPE html>\n<html>\n",
            [ServerEvent(b"<!DOCTYPE html>\n<html>", is_framed=False)],
            b"<!DOCTYPE html>",
        ),
        (b": x\ndata: y\nevent: z\nid\nretry: 1\n\n", [], None),
    ],
)
def test_the_end_gives_the_last_event_and_foreign_line(stream, left, foreign_line):
    splitter = EventSplitter()
    splitter.feed(stream)
    assert (splitter.end(), splitter.foreign_line) == (left, foreign_line)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"event: error\ndata: dead\n\n", [ServerEvent(b"dead", is_error=True)]),
        (b"event: error\n: worker died\n\n", [ServerEvent(b"worker died", is_error=True)]),
        (b"event: error\n\n", [ServerEvent(b"", is_error=True)]),
        (b'error: {"code":500}\n\n', [ServerEvent(b'{"code":500}', is_error=True)]),
        (b": error\n\nevent: ping\n\ndata: x\n\n", [ServerEvent(b"x")]),
        (
            b'{"error": 1}\ndata: x\n\ndata: y\n\n',
            [ServerEvent(b'{"error": 1}', is_framed=False), ServerEvent(b"x"), ServerEvent(b"y")],
        ),
    ],
)
def test_errors_and_lines_outside_of_events_are_told(stream, events):
    assert split_events(stream) == events


@pytest.mark.parametrize(
    ("piece", "only"),
    [
        (b": ping\n\n", True),
        (b":\r\n\r\n", True),
        (b": a\n: b\n", True),
        (b": a\ndata: x\n\n", False),
        (b"", False),
    ],
)
def test_comment_lines_alone_are_told_from_events(piece, only):
    assert has_only_comments(piece) is only
