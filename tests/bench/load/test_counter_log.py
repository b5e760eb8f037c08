"""Scrapes of one server, over real HTTP."""

from __future__ import annotations

import pytest
import running
import uvloop
from measured import arm
from planned import plan

from tandem.bench.load.circuit_breaker import CircuitBreaker
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.counter_log import CounterLog
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.loops import ArmSession
from tandem.bench.records.counters import FILE, read_scrapes
from tandem.bench.records.manifest import ServerOffers

# a turn has half of a class: two requests of at most eight tokens
TURN = next(plan(("a",), {"code": 4}).turns())
TIMED_PAGE = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1000.25\n"


def scrape_server(folder, *changes):
    """Scrape a server at its third start, and again after each change; return its start words."""

    async def main():
        async with running.serving([running.QUICK], [0]) as (server,):
            entry = arm("a", url=f"http://127.0.0.1:{server.port}")
            async with CompletionClient(entry, limit=1) as client:
                session = ArmSession(
                    name="a",
                    client=client,
                    offers=ServerOffers(),
                    models=frozenset(),
                    breaker=CircuitBreaker(client, StopSignal(), print),
                )
                log = CounterLog(folder, print, {"a": 3})
                words = await log.scrape_arms([session], TURN, "before")
                for change in changes:
                    change(log)
                    words = await log.scrape_arms([session], TURN, "after")
                return words

    return uvloop.run(main())


def count_turn(log):
    log.count_work("a", TURN.items)


def restart(log):
    log.forget_work("a")


def test_a_scrape_has_the_work_since_the_last(tmp_path):
    scrape_server(tmp_path, count_turn, count_turn)
    work = [(entry.asked_requests, entry.asked_tokens) for entry in read_scrapes(tmp_path / FILE)]
    assert work == [(None, None), (2, 16), (2, 16)]


def test_the_work_of_a_restarted_server_is_not_known(tmp_path):
    scrape_server(tmp_path, restart)
    *_, last_scrape = read_scrapes(tmp_path / FILE)
    assert last_scrape.asked_requests is None


@pytest.mark.parametrize(("page", "word"), [(running.METRICS, "3"), (TIMED_PAGE, "1000.25")])
def test_a_start_has_its_number_where_its_time_is_unknown(tmp_path, monkeypatch, page, word):
    monkeypatch.setattr(running, "METRICS", page)
    assert scrape_server(tmp_path) == {"a": word}
