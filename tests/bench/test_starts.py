"""A start of a server is told apart by the time its page states, else by counters that fell."""

from __future__ import annotations

import msgspec
import pytest

from tandem.bench.counters import FILE, MetricsScrape
from tandem.bench.metrics_scraper import ServerRestarts


def scrape(arm: str, **page: float) -> MetricsScrape:
    return MetricsScrape(at_s=1.0, arm=arm, when="before", counters=page)


def told(folder, *scrapes: MetricsScrape) -> list[str | None]:
    starts = ServerRestarts(folder)
    return [starts.identify_start(one) for one in scrapes]


def test_the_page_states_when_its_process_began(tmp_path):
    assert told(tmp_path, scrape("a", began_s=1795283194.487), scrape("a", began_s=1795290000.0)) == [
        "1795283194.49",
        "1795290000.00",
    ]


def test_without_it_a_counter_that_fell_is_another_start(tmp_path):
    pages = [scrape("a", generation_tokens=tokens) for tokens in (7.0, 9.0, 2.0, 2.0)]
    assert told(tmp_path, *pages) == ["1", "1", "2", "2"]


def test_the_baseline_and_its_control_are_one_server(tmp_path):
    pages = [scrape("a", generation_tokens=7.0), scrape("a#2", generation_tokens=1.0), scrape("b", generation_tokens=3)]
    assert told(tmp_path, *pages) == ["1", "2", "1"]


def test_a_page_that_could_not_be_had_or_shows_nothing_yet_says_nothing(tmp_path):
    lost = MetricsScrape(at_s=1.0, arm="a", when="before", error="status 404")
    assert told(tmp_path, lost, scrape("a"), scrape("a", generation_tokens=7.0)) == [None, None, "1"]


@pytest.mark.parametrize(("tokens", "start"), [(9.0, "1"), (2.0, "2")])
def test_a_resumed_run_knows_what_it_scraped_before(tmp_path, tokens, start):
    (tmp_path / FILE).write_bytes(msgspec.json.encode(scrape("a", generation_tokens=7.0)) + b"\n")
    assert told(tmp_path, scrape("a", generation_tokens=tokens)) == [start]
