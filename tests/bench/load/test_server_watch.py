"""By which facts a server that is restarted is known to be gone, over real HTTP."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from independent_server import MODEL, Schedule, Server

from tandem.bench.load import server_watch
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.server_watch import ServerWatch
from tandem.bench.records.manifest import ManifestArm

LOOKS = 3


class ClockedServer(Server):
    """A server whose page says when its process began; it may announce the end of a connection."""

    began_s = 1_000_000.0
    second_began_s = began_s  # of another process, which answers every second time
    announcement = ""
    scrape_count = 0

    async def _answer_get(self, connection, request):
        connection.header = self.announcement
        if request.path != "/metrics":
            await super()._answer_get(connection, request)
            return
        self.scrape_count += 1
        began_s = self.began_s if self.scrape_count % 2 else self.second_began_s
        page = f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {began_s}\n"
        await connection.whole("200 OK", "text/plain; version=0.0.4", page.encode())


async def go_down(server):
    await server.__aexit__()


async def lose_backend(server):
    server.health = 502


async def begin_later(server):
    server.began_s += 30.25
    server.second_began_s = server.began_s


async def give_way(server):
    """Go down, and let another server take the port before anybody looks."""
    await server.__aexit__()
    await server.__aenter__()


async def announce_end(server):
    """End each connection by a rule of its own, which it announces."""
    server.announcement = "Connection: close\r\n"


async def stay(_server):
    pass


def watch_server(change, steady_s: float, **attributes: float) -> str:
    """Watch a server before and after a change, and return by what it was gone."""

    async def watch_change() -> str:
        async with ClockedServer(Schedule()) as server:
            vars(server).update(attributes)
            url = f"http://127.0.0.1:{server.port}"
            arm = ManifestArm(name="a", role="baseline", url=url, model=MODEL)
            async with CompletionClient(arm, limit=1) as client:
                watch = ServerWatch(client)
                for _ in range(LOOKS):
                    await watch.look()
                    await asyncio.sleep(steady_s)
                watch.begin()
                await change(server)
                for _ in range(LOOKS):
                    await watch.look()
                return watch.evidence

    return uvloop.run(watch_change())


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        (go_down, "connections were refused"),
        (lose_backend, "/v1/models answered 502, and 200 before"),
        (begin_later, "the start time of its process was later"),
        (give_way, "it closed a connection after 0 s"),
        (announce_end, ""),
        (stay, ""),
    ],
)
def test_a_server_is_gone_by_a_fact(monkeypatch, change, evidence):
    monkeypatch.setattr(server_watch, "STEADY_S", 0.03)
    assert watch_server(change, steady_s=0.02) == evidence


def test_a_connection_that_was_new_tells_nothing(monkeypatch):
    monkeypatch.setattr(server_watch, "STEADY_S", 60.0)
    assert watch_server(give_way, steady_s=0.0) == ""


def test_two_processes_at_one_address_are_no_restart(monkeypatch):
    monkeypatch.setattr(server_watch, "STEADY_S", 60.0)
    second_began_s = ClockedServer.began_s + 7.25
    assert watch_server(stay, steady_s=0.0, second_began_s=second_began_s) == ""
