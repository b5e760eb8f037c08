"""A connection that had carried a request dies before any byte: asked again, once, and said."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import pytest
import uvloop
from closing_server import MODEL, OWNER, Closing, ClosingServer, closing_server
from one_request import LONG, asking
from planned import suite_file
from running import settings, until

from tandem.bench import answer, manifest
from tandem.bench.client import CompletionClient
from tandem.bench.completion_request import ModelServer
from tandem.bench.manifest import ManifestArm
from tandem.bench.probe import CLOSE_NOTE, ProbeResult, probe_server
from tandem.bench.record import RequestRecord, read_records
from tandem.bench.reply import ServerReply
from tandem.bench.run import MeasurementRun


def ask_on_reused(closing: Closing, *, carried: bool = True, delay_s: float = 0.0) -> tuple[ClosingServer, ServerReply]:
    """Ask over a connection that has carried a page, or over a fresh one."""

    async def main(url: str) -> ServerReply:
        async with CompletionClient(ModelServer("arm", url, MODEL), limit=1) as client:
            if carried:
                await client.get("/v1/models")
            return await client.send_request(asking(), LONG)

    with closing_server(closing, delay_s) as server:
        return server, uvloop.run(main(server.url))


def probe_closing_server(closing: Closing) -> ProbeResult:
    async def main(url: str) -> ProbeResult:
        async with CompletionClient(ModelServer("arm", url, MODEL), limit=1) as client:
            return await probe_server(client, client.server)

    with closing_server(closing) as server:
        return uvloop.run(main(server.url))


@pytest.mark.parametrize("closing", ["on_reuse", "reset_on_reuse"])
def test_stale_connection_is_asked_again_on_fresh_one(closing: Closing) -> None:
    server, reply = ask_on_reused(closing)

    assert (answer.parse_answer(reply, asking()).error, answer.parse_answer(reply, asking()).text) == (None, "Hello")
    assert (reply.reconnects, server.posted) == (1, [1, 0])


@pytest.mark.parametrize(
    ("closing", "carried", "expected"),
    [
        ("never", True, (None, 0, [1])),
        ("always", False, ("closed", 0, [0])),  # a fresh connection that dies
        ("always", True, ("closed", 1, [1, 0])),  # the second one dies, too
    ],
)
def test_no_other_connection_is_asked_again(closing: Closing, carried: bool, expected: tuple) -> None:
    server, reply = ask_on_reused(closing, carried=carried)

    assert (reply.error, reply.reconnects, server.posted) == expected


@pytest.mark.parametrize("closing", ["half_a_head", "reset_half_a_head"])
def test_one_byte_of_an_answer_forbids_asking_again(closing: Closing) -> None:
    server, reply = ask_on_reused(closing, delay_s=0.05)

    assert reply.error is not None
    assert (reply.reconnects, server.posted) == (0, [1])


def test_page_on_stale_connection_is_repeated_by_aiohttp_alone() -> None:
    async def main(url: str) -> tuple[ServerReply, ServerReply]:
        async with CompletionClient(ModelServer("arm", url, MODEL), limit=1) as client:
            return await client.get("/page"), await client.get("/page")

    with closing_server("on_reuse") as server:
        _, second = uvloop.run(main(server.url))

    assert (second.error, second.reconnects) == (None, 0)
    assert server.requests == [("GET", "/page", 0), ("GET", "/page", 1), ("GET", "/page", 0)]


def test_times_are_those_of_the_second_asking() -> None:
    began_ns = time.monotonic_ns()
    _, reply = ask_on_reused("on_reuse", delay_s=0.5)

    assert reply.start_ns - began_ns > 0.5e9
    assert 0 < reply.headers_s < reply.end_s < 0.5


@pytest.mark.parametrize("posted", [[], [1]])
def test_interrupted_client_asks_no_more(posted: list[int]) -> None:
    async def main(server: ClosingServer) -> ServerReply:
        async with CompletionClient(ModelServer("arm", server.url, MODEL), limit=1) as client:
            await client.get("/v1/models")
            if not posted:
                client.interrupt()
            asked = asyncio.create_task(client.send_request(asking(), LONG))
            if posted:
                await until(lambda: bool(server.posted))
            client.interrupt()
            return await asked

    with closing_server("on_reuse", delay_s=0.5) as server:
        reply = uvloop.run(main(server))

    assert (reply.error, reply.reconnects, server.posted) == ("interrupted", 0, posted)


@pytest.mark.parametrize(("closing", "notes"), [("after_stream", (CLOSE_NOTE,)), ("never", ())])
def test_probe_notes_server_that_closes_after_a_stream(closing: Closing, notes: tuple[str, ...]) -> None:
    assert probe_closing_server(closing).notes == notes


def test_probe_takes_names_as_the_server_says_them() -> None:
    found = probe_closing_server("never")

    assert (found.version, found.owned_by, found.server_header) == (None, OWNER, "closing-server/1.0")
    assert found.names == f"owned_by {OWNER}, Server closing-server/1.0"


def run_against(closing: Closing, folder: Path) -> tuple[list[RequestRecord], str]:
    """Run twelve requests with connections that the run opens itself."""

    async def main(port: int) -> None:
        suite = suite_file(folder, {"code": [f"prompt {number}" for number in range(12)]})
        arm = ManifestArm(name="a", role="baseline", url=f"http://127.0.0.1:{port}", model=MODEL)
        await MeasurementRun(settings=settings([], suite, arms=(arm,)), folder=folder / "out", out=io.StringIO()).run()

    with closing_server(closing) as server:
        uvloop.run(main(int(server.url.rpartition(":")[2])))
    return list(read_records(folder / "out" / "records.jsonl")), (folder / "out" / "summary.json").read_text()


@pytest.mark.parametrize("closing", ["after_stream", "on_reuse"])
def test_run_against_closing_server_fails_no_request(closing: Closing, tmp_path: Path) -> None:
    records, _ = run_against(closing, tmp_path)

    assert ({record.error for record in records}, len(records)) == ({None}, 12)


def test_manifest_has_names_as_the_server_says_them(tmp_path: Path) -> None:
    run_against("never", tmp_path)
    arm = manifest.read_manifest(tmp_path / "out").arms[0]

    assert (arm.server_version, arm.owned_by, arm.server_header) == (None, OWNER, "closing-server/1.0")
    assert arm.runtime is None


def test_run_counts_reconnected_requests_in_a_note(tmp_path: Path) -> None:
    records, summary = run_against("on_reuse", tmp_path)

    number = sum(record.reconnected for record in records)
    assert number > 0
    assert f"because the reused one died before any byte: {number} of 12 requests" in summary
