"""A connection that had carried a request dies before the answer's head: asked again, once, and
said."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop
from closing_server import MODEL, OWNER, Closing, ClosingServer, closing_server
from measured import arm
from one_request import LONG, asking
from planned import suite_file
from running import settings, until

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.probe import probe_server
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.run import MeasurementRun
from tandem.bench.records import manifest
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.records.record import RequestRecord, read_records

T = TypeVar("T")


def call(
    closing: Closing,
    what: Callable[[CompletionClient, ClosingServer], Awaitable[T]],
    delay_s: float = 0.0,
) -> tuple[ClosingServer, T]:
    """Run `what` with a client of a closing server."""

    async def main() -> T:
        async with CompletionClient(arm("arm", url=server.url, model=MODEL), limit=1) as client:
            return await what(client, server)

    with closing_server(closing, delay_s) as server:
        return server, uvloop.run(main())


def ask_on_reused(
    closing: Closing, *, carried: bool = True, delay_s: float = 0.0
) -> tuple[ClosingServer, ServerReply]:
    """Ask over a connection that has carried a page, or over a fresh one."""

    async def what(client: CompletionClient, _: ClosingServer) -> ServerReply:
        if carried:
            await client.get("/v1/models")
        return await client.send_request(asking(), LONG)

    return call(closing, what, delay_s)


@pytest.mark.parametrize(
    ("closing", "carried", "delay_s", "expected"),
    [
        ("never", True, 0, (None, 0, [1])),
        ("on_reuse", True, 0, (None, 1, [1, 0])),
        ("reset_on_reuse", True, 0, (None, 1, [1, 0])),
        ("always", False, 0, ("closed", 0, [0])),  # a fresh connection that dies
        ("always", True, 0, ("closed", 1, [1, 0])),  # the second one dies, too
    ],
)
def test_only_a_stale_connection_is_asked_again(closing, carried, delay_s, expected):
    server, reply = ask_on_reused(closing, carried=carried, delay_s=delay_s)
    assert (reply.error, reply.reconnects, server.posted) == expected
    assert answer.parse_answer(reply, asking()).text == ("" if reply.error else "Hello")


def test_times_are_those_of_the_second_asking():
    began_ns = time.monotonic_ns()
    _, reply = ask_on_reused("on_reuse", delay_s=0.5)
    assert reply.start_ns - began_ns > 0.5e9
    assert 0 < reply.headers_s < reply.end_s


@pytest.mark.parametrize("posted", [[], [1]])
def test_interrupted_client_asks_no_more(posted):
    async def what(client: CompletionClient, server: ClosingServer) -> ServerReply:
        await client.get("/v1/models")
        if not posted:
            client.interrupt()
        task = asyncio.create_task(client.send_request(asking(), LONG))
        if posted:
            await until(lambda: bool(server.posted))
        client.interrupt()
        return await task

    server, reply = call("on_reuse", what, delay_s=0.5)

    assert (reply.error, reply.reconnects, server.posted) == ("interrupted", 0, posted)


def test_probe_says_how_the_server_names_itself():
    _, result = call("never", lambda client, _: probe_server(client))
    assert (result.arm.server_version, result.arm.owned_by) == (None, OWNER)
    assert result.arm.server_header == "closing-server/1.0"


def run_against(closing: Closing, folder: Path) -> tuple[list[RequestRecord], str]:
    """Run twelve requests with connections that the run opens itself."""

    async def what(_: CompletionClient, server: ClosingServer) -> None:
        suite = suite_file(folder, {"code": [f"prompt {number}" for number in range(12)]})
        lone = ManifestArm(name="a", role="baseline", url=server.url, model=MODEL)
        await MeasurementRun(
            settings=settings([], suite, arms=(lone,)), folder=folder / "out", out=io.StringIO()
        ).run()

    call(closing, what)
    return (
        list(read_records(folder / "out" / "records.jsonl")),
        (folder / "out" / "summary.json").read_text(),
    )


def test_run_against_closing_server_fails_no_request(tmp_path):
    records, _ = run_against("after_stream", tmp_path)
    arm_ = manifest.read_manifest(tmp_path / "out").arms[0]

    assert ({record.error for record in records}, len(records)) == ({None}, 12)
    assert (arm_.server_version, arm_.owned_by, arm_.server_header) == (
        None,
        OWNER,
        "closing-server/1.0",
    )
    assert arm_.runtime is None


def test_run_counts_reconnected_requests_in_a_note(tmp_path):
    records, summary = run_against("on_reuse", tmp_path)
    number = sum(record.reconnected for record in records)
    assert ({record.error for record in records}, len(records), number > 0) == ({None}, 12, True)
    assert f"because the reused one died before any byte: {number} of 12 requests" in summary
