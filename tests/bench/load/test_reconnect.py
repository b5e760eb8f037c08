"""A connection that had carried a request dies before the answer's head: the client asks once more."""

from __future__ import annotations

import asyncio
import time

import pytest
from independent_server import Schedule, Server
from one_request import LONG, asking, run
from running import QUICK, measure, until

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.reply import ServerReply


def ask_on_reused(
    fault: str | None, *, is_reused: bool = True, pause_ms: float = 0
) -> tuple[ServerReply, list[int]]:
    """Ask over a connection that has carried a page, or over a fresh one.

    Also return how many requests the connection of each POST had carried before.
    """

    async def ask(client: CompletionClient, server: Server) -> tuple[ServerReply, list[int]]:
        if is_reused:
            await client.get("/v1/models")
        reply = await client.send_request(asking(), LONG)
        return reply, [truth["on_connection"] for truth in server.posted]

    schedule = Schedule(fault=fault, pause_ms=pause_ms, ttft_ms=1, step_ms=1)
    return run(ask, schedule, limit=1)


@pytest.mark.parametrize(
    ("fault", "is_reused", "expected"),
    [
        (None, True, (None, 0, [1])),
        ("close_on_reuse", True, (None, 1, [1, 0])),
        ("reset_on_reuse", True, (None, 1, [1, 0])),
        ("drop_early", False, ("closed", 0, [0])),  # a fresh connection that dies
        ("drop_early", True, ("closed", 1, [1, 0])),  # the second one dies, too
    ],
)
def test_only_a_stale_connection_is_asked_again(fault, is_reused, expected):
    reply, connections = ask_on_reused(fault, is_reused=is_reused)
    assert (reply.error, reply.reconnects, connections) == expected
    assert bool(answer.parse_answer(reply, asking()).text) is (reply.error is None)


def test_times_are_those_of_the_second_asking():
    start_ns = time.monotonic_ns()
    reply, _ = ask_on_reused("close_on_reuse", pause_ms=500)
    assert reply.start_ns - start_ns > 0.5e9
    assert 0 < reply.headers_s < reply.end_s


def test_an_interrupted_client_asks_no_more():
    async def interrupt(client: CompletionClient, server: Server) -> tuple[ServerReply, int]:
        await client.get("/v1/models")
        task = asyncio.create_task(client.send_request(asking(), LONG))
        await until(lambda: bool(server.posted))
        client.interrupt()
        return await task, len(server.posted)

    reply, count = run(interrupt, Schedule(fault="close_on_reuse", pause_ms=500), limit=1)

    assert (reply.error, reply.reconnects, count) == ("interrupted", 0, 1)


@pytest.mark.parametrize("fault", ["close_after_stream", "close_on_reuse"])
def test_a_run_against_a_closing_server_fails_no_request(tmp_path, fault):
    prompts = {"code": [f"prompt {number}" for number in range(12)]}
    schedule = Schedule(ttft_ms=QUICK.ttft_ms, step_ms=1, tokens=4, fault=fault)

    ran = measure(tmp_path, prompts, schedules=[schedule])

    number = sum(record.reconnected for record in ran.records)
    assert ({record.error for record in ran.records}, len(ran.records)) == ({None}, 12)
    note = f"because the reused one closed before any byte: {number} of 12 requests"
    assert (note in (ran.folder / "summary.json").read_text()) is (number > 0)
    assert number > 0 or fault == "close_after_stream"
