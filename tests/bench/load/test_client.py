"""The client over real sockets: what it sends, when it looks at the clock, and what it makes of a
server's failures."""

from __future__ import annotations

import asyncio
import http.server
import itertools
import json
import threading

import pytest
from independent_server import MODEL, Schedule, Server
from one_request import EVERYTHING, LONG, asking, come, run

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.event import DETAIL_CHARACTERS
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.sse import EventSplitter
from tandem.bench.plan.server_access import ServerAccess
from tandem.bench.records.manifest import Timeouts
from tandem.bench.records.record import JSON_NULL

KEY = "key-of-server-1"
NOWHERE = "http://127.0.0.1:9"  # the discard port, where nothing listens


async def ask_once(client: CompletionClient, _: Server) -> ServerReply:
    return await client.send_request(asking(), LONG)


async def ask_many(client: CompletionClient, count: int) -> list[ServerReply]:
    return await asyncio.gather(
        *(client.send_request(asking(request_id=str(n)), LONG) for n in range(count))
    )


# A good answer


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_burst_is_one_chunk_with_its_tokens_and_time(api):
    came = come(asking(offers=EVERYTHING), api=api, bursts="1,3,4", tokens=16)
    truth = came.server.posted[0]
    chunks = [chunk for chunk in came.answer.chunks if chunk.bears_tokens]

    assert [chunk.tokens for chunk in chunks] == [size for _, size in truth["bursts"]]
    assert all(
        at_s <= came.reply.start_s + chunk.at_s
        for (at_s, _), chunk in zip(truth["bursts"], chunks, strict=True)
    )
    assert (came.answer.error, came.answer.completion_tokens, came.answer.finish_reason) == (
        None,
        16,
        "length",
    )


def test_a_reply_keeps_what_was_written_with_times_in_order():
    came = come(bursts="1,3,4", tokens=16)
    reply = came.reply
    truth = came.server.posted[0]
    times = [reply.start_ns, reply.headers_ns, *(at_ns for at_ns, _ in reply.reads), reply.end_ns]

    assert times == sorted(times)
    assert reply.start_s <= truth["accepted_s"]
    assert len(reply.body) == sum(size for _, size, _ in truth["writes"])


def test_waiting_for_a_connection_is_not_in_the_time():
    async def what(client: CompletionClient, _: Server) -> list:
        return await ask_many(client, 3)

    replies = sorted(run(what, limit=1), key=lambda reply: reply.start_ns)

    assert all(first.end_ns <= second.start_ns for first, second in itertools.pairwise(replies))


def test_nothing_is_parsed_while_a_request_runs(monkeypatch):
    fed = []

    async def what(client: CompletionClient, _: Server) -> object:
        with monkeypatch.context() as patched:
            patched.setattr(EventSplitter, "feed", lambda _, piece: fed.append(piece))
            reply = await client.send_request(asking(), LONG)
        return answer.parse_answer(reply, asking()).error

    assert (run(what, Schedule(tokens=64, step_ms=10)), fed) == (None, [])


# What is sent


def test_a_request_carries_its_id_and_asks_for_no_compression():
    headers = come(asking(request_id="run-7-0001")).server.posted[0]["headers"]
    assert (headers["x-request-id"], headers["accept-encoding"]) == ("run-7-0001", "identity")
    assert "authorization" not in headers


# Connections


def test_connections_are_opened_before_and_used_by_the_requests():
    async def what(client: CompletionClient, server: Server) -> tuple:
        # what is open is used
        opened = await client.open_connections(2), await client.open_connections(4)
        before = server.accepted
        replies = await ask_many(client, 4)
        return opened, before, server.accepted, [reply.had_open_connection for reply in replies]

    assert run(what) == ((2, 4), 4, 4, [True] * 4)


def test_a_connection_that_was_cut_is_not_used_again():
    async def what(client: CompletionClient, server: Server) -> tuple:
        await client.send_request(
            asking(prompt='#schedule {"fault": "silent"}'), Timeouts(first_token_s=0.05)
        )
        reply = await client.send_request(asking(), LONG)
        return server.accepted, reply.had_open_connection, reply.error

    assert run(what, limit=1) == (2, False, None)


# Failures of a server


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("status", "status_503"),
        ("html", "not_sse"),
        ("not_http", "not_sse"),
        ("empty", "closed"),
        ("drop_early", "closed"),
        ("drop", "closed"),
        ("reset", "closed"),
        ("wrong_model", "wrong_model"),
    ],
)
def test_a_failing_request_is_named_and_sent_once(fault, word):
    came = come(fault=fault, models=frozenset({MODEL}))
    assert (came.answer.error, len(came.server.posted)) == (word, 1)


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        (NOWHERE, "127.0.0.1:9: Connection refused"),
        ("http://no-such-host.invalid:8000", "no-such-host.invalid:8000: "),
    ],
)
def test_no_connection_is_a_word_with_the_address(url, detail):
    async def what(client: CompletionClient, _: Server) -> ServerReply:
        return await client.send_request(asking(), LONG)

    reply = run(what, url=url)

    assert (reply.error, reply.status, reply.end_ns > reply.start_ns) == ("connect", None, True)
    assert str(reply.error_detail).startswith(detail)


# Secrets


def test_of_a_key_in_one_event_neither_ids_nor_logprobs_stay():
    entries = [{"token": token, "logprob": -0.25} for token in ("key-of-", "server-1")]
    choice = {
        "delta": {"content": KEY},
        "token_ids": [4, 5],
        "logprobs": {"content": entries},
        "finish_reason": "stop",
    }
    event = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"

    schedule = Schedule(raw=(event.encode().hex(),))
    reply = run(ask_once, schedule, access=ServerAccess(api_key=KEY))
    record = answer.parse_answer(reply, asking())

    assert (record.error, record.text, reply.access.api_key) == (None, "[hidden]", KEY)
    assert (record.token_ids, record.logprobs) == (None, JSON_NULL)


class RedirectHandler(http.server.BaseHTTPRequestHandler):
    """A gateway that repeats the key in its headers; the limit of a detail cuts one."""

    server_version = f"gateway {KEY}"

    def do_POST(self) -> None:
        self.send_response(302)
        self.send_header("Location", f"http://h/{'p' * (DETAIL_CHARACTERS - 20)}{KEY}")
        self.end_headers()


def test_no_key_stays_in_headers_or_where_they_redirect():
    with http.server.HTTPServer(("127.0.0.1", 0), RedirectHandler) as gateway:
        threading.Thread(target=gateway.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{gateway.server_port}"
        reply = run(ask_once, url=url, access=ServerAccess(api_key=KEY))

    assert reply.headers["Server"].startswith("gateway [hidden]")
    assert "key-of" not in str(reply.error_detail)


# Interrupted


def test_an_interruption_ends_every_request_with_what_came():
    async def what(client: CompletionClient, server: Server) -> tuple:
        task = asyncio.create_task(ask_many(client, 3))
        while [len(truth["bursts"]) for truth in server.posted] != [2, 2, 2]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # what was written is read
        client.interrupt()
        return await task, await client.send_request(asking(), LONG), len(server.posted)

    replies, later, posted = run(what, Schedule(fault="stall", fault_at=2))

    assert [reply.error for reply in replies] == ["interrupted"] * 3
    assert [answer.parse_answer(reply, asking()).text for reply in replies] == [" the quick"] * 3
    assert (later.error, posted) == ("interrupted", 3)  # and nothing is sent afterwards
