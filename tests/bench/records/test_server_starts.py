"""Restarts of one server, told from several servers behind one address."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from tandem.bench.records.counters import FILE, MetricsScrape, read_scrapes
from tandem.bench.records.server_starts import ServerStarts

REQUESTS = 8  # of a turn
TOKENS = 60  # of an answer
MOST_TOKENS = 100  # that a request allows
NOW_S = 1_795_000_000.0
TURN_S = 120.0


class FakeServer:
    """A server that counts as vLLM does.

    Args:
        began_s: start time of its process; None for a page without one.
    """

    def __init__(self, began_s: float | None = None) -> None:
        self.began_s = began_s
        self.requests = 0

    def render_page(self) -> dict[str, float]:
        tokens = float(self.requests * TOKENS)
        page = {
            "requests_finished": float(self.requests),
            "generation_tokens": tokens,
            "request_tokens_sum": tokens,
        }
        return page if self.began_s is None else page | {"began_s": self.began_s}


def scrape(
    page: dict[str, float], at_s: float, asked: int | None, when: str = "before"
) -> MetricsScrape:
    return MetricsScrape(
        at_s=at_s,
        arm="base",
        when=when,
        counters=page,
        utc_s=NOW_S + at_s,
        asked_requests=asked,
        asked_tokens=None if asked is None else asked * MOST_TOKENS,
    )


def measure_starts(
    server_starts: Iterable[FakeServer], turns: int, warm_up: int = 12
) -> list[MetricsScrape]:
    """A process for each start of one server: a warm-up, and then turns with a scrape before and
    after."""
    scrapes = []
    at_s = 0.0
    for server in server_starts:
        if server.began_s is not None:
            server.began_s = NOW_S + at_s + 5
        server.requests += warm_up
        for turn in range(turns):
            at_s += TURN_S
            scrapes.append(scrape(server.render_page(), at_s, 0 if turn else None))
            server.requests += REQUESTS
            scrapes.append(scrape(server.render_page(), at_s + 60, REQUESTS, "after"))
    return scrapes


def measure_replicas(
    servers: list[FakeServer], turns: int, pick: random.Random | None = None, processes: int = 1
) -> list[MetricsScrape]:
    """Turns whose scrapes meet one server after the other, or one drawn by lot; requests are shared
    evenly."""
    scrapes = []
    at_s = 0.0
    for turn in range(turns):
        is_first = turn % (turns // processes) == 0
        for when, requests in (("before", 0), ("after", REQUESTS)):
            at_s += TURN_S
            for server in servers:
                server.requests += requests // len(servers)
            server = servers[len(scrapes) % len(servers)] if pick is None else pick.choice(servers)
            scrapes.append(
                scrape(
                    server.render_page(),
                    at_s,
                    None if is_first and not requests else requests,
                    when,
                )
            )
    return scrapes


@pytest.mark.parametrize("began_s", [None, 0.0], ids=["counters in files", "a start time"])
@pytest.mark.parametrize("turns", [1, 4])
@pytest.mark.parametrize("warm_up", [0, 12, 200])
def test_restarts_of_one_server_are_starts(began_s, turns, warm_up):
    scrapes = measure_starts([FakeServer(began_s) for _ in range(6)], turns, warm_up)
    starts = ServerStarts()

    words = [starts.identify_start(scrape) for scrape in scrapes]

    assert starts.replicas == {}
    assert len(set(words)) == (
        6 if warm_up or began_s is not None or turns > 1 else len(set(words))
    )


def test_a_restart_within_a_turn_is_a_start():
    server = FakeServer()
    scrapes = measure_starts([server], turns=3)
    server.requests = REQUESTS // 2
    scrapes += [
        scrape(server.render_page(), 900, REQUESTS, "after"),
        scrape(server.render_page(), 960, 0),
    ]

    assert ServerStarts(scrapes).replicas == {}


def test_another_client_beside_restarts_makes_no_second_server():
    pages = [
        {"requests_finished": float(count)} for count in (1000, 1030, 1100, 20, 50, 90, 170, 300)
    ]
    scrapes = [
        scrape(page, 60.0 * number, REQUESTS * (number % 2)) for number, page in enumerate(pages)
    ]
    assert ServerStarts(scrapes).replicas == {}


@pytest.mark.parametrize(
    "counts", [(0, 0), (500, 500), (1000, 370), (370, 1000), (1000, 0), (0, 1000)]
)
@pytest.mark.parametrize("processes", [1, 6])
def test_two_servers_met_in_turn_are_no_starts(counts, processes):
    servers = [FakeServer(), FakeServer()]
    for server, count in zip(servers, counts, strict=True):
        server.requests = count
    servers[0].requests += REQUESTS  # else the pages never show that the first one is ahead

    starts = ServerStarts(measure_replicas(servers, turns=36, processes=processes))

    assert "base" in starts.replicas


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [2, 3, 4])
def test_servers_met_by_lot_are_no_starts(seed, count):
    generator = random.Random(seed)  # noqa: S311
    servers = [FakeServer() for _ in range(count)]
    for server in servers:
        server.requests = generator.randrange(2000)
    assert "base" in ServerStarts(measure_replicas(servers, turns=40, pick=generator)).replicas


@pytest.mark.parametrize(
    ("begins_s", "reason"),
    [
        ([-500, 100, -500], "returned to an earlier one"),
        ([0, -100], "went back"),
        ([-900, -500], "had begun before another one answered last"),
    ],
)
def test_start_times_of_several_servers_are_told(begins_s, reason):
    scrapes = [scrape({"began_s": NOW_S + began_s}, 60.0, None) for began_s in begins_s]
    assert reason in ServerStarts(scrapes).replicas["base"]


def test_counters_that_fall_within_one_start_time_are_another_servers():
    pages = [{"began_s": NOW_S, "generation_tokens": tokens} for tokens in (900.0, 30.0)]
    starts = ServerStarts(scrape(page, 60.0, None) for page in pages)
    assert "fell within one start" in starts.replicas["base"]


def test_a_late_clock_makes_no_second_server():
    scrapes = [
        scrape({"began_s": NOW_S - 500}, 60.0, None),
        scrape({"began_s": NOW_S + 30}, 70.0, 0),
    ]
    assert ServerStarts(scrapes).replicas == {}


def test_a_start_that_moves_with_the_clock_is_one():
    starts = ServerStarts()
    pages = [
        {"began_s": NOW_S + shift_s, "generation_tokens": 1.0}
        for shift_s in (0.37, 1.37, 0.37, -0.63, 0.37)
    ]

    words = [
        starts.identify_start(scrape(page, 60.0 * number, 0)) for number, page in enumerate(pages)
    ]

    assert starts.replicas == {}
    assert set(words) == {f"{NOW_S + 0.37:.2f}"}


def test_two_servers_that_began_in_one_second_are_told():
    scrapes = [
        scrape({"began_s": NOW_S - 90 + part_s}, 60.0, None) for part_s in (0.37, 0.95, 0.37)
    ]
    assert "base" in ServerStarts(scrapes).replicas


def test_no_start_is_named_once_several_servers_were_met():
    starts = ServerStarts()
    words = [
        starts.identify_start(scrape({"began_s": began_s}, 60.0, 0))
        for began_s in (NOW_S - 20, NOW_S - 30, NOW_S)
    ]
    assert words == [f"{NOW_S - 20:.2f}", None, None]


# words of starts


def page(arm: str, **counters: float) -> MetricsScrape:
    return MetricsScrape(at_s=1.0, arm=arm, when="before", counters=counters)


def tell_starts(folder: Path, *scrapes: MetricsScrape) -> list[str | None]:
    starts = ServerStarts(read_scrapes(folder / FILE))
    return [starts.identify_start(scrape_) for scrape_ in scrapes]


def test_without_it_a_counter_that_fell_is_another_start(tmp_path):
    pages = [page("a", generation_tokens=tokens) for tokens in (7.0, 9.0, 2.0, 2.0)]
    assert tell_starts(tmp_path, *pages) == ["1", "1", "2", "2"]


def test_the_baseline_and_its_control_are_one_server(tmp_path):
    pages = [
        page("a", generation_tokens=7.0),
        page("a#2", generation_tokens=1.0),
        page("b", generation_tokens=3),
    ]
    assert tell_starts(tmp_path, *pages) == ["1", "2", "1"]


def test_a_missing_or_empty_page_tells_no_start(tmp_path):
    lost = MetricsScrape(at_s=1.0, arm="a", when="before", error="status 404")
    assert tell_starts(tmp_path, lost, page("a"), page("a", generation_tokens=7.0)) == [
        None,
        None,
        "1",
    ]


@pytest.mark.parametrize(("tokens", "start"), [(9.0, "1"), (2.0, "2")])
def test_a_resumed_run_knows_what_it_scraped_before(tmp_path, tokens, start):
    (tmp_path / FILE).write_bytes(msgspec.json.encode(page("a", generation_tokens=7.0)) + b"\n")
    assert tell_starts(tmp_path, page("a", generation_tokens=tokens)) == [start]
