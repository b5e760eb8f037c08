"""What ends a request that does not end by itself."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from independent_server import Schedule
from one_request import EVERYTHING, LONG, asking, come, run

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.request_deadline import RequestDeadline
from tandem.bench.records.manifest import Timeouts

SHORT_S = 0.1
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
PING = b": ping\n\n"


def outs(**fields: float) -> Timeouts:
    """Long but for what is named."""
    return Timeouts(**({"connect_s": 20, "first_token_s": 20, "gap_s": 20, "whole_s": 20} | fields))


@pytest.fixture
def full():
    """The port of a socket that takes no more connections: its backlog is full and nobody
    accepts."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for task in waiting:
            task.setblocking(False)
            task.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
        for task in waiting:
            task.close()


def test_a_late_connection_is_a_timeout(full):
    async def what(client: CompletionClient, _: object) -> tuple:
        reply = await client.send_request(asking(), outs(connect_s=SHORT_S))
        return reply.error, reply.error_detail

    assert run(what, url=f"http://127.0.0.1:{full}") == (
        "connect_timeout",
        "no connection within 0.1 s",
    )


@pytest.mark.parametrize(
    ("fault", "fault_at", "limits", "word", "text"),
    [
        ("silent", 0, {"first_token_s": SHORT_S}, "first_token_timeout", ""),
        ("comments", 2, {"gap_s": SHORT_S}, "gap_timeout", " the quick"),
        ("hang_after_done", 2, {"gap_s": SHORT_S}, None, " the quick"),
        ("endless", 2, {}, "endless", " the quick"),
        ("flood", 0, {}, "endless", ""),
        (None, 0, {"first_token_s": SHORT_S, "gap_s": 3 * SHORT_S}, None, " the quick"),
    ],
)
def test_what_does_not_end_is_cut_with_what_came(fault, fault_at, limits, word, text):
    came = come(
        asking(offers=EVERYTHING),
        outs=outs(**limits),
        fault=fault,
        fault_at=fault_at,
        ttft_ms=5,
        step_ms=10,
    )
    assert (came.answer.error, came.answer.text[: len(" the quick")]) == (word, text)
    assert came.reply.end_s < LONG.whole_s
    assert len(came.reply.body) < 4 << 20  # of a flood


def test_the_answer_of_a_refusal_that_hangs_is_cut():
    raw = [b'{"error":'.hex()]
    came = come(outs=outs(whole_s=SHORT_S), raw=raw, pause_ms=5000, content_type="application/json")
    assert came.answer.error == "whole_timeout"


class Bound:
    """Takes the place of asyncio.timeout(None)."""

    def reschedule(self, when: float) -> None:
        self.when = when


@pytest.mark.parametrize(
    ("reads", "at_s", "word"),
    [
        ([], 10.0, "first_token_timeout"),
        ([(9.0, ROLE), (9.5, PING)], 10.0, "first_token_timeout"),
        ([(9.9, ROLE + TOKEN)], 10.0, None),
        ([(9.9, TOKEN)], 14.8, None),
        ([(9.9, TOKEN)], 14.9, "gap_timeout"),
        ([(9.9, TOKEN), (14.8, PING)], 14.9, "gap_timeout"),
        ([(9.9, TOKEN), (14.8, PING + TOKEN)], 14.9, None),
        ([(28.0, TOKEN), (29.9, TOKEN)], 30.0, "whole_timeout"),
        ([(1.0, TOKEN * 257)], 1.1, "endless"),
        ([(1.0, TOKEN * 256)], 1.1, None),
        ([(1.0, PING * 200_000)], 1.1, None),
    ],
)
def test_a_deadline_cuts_when_its_time_is_up(reads, at_s, word, monkeypatch):
    async def look() -> str | None:
        reply = ServerReply(0, reads=[(int(when * 1e9), piece) for when, piece in reads])
        deadline = RequestDeadline(reply, Timeouts(first_token_s=10, gap_s=5, whole_s=30), Bound())
        deadline.is_sent = True
        monkeypatch.setattr("time.monotonic_ns", lambda: int(at_s * 1e9))
        deadline._check()
        deadline.stop()
        return deadline.word

    assert asyncio.run(look()) == word


def test_a_server_is_not_blamed_for_a_blocked_client():
    async def what(client: CompletionClient, _: object) -> str | None:
        task = asyncio.create_task(client.send_request(asking(), outs(gap_s=2 * SHORT_S)))
        await asyncio.sleep(SHORT_S)
        time.sleep(4 * SHORT_S)  # noqa: ASYNC251 # nothing runs: neither the server nor the client
        return (await task).error

    assert run(what, Schedule(step_ms=30)) is None
